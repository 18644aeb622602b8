"""What the sink makes of Kafka's options."""

import pytest

from fencepost.spark.errors import FencepostSparkError
from fencepost.spark.sink_settings import sink_settings
from fencepost.wire.compression import Codec


def settings(**kafka):
    return sink_settings("shop", "127.0.0.1:9092", kafka={name.replace("__", "."): kafka[name] for name in kafka})


def test_what_a_job_brings_along_is_accepted():
    made = settings(
        **{
            "kafka.acks": "all", "retries": "5", "linger.ms": "50", "kafka.buffer.memory": "33554432",
            "max.in.flight.requests.per.connection": 1, "delivery.timeout.ms": 120000, "max.request.size": 2000000,
            "reconnect.backoff.ms": 50, "compression.type": "zstd", "batch.size": "65536", "client.id": "shop",
            # The same set serves the source.
            "isolation.level": "read_committed", "group.id": "shop", "max.partition.fetch.bytes": 1000,
            "default.api.timeout.ms": 9000,
        }
    )  # fmt: skip
    assert made.options == {"client.id": "shop", "retry.timeout.ms": 9000}
    assert (made.compression, made.batch_bytes) == (Codec.ZSTD, 65536)


@pytest.mark.parametrize(
    ("kafka", "match"),
    [
        ({"compresion.type": "lz4"}, "Did you mean 'compression.type'"),
        ({"kafka.securty.protocol": "SSL"}, "Did you mean 'kafka.security.protocol'"),
        ({"linger": "5"}, "Did you mean 'linger.ms'"),
        ({"gizmo": "5"}, "'gizmo' is not known to the sink. Remove it"),
        ({"acks": "1"}, "acks=1 is not exactly-once. Leave acks out"),
        ({"transactional.id": "a"}, "It is the name of the sink"),
        ({"transaction.timeout.ms": "5"}, "Give transaction_timeout_ms="),
        ({"partitioner.class": "com.example.Mine"}, "select a column `partition`"),
        ({"batch.size": "large"}, "is not a number of bytes"),
        ({"request.timeout.ms": "soon"}, "'request.timeout.ms' 'soon' is not a number of milliseconds"),
        ({"sasl.mechanism": "GSSAPI", "security.protocol": "SASL_SSL"}, r"Kerberos \(GSSAPI\) is not supported.*SCRAM"),
        ({"sasl.kerberos.service.name": "kafka"}, r"Kerberos \(GSSAPI\) is not supported"),
        ({"sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;"}, "Kerberos"),
    ],
)
def test_what_cannot_be_is_told_with_what_to_write_instead(kafka, match):
    with pytest.raises(FencepostSparkError, match=match):
        settings(**kafka)
