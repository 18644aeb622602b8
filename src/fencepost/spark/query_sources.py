"""What the sources of a running query are, as far as Spark's objects in the JVM tell."""

from typing import Any

_STREAMS_OF_KAFKA = "org.apache.spark.sql.kafka010."
_TABLES_OF_KAFKA = ("KafkaTable", "fencepost")


def reads_kafka(execution: Any) -> bool:
    """Whether a source of the query is Spark's Kafka source or this one. False also where Spark does not tell."""
    try:
        streams = [one.getClass().getName() for one in _each(execution.sources())]
        if any(name.startswith(_STREAMS_OF_KAFKA) for name in streams):
            return True
        # A source written in Python is only known by the name of its table, which Spark 3.5 does not have.
        tables = [leaf.relation().table().name() for leaf in _each(execution.logicalPlan().collectLeaves())]
    except Exception:
        return False
    return any(name in _TABLES_OF_KAFKA for name in tables)


def _each(sequence: Any) -> list[Any]:
    return [sequence.apply(number) for number in range(sequence.size())]
