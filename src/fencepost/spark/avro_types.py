"""Avro's types as Spark's, as Spark's own Avro reader maps them."""

from typing import Any

import pyarrow
from pyspark.sql import types
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DecimalType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from fencepost.spark.errors import FencepostSparkError

NESTING_MAX = 64


class UnsupportedAvroType(FencepostSparkError):
    """A part of an Avro schema that has no column type here."""


def spark_type(schema: Any) -> Any:
    """The type of a column that holds values of this schema; of a record, a StructType."""
    return _Types().of(schema)[0]


class _Types:
    """One schema's walk; remembers named types, which a schema may refer to by name later."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}
        self._open: list[str] = []

    def of(self, schema: Any) -> tuple[DataType, bool]:
        """The type, and whether null is one of its values."""
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            if schema in self._named:
                return self.of(self._named[schema])
            return _primitive(schema)
        if isinstance(schema.get("type"), dict | list):
            return self.of(schema["type"])
        if schema.get("logicalType") in _LOGICAL:
            return _LOGICAL[schema["logicalType"]](schema), False
        return self._complex(schema)

    def _complex(self, schema: dict[str, Any]) -> tuple[DataType, bool]:
        match schema["type"]:
            case "record":
                return self._record(schema), False
            case "enum":
                self._remember(schema)
                return StringType(), False
            case "fixed":
                self._remember(schema)
                return BinaryType(), False
            case "array":
                element, nullable = self.of(schema["items"])
                return ArrayType(element, nullable), False
            case "map":
                element, nullable = self.of(schema["values"])
                return MapType(StringType(), element, nullable), False
            case other:
                if other in self._named:
                    return self.of(self._named[other])
                return _primitive(other)

    def _record(self, schema: dict[str, Any]) -> DataType:
        name = self._remember(schema)
        if name in self._open or len(self._open) >= NESTING_MAX:
            raise UnsupportedAvroType(f"the Avro record {name} holds itself, which no column can")
        self._open.append(name)
        fields = [StructField(field["name"], *self.of(field["type"])) for field in schema["fields"]]
        self._open.pop()
        return StructType(fields)

    def _union(self, branches: list[Any]) -> tuple[DataType, bool]:
        values = [branch for branch in branches if branch != "null"]
        if len(values) == 1:
            return self.of(values[0])[0], len(branches) > 1
        if sorted(map(str, values)) in (["int", "long"], ["double", "float"]):
            return _primitive("long" if "long" in values else "double")[0], len(values) < len(branches)
        raise UnsupportedAvroType(
            f"an Avro union of {', '.join(map(str, values)) or 'null alone'} has no column type",
            'use one type, or one type and "null"',
        )

    def _remember(self, schema: dict[str, Any]) -> str:
        name = str(schema["name"])
        self._named[name] = schema
        if schema.get("namespace"):
            self._named[f"{schema['namespace']}.{name}"] = schema
        return name


def _primitive(name: str) -> tuple[DataType, bool]:
    found = {
        "boolean": types.BooleanType,
        "int": types.IntegerType,
        "long": types.LongType,
        "float": types.FloatType,
        "double": types.DoubleType,
        "bytes": types.BinaryType,
        "string": types.StringType,
        "null": types.NullType,
    }.get(name)
    if found is None:
        raise UnsupportedAvroType(f"{name!r} is no Avro type, or is used before it is defined")
    return found(), name == "null"


def _decimal(schema: dict[str, Any]) -> DataType:
    return DecimalType(schema["precision"], schema.get("scale", 0))


def _timestamp(_: dict[str, Any]) -> DataType:
    return TimestampType()


def _local_timestamp(_: dict[str, Any]) -> DataType:
    return TimestampNTZType()


def _date(_: dict[str, Any]) -> DataType:
    return DateType()


_LOGICAL = {
    "decimal": _decimal,
    "timestamp-millis": _timestamp,
    "timestamp-micros": _timestamp,
    "local-timestamp-millis": _local_timestamp,
    "local-timestamp-micros": _local_timestamp,
    "date": _date,
}


def arrow_type(kind: Any) -> Any:
    """The Arrow type of a column type that `spark_type` gives."""
    match kind:
        case types.StructType():
            return pyarrow.struct([pyarrow.field(field.name, arrow_type(field.dataType)) for field in kind.fields])
        case types.ArrayType():
            return pyarrow.list_(arrow_type(kind.elementType))
        case types.MapType():
            return pyarrow.map_(arrow_type(kind.keyType), arrow_type(kind.valueType))
        case types.DecimalType():
            return pyarrow.decimal128(kind.precision, kind.scale)
        case types.TimestampType():
            return pyarrow.timestamp("us", tz="UTC")
    return {
        "boolean": pyarrow.bool_(),
        "integer": pyarrow.int32(),
        "long": pyarrow.int64(),
        "float": pyarrow.float32(),
        "double": pyarrow.float64(),
        "binary": pyarrow.binary(),
        "string": pyarrow.string(),
        "void": pyarrow.null(),
        "date": pyarrow.date32(),
        "timestamp_ntz": pyarrow.timestamp("us"),
    }[kind.typeName()]
