"""The short way to a batch of one record leads to the same bytes as the long one."""

from hypothesis import given
from hypothesis import strategies as st

from fencepost.wire.batch import CONTROL_MASK, TRANSACTIONAL_MASK, build_batch, build_single


@given(
    timestamp=st.integers(0, 2**62),
    key=st.binary(max_size=300),
    value=st.none() | st.binary(max_size=9000),
    base_offset=st.integers(0, 2**62),
    leader_epoch=st.integers(-1, 2**31 - 1),
    producer=st.tuples(st.integers(-1, 2**62), st.integers(-1, 32767)),
    transactional=st.booleans(),
    control=st.booleans(),
)
def test_a_single_record_makes_the_same_batch_either_way(
    timestamp: int,
    key: bytes,
    value: bytes | None,
    base_offset: int,
    leader_epoch: int,
    producer: tuple[int, int],
    transactional: bool,
    control: bool,
) -> None:
    attributes = TRANSACTIONAL_MASK * transactional | CONTROL_MASK * control
    place = {"base_offset": base_offset, "partition_leader_epoch": leader_epoch}
    writer = {"producer_id": producer[0], "producer_epoch": producer[1]}
    short = build_single(timestamp, key, value, attributes=attributes, **place, **writer)
    long = build_batch([(timestamp, key, value, ())], transactional=transactional, control=control, **place, **writer)
    assert short == long
