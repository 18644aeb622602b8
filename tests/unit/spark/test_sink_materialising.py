"""A batch whose kept rows were lost begins anew; nothing else is tried again."""

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from fencepost.spark.materialising import ATTEMPTS_MAX, again_if_kept_rows_were_lost
from tests.unit.spark.java_exceptions import JobFailed, kept_rows_lost, process_lost


def processed(*outcomes: Exception | None) -> int:
    """How often a batch was begun whose attempts fail with these, one after the other."""
    begun = 0

    def process() -> None:
        nonlocal begun
        begun += 1
        if (error := outcomes[begun - 1]) is not None:
            raise error

    again_if_kept_rows_were_lost(process)
    return begun


def test_a_batch_begins_anew_when_kept_rows_were_lost() -> None:
    assert processed(None) == 1
    assert processed(kept_rows_lost(), None) == 2
    assert processed(kept_rows_lost(), kept_rows_lost(), kept_rows_lost(), None) == 4


def test_it_begins_anew_when_they_are_the_cause() -> None:
    wrapped = LookupError("ours")
    wrapped.__cause__ = kept_rows_lost()
    assert processed(wrapped, None) == 2


def test_it_does_not_begin_anew_for_ever_or_for_other_reasons() -> None:
    with pytest.raises(JobFailed):
        processed(*[kept_rows_lost()] * (ATTEMPTS_MAX + 1))
    with pytest.raises(JobFailed):
        processed(process_lost(), None)
    with pytest.raises(RuntimeError, match="ours"):
        processed(RuntimeError("ours"), None)


@pytest.mark.parametrize(("error", "is_noted"), [(kept_rows_lost(), True), (process_lost(), False)])
def test_a_function_of_the_users_own_says_what_to_do(error: JobFailed, is_noted: bool) -> None:
    """`transaction()` cannot call the function again that it is a part of."""
    from fencepost.spark.sink import _say_if_kept_rows_were_lost

    _say_if_kept_rows_were_lost(error)
    assert any("Start the query again" in note for note in getattr(error, "__notes__", ())) is is_noted
