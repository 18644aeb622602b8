"""What the simulated clients did and what they were told: the raw material of every judgement about a run."""

import dataclasses
import enum


class Outcome(enum.Enum):
    OPEN = "open"
    """Its client never tried to commit it."""
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclasses.dataclass(slots=True, eq=False)
class Sent:
    """One value sent to one partition; the offset if it was acknowledged."""

    topic: str
    partition: int
    value: str
    offset: int | None = None


@dataclasses.dataclass(slots=True, eq=False)
class Transaction:
    client: str
    transactional_id: str
    begun_ms: int
    sends: list[Sent] = dataclasses.field(default_factory=list)
    offsets: tuple[str, str, int, int, int] | None = None
    """Group, topic, partition, first input offset, and the offset committed."""
    outcome: Outcome = Outcome.OPEN
    commit_tried_ms: int = -1
    ended_ms: int = -1


@dataclasses.dataclass(slots=True, eq=False)
class Poll:
    client: str
    is_committed: bool
    """Whether it read committed records only."""
    topic: str
    partition: int
    from_offset: int
    records: list[tuple[int, str]]
    time_ms: int


class Deeds:
    def __init__(self) -> None:
        self.transactions: list[Transaction] = []
        self.sends: list[Sent] = []
        """Of producers without transactions."""
        self.polls: list[Poll] = []
        self.producer_ids: dict[tuple[int, int], str] = {}
        """Every pair of producer id and epoch that was handed out, and to which process."""
        self.findings: list[str] = []
        """What a client noticed by itself."""
