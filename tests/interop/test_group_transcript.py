"""One long conversation about groups and offsets, held with Fencepost and with Apache Kafka: the answers are equal.

Every version of every group call is in it, most of all the ways to be refused. Afterwards both logs of
__consumer_offsets must tell the same story, record by record.
"""

import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.coordinators.journal import Entry, OffsetEntry, decode_entry
from fencepost.wire import messages
from fencepost.wire.batch import iterate_headers
from fencepost.wire.catalog import ApiKey
from fencepost.wire.framing import read_response, request_frame
from fencepost.wire.records import read_records
from tests.peers.broker_process import BrokerProcess
from tests.peers.fencepost_process import FencepostProcess
from tests.peers.kafka import ApacheKafka
from tests.support.patience import patient
from tests.unit.coordinators.calls import GroupCalls, KnownTopics, Topic

pytestmark = pytest.mark.timeout(120)

ANSWER_TIMEOUT_SECONDS = patient(30.0)
# A request counts as parked when it has no answer yet although so many others, asked after it, have theirs.
OTHERS = 5
PAUSE_SECONDS = 0.1
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
Say = Callable[[str, Any], None]


def send(address: tuple[str, int], request: Any, version: int, client_id: str = "app") -> Any:
    """One request on a connection of its own."""
    name = type(request).__name__.removesuffix("Request")
    api_key = ApiKey[re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()]
    with socket.create_connection(address, ANSWER_TIMEOUT_SECONDS) as connection:
        connection.sendall(b"".join(request_frame(api_key, version, 7, client_id, request)))
        stream = connection.makefile("rb")
        (size,) = struct.unpack(">i", stream.read(4))
        return read_response(getattr(messages, f"{name}Response"), api_key, version, stream.read(size))[1]


class Answer:
    def __init__(self, ask: Callable[[], Any], ask_another: Callable[[], Any]) -> None:
        self._result: Any = None
        self._ask_another = ask_another

        def run() -> None:
            self._result = ask()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        for _ in range(OTHERS):
            self._thread.join(PAUSE_SECONDS)
            if not self._thread.is_alive():
                return True
            self._ask_another()
        return False

    @property
    def value(self) -> Any:
        self._thread.join(ANSWER_TIMEOUT_SECONDS)
        assert self._result is not None, "no answer"
        return self._result


class Conversation(GroupCalls):
    def __init__(self, broker: BrokerProcess) -> None:
        self._address = broker.address
        for name, count in (("orders", 4), ("audit", 2)):
            topic = messages.CreateTopicsRequest.CreatableTopic(name=name, num_partitions=count, replication_factor=1)
            send(self._address, messages.CreateTopicsRequest(topics=[topic], timeout_ms=5_000), 7)
        self.topics = self._look_up("orders", "audit")
        self.transcript: list[tuple[str, Any]] = []
        self._names: dict[str, str] = {}
        self._await_coordinator()

    def _look_up(self, *names: str) -> KnownTopics:
        topic = messages.MetadataRequest.MetadataRequestTopic
        request = messages.MetadataRequest(topics=[topic(name=name) for name in names])
        deadline = time.monotonic() + ANSWER_TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            found = send(self._address, request, 12).topics
            if all(one.error_code == 0 for one in found):
                return KnownTopics({one.name: Topic(one.topic_id, len(one.partitions)) for one in found})
            time.sleep(0.05)
        raise AssertionError("the topics did not appear")

    def _await_coordinator(self) -> None:
        request = messages.FindCoordinatorRequest(key_type=0, coordinator_keys=["any"])
        deadline = time.monotonic() + ANSWER_TIMEOUT_SECONDS
        while send(self._address, request, 4).coordinators[0].error_code != 0 or self.heartbeat("m", 1) == 16:
            assert time.monotonic() < deadline, "no coordinator"
            time.sleep(0.05)

    def call(self, name: str, request: Any, version: int, client_id: str = "app") -> Answer:
        another = messages.DescribeGroupsRequest(groups=["another"])
        answer = Answer(
            lambda: send(self._address, request, version, client_id), lambda: send(self._address, another, 5)
        )
        # Keep the order in which requests are made, whether they are answered or parked.
        answer._thread.join(0.05)
        return answer

    def advance(self, milliseconds: int) -> None:
        time.sleep(milliseconds / 1000 + 0.1)

    def say(self, what: str, answer: Any) -> None:
        self.transcript.append((what, self.plain(answer)))

    def plain(self, value: Any) -> Any:
        """An answer without what differs from run to run: generated ids, topic ids, the order of sets."""
        if isinstance(value, bytes):
            name = self.topics.name_of(value)
            return f"<id of {name}>" if name else value
        if isinstance(value, str):
            return UUID.sub(lambda found: self._names.setdefault(found[0], f"#{len(self._names)}"), value)
        if isinstance(value, list):
            return sorted((self.plain(one) for one in value), key=str)
        if hasattr(value, "__slots__"):
            return {name: self.plain(getattr(value, name)) for name in value.__slots__}
        return value


OFFSETS = {("orders", 0): 5, ("audit", 1): 6}


def refusals(talk: Conversation, say: Say) -> None:
    for version in range(10):
        say(f"join without group v{version}", talk.join(group="", version=version).value)
        say(f"join with a short session v{version}", talk.join(group="a", version=version, session_ms=5).value)
        say(f"join as a stranger v{version}", talk.join("nobody", group="a", version=version).value)
    for version in range(6):
        say(f"sync as a stranger v{version}", talk.sync_group("m", 1, group="a", version=version).value)
        say(f"sync without group v{version}", talk.sync_group("m", 1, group="", version=version).value)
        say(f"leave as a stranger v{version}", talk.leave("m", group="a", version=version).value)
        say(f"leave without group v{version}", talk.leave("m", group="", version=version).value)
    say("sync without protocol", talk.sync_group("m", 1, group="a", protocol=None).value)
    for version in range(5):
        say(f"heartbeat as a stranger v{version}", talk.heartbeat("m", 1, group="a", version=version))
    say("heartbeat without group", talk.heartbeat("m", 1, group=""))
    for version in range(7):
        say(f"describe nothing v{version}", talk.describe("missing", version))
    say("describe without group", talk.describe(""))
    say("join without protocols", talk.join(group="bare", protocols=()).value)
    # Kafka describes a group once its first record is committed, which the answer before did not wait for.
    talk.advance(0)
    say("which still makes a group", talk.describe("bare"))


def simple_groups(talk: Conversation, say: Say) -> None:
    for version in range(2, 11):
        simple = f"simple-{version}"
        say(f"commit v{version}", talk.commit(OFFSETS, group=simple, version=version, metadata="x").value)
        late = talk.commit(OFFSETS, group="missing", generation=3, member_id="m", version=version)
        say(f"commit to no group v{version}", late.value)
        unknown = {("nowhere", 0): 1, ("orders", 9): 2, ("orders", 1): 3}
        say(f"commit to no partition v{version}", talk.commit(unknown, group="simple", version=version).value)
    say("commit as a member without generation", talk.commit(OFFSETS, group="odd", member_id="m").value)
    say("commit without group", talk.commit(OFFSETS, group="").value)
    first = {("orders", 0): 1}
    say("commit by unknown id", talk.commit(first, group="simple", version=10, topic_id=b"z" * 16).value)
    for metadata in ("y" * 4_096, "y" * 4_097, "\N{GRINNING FACE}" * 2_048, "\N{GRINNING FACE}" * 2_049, None):
        say("commit with metadata", talk.commit(first, group="simple", metadata=metadata).value)
    say("commit nothing", talk.commit({}, group="simple").value)
    say("commit nothing as a stranger", talk.commit({}, group="missing", generation=3, member_id="m").value)
    for version in (2, 4):
        kept = talk.commit(OFFSETS, group="kept", version=version, retention_ms=100_000)
        say(f"commit with retention v{version}", kept.value)


def fetches_and_deletions(talk: Conversation, say: Say) -> None:
    wanted = (("orders", 0), ("orders", 3), ("audit", 1))
    for version in range(1, 11):
        simple = f"simple-{max(version, 2)}"
        say(f"fetch v{version}", talk.fetch(*wanted, group=simple, version=version).value)
        say(f"fetch from no group v{version}", talk.fetch(("orders", 0), group="missing", version=version).value)
        unknown = (("nowhere", 0), ("orders", 9), ("orders", 0))
        say(f"fetch of no partition v{version}", talk.fetch(*unknown, group="simple-2", version=version).value)
        if version >= 2:
            say(f"fetch all v{version}", talk.fetch(group=simple, version=version).value)
            say(f"fetch all of no group v{version}", talk.fetch(group="missing", version=version).value)
        if version >= 7:
            stable = talk.fetch(("orders", 0), group="simple-2", version=version, stable=True)
            say(f"fetch stable v{version}", stable.value)
    say("fetch without group", talk.fetch(("orders", 0), group="").value)
    say("describe a simple group", talk.describe("simple-2"))
    say("delete offsets of no group", talk.delete_offsets(("orders", 0), group="missing"))
    say("delete offsets without group", talk.delete_offsets(("orders", 0), group=""))
    some = (("orders", 0), ("nowhere", 0), ("audit", 7))
    say("delete offsets", talk.delete_offsets(*some, group="simple-3"))
    say("delete no offsets", talk.delete_offsets(group="simple-3"))
    say("delete no offsets of no group", talk.delete_offsets(group="missing"))
    say("delete unknown offsets of no group", talk.delete_offsets(("nowhere", 0), group="missing"))
    say("what is left", talk.fetch(group="simple-3").value)


def a_living_group(talk: Conversation, say: Say) -> None:
    live, mine, yours = "live", ["range", "roundrobin"], ["roundrobin", "range"]
    first = talk.join(group=live, protocols=mine).value
    say("first join", first)
    one = first.member_id
    talk.advance(0)
    say("with a pending member", talk.describe(live))
    joined = talk.join(one, group=live, protocols=mine)
    talk.advance(0)
    say("second join", joined.value)
    say("in the sync phase", talk.describe(live))
    say("commit in the sync phase", talk.commit(OFFSETS, group=live, member_id=one, generation=1).value)
    say("commit as nobody in the sync phase", talk.commit(OFFSETS, group=live).value)
    say("heartbeat in the sync phase", talk.heartbeat(one, 1, group=live))
    say("join again", talk.join(one, group=live, protocols=mine).value)
    say("sync another generation", talk.sync_group(one, 9, group=live).value)
    say("sync another protocol", talk.sync_group(one, 1, group=live, protocol="z").value)
    say("sync another type", talk.sync_group(one, 1, group=live, protocol_type="z").value)
    say("sync as a stranger", talk.sync_group("z", 1, group=live).value)
    say("sync as a static stranger", talk.sync_group(one, 1, group=live, instance="i").value)
    say("sync", talk.sync_group(one, 1, {one: b"one"}, group=live).value)
    say("sync again", talk.sync_group(one, 1, group=live, version=4).value)
    for version in range(7):
        say(f"stable v{version}", talk.describe(live, version))
    allowed = messages.DescribeGroupsRequest(groups=[live, "missing"], include_authorized_operations=True)
    say("what is allowed", talk.call("describe_groups", allowed, 6).value)
    say("commit another generation", talk.commit(OFFSETS, group=live, member_id=one, generation=9).value)
    say("commit as nobody", talk.commit(OFFSETS, group=live).value)
    say("commit a generation as nobody", talk.commit(OFFSETS, group=live, generation=1).value)
    say("commit without generation", talk.commit(OFFSETS, group=live, member_id=one).value)
    static = talk.commit(OFFSETS, group=live, member_id=one, generation=1, instance="i")
    say("commit as a static stranger", static.value)
    say("commit", talk.commit(OFFSETS, group=live, member_id=one, generation=1).value)
    say("delete offsets", talk.delete_offsets(("orders", 0), ("audit", 1), group=live))
    say("heartbeat another generation", talk.heartbeat(one, 2, group=live))
    say("heartbeat as a stranger", talk.heartbeat("z", 1, group=live))
    say("heartbeat as a static stranger", talk.heartbeat(one, 1, group=live, instance="z"))
    say("join with no common protocol", talk.join(group=live, protocols=["sticky"]).value)
    say("change to no common protocol", talk.join(one, group=live, protocols=["sticky"]).value)
    say("join with another type", talk.join(group=live, protocol_type="connect").value)
    say("join as a static stranger", talk.join(one, group=live, instance="z").value)

    two = talk.join(group=live, protocols=yours).value.member_id
    waiting = talk.join(two, group=live, protocols=yours)
    say("a second member waits", not waiting.done)
    say("gathering", talk.describe(live))
    say("heartbeat while gathering", talk.heartbeat(one, 1, group=live))
    say("sync while gathering", talk.sync_group(one, 1, group=live).value)
    say("commit while gathering", talk.commit(OFFSETS, group=live, member_id=one, generation=1).value)
    say("the first rejoins", talk.join(one, group=live, protocols=mine).value)
    protocol = waiting.value.protocol_name
    follower = talk.sync_group(two, 2, group=live, protocol=protocol)
    say("the follower waits", not follower.done)
    say("leader", talk.sync_group(one, 2, {one: b"a", two: b"b"}, group=live, protocol=protocol).value)
    say("follower", follower.value)
    say("the follower joins again", talk.join(two, group=live, protocols=yours).value)
    say("leave with a stranger", talk.leave("z", two, group=live).value)
    say("heartbeat after that", talk.heartbeat(one, 2, group=live))
    say("alone", talk.join(one, group=live, protocols=mine).value)
    say("leave v0", talk.leave(one, group=live, version=0).value)
    say("empty", talk.describe(live))
    say("commit as nobody to the empty group", talk.commit(OFFSETS, group=live).value)
    say("commit as a ghost", talk.commit(OFFSETS, group=live, generation=4, member_id=one).value)
    say("sync as a ghost", talk.sync_group(one, 3, group=live).value)
    say("heartbeat as a ghost", talk.heartbeat(one, 3, group=live))
    say("join as a ghost", talk.join(one, group=live).value)
    say("delete offsets of the empty group", talk.delete_offsets(("orders", 0), group=live))
    pending = talk.join(group="pending").value.member_id
    say("a pending member leaves", talk.leave(pending, group="pending").value)
    talk.advance(0)
    say("and leaves an empty group", talk.describe("pending"))


def static_members(talk: Conversation, say: Say) -> None:
    shop = "shop"
    joined = talk.join(group=shop, instance="till")
    talk.advance(0)
    say("join", joined.value)
    old = joined.value.member_id
    say("sync", talk.sync_group(old, 1, {old: b"x"}, group=shop, instance="till").value)
    back = talk.join(group=shop, instance="till").value
    say("come back", back)
    say("fenced heartbeat", talk.heartbeat(old, 1, group=shop, instance="till"))
    say("heartbeat of an id that is gone", talk.heartbeat(old, 1, group=shop))
    for version in (6, 9):
        say("fenced join", talk.join(old, group=shop, instance="till", version=version).value)
    fenced = talk.commit(OFFSETS, group=shop, member_id=old, generation=1, instance="till")
    say("fenced commit", fenced.value)
    say("fenced sync", talk.sync_group(old, 1, group=shop, instance="till").value)
    say("fenced leave", talk.leave(old, group=shop, instance="till").value)
    say("sync after coming back", talk.sync_group(back.member_id, 1, group=shop, instance="till").value)
    say("come back as v8", talk.join(group=shop, instance="till", version=8).value)
    say("come back with other topics", talk.join(group=shop, instance="till", topics=["audit"]).value)
    say("still stable", talk.describe(shop))
    say("remove a stranger", talk.leave("", group=shop, instance="other").value)
    say("remove", talk.leave("", group=shop, instance="till").value)
    say("empty", talk.describe(shop))

    pair = "pair"
    first = talk.join(group=pair, instance="one")
    talk.advance(0)
    replaced = first.value.member_id
    second = talk.join(group=pair, instance="two")
    say("the second waits", not second.done)
    again = talk.join(group=pair, instance="one")
    say("second", second.value.error_code)
    say("first again", again.value)
    say("first before", talk.heartbeat(replaced, 2, group=pair, instance="one"))
    parked = talk.sync_group(second.value.member_id, 2, group=pair, instance="two")
    say("a sync waits", not parked.done)
    taken = talk.join(group=pair, instance="two")
    say("and is fenced", parked.value)
    leader = again.value.member_id
    say("leader", talk.join(leader, group=pair, instance="one").value)
    say("taken over", taken.value)
    shares = {leader: b"1", taken.value.member_id: b"2"}
    say("assigned", talk.sync_group(leader, 3, shares, group=pair, instance="one").value)
    newcomer = talk.join(group=pair).value.member_id
    waiting = talk.join(newcomer, group=pair)
    say("a newcomer waits", not waiting.done)
    parked_join = talk.join(leader, group=pair, instance="one")
    say("the leader waits", not parked_join.done)
    leader_again = talk.join(group=pair, instance="one")
    say("and is fenced", parked_join.value)
    talk.join(taken.value.member_id, group=pair, instance="two")
    say("leader again", leader_again.value)
    say("newcomer", waiting.value)

    moody = "moody"
    joined = talk.join(group=moody, instance="one", protocols=["range", "roundrobin"])
    talk.advance(0)
    member = joined.value.member_id
    say("assigned", talk.sync_group(member, 1, {member: b"1"}, group=moody, instance="one").value)
    changed = talk.join(group=moody, instance="one", protocols=["roundrobin", "range"])
    say("a takeover that changes the protocol", changed.value)


def odd_groups(talk: Conversation, say: Say) -> None:
    connect = talk.join(group="connect", protocol_type="connect", metadata=b"zz").value.member_id
    joined = talk.join(connect, group="connect", protocol_type="connect", metadata=b"zz")
    talk.advance(0)
    say("connect", joined.value)
    synced = talk.sync_group(connect, 1, {connect: b"q"}, group="connect", protocol_type="connect")
    say("connect assigned", synced.value)
    say("delete offsets of connect", talk.delete_offsets(("orders", 0), group="connect"))
    garbled = talk.join(group="garbled", metadata=b"z").value.member_id
    joined = talk.join(garbled, group="garbled", metadata=b"z")
    talk.advance(0)
    say("garbled", joined.value)
    say("missing assignment", talk.sync_group(garbled, 1, {"stranger": b"q"}, group="garbled").value)
    say("delete offsets of garbled", talk.delete_offsets(("orders", 0), group="garbled"))
    newcomer = talk.join(group="garbled").value.member_id
    parked = talk.join(newcomer, group="garbled")
    say("parked", not parked.done)
    say("leave while parked", talk.leave(newcomer, group="garbled").value)
    say("parked no more", parked.value)


def listing_and_deleting(talk: Conversation, say: Say) -> None:
    def listed(version: int, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> Any:
        request = messages.ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        return talk.call("list_groups", request, version).value

    for version in range(6):
        say(f"list v{version}", listed(version))
    for state in ("sTable", "Empty", "bogus"):
        say(f"list {state}", listed(5, states=(state,)))
    for kind in ("CLASSIC", "consumer", "bogus"):
        say(f"list {kind}", listed(5, types=(kind,)))
    for version in range(3):
        request = messages.DeleteGroupsRequest(groups_names=["garbled", f"simple-{version + 5}", "missing", "shop", ""])
        say(f"delete v{version}", talk.call("delete_groups", request, version).value)
    say("deleted", talk.describe("simple-5"))
    say("its offsets", talk.fetch(group="simple-5").value)


SCENES = (
    refusals,
    simple_groups,
    fetches_and_deletions,
    a_living_group,
    static_members,
    odd_groups,
    listing_and_deleting,
)


def records_of(directory: Path) -> Iterator[Entry]:
    for file in sorted(directory.glob("__consumer_offsets-*/*.log")):
        content = file.read_bytes()
        for position, header in iterate_headers(content):
            for record in read_records(content[position : position + header.size_bytes], 1 << 26):
                yield decode_entry(record.key or b"", record.value)


def story_of(talk: Conversation, directory: Path) -> dict[str, list[Any]]:
    """What the log says of each group, without times and ids; offsets that were written together in any order."""
    story: dict[str, list[Any]] = {}
    for entry in records_of(directory):
        told: Any = None
        if isinstance(entry, OffsetEntry):
            if entry.value is not None:
                value = entry.value
                kept_ms = value.expire_timestamp_ms and value.expire_timestamp_ms - value.commit_timestamp_ms
                told = (value.offset, value.leader_epoch, value.metadata, kept_ms, talk.plain(value.topic_id))
            told = ("offset", entry.topic, entry.partition, told)
        else:
            if entry.value is not None:
                assert entry.value.current_state_timestamp > 0
                entry.value.current_state_timestamp = 0
                told = re.sub(r"#\d+", "#", str(talk.plain(entry.value)))
            told = ("group", told)
        story.setdefault(entry.group_id, []).append(told)
    for told in story.values():
        # A group's tombstones come in the order of a hash map.
        tail = next((i for i, one in enumerate(told) if one[-1] is None), len(told))
        told[tail:] = sorted(told[tail:], key=str)
    return story


@pytest.fixture(scope="module")
def conversations() -> Iterator[list[tuple[Conversation, BrokerProcess]]]:
    with FencepostProcess() as ours, ApacheKafka() as theirs:
        yield [(Conversation(ours), ours), (Conversation(theirs), theirs)]


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_both_brokers_say_the_same(
    conversations: list[tuple[Conversation, BrokerProcess]], scene: Callable[[Conversation, Say], None]
) -> None:
    for talk, _ in conversations:
        talk.transcript.clear()
        scene(talk, talk.say)
    ours, theirs = (talk.transcript for talk, _ in conversations)
    assert [what for what, _ in ours] == [what for what, _ in theirs]
    for (what, our_answer), (_, their_answer) in zip(ours, theirs, strict=True):
        assert our_answer == their_answer, what


def test_both_logs_tell_the_same_story(conversations: list[tuple[Conversation, BrokerProcess]]) -> None:
    ours, theirs = (story_of(talk, broker.data_directory) for talk, broker in conversations)
    assert set(ours) == set(theirs)
    for group_id, told in theirs.items():
        assert ours[group_id] == told, group_id
