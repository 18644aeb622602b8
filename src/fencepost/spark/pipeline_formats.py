"""Which format the records of a source or of an output have: from a pipeline's declaration and its schema registry."""

from collections.abc import Sequence

from fencepost.spark.formats import FORMATS, BytesFormat, Format, InvalidFormat, Schema
from fencepost.spark.json_format import JsonFormat, struct_type
from fencepost.spark.schema_registry import SchemaRegistry


def reading_format(name: str, schema: Schema, registry: SchemaRegistry | None, topics: Sequence[str]) -> Format:
    """The format of the records of a source."""
    _check(name)
    if name == "bytes":
        if schema is not None or registry is not None:
            raise InvalidFormat("the format bytes has no schema", "leave out schema= and registry=")
        return BytesFormat()
    if name == "json":
        if schema is None:
            raise InvalidFormat(
                "JSON needs a schema", 'give schema="purchase_id string, amount double", or format="bytes"'
            )
        return JsonFormat(struct_type(schema), framed=registry is not None)
    # With pyarrow, which takes a fifth of a second to load: here and below only where Avro is used.
    from fencepost.spark.avro_format import AvroFormat, parse_schema

    if schema is None:
        if registry is None or len(topics) != 1:
            raise InvalidFormat("Avro needs a schema", "give schema=, or registry= and one source topic")
        schema = registry.latest(f"{topics[0]}-value").schema
    return AvroFormat(parse_schema(schema), registry)


def writing_format(name: str, schema: Schema, registry: SchemaRegistry | None, topic: str) -> Format:
    """The format of the records of one output topic. With a registry the schema is registered as `TOPIC-value`."""
    _check(name)
    subject = f"{topic}-value"
    if name == "bytes":
        return BytesFormat()
    if name == "json":
        if registry is None:
            return JsonFormat(None)
        found = registry.register(subject, schema, "JSON") if schema is not None else registry.latest(subject)
        return JsonFormat(None, schema_id=found.id)
    from fencepost.spark.avro_format import AvroFormat, parse_schema  # as above

    if registry is None:
        if schema is None:
            raise InvalidFormat(f"Avro for {topic} needs a schema", "give Output(topic, schema=...) or registry=")
        return AvroFormat(parse_schema(schema), None)
    found = registry.register(subject, schema, "AVRO") if schema is not None else registry.latest(subject)
    return AvroFormat(parse_schema(found.schema), registry, schema_id=found.id)


def _check(name: str) -> None:
    if name not in FORMATS:
        raise InvalidFormat(f"{name!r} is no format", f"take one of {', '.join(FORMATS)}")
