"""Access control: CreateAcls, DeleteAcls. Each rule is a record under a random id; the same rule is kept once."""

from fencepost.metadata.controller.answers import RECORDS_PER_REQUEST_MAX, too_large
from fencepost.metadata.controller.state import Call, ControllerState, Decision
from fencepost.metadata.image import acl_record
from fencepost.metadata.records import MetadataRecord
from fencepost.wire.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
    known,
)
from fencepost.wire.errors import ErrorCode, KafkaError
from fencepost.wire.messages import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    RemoveAccessControlEntryRecord,
)

_OPEN = (0, 1)
"""UNKNOWN and ANY: of a filter, not of a rule."""


def create_acls(state: ControllerState, request: CreateAclsRequest, call: Call) -> Decision:
    answer = CreateAclsResponse()
    there = set(state.image.acls.values())
    records: list[MetadataRecord] = []
    for creation in request.creations:
        result = CreateAclsResponse.AclCreationResult()
        answer.results.append(result)
        binding = AclBinding(
            ResourcePattern(
                ResourceType(known(ResourceType, creation.resource_type)),
                creation.resource_name,
                PatternType(known(PatternType, creation.resource_pattern_type)),
            ),
            creation.principal,
            creation.host,
            AclOperation(known(AclOperation, creation.operation)),
            AclPermissionType(known(AclPermissionType, creation.permission_type)),
        )
        reason = _invalid(binding)
        if reason is not None:
            result.error_code, result.error_message = ErrorCode.INVALID_REQUEST, reason
        elif binding not in there:
            there.add(binding)
            records.append(acl_record(state.new_id(), binding))
    if len(records) > RECORDS_PER_REQUEST_MAX:
        raise too_large()
    return Decision(answer, records)


def _invalid(binding: AclBinding) -> str | None:
    pattern = binding.pattern
    if pattern.resource_type == ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not pattern.name:
        return "Invalid empty resource name"
    if pattern.resource_type in _OPEN:
        return f"Invalid resourceType {pattern.resource_type.name}"
    if pattern.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"Invalid patternType {pattern.pattern_type.name}"
    if binding.operation in _OPEN:
        return f"Invalid operation {binding.operation.name}"
    if binding.permission_type in _OPEN:
        return f"Invalid permissionType {binding.permission_type.name}"
    if ":" not in binding.principal:
        return (
            f"Could not parse principal from `{binding.principal}` (no colon is present separating the principal type "
            "from the principal name)"
        )
    return None


def delete_acls(state: ControllerState, request: DeleteAclsRequest, call: Call) -> Decision:
    answer = DeleteAclsResponse()
    gone: dict[bytes, None] = {}
    for each in request.filters:
        result = DeleteAclsResponse.DeleteAclsFilterResult(error_message=None)
        answer.filter_results.append(result)
        wanted = AclBindingFilter(
            ResourceType(known(ResourceType, each.resource_type_filter)),
            each.resource_name_filter,
            PatternType(known(PatternType, each.pattern_type_filter)),
            each.principal_filter,
            each.host_filter,
            AclOperation(known(AclOperation, each.operation)),
            AclPermissionType(known(AclPermissionType, each.permission_type)),
        )
        if wanted.is_unknown:
            what = "patternFilter" if 0 in (wanted.resource_type, wanted.pattern_type) else "entryFilter"
            result.error_code, result.error_message = ErrorCode.INVALID_REQUEST, f"Unknown {what}."
            continue
        for acl_id, binding in state.image.acls.items():
            if wanted.matches(binding):
                gone[acl_id] = None
                result.matching_acls.append(_matching(binding))
        if len(gone) > RECORDS_PER_REQUEST_MAX:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Cannot remove more than {RECORDS_PER_REQUEST_MAX} acls in a single delete operation.",
            )
    return Decision(answer, [MetadataRecord(RemoveAccessControlEntryRecord(id=acl_id)) for acl_id in gone])


def _matching(binding: AclBinding) -> DeleteAclsResponse.DeleteAclsFilterResult.DeleteAclsMatchingAcl:
    return DeleteAclsResponse.DeleteAclsFilterResult.DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=binding.pattern.resource_type,
        resource_name=binding.pattern.name,
        pattern_type=binding.pattern.pattern_type,
        principal=binding.principal,
        host=binding.host,
        operation=binding.operation,
        permission_type=binding.permission_type,
    )
