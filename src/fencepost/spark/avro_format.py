"""Avro values, read and written by fastavro in vectorised functions on the executors.

Without a registry a value is one schemaless datum of the given schema. With one, the schema it was written with is
found by the id in front of it and resolved to the given one, so that producers may evolve.
"""

import dataclasses
import io
import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow
from pyspark.sql import Column, DataFrame, functions
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from fencepost.spark.avro_types import arrow_type, spark_type
from fencepost.spark.errors import FencepostSparkError
from fencepost.spark.formats import ERROR, REASON_LENGTH_MAX, ROW, Format, InvalidFormat
from fencepost.spark.schema_registry import RegistryFailed, SchemaRegistry, UnknownSchema

# Imports inside functions: fastavro is an extra of its own, and a program that uses no Avro does without it.

AvroSchema = dict[str, Any]


def parse_schema(schema: Any) -> AvroSchema:
    """A record's schema from text or dict, checked."""
    try:
        import fastavro
    except ImportError:
        raise FencepostSparkError("Avro needs the package fastavro", "pip install 'fencepost[avro]'") from None
    try:
        given = json.loads(schema) if isinstance(schema, str) else schema
        fastavro.parse_schema(given, _force=True)
    except (ValueError, TypeError, KeyError, fastavro.schema.SchemaParseException) as error:
        raise InvalidFormat(f"this is no Avro schema: {error}") from None
    if not isinstance(given, dict) or given.get("type") != "record":
        raise InvalidFormat("the Avro schema of a value must be a record", "wrap it in one")
    return given


@dataclasses.dataclass(frozen=True)
class AvroFormat(Format):
    schema: AvroSchema
    registry: SchemaRegistry | None = None
    schema_id: int | None = None

    name = "avro"

    def decode(self, frame: DataFrame) -> DataFrame:
        row_type = spark_type(self.schema)
        result = StructType([StructField(ROW, row_type), StructField(ERROR, StringType())])
        decode = _arrow_udf(_decoder(self.schema, self.registry, row_type), result)
        decoded = frame.withColumn("_decoded", decode("value"))
        return decoded.withColumns({ROW: F.col(f"_decoded.{ROW}"), ERROR: F.col(f"_decoded.{ERROR}")}).drop("_decoded")

    def encode(self, columns: Sequence[str], frame: DataFrame) -> Column:
        names = [field["name"] for field in self.schema["fields"]]
        if extra := sorted(set(columns) - set(names)):
            raise InvalidFormat(
                f"the Avro schema {self.schema.get('name')} has no field {', '.join(extra)}",
                "drop the column or add it",
            )
        header = b"" if self.schema_id is None else SchemaRegistry.header(self.schema_id)
        encode = _arrow_udf(_encoder(self.schema, header), "binary")
        encoded: Column = encode(F.struct(*(F.col(f"`{column}`") for column in columns)))
        return encoded


def _arrow_udf(function: Callable[[pyarrow.Array], pyarrow.Array], result: Any) -> Any:
    # From PySpark 4.1 on; a pipeline's source needs a newer one.
    made: Any = functions
    return made.arrow_udf(function, returnType=result)


def _decoder(
    reader_schema: AvroSchema, registry: SchemaRegistry | None, row_type: StructType
) -> Callable[[pyarrow.Array], pyarrow.Array]:
    def decode(values: pyarrow.Array) -> pyarrow.Array:
        reader = ValueReader(reader_schema, registry)
        pairs = [reader.read(value) for value in values.to_pylist()]
        rows = pyarrow.array([row for row, _ in pairs], type=arrow_type(row_type))
        errors = pyarrow.array([error for _, error in pairs], type=pyarrow.string())
        return pyarrow.StructArray.from_arrays([rows, errors], names=[ROW, ERROR])

    return decode


def _encoder(schema: AvroSchema, header: bytes) -> Callable[[pyarrow.Array], pyarrow.Array]:
    def encode(rows: pyarrow.Array) -> pyarrow.Array:
        import fastavro

        parsed: Any = fastavro.parse_schema(schema, _force=True)
        values = [header + encode_datum(parsed, row) for row in rows.to_pylist()]
        return pyarrow.array(values, type=pyarrow.binary())

    return encode


def encode_datum(schema: AvroSchema, row: Any) -> bytes:
    import fastavro

    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, row)
    return stream.getvalue()


class ValueReader:
    """One value at a time, to a row or to the reason why there is none."""

    def __init__(self, reader_schema: AvroSchema, registry: SchemaRegistry | None) -> None:
        import fastavro

        self._reader_schema: Any = fastavro.parse_schema(reader_schema, _force=True)
        self._registry = registry
        self._writer_schemas: dict[int, Any] = {}

    def read(self, value: bytes | None) -> tuple[Any, str | None]:
        if value is None:
            return None, "the value is null"
        try:
            return self._datum(value), None
        except RegistryFailed:
            raise  # a registry that is down is no fault of the row
        except Exception as error:
            said = str(error) or type(error).__name__
            return None, f"the value is not Avro of the schema {self._name}: {said}"[:REASON_LENGTH_MAX]

    @property
    def _name(self) -> str:
        return str(self._reader_schema.get("name"))

    def _datum(self, value: bytes) -> Any:
        import fastavro

        if self._registry is None:
            stream = io.BytesIO(value)
            datum = fastavro.schemaless_reader(stream, self._reader_schema)
        else:
            schema_id, body = SchemaRegistry.split(value)
            stream = io.BytesIO(body)
            datum = fastavro.schemaless_reader(stream, self._writer_schema(schema_id), self._reader_schema)
        if stream.read(1):
            raise ValueError("bytes are left behind the datum")
        return datum

    def _writer_schema(self, schema_id: int) -> Any:
        import fastavro

        found = self._writer_schemas.get(schema_id)
        if found is None:
            assert self._registry is not None
            try:
                text = self._registry.schema(schema_id)
            except UnknownSchema:
                raise ValueError(f"the registry does not know the schema id {schema_id}") from None
            found = self._writer_schemas[schema_id] = fastavro.parse_schema(json.loads(text), _force=True)
        return found
