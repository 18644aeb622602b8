"""The judge of the loops sees what is wrong: a check that finds nothing must be able to find something."""

import random

from tests.exactly_once.loops import PURCHASES, TRANSFERS, Input, Loop, make_inputs
from tests.exactly_once.reader import Seen
from tests.exactly_once.verdict import judge

INPUTS = make_inputs(PURCHASES, 50, random.Random(1))


def copied(loop: Loop, inputs: list[Input]) -> list[Seen]:
    first, second = loop.outputs
    return [Seen(first, 0, one.number, one.sender, one) for one in inputs] + [
        Seen(second, 0, one.number, one.receiver, one) for one in inputs
    ]


def test_every_input_once_in_each_output_is_clean() -> None:
    for loop in (PURCHASES, TRANSFERS):
        inputs = make_inputs(loop, 50, random.Random(1))
        assert judge(loop, inputs, copied(loop, inputs)).is_clean


def test_a_record_that_is_in_no_output_is_lost_but_not_torn() -> None:
    verdict = judge(PURCHASES, INPUTS, copied(PURCHASES, INPUTS[1:]))
    assert (verdict.lost, verdict.torn) == (2, 0)
    assert not verdict.is_clean


def test_a_record_that_is_in_one_output_only_is_torn() -> None:
    verdict = judge(PURCHASES, INPUTS, copied(PURCHASES, INPUTS)[1:])
    assert (verdict.lost, verdict.torn) == (1, 1)


def test_a_repeated_transaction_is_duplicated_and_disordered() -> None:
    verdict = judge(PURCHASES, INPUTS, copied(PURCHASES, INPUTS) + copied(PURCHASES, INPUTS[:40]))
    assert verdict.duplicated == 80
    assert verdict.disordered > 0


def test_two_records_of_one_key_that_changed_places_are_disordered() -> None:
    same_key = [one for one in INPUTS if one.sender == INPUTS[-1].sender]
    assert len(same_key) > 1
    verdict = judge(PURCHASES, same_key, copied(PURCHASES, same_key[::-1]))
    assert verdict.disordered == 2 * (len(same_key) - 1)
    assert verdict.duplicated == 0


def test_what_was_never_put_in_is_invented_and_a_wrong_key_is_misplaced() -> None:
    stranger = Input(99, "nobody", "nobody", 0)
    records = [*copied(PURCHASES, INPUTS), *copied(PURCHASES, [stranger])]
    assert judge(PURCHASES, INPUTS, records).invented == 2
    first = records[0]
    records[0] = Seen(first.topic, first.partition, first.offset, "nobody", first.input)
    assert judge(PURCHASES, INPUTS, records).misplaced == 1
