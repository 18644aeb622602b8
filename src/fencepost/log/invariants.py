"""What holds in every log at every moment. For tests, which may ask after each step."""

from typing import TYPE_CHECKING

from fencepost.wire.batch import verify_crc

if TYPE_CHECKING:
    from fencepost.log.partition_log import PartitionLog


def check(log: "PartitionLog") -> None:
    """AssertionError if anything that must always hold does not. Reads every batch."""
    assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.log_end_offset, repr(log)
    assert log.synced_offset <= log.log_end_offset, repr(log)
    assert log._segments, "a log has at least one segment"
    assert log._active is log._segments[-1], "the last segment is the active one"
    assert log._base_offsets == [segment.base_offset for segment in log._segments]
    assert log._base_offsets == sorted(set(log._base_offsets)), log._base_offsets
    assert log._base_offsets[0] <= log.log_start_offset, (log._base_offsets, log.log_start_offset)
    assert log._base_offsets[-1] <= log.log_end_offset, (log._base_offsets, log.log_end_offset)
    assert log.leader_epoch <= log.epochs.latest or log.epochs.latest == -1, (log.leader_epoch, log.epochs)
    for segment, end_offset in zip(log._segments, [*log._base_offsets[1:], log.log_end_offset], strict=True):
        assert segment.size == segment.file.size(), f"{segment.log_path}: {segment.size} != {segment.file.size()}"
        position, next_offset = 0, segment.base_offset
        for found in segment.batches():
            assert found.header.base_offset >= next_offset, (segment.log_path, found.header)
            assert verify_crc(found.block, found.start, found.header), (segment.log_path, found.header)
            next_offset = found.header.next_offset
            position = found.position + found.header.size_bytes
        assert position == segment.size, f"{segment.log_path}: batches end at {position} of {segment.size}"
        assert next_offset <= end_offset, (segment.log_path, next_offset, end_offset)
    for offset, (segment, position) in log._hints.items():
        found_at = segment.find(offset)
        assert (segment.size if found_at is None else found_at[0]) == position, (offset, position, found_at)
