"""Kafka's options that source and sink are given but have nothing to do with, and those that nobody here can do.

A job brings the options of Java's clients along, often one set for reading and writing: what is harmless is accepted.
"""

from collections.abc import Mapping
from typing import Any

OF_JAVAS_CLIENTS = frozenset(
    {
        "receive.buffer.bytes", "send.buffer.bytes", "connections.max.idle.ms", "client.dns.lookup", "client.rack",
        "reconnect.backoff.ms", "reconnect.backoff.max.ms", "retry.backoff.ms", "retry.backoff.max.ms",
        "socket.connection.setup.timeout.max.ms", "metric.reporters", "metrics.num.samples",
        "metrics.recording.level", "metrics.sample.window.ms", "enable.metrics.push", "auto.include.jmx.reporter",
        "metadata.recovery.strategy", "metadata.recovery.rebootstrap.trigger.ms",
    }
)  # fmt: skip
"""Of Java's sockets, time-outs and metrics."""

OF_CONSUMERS = frozenset(
    {
        # Partitions are planned by Spark's driver: nothing here is a member of a group.
        "group.id", "group.instance.id", "group.protocol", "session.timeout.ms", "heartbeat.interval.ms",
        "max.poll.interval.ms", "max.poll.records", "partition.assignment.strategy", "exclude.internal.topics",
        # A read knows where it ends, so it never waits for more bytes than there are.
        "fetch.min.bytes", "fetch.max.bytes", "check.crcs", "allow.auto.create.topics",
    }
)  # fmt: skip

OF_PRODUCERS = frozenset(
    {
        # A batch of rows is there as a whole: there is nothing to wait for and nothing to buffer.
        "linger.ms", "buffer.memory", "max.block.ms", "max.request.size", "metadata.max.idle.ms",
        # What fails is repeated until the transaction ends, and the order of each partition is kept.
        "retries", "delivery.timeout.ms", "max.in.flight.requests.per.connection",
        # Rows without a key are spread evenly over the partitions.
        "partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms",
        "compression.gzip.level", "compression.lz4.level", "compression.zstd.level",
    }
)  # fmt: skip
"""Without an effect on the sink; the source also passes over those that the sink takes."""

KERBEROS = "Kerberos (GSSAPI) is not supported"
KERBEROS_ADVICE = (
    "Log in with SCRAM-SHA-512, OAUTHBEARER or a TLS client certificate: the cluster needs a listener for it, beside "
    "that for Kerberos"
)


def asks_for_kerberos(options: Mapping[str, Any]) -> bool:
    """By Kafka's names, without the prefix."""
    for name, value in options.items():
        if name.startswith("sasl.kerberos."):
            return True
        if name in ("sasl.mechanism", "sasl.mechanisms") and str(value).upper() == "GSSAPI":
            return True
        if name == "sasl.jaas.config" and "krb5loginmodule" in str(value).lower():
            return True
    return False
