"""The calls of a transactional id as a swim lane: one line per call, with an arrow from the client to the broker."""

import datetime
from collections.abc import Sequence
from typing import Any

from fencepost.tap.calls import Call
from fencepost.tap.frames import Plain

LANES = ("client", "coordinator", "leaders", "group")
LANE_WIDTH = 19
HELD_SECONDS = 1.0
"""A call that is unanswered for this long gets a line of its own while it waits."""

_LANE_OF_API = {
    "FindCoordinator": 1,
    "InitProducerId": 1,
    "AddPartitionsToTxn": 1,
    "AddOffsetsToTxn": 1,
    "EndTxn": 1,
    "Produce": 2,
    "TxnOffsetCommit": 3,
}

_EMPTY_LANES = "│".ljust(LANE_WIDTH) * len(LANES)


def heading(transactional_id: str, calls: Sequence[Call]) -> list[str]:
    clients = dict.fromkeys(f"{call.client_id or '(no client id)'} at {call.client}" for call in calls)
    lanes = "".join(name.ljust(LANE_WIDTH) for name in LANES)
    return [
        f"transactional id {transactional_id}",
        *(f"  client {client}" for client in clients),
        "",
        f"{'time':<13}{lanes}{'took':>10}  what came of it",
    ]


def line(call: Call, now: float | None = None) -> str:
    """Formats one call; `now` is the current time, for unanswered calls."""
    lane = _LANE_OF_API.get(call.api, 1)
    arrow = ("├─" + _label(call)).ljust(lane * LANE_WIDTH - 1, "─") + "▶"
    drawn = arrow + _EMPTY_LANES[len(arrow) :]
    return f"{_clock(call.asked_at):<13}{drawn}{_took(call, now):>10}  {outcome(call)}"


def _label(call: Call) -> str:
    if call.api == "EndTxn" and call.request is not None:
        return "EndTxn " + ("commit" if call.request.get("committed") else "abort")
    return {"AddPartitionsToTxn": "AddPartitions", "AddOffsetsToTxn": "AddOffsets"}.get(call.api, call.api)


def _clock(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds).strftime("%H:%M:%S.%f")[:-3]


def _took(call: Call, now: float | None) -> str:
    seconds = call.seconds
    if seconds is not None:
        return f"{seconds * 1000:.1f} ms"
    if call.lost is None and now is not None:
        return f"{now - call.asked_at:.1f} s …"
    return "…"


def outcome(call: Call) -> str:
    asked = _asked(call)
    if call.errors:
        result = ", ".join(call.errors)
    elif call.answered_at is not None:
        result = _answered(call)
    else:
        result = f"no answer: {call.lost}" if call.lost else "no answer yet"
    return "; ".join(part for part in (asked, result) if part)


def _asked(call: Call) -> str:
    request = call.request
    if request is None:
        return f"{call.api} v{call.version}, which cannot be decoded"
    match call.api:
        case "InitProducerId":
            return "" if request.get("producer_id", -1) < 0 else _identity(request)
        case "Produce":
            return ", ".join(_batch(topic, part) for topic in request["topic_data"] for part in topic["partition_data"])
        case "AddPartitionsToTxn":
            topics = request.get("v3_and_below_topics") or [
                topic for each in request.get("transactions") or [] for topic in each["topics"]
            ]
            return ", ".join(f"{topic['name']}-{number}" for topic in topics for number in topic["partitions"])
        case "TxnOffsetCommit":
            offsets = ", ".join(
                f"{_topic(topic)}-{part['partition_index']} to {part['committed_offset']}"
                for topic in request["topics"]
                for part in topic["partitions"]
            )
            return f"group {request['group_id']}: {offsets}"
        case "AddOffsetsToTxn":
            return f"group {request['group_id']}"
        case "EndTxn":
            return _identity(request)
    return ""


def _batch(topic: Plain, part: Plain) -> str:
    batches = part.get("batches") or []
    count = sum(batch["records"] for batch in batches)
    first = batches[0] if batches else {}
    identity = f" ({_identity(first)}, sequence {first['base_sequence']})" if first else ""
    return f"{_topic(topic)}-{part['index']}: {count} record{'' if count == 1 else 's'}{identity}"


def _topic(topic: Plain) -> str:
    return str(topic.get("name") or topic.get("topic_name") or topic.get("topic_id"))


def _identity(message: Plain) -> str:
    return f"producer {message['producer_id']} epoch {message['producer_epoch']}"


def _answered(call: Call) -> str:
    response: dict[str, Any] = call.response or {}
    match call.api:
        case "InitProducerId":
            return _identity(response)
        case "Produce":
            offsets = [part["base_offset"] for topic in response["responses"] for part in topic["partition_responses"]]
            return "at offset " + ", ".join(map(str, offsets))
        case "EndTxn" if response.get("producer_id", -1) >= 0:
            return f"next {_identity(response)}"
        case "FindCoordinator":
            found = response.get("coordinators") or [response]
            return "node " + ", ".join(str(each["node_id"]) for each in found)
    return "ok"
