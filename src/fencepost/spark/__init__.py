"""Exactly-once pipelines on Spark: a source, a sink and pipelines in which a micro-batch is one Kafka transaction."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fencepost.spark.pipelines import Output, Source, pipeline
    from fencepost.spark.sink import exactly_once, transaction, write_exactly_once
    from fencepost.spark.stream_writing import write_stream

__all__ = ["Output", "Source", "exactly_once", "pipeline", "transaction", "write_exactly_once", "write_stream"]

_HOMES = {
    "exactly_once": "sink",
    "transaction": "sink",
    "write_exactly_once": "sink",
    "write_stream": "stream_writing",
    "pipeline": "pipelines",
    "Output": "pipelines",
    "Source": "pipelines",
}


def __getattr__(name: str) -> Any:
    # Executors import single modules of this package and must not pay for the rest.
    if name in _HOMES:
        try:
            module = importlib.import_module(f"fencepost.spark.{_HOMES[name]}")
        except ModuleNotFoundError:
            # Only here: executors do without it.
            from fencepost.spark.requirements import require_arrow, require_pyspark

            require_pyspark()
            require_arrow()
            raise
        return getattr(module, name)
    raise AttributeError(f"module 'fencepost.spark' has no attribute {name!r}")
