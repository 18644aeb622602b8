"""What administrators see, time-outs, and where the coordinator is."""

import time
from typing import Any

from tests.interop.cases.peer import Peer
from tests.interop.cases.transactional import ABORT, COMMIT, SHORT_TIMEOUT_MS, STRANGER, Script, transaction_case
from tests.support.patience import patient


@transaction_case
def find_the_coordinator_of_transactions(peer: Peer) -> Any:
    script = Script(peer)
    key = peer.name("id")
    return [
        [script.ask("FindCoordinator", version, {"Key": key, "KeyType": 1}) for version in (1, 2, 3)],
        [
            script.ask("FindCoordinator", version, {"KeyType": 1, "CoordinatorKeys": [key, "", "other"]})
            for version in (4, 5, 6)
        ],
        [script.ask("FindCoordinator", version, {"Key": "", "KeyType": 1}) for version in (1, 2, 3)],
        script.ask("FindCoordinator", 4, {"KeyType": 1, "CoordinatorKeys": []}),
        [script.ask("FindCoordinator", 5, {"KeyType": kind, "CoordinatorKeys": [key]}) for kind in (2, 3, -1)],
    ]


@transaction_case
def describe_what_is_unknown_empty_or_asked_twice(peer: Peer) -> Any:
    script = Script(peer)
    producer = script.producer()
    producer.init()
    unknown = peer.name("unknown")
    return [
        script.describe(),
        script.describe(unknown),
        script.describe(""),
        script.describe(unknown, producer.name, ""),
        script.describe(producer.name, producer.name),
    ]


@transaction_case
def describe_through_a_whole_life(peer: Peer) -> Any:
    script = Script(peer)
    topic, other, producer = peer.topic(partitions=3), peer.topic("other"), script.producer()
    answers = [producer.init(timeout_ms=12_345), script.describe(producer.name)]
    for result in (COMMIT, ABORT):
        answers += [
            producer.add(topic, 2, 0),
            script.describe(producer.name),
            producer.add(other),
            producer.add_offsets("some-group"),
            script.describe(producer.name),
            producer.end(result),
            script.describe(producer.name),
        ]
    return answers, producer.init(), script.describe(producer.name)


@transaction_case
def describe_a_decision_that_is_being_carried_out(peer: Peer) -> Any:
    script = Script(peer)
    answers = []
    for result in (COMMIT, ABORT):
        blocked, free = peer.topic(f"blocked{result}"), peer.topic(f"free{result}")
        producer = script.producer(f"id{result}")
        producer.open(blocked)
        producer.open(free)
        producer.lock_coordinator_out(blocked)
        producer.end(result, wait=False)
        # The other partition gets its marker, and a moment later the coordinator knows.
        deadline = time.monotonic() + patient(20)
        while free in str(script.describe(producer.name)) and time.monotonic() < deadline:
            time.sleep(0.01)
        answers.append(script.state(producer, topics=[free, blocked]))
    return answers


@transaction_case
def list_with_every_filter(peer: Peer) -> Any:
    script = Script(peer)
    topic = peer.topic()
    empty, open_, committed, aborted = (script.producer(f"list-{each}") for each in ("empty", "open", "done", "gone"))
    for producer in (empty, open_, committed, aborted):
        producer.init()
    open_.add(topic)
    committed.open(topic)
    committed.end(COMMIT)
    aborted.open(topic)
    aborted.end(ABORT)
    mine = {"TransactionalIdPattern": peer.name("list-.*")}
    ours = [each.producer_id for each in (empty, open_, committed, aborted)]
    answers = [script.list(2, **mine)]
    answers += [script.list(version, ProducerIdFilters=ours) for version in (0, 1, 2)]
    answers += [script.list(2, ProducerIdFilters=[each]) for each in (*ours, STRANGER)]
    answers += [script.list(2, ProducerIdFilters=[ours[0], STRANGER, ours[1]], **mine)]
    states = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead")
    answers += [script.list(2, StateFilters=[each], **mine) for each in (*states, "PrepareEpochFence")]
    answers += [script.list(2, StateFilters=["Ongoing", "Empty"], **mine)]
    for odd in ("ongoing", "Nonsense", "", "ONGOING"):
        answers += [script.list(2, StateFilters=[odd], **mine), script.list(2, StateFilters=[odd, "Empty"], **mine)]
    answers += [script.list(0, StateFilters=["Nonsense", "Nonsense", "Other"], ProducerIdFilters=ours)]
    for duration in (-1, -5, 0, 600_000, 2**62):
        answers.append(script.list(1, DurationFilter=duration, ProducerIdFilters=ours))
    time.sleep(0.02)
    return answers, script.list(1, DurationFilter=10, ProducerIdFilters=ours)


@transaction_case
def list_by_regular_expression(peer: Peer) -> Any:
    script = Script(peer)
    for stem in ("alpha-1", "alpha-2", "beta", "Beta", "x.y"):
        script.producer(stem).init()
    base = peer.name("")

    def listed(pattern: str | None) -> Any:
        found = script.list(TransactionalIdPattern=pattern)
        ids = [each["TransactionalId"] for each in found["TransactionStates"]]
        return found["ErrorCode"], [each.removeprefix(base) for each in ids if each.startswith(base)]

    patterns = [
        None, "", ".*", f"{base}alpha-.", f"{base}alpha-[2-9]", f"{base}(beta|x.y)", f"{base}x\\.y", f"{base}x\\Q.\\Ey",
        f"(?i){base}beta", f"{base}alpha", "alpha-1", "^alpha.*$", f"^{base}beta$", f"{base}\\p{{Lower}}+",
        f"{base}[a-z&&[^b]]+.*", f"{base}alpha-\\d++", f"{base}\\w+-\\d", "(", "[", "*", "a{2,1}", "\\",
        "(?<n>a)\\k<m>",
        f"(?={base}).*", f"{base}(?!alpha).*", f"{base}.eta|never", f"{base}(?<name>b)eta", f"{base}be[t]a",
    ]  # fmt: skip
    return [(pattern, listed(pattern)) for pattern in patterns]


@transaction_case
def describe_producers_of_every_kind(peer: Peer) -> Any:
    script = Script(peer)
    topic, producer = peer.topic(partitions=2), script.producer()

    def described(*topics: tuple[str, list[int]]) -> Any:
        wanted = [{"Name": name, "PartitionIndexes": indexes} for name, indexes in topics]
        return script.ask("DescribeProducers", 0, {"Topics": wanted})

    answers = [described((topic, [0, 1])), producer.open(topic), described((topic, [0, 1]))]
    answers += [producer.end(COMMIT), described((topic, [0])), producer.open(topic), described((topic, [0]))]
    answers += [described(), described((topic, [])), described((topic, [0, 9, -1]), (peer.name("nowhere"), [0]))]
    return answers, described(("__transaction_state", [0]))


@transaction_case
def a_transaction_times_out(peer: Peer) -> Any:
    script = Script(peer)
    answers = []
    for version, end_version in ((3, 0), (11, 4), (12, 5)):
        topic, producer = peer.topic(f"t{version}"), script.producer(f"id{version}")
        producer.init(timeout_ms=SHORT_TIMEOUT_MS)
        before = producer.epoch
        answers += [
            producer.open(topic, version),
            producer.settle("CompleteAbort"),
            script.state(producer, topics=[topic]),
            producer.produce(topic, version=version),
            producer.add(topic),
            producer.add_offsets("g"),
            producer.end(COMMIT, end_version, epoch=before),
            producer.end(ABORT, end_version, epoch=before),
            producer.init_again(epoch=before),
            script.state(producer, topics=[topic]),
        ]
    return answers


@transaction_case
def a_transaction_that_times_out_is_not_kept_alive_by_writing(peer: Peer) -> Any:
    script = Script(peer)
    topic, producer = peer.topic(partitions=50), script.producer()
    producer.init(timeout_ms=300)
    codes = set()
    for partition in range(50):
        answer = producer.add(topic, partition)
        codes.add(answer["ResultsByTopicV3AndBelow"][0]["ResultsByPartition"][0]["PartitionErrorCode"])
        if 90 in codes:
            break
        time.sleep(0.02)
    producer.settle()
    return sorted(codes - {51}), script.describe(producer.name)


@transaction_case
def an_empty_transactional_id_does_not_time_out(peer: Peer) -> Any:
    script = Script(peer)
    topic, producer, done = peer.topic(), script.producer(), script.producer("done")
    producer.init(timeout_ms=SHORT_TIMEOUT_MS)
    done.init(timeout_ms=SHORT_TIMEOUT_MS)
    done.open(topic)
    done.end(COMMIT)
    time.sleep(SHORT_TIMEOUT_MS / 1000 + 0.4)
    return script.state(producer, done), producer.open(topic)


@transaction_case
def a_new_time_out_counts_from_the_next_transaction(peer: Peer) -> Any:
    script = Script(peer)
    topic, producer = peer.topic(), script.producer()
    producer.init(timeout_ms=SHORT_TIMEOUT_MS)
    producer.open(topic)
    producer.settle("CompleteAbort")
    answers = [producer.init(timeout_ms=60_000), script.describe(producer.name), producer.open(topic)]
    time.sleep(SHORT_TIMEOUT_MS / 1000 + 0.3)
    return answers, script.state(producer, topics=[topic]), producer.end(COMMIT), script.state(producer, topics=[topic])
