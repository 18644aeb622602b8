"""Packages that are not always there: a skip with a reason for a developer, a failure where everything must be."""

import importlib
import os

import pytest


def require_arrow() -> None:
    """Skip the module that asks if the extra `arrow` is not installed."""
    for name in ("numba", "pyarrow"):
        try:
            importlib.import_module(name)
        except ImportError as error:
            reason = f"the extra `arrow` is not installed: {error}"
            if os.environ.get("CI") == "true":
                pytest.fail(f"CI must have every extra: {reason}", pytrace=False)
            pytest.skip(reason, allow_module_level=True)
