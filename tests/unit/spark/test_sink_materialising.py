"""A batch whose kept rows were lost begins anew; nothing else is tried again."""

import pytest

from fencepost.spark.materialising import ATTEMPTS_MAX, again_if_kept_rows_were_lost

LOST = "Job aborted due to stage failure: Checkpoint block rdd_5_0 not found! Either the executor ..."


def processed(*outcomes: str | None) -> int:
    """How often a batch was begun whose attempts fail with these texts, one after the other."""
    begun = 0

    def process() -> None:
        nonlocal begun
        begun += 1
        if (text := outcomes[begun - 1]) is not None:
            raise RuntimeError(text)

    again_if_kept_rows_were_lost(process)
    return begun


def test_a_batch_begins_anew_when_kept_rows_were_lost() -> None:
    assert processed(None) == 1
    assert processed(LOST, None) == 2


def test_it_does_not_begin_anew_for_ever_or_for_other_reasons() -> None:
    with pytest.raises(RuntimeError, match="Checkpoint block"):
        processed(*[LOST] * (ATTEMPTS_MAX + 1))
    with pytest.raises(RuntimeError, match="ours"):
        processed("ours", None)
