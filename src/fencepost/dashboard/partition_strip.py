"""A range of a partition as pieces (plain, committed, aborted, open) and the markers between them. Pure.

The fate of a transactional batch follows from the next marker of its producer, if it was read; otherwise, below the
last stable offset, from the broker's list of aborted transactions; otherwise it is open.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fencepost.client.fetching import AbortedTransaction
from fencepost.wire.batch import BatchHeader, ControlType, EndTransactionMarker

PIECES_MAX = 500
OFFSETS_MAX = 20_000
DEFAULT_OFFSETS = 2_000
PLAIN, COMMITTED, ABORTED, OPEN = "plain", "committed", "aborted", "open"


class SeenBatch(NamedTuple):
    header: BatchHeader
    marker: EndTransactionMarker | None


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive batches of one producer with the same fate."""

    first_offset: int
    last_offset: int
    records: int
    kind: str
    producer_id: int
    producer_epoch: int
    from_ms: int
    to_ms: int

    def document(self, names: Mapping[int, str | None]) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "transactional_id": names.get(self.producer_id)}


@dataclasses.dataclass(frozen=True, slots=True)
class StripMarker:
    offset: int
    kind: str
    producer_id: int
    producer_epoch: int
    time_ms: int

    def document(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def pieces_of(
    batches: Sequence[SeenBatch],
    end: int,
    last_stable_offset: int,
    aborted: Iterable[AbortedTransaction],
) -> tuple[list[Piece], list[StripMarker]]:
    """The pieces of the batches before `end`; later batches only show how transactions ended."""
    kinds = _kinds(batches, last_stable_offset, aborted)
    pieces: list[Piece] = []
    markers: list[StripMarker] = []
    for (header, marker), kind in zip(batches, kinds, strict=True):
        if header.base_offset >= end:
            break
        if header.is_control:
            if marker is not None:
                markers.append(
                    StripMarker(
                        header.base_offset,
                        "COMMIT" if marker.control_type == ControlType.COMMIT else "ABORT",
                        header.producer_id,
                        header.producer_epoch,
                        header.max_timestamp,
                    )
                )
            continue
        _append(pieces, header, kind)
    return pieces, markers


def _kinds(batches: Sequence[SeenBatch], last_stable_offset: int, aborted: Iterable[AbortedTransaction]) -> list[str]:
    aborted_from: dict[int, list[int]] = {}
    for each in aborted:
        aborted_from.setdefault(each.producer_id, []).append(each.first_offset)
    previous_marker: dict[int, int] = {}
    undecided: list[str] = []
    for header, marker in batches:
        kind = PLAIN
        if header.is_control:
            if marker is not None:
                previous_marker[header.producer_id] = header.base_offset
        elif header.is_transactional:
            since = previous_marker.get(header.producer_id, -1)
            is_aborted = any(since < first <= header.base_offset for first in aborted_from.get(header.producer_id, ()))
            kind = ABORTED if is_aborted else COMMITTED if header.base_offset < last_stable_offset else OPEN
        undecided.append(kind)
    next_marker: dict[int, str] = {}
    for at in range(len(batches) - 1, -1, -1):
        header, marker = batches[at]
        if marker is not None:
            is_commit = marker.control_type == ControlType.COMMIT
            next_marker[header.producer_id] = COMMITTED if is_commit else ABORTED
        elif undecided[at] != PLAIN:
            undecided[at] = next_marker.get(header.producer_id, undecided[at])
    return undecided


def _append(pieces: list[Piece], header: BatchHeader, kind: str) -> None:
    last = pieces[-1] if pieces else None
    if (
        last is not None
        and last.last_offset + 1 == header.base_offset
        and (last.kind, last.producer_id, last.producer_epoch) == (kind, header.producer_id, header.producer_epoch)
    ):
        pieces[-1] = dataclasses.replace(
            last,
            last_offset=header.last_offset,
            records=last.records + header.record_count,
            from_ms=min(last.from_ms, header.base_timestamp),
            to_ms=max(last.to_ms, header.max_timestamp),
        )
        return
    pieces.append(
        Piece(
            header.base_offset,
            header.last_offset,
            header.record_count,
            kind,
            header.producer_id,
            header.producer_epoch,
            header.base_timestamp,
            header.max_timestamp,
        )
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Stretch:
    """The offsets that a strip shows, within the limits, and which end to keep if there are too many pieces."""

    start: int
    end: int
    keeps_end: bool
    is_cut: bool


def stretch(start: int | None, end: int | None, log_start_offset: int, high_watermark: int) -> Stretch:
    upper = high_watermark if end is None else min(max(end, log_start_offset), high_watermark)
    if start is None:
        # Without a start, the newest offsets are shown.
        return Stretch(max(upper - DEFAULT_OFFSETS, log_start_offset), upper, True, False)
    lower = min(max(start, log_start_offset), upper)
    if upper - lower > OFFSETS_MAX:
        return Stretch(lower, lower + OFFSETS_MAX, False, True)
    return Stretch(lower, upper, False, False)
