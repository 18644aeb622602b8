"""Client quotas: AlterClientQuotas. They are kept for the brokers that enforce them."""

import ipaddress
from collections.abc import Mapping

from fencepost.metadata.controller.state import Call, ControllerState, Decision
from fencepost.metadata.image import QuotaEntity
from fencepost.metadata.records import MetadataRecord
from fencepost.settings import INT_MAX
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import AlterClientQuotasRequest, AlterClientQuotasResponse, ClientQuotaRecord

USER, CLIENT_ID, IP = "user", "client-id", "ip"
_PARTS = (CLIENT_ID, USER, IP)
_BYTES_MAX = 9.223372036854775807e18
_USER_KEYS: Mapping[str, float | None] = {
    "producer_byte_rate": _BYTES_MAX,
    "consumer_byte_rate": _BYTES_MAX,
    "request_percentage": None,
    "controller_mutation_rate": None,
}
"""The largest value of those that are whole numbers."""
_IP_KEYS: Mapping[str, float | None] = {"connection_creation_rate": float(INT_MAX)}
_WHOLE_TOLERANCE = 1e-6


def alter_client_quotas(state: ControllerState, request: AlterClientQuotasRequest, call: Call) -> Decision:
    results: dict[frozenset[tuple[str, str | None]], tuple[QuotaEntity, KafkaError | None]] = {}
    records: list[MetadataRecord] = []
    for entry in request.entries:
        entity = tuple({part.entity_type: part.entity_name for part in entry.entity}.items())
        key = frozenset(entity)
        error: KafkaError | None = None
        try:
            duplicate = key in results
            made = [] if duplicate else _altered(state, entity, entry.ops)
            if duplicate:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Ignoring duplicate entity {_shown(entity)}")
            records += made
        except KafkaError as refusal:
            error = refusal
        results[key] = (entity, error)
    answer = AlterClientQuotasResponse(
        entries=[
            AlterClientQuotasResponse.EntryData(
                error_code=ErrorCode.NONE if error is None else error.code,
                error_message=None if error is None else error.message,
                entity=[
                    AlterClientQuotasResponse.EntryData.EntityData(entity_type=kind, entity_name=name)
                    for kind, name in entity
                ],
            )
            for entity, error in results.values()
        ]
    )
    return Decision(answer, [] if request.validate_only else records)


def _shown(entity: QuotaEntity) -> str:
    parts = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity)
    return f"ClientQuotaEntity(entries={{{parts}}})"


def _altered(
    state: ControllerState, entity: QuotaEntity, ops: list[AlterClientQuotasRequest.EntryData.OpData]
) -> list[MetadataRecord]:
    wanted: dict[str, float | None] = {}
    for op in ops:
        if op.key in wanted:
            # As in Kafka, whose later word for it this is.
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Ignoring duplicate entity {_shown(entity)}")
        wanted[op.key] = None if op.remove else op.value
    keys = _keys_of(entity)
    ordered = tuple(sorted(entity, key=lambda part: _PARTS.index(part[0])))
    current = state.image.quotas.get(ordered, {})
    records = []
    for key, value in wanted.items():
        if value is None:
            if key in current:
                records.append(_record(ordered, key, None))
            continue
        _check_value(keys, key, value)
        if current.get(key) != value:
            records.append(_record(ordered, key, value))
    return records


def _record(entity: QuotaEntity, key: str, value: float | None) -> MetadataRecord:
    parts = [ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
    if value is None:
        return MetadataRecord(ClientQuotaRecord(entity=parts, key=key, remove=True))
    return MetadataRecord(ClientQuotaRecord(entity=parts, key=key, value=value))


def _keys_of(entity: QuotaEntity) -> Mapping[str, float | None]:
    reason = None
    kinds = dict(entity)
    for kind, name in entity:
        if kind not in _PARTS:
            reason = f"Unhandled client quota entity type: {kind}"
        elif name == "":
            reason = f"Empty {kind} not supported"
        if reason is not None:
            break
    if reason is None:
        if not kinds:
            reason = "Invalid empty client quota entity"
        elif IP in kinds and len(kinds) > 1:
            reason = "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
        elif IP in kinds and not _is_address(kinds[IP]):
            reason = f"{kinds[IP]} is not a valid IP or resolvable host."
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    return _IP_KEYS if IP in kinds else _USER_KEYS


def _is_address(text: str | None) -> bool:
    """Names of hosts are not looked up: nothing here waits for a network."""
    if text is None:
        return True
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _check_value(keys: Mapping[str, float | None], key: str, value: float) -> None:
    reason = None
    if key not in keys:
        reason = f"Invalid configuration key {key}"
    elif value <= 0:
        reason = f"Quota {key} must be greater than 0"
    else:
        maximum = keys[key]
        if maximum is not None and value > maximum:
            kind = "an INT" if key in _IP_KEYS else "a LONG"
            reason = f"Proposed value for {key} is too large for {kind}."
        elif maximum is not None and abs(value % 1.0) > _WHOLE_TOLERANCE:
            reason = f"{key} cannot be a fractional value."
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
