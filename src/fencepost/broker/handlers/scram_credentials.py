"""DescribeUserScramCredentials (0) and AlterUserScramCredentials (0): KIP-554.

Describing needs DESCRIBE on the cluster, altering ALTER. A client sends a salted password, never the password itself.
What the broker keeps can check a proof but cannot make one.
"""

from collections import Counter
from typing import TYPE_CHECKING

from fencepost.broker.connection import Call
from fencepost.broker.handler import MESSAGES, Handler, Shape
from fencepost.broker.rights import OnCluster
from fencepost.broker.slices import Steps
from fencepost.wire.acls import AclOperation
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from fencepost.wire.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    MECHANISM_CODES,
    ScramCredential,
    credential_of,
)

if TYPE_CHECKING:
    from fencepost.broker.node import Node

_NAMES = {code: name for name, code in MECHANISM_CODES.items()}
_Described = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
_Altered = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
_Change = tuple[str, ScramCredential | None]


def describe_user_scram_credentials(
    node: "Node", call: Call, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    credentials = node.metadata.scram_credentials
    if not request.users:
        # Sorted by name, as Kafka does it.
        return DescribeUserScramCredentialsResponse(results=[_described(node, user) for user in sorted(credentials)])
    results = []
    counts = Counter(user.name for user in request.users)
    for name, count in counts.items():
        if count > 1:
            text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
            results.append(_Described(user=name, error_code=ErrorCode.DUPLICATE_RESOURCE, error_message=text))
        elif name not in credentials:
            text = f"Attempt to describe a user credential that does not exist: {name}"
            results.append(_Described(user=name, error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message=text))
        else:
            results.append(_described(node, name))
    return DescribeUserScramCredentialsResponse(results=results)


def _described(node: "Node", user: str) -> _Described:
    return _Described(
        user=user,
        error_message=None,
        credential_infos=[
            _Described.CredentialInfo(mechanism=MECHANISM_CODES[mechanism], iterations=credential.iterations)
            for mechanism, credential in sorted(node.metadata.scram_credentials[user].items())
        ],
    )


def alter_user_scram_credentials(
    node: "Node", call: Call, request: AlterUserScramCredentialsRequest
) -> Steps[AlterUserScramCredentialsResponse]:
    """A user is changed as a whole or not at all."""
    refused: dict[str, KafkaError] = {}
    changes: dict[str, list[_Change]] = {}
    seen: set[tuple[str, int]] = set()
    for deletion in request.deletions:
        yield None
        _gather(node, deletion.name, deletion.mechanism, deletion, seen, changes, refused)
    for upsertion in request.upsertions:
        yield None
        _gather(node, upsertion.name, upsertion.mechanism, upsertion, seen, changes, refused)
    results = []
    for user in dict.fromkeys((*changes, *refused)):
        result = _Altered(user=user, error_message=None)
        results.append(result)
        yield None
        try:
            if user in refused:
                raise refused[user]
            node.metadata.set_scram_credentials(user, dict(changes[user]))
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
    return AlterUserScramCredentialsResponse(results=results)


def _gather(
    node: "Node",
    user: str,
    mechanism: int,
    wanted: AlterUserScramCredentialsRequest.ScramCredentialDeletion
    | AlterUserScramCredentialsRequest.ScramCredentialUpsertion,
    seen: set[tuple[str, int]],
    changes: dict[str, list[_Change]],
    refused: dict[str, KafkaError],
) -> None:
    try:
        if (user, mechanism) in seen:
            raise KafkaError(
                ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
            )
        seen.add((user, mechanism))
        changes.setdefault(user, []).append(_change(node, user, mechanism, wanted))
    except KafkaError as error:
        refused[user] = error


def _change(
    node: "Node",
    user: str,
    code: int,
    wanted: AlterUserScramCredentialsRequest.ScramCredentialDeletion
    | AlterUserScramCredentialsRequest.ScramCredentialUpsertion,
) -> _Change:
    if not user:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if code not in _NAMES:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    mechanism = _NAMES[code]
    if isinstance(wanted, AlterUserScramCredentialsRequest.ScramCredentialDeletion):
        if mechanism not in node.metadata.scram_credentials.get(user, {}):
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
        return mechanism, None
    if wanted.iterations < ITERATIONS_MIN:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if wanted.iterations > ITERATIONS_MAX:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    salted, salt = bytes(wanted.salted_password), bytes(wanted.salt)
    if not salt or not salted:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Neither the salt nor the salted password may be empty")
    return mechanism, credential_of(mechanism, salted, salt, wanted.iterations)


def _not_described(
    call: Call, request: DescribeUserScramCredentialsRequest, error: ErrorCode
) -> DescribeUserScramCredentialsResponse:
    message = MESSAGES[error]
    nobody = _Described(error_code=error, error_message=message)
    return DescribeUserScramCredentialsResponse(error_code=error, error_message=message, results=[nobody])


def _not_altered(
    call: Call, request: AlterUserScramCredentialsRequest, error: ErrorCode
) -> AlterUserScramCredentialsResponse:
    """Each user gets the error once, however many changes there were to it."""
    users = dict.fromkeys([each.name for each in request.deletions] + [each.name for each in request.upsertions])
    return AlterUserScramCredentialsResponse(
        results=[_Altered(user=user, error_code=error, error_message=MESSAGES[error]) for user in users]
    )


HANDLERS = {
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Handler(
        describe_user_scram_credentials,
        reads_only=True,
        shapes=(Shape("users", "results", ("name",)),),
        needs=(OnCluster(AclOperation.DESCRIBE),),
        on_error=_not_described,
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Handler(
        alter_user_scram_credentials, needs=(OnCluster(AclOperation.ALTER),), on_error=_not_altered
    ),
}
