"""What a query is told when topics come and go between one question to the brokers and the next."""

from collections.abc import Iterable
from typing import cast

import pytest

from tests.support.extras import require_arrow

require_arrow()

from fencepost.client.errors import BrokerError  # noqa: E402
from fencepost.spark import source_progress  # noqa: E402
from fencepost.spark.source_cluster import SourceCluster  # noqa: E402
from fencepost.spark.source_errors import DataLoss  # noqa: E402
from fencepost.spark.source_options import parse_source_options  # noqa: E402
from fencepost.spark.source_progress import SourceProgress  # noqa: E402
from fencepost.topic_partition import TopicPartition  # noqa: E402
from fencepost.wire.errors import ErrorCode  # noqa: E402

ORDERS, PAYMENTS = TopicPartition("orders", 0), TopicPartition("payments", 0)


class Brokers:
    """Of which the leader of a partition answers so many times that there is no such partition."""

    def __init__(self, missing: TopicPartition, times: int, *, is_deleted: bool) -> None:
        self.missing, self.times, self.is_deleted = missing, times, is_deleted
        self.topic_ids: dict[str, bytes] = {}
        self.asked = 0

    def partitions(self, *, may_lack: Iterable[str] = ()) -> set[TopicPartition]:
        self.asked += 1
        return {ORDERS} if self.is_deleted and self.asked > 1 else {ORDERS, PAYMENTS}

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        if self.missing in set(partitions) and self.times:
            self.times -= 1
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {self.missing}")
        return dict.fromkeys(partitions, 9)

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)


def progress(brokers: Brokers, monkeypatch: pytest.MonkeyPatch, **options: str) -> SourceProgress:
    monkeypatch.setattr(source_progress, "VANISHED_TOPIC_PAUSE_SECONDS", 0)
    given = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "orders,payments", **options}
    return SourceProgress(parse_source_options(given, is_streaming=True), cast(SourceCluster, brokers))


def test_a_topic_that_is_being_made_again_is_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made_again = progress(Brokers(PAYMENTS, 3, is_deleted=False), monkeypatch)
    assert made_again.end_of_batch({ORDERS: 1, PAYMENTS: 2}, None) == ({ORDERS: 9, PAYMENTS: 9}, {})


def test_a_topic_that_is_deleted_between_two_questions_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    deleted = progress(Brokers(PAYMENTS, 100, is_deleted=True), monkeypatch, failOnDataLoss="false")
    assert deleted.end_of_batch({ORDERS: 1, PAYMENTS: 2}, None) == ({ORDERS: 9}, {})
    noticed = progress(Brokers(PAYMENTS, 100, is_deleted=True), monkeypatch)
    with pytest.raises(DataLoss, match="payments-0 have been deleted"):
        noticed.end_of_batch({ORDERS: 1, PAYMENTS: 2}, None)


def test_a_leader_that_knows_no_such_partition_is_believed_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = progress(Brokers(PAYMENTS, 1_000, is_deleted=False), monkeypatch)
    with pytest.raises(BrokerError, match="payments-0"):
        lost.end_of_batch({ORDERS: 1, PAYMENTS: 2}, None)
