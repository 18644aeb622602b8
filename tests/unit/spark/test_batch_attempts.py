"""Which failures of an attempt are worth another one."""

from typing import Any

import pytest

from fencepost.client.errors import BrokerError, BrokerUnreachable, ClientError
from fencepost.spark.batch_attempts import Attempts, Batch, CopyRefused, _is_worth_another_attempt
from fencepost.spark.commit_records import Marker, Record
from fencepost.spark.errors import WriteFailed
from fencepost.spark.planned_batches import NOTHING_PLANNED
from fencepost.spark.query_run import QueryRun
from fencepost.spark.sink_settings import sink_settings
from fencepost.topic_partition import TopicPartition
from fencepost.wire.errors import ErrorCode
from tests.unit.spark.java_exceptions import process_lost


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (BrokerUnreachable("127.0.0.1:9092", "connection refused"), True),
        (BrokerError(ErrorCode.NOT_COORDINATOR, "EndTxn"), True),
        (BrokerError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "InitProducerId"), False),
        (ClientError("no"), False),
        (WriteFailed("no"), False),
        (process_lost(), True),
        (CopyRefused("no right to read invoices-0"), True),
        (ValueError("the user's own"), False),
    ],
)
def test_what_goes_away_is_tried_again_and_what_stays_is_told(error: Exception, expected: bool) -> None:
    assert _is_worth_another_attempt(error) is expected


class NoRightToRead:
    """A producer whose offsets are refused."""

    def send_offsets(self, group_id: str, offsets: Any) -> None:
        raise BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "TxnOffsetCommit")


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (Record(Marker(1, 0, "q"), {TopicPartition("in", 0): 5}, TopicPartition("out", 0)), CopyRefused),
        (Record(Marker(1, 0, "q"), {}, TopicPartition("out", 0)), BrokerError),
        (Record(Marker(1, 0, "q"), {TopicPartition("in", 0): 5}), BrokerError),
    ],
    ids=["a copy", "the only place", "no copy"],
)
def test_without_the_right_to_read_the_output_the_record_has_no_copy(record: Record, expected: type[Exception]) -> None:
    run = QueryRun(NoRightToRead())  # type: ignore[arg-type]
    batch = Batch("q", 0, "shop", "client", "writer", lambda _: NOTHING_PLANNED)
    with pytest.raises(expected):
        Attempts(None, run, sink_settings("shop", "127.0.0.1:9092"), batch)._send_offsets(record)
    assert run.may_copy is (expected is not CopyRefused)
