"""How a task tells the driver why it could not write: the client's typed error as text in its result.

An exception would reach the driver as the text of a stack trace; the driver has to know whether another attempt makes
sense, and the user what the broker said.
"""

import base64
import pickle

from fencepost.client.errors import BrokerError, ClientError, DeliveryFailed, ProducerFenced, TransactionFailed
from fencepost.wire.errors import ErrorCode

_EPOCH_IS_OLD = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE})
_FOREVER = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.POLICY_VIOLATION,
    }
)


def pack(error: ClientError) -> str:
    return base64.b64encode(pickle.dumps(error)).decode()


def unpack(text: str) -> ClientError:
    error = pickle.loads(base64.b64decode(text))
    assert isinstance(error, ClientError)
    return error


def code_of(error: BaseException | None) -> ErrorCode | None:
    """What the broker said, however deep it is wrapped."""
    while error is not None:
        if isinstance(error, BrokerError):
            return error.code
        error = getattr(error, "cause", None) or error.__cause__
    return None


def advice_of(error: BaseException | None) -> str:
    """Of the innermost cause that has any: what is wrapped around it only says that the transaction is over."""
    advice = ""
    while error is not None:
        advice = getattr(error, "advice", "") or advice
        error = getattr(error, "cause", None) or error.__cause__
    return advice


def is_epoch_old(error: ClientError) -> bool:
    """Somebody has ended the transaction meanwhile: a successor, or the coordinator because its time was up."""
    return code_of(error) in _EPOCH_IS_OLD


def is_id_forgotten(error: BaseException) -> bool:
    """The transactional id has expired. Asking for an epoch with the old identity makes it anew, unless another driver
    has done so meanwhile: then this one is fenced."""
    return code_of(error) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def is_worth_another_attempt(error: ClientError) -> bool:
    if isinstance(error, ProducerFenced):
        return False
    if code_of(error) in _FOREVER:
        return False
    return not isinstance(error, TransactionFailed) or isinstance(error.cause, DeliveryFailed)
