"""A Python file that a command was given, as a module."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from fencepost.cli.output import CommandFailed


def import_file(file: Path, role: str) -> ModuleType:
    """What stands beside the file can be imported by it. `role` keeps its module's name apart from others."""
    if not file.is_file():
        raise CommandFailed(f"there is no file {file}")
    name = f"fencepost_{role}_{file.stem}"
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
    return module
