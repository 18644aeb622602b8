"""Where the replicas of new partitions go: in stripes over racks and brokers, beginning at a random place.

The first replica of a partition, which will lead it, is on a broker that is not fenced. The others go to other racks
first, and within a rack to brokers that are not fenced first. Partition after partition begins at the next rack and the
next broker; once every broker has led, the order is drawn anew, so that no broker always follows the same other one.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from fencepost.ports import Randomness
from fencepost.wire.errors import ErrorCode, KafkaError


class Candidate(NamedTuple):
    """A broker that may take replicas."""

    broker_id: int
    rack: str | None
    is_fenced: bool


class Placer(Protocol):
    def place(
        self, partition_count: int, replication_factor: int, candidates: Sequence[Candidate]
    ) -> list[tuple[int, ...]]:
        """The replicas of each new partition. Raises KafkaError(INVALID_REPLICATION_FACTOR)."""


class StripedPlacer:
    def __init__(self, randomness: Randomness) -> None:
        self._randomness = randomness

    def place(
        self, partition_count: int, replication_factor: int, candidates: Sequence[Candidate]
    ) -> list[tuple[int, ...]]:
        check_placement(replication_factor, candidates)
        stripes = _Stripes(self._randomness, candidates)
        return [stripes.next_replicas(replication_factor) for _ in range(partition_count)]


def check_placement(replication_factor: int, candidates: Sequence[Candidate]) -> None:
    reason = None
    if replication_factor <= 0:
        reason = f"Invalid replication factor {replication_factor}: the replication factor must be positive."
    elif all(candidate.is_fenced for candidate in candidates):
        reason = "All brokers are currently fenced, or have all their log directories cordoned."
    elif replication_factor > len(candidates):
        reason = (
            f"The target replication factor of {replication_factor} cannot be reached because only {len(candidates)} "
            "broker(s) are registered or some brokers have all their log directories cordoned."
        )
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, reason)


class _Ring:
    """Brokers of one rack, each given once a round; every round begins one further on."""

    def __init__(self, broker_ids: Iterable[int], randomness: Randomness) -> None:
        self._broker_ids = sorted(broker_ids)
        self._start = below(randomness, len(self._broker_ids)) if self._broker_ids else 0
        self._round = 0
        self._given = 0

    def shuffle(self, randomness: Randomness) -> None:
        shuffle(self._broker_ids, randomness)

    def take(self, current_round: int) -> int | None:
        count = len(self._broker_ids)
        if not count:
            return None
        if self._round != current_round:
            self._round = current_round
            self._given = 0
            self._start = (self._start + 1) % count
        if self._given >= count:
            return None
        broker_id = self._broker_ids[(self._start + self._given) % count]
        self._given += 1
        return broker_id


class _Rack:
    def __init__(self, members: Sequence[Candidate], randomness: Randomness) -> None:
        self.unfenced = _Ring((each.broker_id for each in members if not each.is_fenced), randomness)
        self.fenced = _Ring((each.broker_id for each in members if each.is_fenced), randomness)

    def take(self, current_round: int) -> int | None:
        broker_id = self.unfenced.take(current_round)
        return self.fenced.take(current_round) if broker_id is None else broker_id


class _Stripes:
    def __init__(self, randomness: Randomness, candidates: Sequence[Candidate]) -> None:
        self._randomness = randomness
        names = sorted({each.rack for each in candidates}, key=lambda name: (name is not None, name or ""))
        self._racks = [_Rack([each for each in candidates if each.rack == name], randomness) for name in names]
        self._unfenced_count = sum(not each.is_fenced for each in candidates)
        self._round = 0
        self._start = below(randomness, len(self._racks))

    def next_replicas(self, replication_factor: int) -> tuple[int, ...]:
        if self._round == self._unfenced_count > 1:
            shuffle(self._racks, self._randomness)
            for rack in self._racks:
                rack.unfenced.shuffle(self._randomness)
                rack.fenced.shuffle(self._randomness)
            self._round = 0
        count = len(self._racks)
        self._start %= count
        leader, leader_rack = self._take_leader()
        replicas = [leader]
        at = self._start
        while len(replicas) < replication_factor:
            # The leader's rack is passed over once: its turn is over.
            if at == leader_rack:
                leader_rack = -1
            else:
                broker_id = self._racks[at].take(self._round)
                if broker_id is not None:
                    replicas.append(broker_id)
            at = (at + 1) % count
        self._round += 1
        self._start += 1
        return tuple(replicas)

    def _take_leader(self) -> tuple[int, int]:
        count = len(self._racks)
        for step in range(count):
            at = (self._start + step) % count
            broker_id = self._racks[at].unfenced.take(self._round)
            if broker_id is not None:
                return broker_id, at
        raise AssertionError("some rack has a broker that is not fenced")


def below(randomness: Randomness, limit: int) -> int:
    """A random number from 0 on, below the limit; eight bytes make the bias too small to matter."""
    return int.from_bytes(randomness.random_bytes(8), "big") % limit


def shuffle(values: list[_Rack] | list[int], randomness: Randomness) -> None:
    for last in range(len(values) - 1, 0, -1):
        other = below(randomness, last + 1)
        values[last], values[other] = values[other], values[last]  # type: ignore[assignment]
