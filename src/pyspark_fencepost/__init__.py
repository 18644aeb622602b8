"""Spark registers the `DefaultSource` of every module named `pyspark_*`: this makes `format("fencepost")` known.

Not for import by anybody else: the source is `fencepost.spark.source`.
"""

try:
    from fencepost.spark.source import FencepostSource as DefaultSource
except ImportError as error:
    # An older PySpark. Other data sources of the session must go on working; who asks for this one is told.
    _reason = str(error)

    from pyspark.sql.datasource import DataSource

    class DefaultSource(DataSource):  # type: ignore[no-redef]
        @classmethod
        def name(cls) -> str:
            return "fencepost"

        def schema(self) -> str:
            raise RuntimeError(f"format('fencepost') needs PySpark 4.2 or newer: {_reason}")


__all__ = ["DefaultSource"]
