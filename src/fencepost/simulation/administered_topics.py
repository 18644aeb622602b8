"""The topics that simulated administrators change while clients use them, and the clients' knowledge about them.

Every topic id is a log of its own: a topic that is deleted and created again under its name shares nothing with the old
one. In the history its partitions go by name and id. Requests of administrators are recorded before they are
sent, so that lost and late ones count as well.
"""

from collections import Counter
from typing import NamedTuple

from fencepost.topic_partition import TopicPartition

PARTITIONS_MAX = 4
ANY_OFFSET = 1 << 60
DEEDS = (
    "create",
    "delete",
    "widen",
    "configure",
    "delete-records",
    "access",
    "compaction",
    "internal-compaction",
    "retention",
)
"""What is counted."""


class TopicPlan(NamedTuple):
    """What may be done to a topic."""

    name: str
    partitions: int
    settings: dict[str, str]
    may_go: bool = False
    """Deleted, and created again under the same name."""
    may_be_trimmed: bool = False
    """Records deleted, on request and by retention."""
    may_be_compacted: bool = False
    is_kept_up: bool = True
    """Created whenever it is missing."""


_COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "2000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "1000",
    "retention.ms": "-1",
}
PLANS = {
    plan.name: plan
    for plan in (
        TopicPlan("fleeting", 2, _COMPACTED, may_go=True, may_be_trimmed=True, may_be_compacted=True),
        TopicPlan("brief", 1, {"segment.bytes": "2000", "retention.ms": "-1"}, may_go=True),
        TopicPlan("keyed", 2, _COMPACTED, may_be_compacted=True),
        TopicPlan("shrinking", 2, {"segment.bytes": "2000", "retention.ms": "-1"}, may_be_trimmed=True),
        TopicPlan("extra", 3, {"segment.bytes": "2000", "retention.ms": "-1"}, may_go=True, is_kept_up=False),
    )
}


class AdministeredTopics:
    """What clients know: ids from answers, and everything that was ever asked for."""

    def __init__(self) -> None:
        self.ids: dict[str, bytes] = {}
        """By label; every id that anybody has seen."""
        self.current: dict[str, str] = {}
        """The label that a name had when it was last looked up."""
        self.partitions: dict[str, int] = {}
        """By label: the most that anybody has seen."""
        self.deletion_asked: set[str] = set()
        """Labels; membership only, since the order of a set is not the same in every run."""
        self.deletion_done: set[str] = set()
        self.trim_asked: dict[TopicPartition, int] = {}
        """By name and index: no request ever asked to delete records at or beyond this offset."""
        self.trim_done: dict[TopicPartition, int] = {}
        """By label and index: where the log begins at least, as an answer said."""
        self.retention_asked: set[str] = set()
        """Names whose records any retention may have deleted."""
        self.settings: dict[str, dict[str, str | None]] = {}
        """By name: values as last acknowledged; what was asked for and not answered since is not here."""
        self.done: Counter[str] = Counter()
        """What was done, as answers and the broker's events tell; for the figures."""

    def seen(self, name: str, topic_id: bytes, partitions: int) -> str:
        """A client got an answer about a topic; its label."""
        label = label_of(name, topic_id)
        self.ids[label] = topic_id
        self.current[name] = label
        self.partitions[label] = max(self.partitions.get(label, 0), partitions)
        return label

    def settings_asked(self, name: str, settings: dict[str, str | None]) -> None:
        for setting in settings:
            self.settings.setdefault(name, {}).pop(setting, None)

    def settings_done(self, name: str, settings: dict[str, str | None]) -> None:
        self.settings.setdefault(name, {}).update(settings)

    def missing(self, name: str) -> None:
        """A client got the answer that there is no such topic."""
        self.current.pop(name, None)

    def places(self) -> list[TopicPartition]:
        """Everything that may be written to, by label and index, as last looked up."""
        return [
            TopicPartition(label, index) for label in self.current.values() for index in range(self.partitions[label])
        ]

    def label_by_id(self, topic_id: bytes) -> str:
        return next(label for label, known in self.ids.items() if known == topic_id)


def label_of(name: str, topic_id: bytes) -> str:
    return f"{name}@{topic_id.hex()[:12]}"


def name_of(label: str) -> str:
    return label.partition("@")[0]


def plan_of(label: str) -> TopicPlan:
    return PLANS[name_of(label)]


def key_of(value: str) -> str:
    """The key of a record, which is a part of its value, as the history has it."""
    return value.partition("=")[0]
