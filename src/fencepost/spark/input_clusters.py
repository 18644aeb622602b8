"""Which cluster each source of a query reads. A pipeline may read one cluster and write another.

Offsets of a partition that the written cluster does not have cannot be in the transaction; the record's marker holds
them then. They are also committed, after the transaction and as well as it goes, to the group of the same name where
the partition is, so that every tool shows the lag there. Nothing is decided by those.
"""

import base64
import contextlib
import dataclasses
import json
import logging
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from fencepost.client.blocking import Admin
from fencepost.client.errors import ClientError, UnknownTopic
from fencepost.client.kafka_types import CommittedOffset
from fencepost.spark.commit_records import Positions, newest
from fencepost.spark.run_producer import RunProducer
from fencepost.spark.source_settings import CLIENT_OPTIONS
from fencepost.topic_partition import TopicPartition

_log = logging.getLogger("fencepost.spark")

ASK_TIMEOUT_MS = 5_000
_SERVERS = "kafka.bootstrap.servers"


@dataclasses.dataclass(frozen=True)
class Source:
    """One source of a query that reads Kafka, by its options."""

    bootstrap_servers: str
    client: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False)
    topics: frozenset[str] | None = None
    pattern: str | None = None
    fails_on_data_loss: bool = True

    def reads(self, topic: str) -> bool:
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        return self.topics is None or topic in self.topics


def sources_of(options: Sequence[Mapping[str, str]]) -> list[Source]:
    """Of the options that Spark holds for the sources of a query; those without brokers read something else."""
    return [
        _source(given) for given in ({n.lower(): v for n, v in each.items()} for each in options) if given.get(_SERVERS)
    ]


def _source(given: Mapping[str, str]) -> Source:
    client = {name.removeprefix("kafka."): value for name, value in given.items()}
    topics = None
    if "subscribe" in given:
        topics = frozenset(name.strip() for name in given["subscribe"].split(","))
    elif "assign" in given:
        topics = frozenset(json.loads(given["assign"]))
    return Source(
        given[_SERVERS],
        {name: value for name, value in client.items() if name in CLIENT_OPTIONS and name != "client.id"},
        topics,
        given.get("subscribepattern"),
        given.get("failondataloss", "true").strip().lower() != "false",
    )


class InputClusters:
    """Of one run. Asks each cluster once who it is; an address says nothing, a cluster has many."""

    def __init__(self, sources: Sequence[Source], producer: RunProducer, group_id: str) -> None:
        self._sources = list(sources)
        self._producer = producer
        self._group_id = group_id
        self._admins: dict[str, Admin | None] = {}
        self._is_written: dict[str, bool | None] = {}
        self._may_tell: dict[str, bool] = {}
        self._topic_ids: dict[str, str | None] = {}
        self._told_of: set[str] = set()

    def close(self) -> None:
        for admin in self._admins.values():
            if admin is not None:
                admin.close()

    def here(self, positions: Positions) -> dict[TopicPartition, int]:
        """Those of the cluster that is written."""
        known = {topic: self._is_here(topic) for topic in {partition.topic for partition in positions}}
        return {partition: offset for partition, offset in positions.items() if known[partition.topic]}

    def _is_here(self, topic: str) -> bool:
        said = {self._is_the_written_one(source) for source in self._sources if source.reads(topic)}
        if False in said:
            return False  # Also where the name is in two clusters: one number could not say where both are.
        return self._topic_id(topic) is not None

    # Which topics they are

    def topic_ids(self, topics: Iterable[str], *, look_again_at: Collection[str] = ()) -> dict[str, str]:
        """Of those that are there, as far as their cluster tells. Asked once in a run, unless something has changed."""
        for topic in look_again_at:
            self._topic_ids.pop(topic, None)
        known = {topic: self._topic_id(topic, fresh=topic in look_again_at) for topic in sorted(set(topics))}
        return {topic: topic_id for topic, topic_id in known.items() if topic_id}

    def look_again(self) -> None:
        """Topics may not be there any more."""
        for topic in self._topic_ids:
            with contextlib.suppress(UnknownTopic):
                self._producer.topic(topic, fresh=True)
        self._topic_ids.clear()

    def made_again(self, before: Mapping[str, str]) -> tuple[str, ...]:
        """The topics that have another id than before, and whose source is to fail when data is lost."""
        now = self.topic_ids(before)
        changed = [topic for topic, topic_id in now.items() if topic_id != before[topic]]
        passed = {topic for topic in changed if not self._fails_on_data_loss(topic)}
        for topic in sorted(passed - self._told_of):
            self._told_of.add(topic)
            _log.warning(
                "topic %s was deleted and created again since %r has last read it; failOnDataLoss is false, so it "
                "reads on in the new one", topic, self._group_id,
            )  # fmt: skip
        return tuple(topic for topic in changed if topic not in passed)

    def _fails_on_data_loss(self, topic: str) -> bool:
        """False where Spark does not tell: the source has let it pass then."""
        return any(source.fails_on_data_loss for source in self._sources if source.reads(topic))

    def _topic_id(self, topic: str, *, fresh: bool = False) -> str | None:
        """None if there is no such topic; empty if its cluster does not tell."""
        known = self._topic_ids.get(topic)
        if known is None:
            known = self._topic_ids[topic] = self._asked_topic_id(topic, fresh=fresh)
        return known

    def _asked_topic_id(self, topic: str, *, fresh: bool) -> str | None:
        elsewhere = [s for s in self._sources if s.reads(topic) and self._is_the_written_one(s) is False]
        try:
            if not elsewhere:
                return _text(self._producer.topic(topic, fresh=fresh).topic_id)
            admin = self._admin(elsewhere[0])
            return _text(admin.describe_topic(topic).topic_id) if admin is not None and len(elsewhere) == 1 else ""
        except UnknownTopic:
            return None
        except ClientError as error:
            if not elsewhere:
                raise
            _log.info("the id of topic %s cannot be asked: %s", topic, error)
            return ""

    # Who they are

    def _is_the_written_one(self, source: Source) -> bool | None:
        """None if the cluster of the source cannot be asked."""
        servers = source.bootstrap_servers
        if servers not in self._is_written:
            if sorted(servers.split(",")) == sorted(self._producer.bootstrap_servers):
                self._is_written[servers] = True
            else:
                admin = self._admin(source)
                self._is_written[servers] = (
                    None if admin is None else admin.describe_cluster().cluster_id == self._producer.cluster_id
                )
        return self._is_written[servers]

    def _admin(self, source: Source) -> Admin | None:
        servers = source.bootstrap_servers
        if servers not in self._admins:
            options = {**source.client, "retry.timeout.ms": ASK_TIMEOUT_MS, "request.timeout.ms": ASK_TIMEOUT_MS}
            try:
                self._admins[servers] = Admin(servers, **options)
            except ClientError as error:
                _log.warning("the cluster at %s cannot be asked by the driver: %s", servers, error)
                self._admins[servers] = None
        return self._admins[servers]

    def tell(self, positions: Positions) -> None:
        """Commit what the written cluster cannot hold where it belongs. Best effort: nothing depends on it."""
        for source in self._sources:
            if self._is_the_written_one(source) is not False:
                continue
            offsets = {at: CommittedOffset(offset) for at, offset in positions.items() if source.reads(at.topic)}
            admin = self._admin(source)
            if offsets and admin is not None:
                try:
                    if self._may_tell_it(source, admin):
                        admin.commit_offsets(self._group_id, offsets)
                except ClientError as error:
                    _log.warning(
                        "the lag of %r is not shown at %s: %s", self._group_id, source.bootstrap_servers, error
                    )

    def _may_tell_it(self, source: Source, admin: Admin) -> bool:
        """A group in which another pipeline keeps its record is left alone."""
        servers = source.bootstrap_servers
        if servers not in self._may_tell:
            self._may_tell[servers] = newest(admin.committed_offsets(self._group_id, with_notes=True)) is None
            if not self._may_tell[servers]:
                _log.warning(
                    "group %r at %s is the record of a pipeline that writes there, so the lag of this one is not shown "
                    "there; give it another name", self._group_id, servers,
                )  # fmt: skip
        return self._may_tell[servers]


def _text(topic_id: bytes) -> str:
    """As Kafka's tools show it; empty for clusters that give topics no id."""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode() if any(topic_id) else ""
