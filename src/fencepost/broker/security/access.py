"""What one connection may do: the decisions for its principal and host, remembered until the rules change."""

from collections.abc import Callable

from fencepost.broker.events import AccessDenied
from fencepost.broker.security.authorizer import Authorizer
from fencepost.broker.security.principal import Principal
from fencepost.wire.acls import CLUSTER_NAME, SUPPORTED_OPERATIONS, AclOperation, ResourceType

# Bounds the memory that a client can use up by naming ever new resources.
VERDICTS_MAX = 4_096


class Access:
    __slots__ = ("_authorizer", "_emit", "_host", "_reported", "_verdicts", "_version", "principal")

    def __init__(self, authorizer: Authorizer, principal: Principal, host: str, emit: Callable[[object], None]) -> None:
        self.principal = principal
        self._authorizer = authorizer
        self._host = host
        self._emit = emit
        self._reported: set[tuple[AclOperation, ResourceType, str]] = set()
        self._verdicts: dict[tuple[AclOperation, ResourceType, str], bool] = {}
        self._version = authorizer.version

    def may(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Whether a request that asks for this is let through. If not, the event feed gets an event, once."""
        verdict = self.could(operation, resource_type, name)
        if not verdict and (operation, resource_type, name) not in self._reported:
            self._reported.add((operation, resource_type, name))
            self._emit(AccessDenied(str(self.principal), self._host, operation.name, resource_type.name, name))
        return verdict

    def could(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """The same without the event, where a missing right only hides something, or another right may do instead."""
        if self._version != self._authorizer.version or len(self._verdicts) >= VERDICTS_MAX:
            self._verdicts.clear()
            self._reported.clear()
            self._version = self._authorizer.version
        key = (operation, resource_type, name)
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = self._authorizer.authorize(self.principal, self._host, operation, resource_type, name)
            self._verdicts[key] = verdict
        return verdict

    def may_cluster(self, operation: AclOperation) -> bool:
        return self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def could_cluster(self, operation: AclOperation) -> bool:
        return self.could(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def could_any(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether there is any resource of the type that the operation is allowed on."""
        return self._authorizer.authorize_by_resource_type(self.principal, self._host, operation, resource_type)

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """Everything that may be done to a resource, as the bits of `authorizedOperations`."""
        return sum(
            1 << operation
            for operation in SUPPORTED_OPERATIONS[resource_type]
            if self.could(operation, resource_type, name)
        )
