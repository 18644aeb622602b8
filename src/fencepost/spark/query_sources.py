"""What a running query reads and how often, as far as Spark's objects in the JVM tell."""

import logging
from typing import Any

from fencepost.spark.input_clusters import Source, sources_of
from fencepost.spark.transaction_timeouts import Trigger

_log = logging.getLogger("fencepost.spark")

_STREAMS_OF_KAFKA = "org.apache.spark.sql.kafka010."
_TABLES_OF_KAFKA = ("KafkaTable", "fencepost")


def reads_kafka(execution: Any) -> bool:
    """Whether a source of the query is Spark's Kafka source or this one. False also where Spark does not tell."""
    try:
        streams = [one.getClass().getName() for one in _each(execution.sources())]
        if any(name.startswith(_STREAMS_OF_KAFKA) for name in streams):
            return True
        # A source written in Python is only known by the name of its table, which Spark 3.5 does not have.
        tables = [leaf.relation().table().name() for leaf in _leaves(execution)]
    except Exception:
        return False
    return any(name in _TABLES_OF_KAFKA for name in tables)


def sources_read(execution: Any) -> tuple[Source, ...]:
    """Those that read Kafka, with their options. The plan is Spark's own affair, so it may also not be there."""
    try:
        return tuple(sources_of([_options(leaf) for leaf in _leaves(execution)]))
    except Exception as error:
        _log.info("which clusters the query reads cannot be seen: %s", error)
        return ()


def trigger_of(execution: Any) -> Trigger:
    trigger = execution.trigger()
    kind = trigger.getClass().getSimpleName()
    if kind.startswith("OneTime"):
        return Trigger(is_once=True)
    return Trigger(int(trigger.intervalMs())) if kind.startswith("ProcessingTime") else Trigger()


def _options(leaf: Any) -> dict[str, str]:
    try:
        return {str(name): str(value) for name, value in dict(leaf.relation().options()).items()}
    except Exception:
        return {}  # Not a source of the newer kind.


def _leaves(execution: Any) -> list[Any]:
    return _each(execution.logicalPlan().collectLeaves())


def _each(sequence: Any) -> list[Any]:
    return [sequence.apply(number) for number in range(sequence.size())]
