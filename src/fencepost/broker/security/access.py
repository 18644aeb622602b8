"""What one connection may do: the verdicts for its principal and host, remembered until the rules change."""

from collections.abc import Callable

from fencepost.broker.events import AccessDenied
from fencepost.broker.security.authorizer import Authorizer
from fencepost.broker.security.principal import Principal
from fencepost.wire.acls import CLUSTER_NAME, SUPPORTED_OPERATIONS, AclOperation, ResourceType

# A client that names ever new resources must not be remembered for it.
VERDICTS_MAX = 4_096


class Access:
    __slots__ = ("_authorizer", "_host", "_tell", "_told", "_verdicts", "_version", "principal")

    def __init__(self, authorizer: Authorizer, principal: Principal, host: str, tell: Callable[[object], None]) -> None:
        self.principal = principal
        self._authorizer = authorizer
        self._host = host
        self._tell = tell
        self._told: set[tuple[AclOperation, ResourceType, str]] = set()
        self._verdicts: dict[tuple[AclOperation, ResourceType, str], bool] = {}
        self._version = authorizer.version

    def may(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Whether a request that asks for this is let through; whoever runs the broker is told if not."""
        verdict = self.could(operation, resource_type, name)
        if not verdict and (operation, resource_type, name) not in self._told:
            self._told.add((operation, resource_type, name))
            self._tell(AccessDenied(str(self.principal), self._host, operation.name, resource_type.name, name))
        return verdict

    def could(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """The same, where being refused only means that something is not shown, or that another right is looked for."""
        if self._version != self._authorizer.version or len(self._verdicts) >= VERDICTS_MAX:
            self._verdicts.clear()
            self._told.clear()
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
