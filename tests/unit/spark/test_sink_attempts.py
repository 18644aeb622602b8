"""Which failures of an attempt are worth another one."""

import pytest

from fencepost.client.errors import BrokerError, BrokerUnreachable, ClientError
from fencepost.spark.attempts import _is_worth_another_attempt
from fencepost.spark.errors import WriteFailed
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
        (ValueError("the user's own"), False),
    ],
)
def test_what_goes_away_is_tried_again_and_what_stays_is_told(error: Exception, expected: bool) -> None:
    assert _is_worth_another_attempt(error) is expected
