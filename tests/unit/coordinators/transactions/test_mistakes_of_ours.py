"""An exception while one call is served fails that call: the id is as it was, and what is decided reaches its end."""

from typing import Any

import pytest

from fencepost.coordinators.illegal_transition import IllegalTransition
from fencepost.coordinators.transactions import decisions
from fencepost.coordinators.transactions.events import TransactionAborted
from tests.unit.coordinators.transactions.scene import Scene


def test_a_record_that_contradicts_the_one_before_is_not_written_and_frees_its_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    scene.init()
    written = len(scene.written)
    good = decisions.added_record

    def wrong(*arguments: Any) -> Any:
        return good(*arguments)._replace(producer_epoch=-1)  # type: ignore[union-attr]

    with monkeypatch.context() as patched:
        patched.setattr(decisions, "added_record", wrong)
        with pytest.raises(IllegalTransition, match="no producer has"):
            scene.add((1000, 0), ("out", 0))
    assert len(scene.written) == written
    assert scene.metadata().pending_state is None
    scene.play(
        """
        add tx 1000/0 out-0
          = NONE
          log tx Ongoing 1000/0 [out-0]
        """
    )


def test_a_report_that_fails_does_not_keep_markers_from_being_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(markers_at_once=True)
    scene.init()
    scene.add((1000, 0), ("out", 0))
    tell = scene.coordinator._events

    def failing(event: object) -> None:
        if isinstance(event, TransactionAborted):
            raise RuntimeError("the event feed is broken")
        tell(event)

    monkeypatch.setattr(scene.coordinator, "_events", failing)
    with pytest.raises(RuntimeError):
        scene.end((1000, 0), commit=False)
    assert scene.describe().transaction_state == "CompleteAbort"
