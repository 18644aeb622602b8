"""JSON records, with or without a schema registry. What Spark's own JSON reader accepts silently (a second document
behind the first, bytes that are not UTF-8) is an error.
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StringType, StructField, StructType

from fencepost.spark.formats import ERROR, REASON_LENGTH_MAX, ROW, Format, InvalidFormat, Schema
from fencepost.spark.schema_registry import HEADER_BYTES, SchemaRegistry

CORRUPT = "_corrupt"
SHOWN_LENGTH_MAX = 100


@dataclasses.dataclass(frozen=True)
class JsonFormat(Format):
    """One JSON object per record. A field that is not in the schema is passed over, one that is declared NOT NULL must
    be there, any other is null where it is missing. A number is never rounded to fit a decimal: that is an error. What
    is written has every column, with null where there is no value."""

    schema: StructType | None
    framed: bool = False
    schema_id: int | None = None

    name = "json"

    def decode(self, frame: DataFrame) -> DataFrame:
        assert self.schema is not None
        value = F.col("value")
        body = value if not self.framed else F.expr(f"substring(value, {HEADER_BYTES + 1})")
        text = body.cast("string")
        fields = [StructField(field.name, field.dataType) for field in self.schema.fields]
        parsed = F.from_json(
            text,
            StructType([*fields, StructField(CORRUPT, StringType())]),
            {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT},
        )
        documents = F.json_array_length(F.concat(F.lit("["), text, F.lit("]")))
        frame = frame.withColumn("_parsed", parsed)
        row = F.struct(*(F.col("_parsed").getField(field.name).alias(field.name) for field in fields))
        error = F.when(value.isNull(), F.lit("the value is null"))
        if self.framed:
            error = error.when(
                (F.length(value) < HEADER_BYTES) | (F.expr("hex(substring(value, 1, 1))") != "00"),
                F.lit("the value does not begin with a schema id"),
            )
        error = (
            error.when(~F.is_valid_utf8(text), F.lit("the value is not UTF-8 text"))
            .when(F.length(F.trim(text)) == 0, F.lit("the value is empty"))
            .when(documents.isNull(), F.lit("the value is not JSON"))
            .when(documents != 1, F.lit("the value is more than one JSON document"))
            .when(
                F.col("_parsed").isNull() | F.col("_parsed").getField(CORRUPT).isNotNull(),
                _misfit(self.schema, text),
            )
        )
        exact_fields = [StructField(field.name, _exact(field.dataType)) for field in fields]
        exact_fields = [field for field, own in zip(exact_fields, fields, strict=True) if field != own]
        if exact_fields:
            frame = frame.withColumn("_exact", F.from_json(text, StructType(exact_fields)))
        for field in exact_fields:
            kind = self.schema[field.name].dataType
            rounded = _has_rounded(F.col("_exact").getField(field.name), kind)
            assert rounded is not None
            told = F.lit(f"the field {field.name} has more digits behind the point than {kind.simpleString()} keeps")
            error = error.when(rounded, told)
        for field in self.schema.fields:
            if not field.nullable:
                missing = F.col("_parsed").getField(field.name).isNull()
                error = error.when(missing, F.lit(f"the field {field.name} is missing or null"))
        frame = frame.withColumn(ERROR, error)
        return frame.withColumn(ROW, F.when(F.col(ERROR).isNull(), row)).drop("_parsed", "_exact")

    def encode(self, columns: Sequence[str], frame: DataFrame) -> Column:
        row = F.struct(*(F.col(f"`{column}`") for column in columns))
        text = F.to_json(row, {"ignoreNullFields": "false"}).cast("binary")
        if self.schema_id is None:
            return text
        return F.concat(F.lit(SchemaRegistry.header(self.schema_id)), text)


def _misfit(schema: StructType, text: Column) -> Column:
    """Which field it is that does not fit: Spark has parsed the others."""
    fallback = F.lit(f"the value is JSON that does not fit the schema {_described(schema)}")
    return F.coalesce(*_misfits(schema, F.col("_parsed"), text, ()), fallback)


def _misfits(schema: StructType, parsed: Column, text: Column, path: tuple[str, ...]) -> Iterator[Column]:
    for field in schema.fields:
        names = (*path, field.name)
        if any(set(name) & set("'[]\\") for name in names):
            continue  # Spark's paths cannot name it
        found = F.get_json_object(text, "$" + "".join(f"['{name}']" for name in names))
        value = parsed.getField(field.name)
        told = F.concat(
            F.lit(f"the field {'.'.join(names)} is not {field.dataType.simpleString()}: "),
            F.substring(found, 1, SHOWN_LENGTH_MAX),
        )
        if isinstance(field.dataType, StructType):
            inside = F.coalesce(*_misfits(field.dataType, value, text, names), F.lit(None).cast("string"))
            yield F.when(value.isNotNull(), inside).when(found.isNotNull(), told)
        else:
            yield F.when(found.isNotNull() & value.isNull(), told)


def _exact(kind: DataType) -> DataType:
    """The type with text in the place of decimals: what Spark would round can be read in it."""
    if isinstance(kind, DecimalType):
        return StringType()
    if isinstance(kind, StructType):
        return StructType([StructField(field.name, _exact(field.dataType)) for field in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(_exact(kind.elementType), kind.containsNull)
    if isinstance(kind, MapType):
        return MapType(kind.keyType, _exact(kind.valueType), kind.valueContainsNull)
    return kind


def _has_rounded(exact: Column, kind: DataType) -> Column | None:
    """Whether a value of this type, read by `_exact`, has decimals with more digits than the type keeps; None if the
    type has no decimals."""
    if isinstance(kind, DecimalType):
        digits = F.length(F.regexp_extract(exact, r"\.(\d*?)0*(?:[eE].*)?$", 1))
        exponent = F.coalesce(F.regexp_extract(exact, r"[eE]([+-]?\d+)$", 1).try_cast("int"), F.lit(0))
        return F.coalesce(digits - exponent > kind.scale, F.lit(False))
    if isinstance(kind, StructType):
        found = [_has_rounded(exact.getField(field.name), field.dataType) for field in kind.fields]
        inside = [column for column in found if column is not None]
        return functools.reduce(lambda one, other: one | other, inside) if inside else None
    element = kind.elementType if isinstance(kind, ArrayType) else kind.valueType if isinstance(kind, MapType) else None
    if element is None or _exact(element) == element:
        return None
    values = exact if isinstance(kind, ArrayType) else F.map_values(exact)

    def is_rounded(value: Column) -> Column:
        rounded = _has_rounded(value, element)
        assert rounded is not None
        return rounded

    return F.coalesce(F.exists(values, is_rounded), F.lit(False))


def _described(schema: StructType) -> str:
    text = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)
    return text if len(text) <= REASON_LENGTH_MAX else f"{text[:REASON_LENGTH_MAX]}..."


def struct_type(schema: Schema) -> StructType:
    """From a StructType or DDL text; parsing DDL needs an active session."""
    if isinstance(schema, StructType):
        return schema
    if not isinstance(schema, str):
        raise InvalidFormat(f"{schema!r} is no schema", "give a StructType, or DDL such as 'id string, amount double'")
    try:
        parsed = StructType.fromDDL(schema)
    except PySparkException as error:
        raise InvalidFormat(f"the schema {schema!r} is not DDL: {str(error).splitlines()[0]}") from None
    assert isinstance(parsed, StructType)
    return parsed
