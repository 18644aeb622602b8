"""The server.properties with which Apache Kafka goes on with a data directory of ours, or with its own again."""

from dataclasses import dataclass

from fencepost.internal_topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from fencepost.metadata.image import MetadataImage
from fencepost.metadata.log_files import CONTROLLER_LISTENER, StoredMetadata

_ONE_REPLICA = (
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "transaction.state.log.min.isr",
    "share.coordinator.state.topic.replication.factor",
    "share.coordinator.state.topic.min.isr",
)
_PARTITION_COUNTS = {
    "offsets.topic.num.partitions": CONSUMER_OFFSETS,
    "transaction.state.log.num.partitions": TRANSACTION_STATE,
}


@dataclass(frozen=True, slots=True)
class Addresses:
    """HOST:PORT of what clients and controllers connect to."""

    listener: str
    controller: str


def server_properties(
    node_id: int, directory: str, stored: StoredMetadata, image: MetadataImage, addresses: Addresses
) -> list[str]:
    """Lines, with comments. What is not in the directory (listeners with logins, super users) has to be repeated."""
    settings = {
        "node.id": str(node_id),
        "process.roles": "broker,controller",
        "log.dirs": directory,
        "listeners": f"PLAINTEXT://{addresses.listener},{CONTROLLER_LISTENER}://{addresses.controller}",
        "advertised.listeners": f"PLAINTEXT://{addresses.listener}",
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{CONTROLLER_LISTENER}:PLAINTEXT",
        "controller.listener.names": CONTROLLER_LISTENER,
    }
    if stored.kraft_version:
        settings["controller.quorum.bootstrap.servers"] = addresses.controller
    else:
        settings["controller.quorum.voters"] = f"{node_id}@{addresses.controller}"
    settings |= dict.fromkeys(_ONE_REPLICA, "1")
    for name, topic in _PARTITION_COUNTS.items():
        if topic in image.topics:
            settings[name] = str(len(image.topics[topic].partitions))
    lines = [f"{name}={value}" for name, value in settings.items()]
    if image.acls:
        lines += [
            "# There are ACLs. They count with an authorizer; name the super users of your configuration.",
            "#authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "#super.users=",
        ]
    if image.scram:
        lines.append("# There are SCRAM users. Repeat the listeners with SASL of your configuration.")
    return lines
