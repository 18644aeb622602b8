"""One log on a simulated disk, and batches to put into it."""

import dataclasses
from typing import Any

from fencepost.config import TopicConfig
from fencepost.log.partition_log import Appended, Checkpoints, LogLimits, PartitionLog
from fencepost.simulation.disk import SimulatedDisk
from fencepost.wire.batch import Buffer, build_batch, iterate_headers

NOW_MS = 1_700_000_000_000
DIRECTORY = "/data/purchases-0"
TOPIC_ID = bytes(range(16))


def batch_of(*values: str, timestamp_ms: int = NOW_MS, key: bytes | None = b"key", **fields: Any) -> bytearray:
    return build_batch([(timestamp_ms, key, value.encode(), ()) for value in values], **fields)


def idempotent(sequence: int, *values: str, producer_id: int = 7, epoch: int = 0, **fields: Any) -> bytearray:
    return batch_of(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **fields)


def offsets_in(records: Buffer) -> list[int]:
    """First offsets of the batches."""
    return [header.base_offset for _, header in iterate_headers(records)]


@dataclasses.dataclass
class Scene:
    config: TopicConfig = dataclasses.field(default_factory=TopicConfig)
    disk: SimulatedDisk = dataclasses.field(default_factory=SimulatedDisk)
    now_ms: int = NOW_MS

    def __post_init__(self) -> None:
        self.disk.make_directory("/data")
        self.disk.sync_directory("/")
        self.open(clean=True)

    def open(
        self,
        *,
        clean: bool,
        recovery_point: int | None = 0,
        log_start_offset: int = 0,
        clean_offset: int = 0,
        gapless_offset: int = 0,
    ) -> PartitionLog:
        self.log = PartitionLog.open(
            self.disk, DIRECTORY, "purchases", 0, TOPIC_ID, self.config, self.now_ms,
            Checkpoints(clean, recovery_point, log_start_offset, clean_offset, gapless_offset),
            limits=LogLimits(transaction_verification_enabled=False, decompressed_batch_max_bytes=1 << 20),
        )  # fmt: skip
        return self.log

    def append(self, batch: bytearray | None = None, *, leader_epoch: int = 0, **options: Any) -> Appended:
        return self.log.append_as_leader(
            batch_of("value") if batch is None else batch, leader_epoch=leader_epoch, now_ms=self.now_ms, **options
        )

    def sync(self) -> None:
        self.log.flush()
        self.log.advance_high_watermark(self.log.synced_offset)

    def files(self) -> list[str]:
        return self.disk.list(DIRECTORY)
