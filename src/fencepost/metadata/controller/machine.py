"""The controller: one request at a time in, a decision out; records in, and they count.

Whoever drives it appends the records of a decision to the log, lets them count with `take`, and gives the answer once
they are durable, and everything before them. `tick` says what happens by itself.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fencepost.metadata.controller import (
    acls,
    brokers,
    configs,
    credentials,
    features,
    partitions,
    producer_ids,
    quotas,
    topics,
)
from fencepost.metadata.controller.placement import Placer, StripedPlacer
from fencepost.metadata.controller.state import Call, ControllerSettings, ControllerState, Decision
from fencepost.metadata.image import MetadataImage
from fencepost.metadata.records import MetadataRecord
from fencepost.ports import Randomness

_DECIDE: Mapping[str, Callable[[ControllerState, Any, Call], Decision]] = {
    "AllocateProducerIdsRequest": producer_ids.allocate_producer_ids,
    "AlterClientQuotasRequest": quotas.alter_client_quotas,
    "AlterConfigsRequest": configs.alter_configs,
    "AlterPartitionReassignmentsRequest": partitions.alter_partition_reassignments,
    "AlterPartitionRequest": partitions.alter_partition,
    "AlterUserScramCredentialsRequest": credentials.alter_user_scram_credentials,
    "AssignReplicasToDirsRequest": partitions.assign_replicas_to_dirs,
    "BrokerHeartbeatRequest": brokers.heartbeat,
    "BrokerRegistrationRequest": brokers.register_broker,
    "ControllerRegistrationRequest": brokers.register_controller,
    "CreateAclsRequest": acls.create_acls,
    "CreatePartitionsRequest": topics.create_partitions,
    "CreateTopicsRequest": topics.create_topics,
    "DeleteAclsRequest": acls.delete_acls,
    "DeleteTopicsRequest": topics.delete_topics,
    "ElectLeadersRequest": partitions.elect_leaders,
    "IncrementalAlterConfigsRequest": configs.incremental_alter_configs,
    "ListPartitionReassignmentsRequest": partitions.list_partition_reassignments,
    "UnregisterBrokerRequest": brokers.unregister_broker,
    "UpdateFeaturesRequest": features.update_features,
}


class Controller:
    def __init__(self, settings: ControllerSettings, randomness: Randomness, placer: Placer | None = None) -> None:
        self._state = ControllerState(settings, randomness, placer or StripedPlacer(randomness))

    @property
    def image(self) -> MetadataImage:
        return self._state.image

    @property
    def next_offset(self) -> int:
        return self._state.next_offset

    def decide(self, request: Any, call: Call) -> Decision:
        """Raises KafkaError for a request that is refused as a whole."""
        return _DECIDE[request.schema_name](self._state, request, call)

    def take(self, records: Sequence[MetadataRecord], base_offset: int) -> None:
        """From now on these records count: they are in the log from `base_offset` on."""
        self._state.replay(records, base_offset)

    def skip_to(self, offset: int) -> None:
        """What is in the log before is no metadata record."""
        self._state.next_offset = offset

    def appended(self, decision: Decision) -> None:
        """The records of a decision, perhaps none, are in the log and count."""
        if decision.stopping_broker is not None:
            self._state.heartbeats.begin_shutdown(decision.stopping_broker, self._state.next_offset - 1)

    def begin_sessions(self, now_ms: int) -> None:
        """After a start: every broker that is not fenced gets one session's time to be heard of."""
        for known in self._state.image.brokers.values():
            if not known.is_fenced:
                self._state.heartbeats.hear(known.broker_id, known.epoch, now_ms)

    def fence_one_silent(self, now_ms: int) -> tuple[bool, list[MetadataRecord]]:
        """Whether a session was over, and the records that follow. To be asked again, after they count, until not."""
        return brokers.fence_one_silent(self._state, now_ms)

    def balanced(self) -> list[MetadataRecord]:
        """The elections that bring leaders back to where they should be."""
        return partitions.balanced(self._state)

    def elected_uncleanly(self) -> list[MetadataRecord]:
        """The elections of topics that would rather lose records than be without a leader."""
        return partitions.elected_uncleanly(self._state)
