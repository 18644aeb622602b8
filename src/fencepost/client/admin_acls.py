"""Access control: see, make and delete the rules of a cluster (KIP-140, KIP-290)."""

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
    known,
)


class AclAdmin(ClusterCalls):
    async def describe_acls(self, wanted: AclBindingFilter | None = None) -> list[AclBinding]:
        """The rules that a filter finds, or all, sorted."""
        filter_ = wanted or AclBindingFilter()
        request = messages.DescribeAclsRequest(
            resource_type_filter=filter_.resource_type,
            resource_name_filter=filter_.name,
            pattern_type_filter=filter_.pattern_type,
            principal_filter=filter_.principal,
            host_filter=filter_.host,
            operation=filter_.operation,
            permission_type=filter_.permission_type,
        )

        async def attempt() -> list[AclBinding]:
            answer = await self._cluster.call_any(apis.DESCRIBE_ACLS, request)
            check(answer.error_code, "ACLs", answer.error_message)
            return sorted(
                _binding(resource.resource_type, resource.resource_name, resource.pattern_type, acl)
                for resource in answer.resources
                for acl in resource.acls
            )

        return await self._cluster.retrying(attempt)

    async def create_acls(self, bindings: Iterable[AclBinding]) -> None:
        """All of them, or as many as are right; a rule that is there already is no error."""
        wanted = list(bindings)
        creation = messages.CreateAclsRequest.AclCreation
        request = messages.CreateAclsRequest(
            creations=[
                creation(
                    resource_type=binding.pattern.resource_type,
                    resource_name=binding.pattern.name,
                    resource_pattern_type=binding.pattern.pattern_type,
                    principal=binding.principal,
                    host=binding.host,
                    operation=binding.operation,
                    permission_type=binding.permission_type,
                )
                for binding in wanted
            ]
        )

        async def attempt() -> None:
            answer = await self._cluster.call_controller(apis.CREATE_ACLS, request)
            for binding, result in zip(wanted, answer.results, strict=True):
                check(
                    result.error_code, f"ACL of {binding.principal} on {binding.pattern.name!r}", result.error_message
                )

        await self._cluster.retrying(attempt)

    async def delete_acls(self, filters: Sequence[AclBindingFilter]) -> list[AclBinding]:
        """Deletes what any of the filters finds; gives what was deleted, sorted."""
        wanted = messages.DeleteAclsRequest.DeleteAclsFilter
        request = messages.DeleteAclsRequest(
            filters=[
                wanted(
                    resource_type_filter=each.resource_type,
                    resource_name_filter=each.name,
                    pattern_type_filter=each.pattern_type,
                    principal_filter=each.principal,
                    host_filter=each.host,
                    operation=each.operation,
                    permission_type=each.permission_type,
                )
                for each in filters
            ]
        )

        async def attempt() -> list[AclBinding]:
            answer = await self._cluster.call_controller(apis.DELETE_ACLS, request)
            gone: set[AclBinding] = set()
            for result in answer.filter_results:
                check(result.error_code, "ACLs", result.error_message)
                for acl in result.matching_acls:
                    check(acl.error_code, f"ACL of {acl.principal} on {acl.resource_name!r}", acl.error_message)
                    gone.add(_binding(acl.resource_type, acl.resource_name, acl.pattern_type, acl))
            return sorted(gone)

        return await self._cluster.retrying(attempt)


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
