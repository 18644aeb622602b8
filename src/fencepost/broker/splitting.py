"""Requests about many things, served as several about few, so that others are served in between.

Which APIs can be cut, and where, is the table `SPLITS`. Entries about the same thing stay together, because what a
thing named twice means is the handler's (and guard's) business; otherwise the parts are independent, as they are in
Kafka, and their answers are one answer. Requests that are not in the table mean something as a whole.
"""

import copy
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from operator import attrgetter
from types import GeneratorType
from typing import Any, NamedTuple

from fencepost.broker.connection import Staged
from fencepost.broker.slices import Steps
from fencepost.promise import Promise
from fencepost.wire.catalog import ApiKey

PART_ENTRIES = 16
PAYLOAD_BYTES = 131_072
# So many parts may wait to be durable at a time.
PENDING_PARTS_MAX = 8


class Inner(NamedTuple):
    """An array within the entries."""

    entries: str
    answers: str
    keys: tuple[str, ...]
    """What names an entry; empty: it is a plain value."""
    payload: str | None = None
    """What of an entry may be large: so many bytes of it count as an entry."""

    def weight(self, entries: Collection[Any]) -> int:
        weight = len(entries)
        if self.payload is not None:
            weight += sum(len(getattr(entry, self.payload) or ()) for entry in entries) // PAYLOAD_BYTES
        return weight


class Split(NamedTuple):
    entries: str
    answers: str
    keys: tuple[str, ...] | None
    """What names an entry; empty: it is a plain value; None: nothing does."""
    inner: Inner | None = None
    part_entries: int = PART_ENTRIES


_PARTITIONS = Inner("partitions", "partitions", ("partition_index",))
_INDEXES = Inner("partition_indexes", "partitions", ())
# Each of these writes a line to the journal, and syncs it.
_ONE = 1
# Each part is written, or checkpointed, on its own.
_WRITTEN_ENTRIES = 200

SPLITS: dict[ApiKey, tuple[Split, ...]] = {
    ApiKey.PRODUCE: (
        Split(
            "topic_data",
            "responses",
            ("name", "topic_id"),
            Inner("partition_data", "partition_responses", ("index",), "records"),
        ),
    ),
    ApiKey.LIST_OFFSETS: (Split("topics", "topics", ("name",), _PARTITIONS),),
    ApiKey.OFFSET_COMMIT: (
        Split("topics", "topics", ("name", "topic_id"), _PARTITIONS, part_entries=_WRITTEN_ENTRIES),
    ),
    ApiKey.OFFSET_FETCH: (
        Split("groups", "groups", ("group_id",), Inner("topics", "topics", ("name", "topic_id"))),
        Split("topics", "topics", ("name",), _INDEXES),
    ),
    ApiKey.FIND_COORDINATOR: (Split("coordinator_keys", "coordinators", ()),),
    ApiKey.LEAVE_GROUP: (Split("members", "members", ("member_id", "group_instance_id")),),
    ApiKey.DESCRIBE_GROUPS: (Split("groups", "groups", ()),),
    ApiKey.DELETE_GROUPS: (Split("groups_names", "results", (), part_entries=_WRITTEN_ENTRIES),),
    ApiKey.DELETE_TOPICS: (
        Split("topics", "responses", ("name", "topic_id"), part_entries=_ONE),
        Split("topic_names", "responses", (), part_entries=_ONE),
    ),
    ApiKey.DELETE_RECORDS: (Split("topics", "topics", ("name",), _PARTITIONS, part_entries=_WRITTEN_ENTRIES),),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        Split("topics", "topics", ("topic",), Inner("partitions", "partitions", ("partition",))),
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: (Split("transactions", "results_by_transaction", ("transactional_id",)),),
    ApiKey.WRITE_TXN_MARKERS: (Split("markers", "markers", ("producer_id",), Inner("topics", "topics", ("name",))),),
    ApiKey.TXN_OFFSET_COMMIT: (Split("topics", "topics", ("name",), _PARTITIONS, part_entries=_WRITTEN_ENTRIES),),
    ApiKey.CREATE_ACLS: (Split("creations", "results", ("resource_name",), part_entries=_ONE),),
    ApiKey.DELETE_ACLS: (Split("filters", "filter_results", ("resource_name_filter",), part_entries=_ONE),),
    ApiKey.DESCRIBE_CONFIGS: (Split("resources", "results", ("resource_type", "resource_name"), part_entries=4),),
    ApiKey.ALTER_CONFIGS: (Split("resources", "responses", ("resource_type", "resource_name"), part_entries=_ONE),),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        Split("resources", "responses", ("resource_type", "resource_name"), part_entries=_ONE),
    ),
    ApiKey.ELECT_LEADERS: (
        Split("topic_partitions", "replica_election_results", ("topic",), Inner("partitions", "partition_result", ())),
    ),
    ApiKey.OFFSET_DELETE: (Split("topics", "topics", ("name",), _PARTITIONS, part_entries=_WRITTEN_ENTRIES),),
    ApiKey.DESCRIBE_PRODUCERS: (Split("topics", "topics", ("name",), _INDEXES),),
    ApiKey.ALTER_CLIENT_QUOTAS: (Split("entries", "entries", None),),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (Split("users", "results", ("name",)),),
    ApiKey.DESCRIBE_TRANSACTIONS: (Split("transactional_ids", "transaction_states", ()),),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (Split("group_ids", "groups", ()),),
}


def split_of(api_key: int, request: Any) -> Split | None:
    for split in SPLITS.get(api_key, ()):  # type: ignore[call-overload]
        if getattr(request, split.entries):
            return split  # type: ignore[no-any-return]
    return None


def serve_in_parts(split: Split, request: Any, serve: Callable[[Any], Any]) -> Steps[Any]:
    """What `serve` answers to the request, asked part by part. An error about the whole ends it."""
    answers: list[Any] = []
    groups = yield from _grouped(getattr(request, split.entries), split.keys)
    for part in _parts(split, request, groups):
        yield None
        if part is None:
            continue
        answer = serve(part)
        if type(answer) is GeneratorType:
            answer = yield from answer
        if type(answer) is Staged:
            # What comes next is appended after it.
            if not answer.appended.done:
                yield answer.appended
            answer = answer.answer
        answers.append(answer)
        # What is written together is answered together: not too much of it.
        if len(answers) > PENDING_PARTS_MAX:
            before = answers[-PENDING_PARTS_MAX]
            if type(before) is Promise and not before.done:
                yield before
        if getattr(answer, "error_code", 0):
            break
    messages = []
    for answer in answers:
        if type(answer) is Promise:
            if not answer.done:
                yield answer
            answer = answer.value
        if answer is not None:
            messages.append(answer)
        yield None
    return (yield from _merged(split, messages)) if messages else None


def _parts(split: Split, request: Any, groups: Iterable[list[Any]]) -> Iterator[Any]:
    """The request again and again, each time with some of its entries. None: it may be interrupted here, too."""
    some: list[Any] = []
    weight = 0
    for group in groups:
        for cut in _cut(split, group):
            if cut is None:
                yield None
                continue
            entries, entries_weight = cut
            if some and weight + entries_weight > split.part_entries:
                yield _with(request, split.entries, some)
                some, weight = [], 0
            some += entries
            weight += entries_weight
    if some:
        yield _with(request, split.entries, some)


def _cut(split: Split, group: list[Any]) -> Iterator[tuple[list[Any], int] | None]:
    """Entries about one thing: together, or one after the other where it is a single one with many of its own."""
    inner = split.inner
    if inner is None:
        yield group, len(group)
        return
    weights = [inner.weight(getattr(entry, inner.entries) or ()) for entry in group]
    if len(group) > 1 or weights[0] <= split.part_entries:
        yield group, max(len(group), sum(weights))
        return
    some: list[Any] = []
    weight = 0
    for same in (yield from _grouped(getattr(group[0], inner.entries), inner.keys)):
        some += same
        weight += inner.weight(same)
        if weight >= split.part_entries:
            yield [_with(group[0], inner.entries, some)], weight
            some, weight = [], 0
    if some:
        yield [_with(group[0], inner.entries, some)], weight


def _grouped(entries: list[Any], keys: tuple[str, ...] | None) -> Generator[None, None, Iterable[list[Any]]]:
    groups: dict[Any, list[Any]] = {}
    key_of = id if keys is None else attrgetter(*keys) if keys else _itself
    for number, entry in enumerate(entries):
        if not number & 63:
            yield None
        groups.setdefault(key_of(entry), []).append(entry)
    return groups.values()


def _itself(entry: Any) -> Any:
    return entry


def _with(original: Any, name: str, entries: list[Any]) -> Any:
    changed = copy.copy(original)
    setattr(changed, name, entries)
    return changed


def _merged(split: Split, messages: list[Any]) -> Steps[Any]:
    whole = messages[0]
    answers: list[Any] = getattr(whole, split.answers)
    names = split.keys or ()
    for message in messages[1:]:
        yield None
        if getattr(message, "error_code", 0):
            return message
        for answer in getattr(message, split.answers):
            last = answers[-1] if answers else None
            if split.inner is not None and last is not None and _is_same(last, answer, names):
                getattr(last, split.inner.answers).extend(getattr(answer, split.inner.answers))
            else:
                answers.append(answer)
    return whole


def _is_same(one: Any, other: Any, names: tuple[str, ...]) -> bool:
    """Whether two answers are about the same thing, which was cut."""
    return all(getattr(one, name) == getattr(other, name) for name in names)
