"""The transaction coordinator as a story: what happens, what is decided, and what is carried out of it, in order.

`transaction_decisions.txt` is that story, to be read as prose. A line at the margin is something that happens, in the
words of the unit tests' scene. Below it, each decision with its effects, one in a line, and what the coordinator did:
`log` a record that it wrote, `markers` an order for markers, `event` what it reported, `=` or `->` an answer. What
comes after an `Append` is carried out when the record is durable.

FENCEPOST_WRITE_TRANSCRIPTS=1 writes the file anew; the difference is then for a reviewer to read.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fencepost.coordinators.transactions import coordinator
from fencepost.coordinators.transactions.calls import NO_PAIR
from fencepost.coordinators.transactions.effects import (
    Answer,
    Append,
    CancelTimer,
    CountMarker,
    Create,
    Drop,
    KeepGuard,
    NoteFencing,
    Report,
    Reserve,
    RetryMarker,
    SendMarkers,
    SetTimer,
    Wait,
)
from fencepost.coordinators.transactions.transaction_metadata import TransactionEntry
from tests.unit.coordinators.transactions.scene import Scene, describe, names

TRANSCRIPT = Path(__file__).with_name("transaction_decisions.txt")
DECISIONS = [name for name in vars(coordinator) if name.startswith("decide_")] + ["check_init", "complete"]

STORIES: list[tuple[str, dict[str, Any], str]] = [
    (
        "A producer of protocol 2 starts, writes to two partitions and commits",
        {"markers_at_once": False},
        """
        init tx
        implicit tx 1000/0 out-0
        implicit tx 1000/0 out-1
        end tx 1000/0 commit v=5
        marked out-0
        marked out-1
        """,
    ),
    (
        "Each step waits for the disk: Prepare before the answer and the markers, the markers before Complete",
        {"markers_at_once": False},
        """
        seed tx Ongoing 1000/0 out-0
        slow disk
        end tx 1000/0 commit v=5
        end tx 1000/0 commit v=5
        implicit tx 1000/1 out-1
        sync
        marked out-0
        sync
        sync
        """,
    ),
    (
        "A producer of protocol 1 adds, commits under the same epoch, and aborts the next",
        {"markers_at_once": True},
        """
        init tx
        add tx 1000/0 out-0
        offsets tx 1000/0 shop
        end tx 1000/0 commit
        end tx 1000/0 commit
        add tx 1000/0 out-1
        end tx 1000/0 abort
        """,
    ),
    (
        "A zombie: the second instance aborts what the first has open, and the first is fenced",
        {"markers_at_once": True},
        """
        init tx
        implicit tx 1000/0 out-0
        init tx
        init tx
        implicit tx 1000/0 out-1
        end tx 1000/0 commit v=5
        """,
    ),
    (
        "A crash between Prepare and the markers: the next coordinator finishes what was decided",
        {"markers_at_once": False},
        """
        init open
        implicit open 1000/0 out-1
        init tx
        implicit tx 1001/0 out-0
        end tx 1001/0 commit v=5
        restart
        marked out-0
        """,
    ),
    (
        "A marker is refused for now: it is sent again, and only then Complete is written",
        {"markers_at_once": False},
        """
        seed tx Ongoing 1000/0 out-0 out-1
        end tx 1000/0 abort v=5
        marked out-0 NOT_LEADER_OR_FOLLOWER
        marked out-1
        advance 100
        marked out-0
        """,
    ),
    (
        "A transaction is open for too long",
        {"markers_at_once": True},
        """
        init tx timeout=20000
        implicit tx 1000/0 out-0
        advance 40_000
        end tx 1000/0 commit v=5
        """,
    ),
    (
        "The disk is full: nothing happened, and the client is to come again; a Complete is written when there is room",
        {"markers_at_once": False},
        """
        init tx
        implicit tx 1000/0 out-0
        fail NOT_ENOUGH_REPLICAS
        end tx 1000/0 commit v=5
        end tx 1000/0 commit v=5
        fail NOT_ENOUGH_REPLICAS
        marked out-0
        advance 100
        """,
    ),
    (
        "The epochs of a producer id run out",
        {"markers_at_once": True},
        """
        seed tx Ongoing 1000/32766 out-0 TV=2
        end tx 1000/32766 commit v=5
        end tx 1000/32766 commit v=5
        """,
    ),
    (
        "A ghost: an EndTxn that was held up on an old connection does nothing",
        {"markers_at_once": True},
        """
        init tx
        add tx 1000/0 out-0 connection=1
        add tx 1000/0 out-1 connection=2
        end tx 1000/0 commit connection=1
        end tx 1000/0 commit connection=2
        """,
    ),
    (
        "An id that nobody uses any more expires",
        {"markers_at_once": True, "transactional_id_expiration_ms": 3_600_000},
        """
        init tx
        advance 7_200_000
        implicit tx 1000/0 out-0
        """,
    ),
]


def pair(given: tuple[int, int]) -> str:
    return f"{given[0]}/{given[1]}"


def answered(effect: Answer) -> str:
    error, client, ongoing = effect.outcome
    text = f"{effect.call.operation}: {error.name}"
    if client != NO_PAIR:
        text += f", goes on as {pair(client)}"
    return text if ongoing == NO_PAIR else f"{text}, has {pair(ongoing)} to end"


_TELL: dict[type, Callable[[Any], str]] = {
    Append: lambda e: describe(TransactionEntry("", e.record)).strip(),
    Answer: answered,
    Create: lambda e: f"{e.transactional_id} as {pair(e.record[:2])}",
    Drop: lambda e: e.call.operation,
    Wait: lambda e: e.call.operation,
    SendMarkers: lambda e: names(e.partitions),
    CountMarker: lambda e: str(e.partition),
    RetryMarker: lambda e: str(e.partition),
    Reserve: lambda e: e.state.wire_name,
    SetTimer: lambda e: f"{e.kind.value} in {e.delay_ms} ms",
    CancelTimer: lambda e: e.kind.value,
    Report: lambda e: type(e.event).__name__,
    NoteFencing: lambda e: e.cause.name,
    KeepGuard: lambda e: f"newest connection {e.guard.newest_connection}",
}


def told(effect: Any) -> str:
    return f"{type(effect).__name__} {_TELL.get(type(effect), lambda _: '')(effect)}".strip()


def story(title: str, settings: dict[str, Any], lines: str, monkeypatch: pytest.MonkeyPatch) -> str:
    scene = Scene(**settings)

    def telling(name: str, decide: Callable[..., Any]) -> Callable[..., Any]:
        def decided(*arguments: Any) -> Any:
            effects = decide(*arguments)
            if effects:
                scene.output.append(name)
                scene.output.extend(f"  {told(effect)}" for effect in effects)
            return effects

        return decided

    with monkeypatch.context() as patched:
        for name in DECISIONS:
            patched.setattr(coordinator, name, telling(name, getattr(coordinator, name)))
        text = [title, "=" * len(title)]
        for line in lines.strip().splitlines():
            scene.output = []
            scene._perform(line.strip())
            text += [line.strip(), *(f"    {result}" for result in scene.output)]
    return "\n".join(text) + "\n"


def test_the_story_of_the_transaction_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    actual = "\n".join(story(*each, monkeypatch) for each in STORIES)
    if os.environ.get("FENCEPOST_WRITE_TRANSCRIPTS"):
        TRANSCRIPT.write_text(actual)
    assert actual == TRANSCRIPT.read_text()
