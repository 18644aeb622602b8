"""How bytes become rows and rows become bytes: what every format does, and the plain one.

A format takes a frame with a binary column `value` and adds the columns ROW, a struct, and ERROR, why there is none. It
never drops a row and never raises for one: what does not parse is left to the caller, who has a dead-letter topic.
"""

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from fencepost.spark.errors import FencepostSparkError

ROW = "_row"
ERROR = "_error"
FORMATS = ("json", "avro", "bytes")
REASON_LENGTH_MAX = 1_000
Schema = Any  # a StructType, DDL text, or for Avro its schema as text or dict


class InvalidFormat(FencepostSparkError):
    """A format, or a schema for it, that cannot be."""


class Format:
    """Made on the driver while a Spark session is active."""

    name: str

    def decode(self, frame: DataFrame) -> DataFrame:
        """The frame with ROW and ERROR; exactly one of them is null in each row."""
        raise NotImplementedError

    def encode(self, columns: Sequence[str], frame: DataFrame) -> Column:
        """These columns of the frame as one binary value."""
        raise NotImplementedError


class BytesFormat(Format):
    """The value as it is. A row has the one column `value`; a null value is a row too."""

    name = "bytes"

    def decode(self, frame: DataFrame) -> DataFrame:
        return frame.withColumn(ROW, F.struct("value")).withColumn(ERROR, F.lit(None).cast("string"))

    def encode(self, columns: Sequence[str], frame: DataFrame) -> Column:
        if list(columns) != ["value"] or frame.schema["value"].dataType.typeName() not in ("binary", "string"):
            raise InvalidFormat(
                f"with the format bytes a frame has one column `value`, binary or string, not {', '.join(columns)}",
                "select it, or give the output another format",
            )
        return F.col("value").cast("binary")
