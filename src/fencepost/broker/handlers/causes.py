"""The journal of causes over the wire: DescribeConfigs of a kind of resource that only Fencepost has.

The name of the resource is a transactional id, or empty for the last causes of all; each entry of the answer is one
event as JSON, oldest first, read-only. It travels on the connection that a tool has already, with its TLS and its
authentication, which a second port would not. No Kafka client ever asks for this kind, ApiVersions stays what Apache
Kafka says, and Apache Kafka answers the question with an error like for any kind that it does not know: a tool may
simply ask, and see what it gets.
"""

import json
from typing import TYPE_CHECKING

from fencepost.wire.messages import DescribeConfigsResponse

if TYPE_CHECKING:
    from fencepost.broker.node import Node

CAUSES = 100
"""Kafka's kinds of resources are small powers of two."""
RECENT_CAUSES_MAX = 1_000
_STRING, _UNKNOWN_SOURCE = 2, 0

_Config = DescribeConfigsResponse.DescribeConfigsResult.DescribeConfigsResourceResult


def described_causes(node: "Node", name: str) -> list[_Config]:
    entries = node.causes.of(name) if name else node.causes.recent(RECENT_CAUSES_MAX)
    return [
        _Config(
            name=str(number),
            value=json.dumps(entry, separators=(",", ":")),
            read_only=True,
            config_source=_UNKNOWN_SOURCE,
            is_sensitive=False,
            config_type=_STRING,
        )
        for number, entry in enumerate(entries)
    ]
