"""Simulated administrators: of transactions, of topics and their records and settings, and of access rules.

They work while clients use what they change. Their requests are recorded before they are sent; an unexpected answer is
a finding.
"""

import random
from typing import Any

from fencepost.simulation import requests
from fencepost.simulation.administered_clients import look_up
from fencepost.simulation.administered_topics import (
    ANY_OFFSET,
    PARTITIONS_MAX,
    PLANS,
    AdministeredTopics,
    TopicPlan,
)
from fencepost.simulation.client_journal import ClientJournal, partition_name
from fencepost.simulation.clients import RETRIABLE, RETRY_MS, ClientProcess, Request, Sleep, Steps
from fencepost.simulation.idempotent_producers import Producer
from fencepost.topic_partition import TopicPartition
from fencepost.wire.acls import AclBinding, AclOperation, AclPermissionType, ResourcePattern, ResourceType
from fencepost.wire.catalog import ApiKey
from fencepost.wire.errors import ErrorCode
from fencepost.wire.messages import DescribeTransactionsRequest, ListTransactionsRequest

_NOT_THERE = frozenset({ErrorCode.TRANSACTIONAL_ID_NOT_FOUND})
TO_HIGH_WATERMARK = -1


class Administrator(ClientProcess):
    """Lists and describes transactions, and now and then fences a transactional id."""

    def __init__(self, *arguments: Any, transactional_ids: list[str], timeout_ms: int, journal: ClientJournal) -> None:
        super().__init__(*arguments)
        self.transactional_ids = transactional_ids
        self.timeout_ms = timeout_ms
        self.journal = journal

    def run(self) -> Steps[None]:
        while True:
            yield Sleep(self.source.randint(500, 3_000))
            answer = yield Request(ApiKey.LIST_TRANSACTIONS, 1, ListTransactionsRequest(duration_filter=-1))
            if answer is None or answer.error_code:
                continue
            listed = [one.transactional_id for one in answer.transaction_states]
            if listed:
                message = DescribeTransactionsRequest(transactional_ids=listed)
                answer = yield Request(ApiKey.DESCRIBE_TRANSACTIONS, 0, message)
                self._look_at(answer)
            if self.source.random() < 0.1:
                yield from self._fence(self.source.choice(self.transactional_ids))

    def _look_at(self, answer: Any) -> None:
        for state in () if answer is None else answer.transaction_states:
            if state.error_code and state.error_code not in RETRIABLE | _NOT_THERE:
                name = ErrorCode(state.error_code).name
                self.journal.wonder(f"{self.name}: {state.transactional_id} described with {name}")

    def _fence(self, transactional_id: str) -> Steps[None]:
        """As the AdminClient's fenceProducers does."""
        operation = self.journal.recorder.init(self.name, transactional_id)
        for _ in range(5):
            answer = yield requests.init_producer_id(transactional_id, self.timeout_ms)
            if answer is not None and answer.error_code == 0:
                self.journal.handed_out((answer.producer_id, answer.producer_epoch), self.name)
                operation.ok()
                return
            yield Sleep(RETRY_MS)
        operation.info()


# Topics


class _TopicOffice(ClientProcess):
    """How topics are created, deleted, widened, trimmed and set."""

    def __init__(self, *arguments: Any, topics: AdministeredTopics, journal: ClientJournal) -> None:
        super().__init__(*arguments)
        self.topics = topics
        self.journal = journal

    def _judged(self, what: str, code: int, expected: frozenset[ErrorCode]) -> bool:
        """Whether it was done."""
        if not code:
            self.topics.done[what] += 1
            return True
        if code not in RETRIABLE and code not in expected:
            self.journal.wonder(f"{self.name}: {what} answered {ErrorCode(code).name}")
        return False

    def _create(self, plan: TopicPlan, settings: dict[str, str]) -> Steps[bool]:
        if _has_retention(settings):
            self.topics.retention_asked.add(plan.name)
        count = self.source.randint(1, plan.partitions)
        answer = yield requests.create_topic(plan.name, count, settings)
        if answer is None:
            return False
        (topic,) = answer.topics
        if not self._judged("create", topic.error_code, frozenset({ErrorCode.TOPIC_ALREADY_EXISTS})):
            return False
        self.topics.seen(plan.name, topic.topic_id, topic.num_partitions)
        return True

    def _delete(self, name: str) -> Steps[bool]:
        label = self.topics.current.get(name)
        if label is None:
            return False
        self.topics.deletion_asked.add(label)
        answer = yield requests.delete_topic(self.topics.ids[label])
        if answer is None:
            return False
        (topic,) = answer.responses
        if not self._judged("delete", topic.error_code, frozenset({ErrorCode.UNKNOWN_TOPIC_ID})):
            return False
        self.topics.deletion_done.add(label)
        if self.topics.current.get(name) == label:
            self.topics.missing(name)
        return True

    def _widen(self, plan: TopicPlan, label: str) -> Steps[None]:
        count = self.topics.partitions[label] + 1
        if count > PARTITIONS_MAX:
            return
        answer = yield requests.create_partitions(plan.name, count)
        if answer is not None:
            expected = frozenset({ErrorCode.INVALID_PARTITIONS, *_missing_codes(plan)})
            self._judged("widen", answer.results[0].error_code, expected)

    def _trim(self, plan: TopicPlan, label: str) -> Steps[None]:
        """Delete records, by name: some of what is there, or everything."""
        key = TopicPartition(plan.name, self.source.randrange(self.topics.partitions[label]))
        answer = yield requests.list_offsets(key, requests.LATEST)
        if answer is None or answer.topics[0].partitions[0].error_code:
            return
        offset = self.source.randint(0, answer.topics[0].partitions[0].offset)
        if plan.may_go and self.source.random() < 0.3:
            offset = TO_HIGH_WATERMARK
        asked = ANY_OFFSET if offset == TO_HIGH_WATERMARK else offset
        self.topics.trim_asked[key] = max(self.topics.trim_asked.get(key, 0), asked)
        answer = yield requests.delete_records(key, offset)
        if answer is None:
            return
        (data,) = answer.topics[0].partitions
        expected = frozenset({ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.POLICY_VIOLATION, *_missing_codes(plan)})
        if self._judged("delete-records", data.error_code, expected):
            if offset != TO_HIGH_WATERMARK and data.low_watermark < offset:
                self.journal.wonder(f"{self.name}: records of {key} deleted before {offset} leave {data.low_watermark}")
            if not plan.may_go:
                place = TopicPartition(label, key.partition)
                self.topics.trim_done[place] = max(self.topics.trim_done.get(place, 0), data.low_watermark)

    def _set(self, name: str, settings: dict[str, str | None]) -> Steps[None]:
        if _has_retention(settings):
            self.topics.retention_asked.add(name)
        self.topics.settings_asked(name, settings)
        answer = yield requests.alter_topic(name, settings)
        if answer is None:
            return
        plan = PLANS.get(name)
        code = answer.responses[0].error_code
        if self._judged("configure", code, frozenset() if plan is None else _missing_codes(plan)):
            self.topics.settings_done(name, settings)


def _missing_codes(plan: TopicPlan) -> frozenset[ErrorCode]:
    return frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}) if plan.may_go else frozenset()


def _has_retention(settings: dict[str, str] | dict[str, str | None]) -> bool:
    return settings.get("retention.ms", "-1") != "-1" or settings.get("retention.bytes", "-1") != "-1"


def some_settings(source: random.Random, plan: TopicPlan | None, *, with_retention: bool) -> dict[str, str | None]:
    """A change that harms nobody; of `plan` None: of a topic from which nothing may go."""
    choices: list[tuple[str, tuple[str | None, ...]]] = [
        ("segment.bytes", ("5000", "9000") if plan is None else ("2000", "3500", "6000")),
        ("index.interval.bytes", ("0", "400", "4096")),
        ("flush.messages", ("1", "100", None)),
        ("segment.ms", ("1500", "20000", None)),
    ]
    if plan is not None and plan.may_be_compacted:
        policies = ("compact", "compact", "delete", "compact,delete")
        choices += [("cleanup.policy", policies)] * 3
        choices.append(("min.cleanable.dirty.ratio", ("0.01", "0.3")))
        choices.append(("min.compaction.lag.ms", ("0", "3000", None)))
    if plan is not None and plan.may_be_trimmed and with_retention:
        choices += [("retention.ms", ("1500", "6000", "-1"))] * 2
        choices.append(("retention.bytes", ("3000", "-1")))
    return {name: source.choice(values) for name, values in source.sample(choices, source.randint(1, 2))}


class TopicAdministrator(_TopicOffice):
    def __init__(self, *arguments: Any, others: list[str], **office: Any) -> None:
        super().__init__(*arguments, **office)
        self.others = others
        """Topics of which only harmless settings change."""
        self.with_retention = self.source.random() < 0.5
        """In other worlds every offset that is deleted was asked for."""

    def run(self) -> Steps[None]:
        while True:
            yield Sleep(self.source.choice((100, 300, 900)))
            if not (yield from look_up(self.topics)):
                continue
            for plan in PLANS.values():
                if plan.is_kept_up and plan.name not in self.topics.current and self.source.random() < 0.7:
                    yield from self._create(plan, plan.settings)
            yield from self._change_something()

    def _change_something(self) -> Steps[None]:
        if self.source.random() < 0.1:
            name = self.source.choice(self.others)
            yield from self._set(name, some_settings(self.source, None, with_retention=False))
            return
        known = [plan for plan in PLANS.values() if plan.name in self.topics.current]
        if not known:
            return
        plan = self.source.choice(known)
        label = self.topics.current[plan.name]
        roll = self.source.random()
        if roll < 0.25:
            if plan.may_go:
                yield from self._delete(plan.name)
                if self.source.random() < 0.5 and plan.is_kept_up:
                    yield from self._create(plan, plan.settings)
        elif roll < 0.35:
            yield from self._widen(plan, label)
        elif roll < 0.55:
            if plan.may_be_trimmed:
                yield from self._trim(plan, label)
        else:
            yield from self._set(plan.name, some_settings(self.source, plan, with_retention=self.with_retention))


class TopicStrike(_TopicOffice):
    """Deletes a topic at once, whatever is under way there, and may create it again."""

    def __init__(self, *arguments: Any, plan: TopicPlan, **office: Any) -> None:
        super().__init__(*arguments, **office)
        self.plan = plan

    def run(self) -> Steps[None]:
        is_gone = yield from self._delete(self.plan.name)
        if is_gone and self.source.random() < 0.7:
            yield from self._create(self.plan, self.plan.settings)


class Builder(_TopicOffice):
    """Creates a topic while the disk has hardly any room, and deletes it again."""

    def run(self) -> Steps[None]:
        plan = PLANS["extra"]
        for _ in range(6):
            if (yield from self._create(plan, plan.settings)):
                break
            yield Sleep(self.source.choice((20, 150, 400)))
        yield Sleep(self.source.choice((50, 800)))
        yield from look_up(self.topics)
        yield from self._delete(plan.name)


# Access

GUARDED = TopicPartition("guarded", 0)
_EVERYBODY = "User:*"


def _rule(operation: AclOperation, permission: AclPermissionType) -> AclBinding:
    return AclBinding(ResourcePattern(ResourceType.TOPIC, GUARDED[0]), _EVERYBODY, "*", operation, permission)


class AccessRules:
    """Whether writing to the guarded topic is denied, as far as answers tell."""

    def __init__(self) -> None:
        self.is_denied: bool | None = False
        """None: a change is under way, or nobody knows whether it happened."""
        self.changes = 0


class AccessAdministrator(ClientProcess):
    """Denies writing to a topic, and allows it again. Reading stays allowed."""

    RULES = (
        _rule(AclOperation.READ, AclPermissionType.ALLOW),
        _rule(AclOperation.DESCRIBE, AclPermissionType.ALLOW),
        _rule(AclOperation.WRITE, AclPermissionType.DENY),
    )

    def __init__(self, *arguments: Any, rules: AccessRules, topics: AdministeredTopics, journal: ClientJournal) -> None:
        super().__init__(*arguments)
        self.rules = rules
        self.topics = topics
        self.journal = journal

    def run(self) -> Steps[None]:
        while True:
            yield Sleep(self.source.choice((300, 1_500, 4_000)))
            denies = self.source.random() < 0.5
            self.rules.is_denied = None
            self.rules.changes += 1
            answer = yield requests.create_acls(self.RULES) if denies else requests.delete_acls(self.RULES)
            if answer is None:
                continue
            codes = [one.error_code for one in (answer.results if denies else answer.filter_results)]
            if not any(codes):
                self.rules.is_denied = denies
                self.topics.done["access"] += 1
            for code in codes:
                if code and code not in RETRIABLE:
                    self.journal.wonder(f"{self.name}: access rules answered {ErrorCode(code).name}")


class GuardedProducer(Producer):
    """Writes where it is allowed; denied records are sent again until they are allowed."""

    def __init__(self, *arguments: Any, rules: AccessRules, journal: ClientJournal) -> None:
        super().__init__(*arguments, journal=journal)
        self.rules = rules

    def run(self) -> Steps[None]:
        self.starts += 1
        yield from self.become_producer()
        sequence = 0
        while True:
            value = self.next_value()
            operation = self.journal.recorder.send(self.process, [(partition_name(GUARDED), value)])
            while (offset := (yield from self._try(value, sequence))) is None:
                yield Sleep(self.source.choice((40, 200)))
            operation.sent(0, offset)
            operation.ok()
            sequence += 1
            yield Sleep(self.source.choice((50, 300)))

    def _try(self, value: str, sequence: int) -> Steps[int | None]:
        """The offset, if it was written."""
        rules = self.rules
        changes, was_denied = rules.changes, rules.is_denied
        batch = self.batch_of([value], sequence, is_transactional=False)
        answer = yield requests.produce({GUARDED: batch}, 9, None)
        if answer is None:
            return None
        data = answer.responses[0].partition_responses[0]
        is_refused = data.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if was_denied is not None and changes == rules.changes:
            if is_refused and not was_denied:
                self.journal.wonder(f"{self.name}: {value} is denied although no rule says so")
            if was_denied and not data.error_code:
                self.journal.wonder(f"{self.name}: {value} was written although a rule denies it")
        if data.error_code and not is_refused and data.error_code not in RETRIABLE:
            self.journal.wonder(f"{self.name}: {value} refused with {ErrorCode(data.error_code).name}")
        return None if data.error_code else int(data.base_offset)
