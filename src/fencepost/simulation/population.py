"""The topics of a simulated world, and the clients that write, copy, read and administer them."""

from fencepost.simulation.administered_clients import KeyedProducer, KeyedReader, KeyedTransactions
from fencepost.simulation.administered_topics import AdministeredTopics
from fencepost.simulation.administrators import (
    GUARDED,
    AccessAdministrator,
    AccessRules,
    Administrator,
    GuardedProducer,
    TopicAdministrator,
)
from fencepost.simulation.client_journal import ClientJournal
from fencepost.simulation.clients import ClientProcess, Request, Sleep, Steps
from fencepost.simulation.consumers import Reader
from fencepost.simulation.idempotent_producers import IdempotentProducer
from fencepost.simulation.members import GroupMember
from fencepost.simulation.network import Network
from fencepost.simulation.scheduler import SimulatedScheduler
from fencepost.simulation.transactional_producers import TransactionalProducer
from fencepost.topic_partition import TopicPartition
from fencepost.wire.catalog import ApiKey
from fencepost.wire.messages import CreateTopicsRequest, FindCoordinatorRequest

TOPICS = {"input": 2, "copies": 2, "audit": 1, "ledger": 2, GUARDED.topic: 1}
UNGUARDED = [name for name in TOPICS if name != GUARDED.topic]
PARTITIONS = [TopicPartition(topic, index) for topic, count in TOPICS.items() for index in range(count)]
INPUT, COPIES, AUDIT, LEDGER = (
    [TopicPartition(topic, index) for index in range(TOPICS[topic])] for topic in ("input", "copies", "audit", "ledger")
)
TRANSACTION_TIMEOUT_MS = 4_000

Surroundings = tuple[SimulatedScheduler, Network, int]
"""What every client needs: time, a way to the broker, and the seed."""


def everybody(
    world: Surroundings, journal: ClientJournal, topics: AdministeredTopics, *, with_access_rules: bool
) -> list[ClientProcess]:
    def transactional(
        name: str, of: str, protocol: int, outputs: list[TopicPartition], source: TopicPartition | None = None
    ) -> TransactionalProducer:
        return TransactionalProducer(
            name, *world, transactional_id=of, protocol=protocol, timeout_ms=TRANSACTION_TIMEOUT_MS, outputs=outputs,
            source_partition=source, journal=journal,
        )  # fmt: skip

    def member(name: str, protocol: int) -> GroupMember:
        return GroupMember(
            name, *world, group="team", sources=[INPUT[0], INPUT[1]], transactional_id=f"member-{name}",
            protocol=protocol, timeout_ms=TRANSACTION_TIMEOUT_MS, outputs=[COPIES[1], LEDGER[1]],
            journal=journal,
        )  # fmt: skip

    copier = transactional("c1", "copier-1", 1, [COPIES[0], AUDIT[0]], INPUT[0])
    writer = transactional("w2", "writer-2", 2, [LEDGER[1], LEDGER[0], COPIES[0]])
    others: list[TransactionalProducer] = [
        transactional("c2", "copier-2", 2, [COPIES[1], AUDIT[0]], INPUT[1]),
        transactional("w1", "writer-1", 1, [LEDGER[0], LEDGER[1], AUDIT[0]]),
    ]
    if world[2] % 2:
        # In every second world a group shares the inputs instead.
        others = [member("m1", 2), member("m2", 1)]
    producers = [copier, *others, writer]
    ids = [producer.transactional_id for producer in producers]
    keyed = KeyedTransactions(
        "kt", *world, transactional_id="keyed", timeout_ms=TRANSACTION_TIMEOUT_MS, topics=topics, journal=journal
    )
    ids.append(keyed.transactional_id)
    rules = AccessRules()
    access: list[ClientProcess] = [
        AccessAdministrator("rules", *world, rules=rules, topics=topics, journal=journal),
        GuardedProducer("pg", *world, rules=rules, journal=journal),
    ]
    return [
        IdempotentProducer("p0", *world, target=INPUT[0], journal=journal),
        IdempotentProducer("p1", *world, target=INPUT[1], journal=journal),
        *producers,
        Reader("rc", *world, partitions=list(PARTITIONS), is_committed=True, journal=journal),
        Reader("ru", *world, partitions=list(PARTITIONS), is_committed=False, journal=journal),
        Administrator("admin", *world, transactional_ids=ids, timeout_ms=TRANSACTION_TIMEOUT_MS, journal=journal),
        TopicAdministrator("topics", *world, others=UNGUARDED, topics=topics, journal=journal),
        KeyedProducer("k0", *world, topics=topics, journal=journal),
        KeyedProducer("k1", *world, topics=topics, journal=journal),
        keyed,
        KeyedReader("kc", *world, topics=topics, is_committed=True, journal=journal),
        KeyedReader("ku", *world, topics=topics, is_committed=False, journal=journal),
        *(access if with_access_rules else ()),
    ]


def twin_of(
    original: TransactionalProducer, name: str, world: Surroundings, journal: ClientJournal
) -> TransactionalProducer:
    """A second process with the same transactional id."""
    if isinstance(original, KeyedTransactions):
        return KeyedTransactions(
            name, *world, transactional_id=original.transactional_id, timeout_ms=original.timeout_ms,
            topics=original.topics, journal=journal,
        )  # fmt: skip
    if isinstance(original, GroupMember):
        return GroupMember(
            name, *world, group=original.group, sources=original.sources, transactional_id=original.transactional_id,
            protocol=original.protocol, timeout_ms=original.timeout_ms, outputs=original.outputs, journal=journal,
        )  # fmt: skip
    return TransactionalProducer(
        name, *world, transactional_id=original.transactional_id, protocol=original.protocol,
        timeout_ms=original.timeout_ms, outputs=original.outputs, source_partition=original.input, journal=journal,
    )  # fmt: skip


class Founder(ClientProcess):
    """Makes the topics before anything goes wrong."""

    def run(self) -> Steps[None]:
        creatable = CreateTopicsRequest.CreatableTopic
        topics = [creatable(name=name, num_partitions=count, replication_factor=1) for name, count in TOPICS.items()]
        answer = yield Request(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=topics, timeout_ms=1000))
        assert all(topic.error_code == 0 for topic in answer.topics), answer
        for key_type in (0, 1):
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["any"])
            yield Request(ApiKey.FIND_COORDINATOR, 4, request)
        yield Sleep(50)
