"""Access control: list, create and delete the ACLs of a cluster (KIP-140, KIP-290)."""

from collections.abc import Iterable, Sequence
from typing import cast

from fencepost.client import apis
from fencepost.client.cluster import ClusterCalls
from fencepost.client.errors import check
from fencepost.wire import messages
from fencepost.wire.acls import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
    creation_fields,
    filter_fields,
    known,
)


class AclAdmin(ClusterCalls):
    async def describe_acls(self, wanted: AclBindingFilter | None = None) -> list[AclBinding]:
        """The ACLs that match a filter, or all, sorted."""
        request = messages.DescribeAclsRequest(**filter_fields(wanted or AclBindingFilter()))

        async def attempt() -> list[AclBinding]:
            answer = await self.cluster.call_any(apis.DESCRIBE_ACLS, request)
            check(answer.error_code, "ACLs", answer.error_message)
            return sorted(
                _binding(resource.resource_type, resource.resource_name, resource.pattern_type, acl)
                for resource in answer.resources
                for acl in resource.acls
            )

        return await self.cluster.retrying(attempt)

    async def create_acls(self, bindings: Iterable[AclBinding]) -> None:
        """Create ACLs. Existing ACLs are no error. If some are refused, the others are created nevertheless."""
        wanted = list(bindings)
        creation = messages.CreateAclsRequest.AclCreation
        request = messages.CreateAclsRequest(creations=[creation(**creation_fields(each)) for each in wanted])

        async def attempt() -> None:
            answer = await self.cluster.call_controller(apis.CREATE_ACLS, request)
            for binding, result in zip(wanted, answer.results, strict=True):
                check(
                    result.error_code, f"ACL of {binding.principal} on {binding.pattern.name!r}", result.error_message
                )

        await self.cluster.retrying(attempt)

    async def delete_acls(self, filters: Sequence[AclBindingFilter]) -> list[AclBinding]:
        """Delete the ACLs that match any of the filters. Returns them, sorted."""
        wanted = messages.DeleteAclsRequest.DeleteAclsFilter
        request = messages.DeleteAclsRequest(filters=[wanted(**filter_fields(each)) for each in filters])

        async def attempt() -> list[AclBinding]:
            answer = await self.cluster.call_controller(apis.DELETE_ACLS, request)
            gone: set[AclBinding] = set()
            for result in answer.filter_results:
                check(result.error_code, "ACLs", result.error_message)
                for acl in result.matching_acls:
                    check(acl.error_code, f"ACL of {acl.principal} on {acl.resource_name!r}", acl.error_message)
                    gone.add(_binding(acl.resource_type, acl.resource_name, acl.pattern_type, acl))
            return sorted(gone)

        return await self.cluster.retrying(attempt)


def _binding(
    resource_type: int,
    name: str,
    pattern_type: int,
    acl: "messages.DescribeAclsResponse.DescribeAclsResource.AclDescription"
    " | messages.DeleteAclsResponse.DeleteAclsFilterResult.DeleteAclsMatchingAcl",
) -> AclBinding:
    return AclBinding(
        ResourcePattern(
            cast(ResourceType, known(ResourceType, resource_type)),
            name,
            cast(PatternType, known(PatternType, pattern_type)),
        ),
        acl.principal,
        acl.host,
        cast(AclOperation, known(AclOperation, acl.operation)),
        cast(AclPermissionType, known(AclPermissionType, acl.permission_type)),
    )
