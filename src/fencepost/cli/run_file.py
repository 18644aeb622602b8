"""Loads the pipeline from a Python file."""

from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from fencepost.cli.output import CommandFailed
from fencepost.cli.user_file import import_file

# Imports inside functions: Spark may not be installed, and takes long to load; only a pipeline needs it.

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
    """Loads the file as a module. Its functions are pickled by value, because Spark's workers cannot import it."""
    module = import_file(file, "pipeline")
    from pyspark import cloudpickle  # after the file: a mistake in it is reported without Spark

    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module
