"""Users of SCRAM: AlterUserScramCredentials. A password never comes here, only what was made of it with its salt."""

from collections.abc import Iterator

from fencepost.metadata.controller.state import Call, ControllerState, Decision
from fencepost.metadata.image import scram_record
from fencepost.metadata.records import MetadataRecord
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    RemoveUserScramCredentialRecord,
)
from fencepost.wire.scram import ITERATIONS_MAX, ITERATIONS_MIN, MECHANISM_CODES, credential_of

_MECHANISMS = {code: name for name, code in MECHANISM_CODES.items()}
_Result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult


def alter_user_scram_credentials(
    state: ControllerState, request: AlterUserScramCredentialsRequest, call: Call
) -> Decision:
    """A user who is named twice is left as they are."""
    changes: dict[str, MetadataRecord] = {}
    refused: dict[str, KafkaError] = {}
    for user, change in _changes(state, request):
        if user in refused:
            continue
        if changes.pop(user, None) is not None:
            refused[user] = KafkaError(
                ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
            )
        elif isinstance(change, KafkaError):
            refused[user] = change
        else:
            changes[user] = change
    answer = AlterUserScramCredentialsResponse()
    answer.results = [_Result(user=user, error_message=None) for user in changes]
    answer.results += [
        _Result(user=user, error_code=error.code, error_message=error.message) for user, error in refused.items()
    ]
    return Decision(answer, list(changes.values()))


def _changes(
    state: ControllerState, request: AlterUserScramCredentialsRequest
) -> Iterator[tuple[str, MetadataRecord | KafkaError]]:
    for deletion in request.deletions:
        yield deletion.name, _deleted(state, deletion)
    for upsertion in request.upsertions:
        yield upsertion.name, _upserted(upsertion)


def _deleted(
    state: ControllerState, deletion: AlterUserScramCredentialsRequest.ScramCredentialDeletion
) -> MetadataRecord | KafkaError:
    invalid = _invalid(deletion.name, deletion.mechanism)
    if invalid is not None:
        return invalid
    if _MECHANISMS[deletion.mechanism] not in state.image.scram.get(deletion.name, {}):
        return KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    return MetadataRecord(RemoveUserScramCredentialRecord(name=deletion.name, mechanism=deletion.mechanism))


def _upserted(upsertion: AlterUserScramCredentialsRequest.ScramCredentialUpsertion) -> MetadataRecord | KafkaError:
    invalid = _invalid(upsertion.name, upsertion.mechanism)
    if invalid is not None:
        return invalid
    if upsertion.iterations < ITERATIONS_MIN:
        return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if upsertion.iterations > ITERATIONS_MAX:
        return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    mechanism = _MECHANISMS[upsertion.mechanism]
    credential = credential_of(mechanism, upsertion.salted_password, upsertion.salt, upsertion.iterations)
    return scram_record(upsertion.name, mechanism, credential)


def _invalid(user: str, mechanism: int) -> KafkaError | None:
    if not user:
        return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if mechanism not in _MECHANISMS:
        return KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return None
