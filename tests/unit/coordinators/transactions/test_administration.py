"""ListTransactions and DescribeTransactions, and patterns that strangers send."""

import re
from time import thread_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.broker.slices import finished
from fencepost.coordinators.transactions.patterns import InvalidPattern, Pattern, compile_pattern
from fencepost.wire.errors import ErrorCode
from fencepost.wire.messages import ListTransactionsRequest
from tests.unit.coordinators.transactions.scene import Scene


def a_small_world() -> Scene:
    scene = Scene(markers_at_once=False)
    scene.init("idle")
    scene.init("open")
    scene.add((1001, 0), ("out", 0), transactional_id="open")
    scene.advance(5_000)
    scene.init("ending")
    scene.add((1002, 0), ("out", 1), ("audit", 0), transactional_id="ending")
    scene.end((1002, 0), commit=False, transactional_id="ending")
    return scene


def listed(scene: Scene, version: int = 2, **filters: object) -> list[tuple[str, int, str]]:
    states = scene.list_transactions(version, **filters).transaction_states
    return sorted((state.transactional_id, state.producer_id, state.transaction_state) for state in states)


IDLE, OPEN, ENDING = ("idle", 1000, "Empty"), ("open", 1001, "Ongoing"), ("ending", 1002, "PrepareAbort")


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, [ENDING, IDLE, OPEN]),
        ({"state_filters": ["Ongoing"]}, [OPEN]),
        ({"state_filters": ["Ongoing", "Empty", "Nonsense"]}, [IDLE, OPEN]),
        ({"state_filters": ["Nonsense"]}, []),
        ({"producer_id_filters": [1000, 1002, 77]}, [ENDING, IDLE]),
        ({"duration_filter": 5_000}, [IDLE]),
        ({"duration_filter": 4_999}, [IDLE, OPEN]),
        ({"duration_filter": 4_999, "state_filters": ["Ongoing"]}, [OPEN]),
        ({"transactional_id_pattern": ""}, [ENDING, IDLE, OPEN]),
        ({"transactional_id_pattern": ".*n"}, [OPEN]),
        ({"transactional_id_pattern": "n"}, []),
        ({"transactional_id_pattern": "idle|ending"}, [ENDING, IDLE]),
    ],
)
def test_every_filter_of_a_listing(filters: dict, expected: list) -> None:
    assert listed(a_small_world(), **filters) == expected


def test_unknown_state_names_are_handed_back() -> None:
    scene = a_small_world()
    assert scene.list_transactions(0, state_filters=["Nonsense", "Empty"]).unknown_state_filters == ["Nonsense"]


def test_a_bad_pattern_is_refused() -> None:
    answer = a_small_world().list_transactions(transactional_id_pattern="(")
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_description_shows_in_prepare_only_the_partitions_that_still_wait() -> None:
    scene = a_small_world()
    found = scene.describe("ending")
    assert {topic.topic: topic.partitions for topic in found.topics} == {"audit": [0], "out": [1]}
    assert (found.transaction_timeout_ms, found.transaction_start_time_ms) == (60_000, scene.wall_ms())
    scene.marked(("out", 1))
    assert {topic.topic: topic.partitions for topic in scene.describe("ending").topics} == {"audit": [0]}
    scene.marked(("audit", 0))
    assert scene.describe("ending").topics == []
    assert scene.describe("ending").transaction_state == "CompleteAbort"
    assert scene.describe("").error_code == ErrorCode.INVALID_REQUEST
    assert scene.describe("nobody").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


_ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", r"\w", r"\.", "[a-c1-3]", "^", "$", "-"])
_PATTERNS = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{2,}", "*?"])).map(
            lambda pair: f"({pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=6,
)


@given(_PATTERNS, st.text("ab1-.", max_size=8))
@settings(max_examples=400, deadline=None)
def test_patterns_match_what_they_match_elsewhere(pattern: str, text: str) -> None:
    expected = re.fullmatch(pattern.replace("$", r"\Z"), text) is not None
    assert compile_pattern(pattern).matches(text) is expected


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (r"a\Q.*\E+", "a.**", True),
        (r"a\Q.*\E", "abc", False),
        (r"\Qa|b", "a|b", True),
        ("(?i)orders-[a-c]", "Orders-B", True),
        ("(?i:or)ders", "ORders", True),
        ("(?i:or)ders", "ORDERS", False),
        ("((?i)a)b", "AB", False),
        ("(?i)a(?-i)b", "AB", False),
        ("a.b", "a\nb", False),
        ("(?s)a.b", "a\nb", True),
        ("(?P<year>[0-9]+)-(?<month>[0-9]+)", "2024-07", True),
        ("(?m)a$", "a", True),
        ("(?m)a$", "a\nb", False),
        (r"\p{L}+-\d", "Größe-1", True),
        (".", "ö", True),
        (r"[[:alpha:]]+\b", "orders", True),
    ],
)
def test_quotations_flags_and_names_in_a_pattern(pattern: str, text: str, expected: bool) -> None:
    assert compile_pattern(pattern).matches(text) is expected


def test_a_pattern_that_would_take_others_a_lifetime_takes_us_a_moment() -> None:
    pattern = compile_pattern("(a+)+(a|a)*(.*)*b")
    started = thread_time()
    assert not pattern.matches("a" * 2_000)
    assert thread_time() - started < 1


def test_the_longer_an_id_the_smaller_a_pattern_must_be() -> None:
    assert compile_pattern("a*").matches("a" * 32_767)
    assert compile_pattern("(a?){400}a{400}").matches("a" * 400)
    with pytest.raises(InvalidPattern):
        compile_pattern("(a?){400}a{400}").matches("a" * 2_000)


def test_nothing_is_written_to_standard_error_about_a_pattern(capfd: pytest.CaptureFixture[str]) -> None:
    for text in ("(", "(.?){900}z", "(a{1000}){1000}"):
        with pytest.raises(InvalidPattern):
            compile_pattern(text)
    compile_pattern("(.*a.{30}){3}").matches("ab" * 1_000)
    assert capfd.readouterr().err == ""


def test_a_pattern_meets_only_ids_that_the_caller_may_see(monkeypatch: pytest.MonkeyPatch) -> None:
    met = []
    matches = Pattern.matches

    def noted(pattern: Pattern, text: str) -> bool:
        met.append(text)
        return matches(pattern, text)

    monkeypatch.setattr(Pattern, "matches", noted)
    scene = a_small_world()
    request = ListTransactionsRequest(transactional_id_pattern=".*")
    answer = finished(scene.coordinator.list_transactions(request, scene.now, lambda name: name == "idle"))
    assert [state.transactional_id for state in answer.transaction_states] == met == ["idle"]


def test_a_listing_can_be_interrupted_at_every_id() -> None:
    scene = a_small_world()
    assert len(list(scene.coordinator.list_transactions(ListTransactionsRequest(), scene.now))) == 3


@pytest.mark.parametrize("text", ["(", ")", "a)", "[", "*", "a**", "(?=a)", "(?<>a)", r"\1", r"\p{Q}", "[b-a]", "\\"])
def test_what_is_not_a_pattern(text: str) -> None:
    with pytest.raises(InvalidPattern):
        compile_pattern(text)


@pytest.mark.parametrize(
    "text", ["a{2000}", "a{3,2}", "(" * 200, "(a{1000}){1000}", "x" * 1_001, "(.?){900}z", r"(?i)\pL{10}"]
)
def test_what_is_too_much_of_a_pattern(text: str) -> None:
    with pytest.raises(InvalidPattern):
        compile_pattern(text)
