"""Finding the pipeline in a file."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from fencepost.cli.output import CommandFailed

if TYPE_CHECKING:
    from fencepost.spark.pipelines import Pipeline


def load_pipeline(file: Path, name: str | None) -> "Pipeline":
    from fencepost.spark.pipelines import Pipeline

    module = load_module(file)
    found = {value.name: value for value in vars(module).values() if isinstance(value, Pipeline)}
    if not found:
        raise CommandFailed(f"{file} declares no pipeline", "put @pipeline(...) over a function; see docs/pipelines.md")
    if name is None:
        if len(found) > 1:
            raise CommandFailed(f"{file} declares {', '.join(sorted(found))}", "choose one with --pipeline NAME")
        return next(iter(found.values()))
    if name not in found:
        raise CommandFailed(f"{file} declares no pipeline {name}", f"it has {', '.join(sorted(found))}")
    return found[name]


def load_module(file: Path) -> ModuleType:
    """The file as a module. Its functions travel to Spark's workers by value, because they cannot import it."""
    if not file.is_file():
        raise CommandFailed(f"there is no file {file}")
    from pyspark import cloudpickle

    name = f"fencepost_pipeline_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file.resolve())
    if spec is None or spec.loader is None:
        raise CommandFailed(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(file.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise CommandFailed(f"{file} cannot be loaded: {type(error).__name__}: {error}") from error
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module
