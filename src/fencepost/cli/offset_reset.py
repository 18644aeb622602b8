"""The offsets that `groups reset-offsets` sets: never outside the log, as with Kafka's own tool."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fencepost.cli.output import CommandFailed

if TYPE_CHECKING:
    from fencepost.client.admin import AsyncAdmin
    from fencepost.topic_partition import TopicPartition

# Imports inside functions: each command loads only what it needs, so that it starts quickly.


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """One of: a time (or a special timestamp of ListOffsets), an offset, a distance from the committed offset."""

    timestamp_ms: int | None = None
    offset: int | None = None
    shift: int | None = None


async def plan_reset(
    admin: "AsyncAdmin", target: Target, before: "Mapping[TopicPartition, int | None]"
) -> "dict[TopicPartition, int]":
    from fencepost.client.kafka_types import Reset

    earliest = await admin.list_offsets(dict.fromkeys(before, int(Reset.EARLIEST)))
    latest = await admin.list_offsets(dict.fromkeys(before, int(Reset.LATEST)))
    if target.timestamp_ms is not None:
        listed = await admin.list_offsets(dict.fromkeys(before, target.timestamp_ms))
        # There is no record that late: use the end.
        return {at: found.offset if found.offset >= 0 else latest[at].offset for at, found in listed.items()}
    after = {}
    for at, committed in before.items():
        if target.offset is not None:
            wanted = target.offset
        elif committed is None:
            raise CommandFailed(
                f"{at} has no committed offset to shift", "use --to-earliest, --to-latest or --to-offset"
            )
        else:
            wanted = committed + (target.shift or 0)
        after[at] = within(wanted, earliest[at].offset, latest[at].offset)
    return after


def within(offset: int, earliest: int, latest: int) -> int:
    return max(earliest, min(offset, latest))
