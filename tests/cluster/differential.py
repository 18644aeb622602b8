"""The same random administration at Apache Kafka's controller and at ours: equal answers and equal records.

    python -m tests.cluster.differential --steps 10000 --seed 1

Three to five scripted brokers register, heartbeat, send AlterPartition, fall silent and come back, while topics,
settings, ACLs, users, quotas, features, elections and reassignments are asked for, well-formed and not, directly and in
envelopes. Both logs begin alike and stay alike: offsets, and therefore broker epochs, are compared as they are.

What is not compared as it is:
- Ids of topics and ACLs, and where replicas are placed, are drawn by Apache Kafka and given to ours (`sides.py`): the
  records are then equal to the bit. Both placements are checked against what every placement keeps.
- The timestamps of batches; whether two records share a batch.
- Apache Kafka writes no NoOp records here (`metadata.max.idle.interval.ms=0`).
- The order in which Java's hash tables give things out: of settings, users, quotas, features and removed ACLs in one
  decision, of topics (not of partitions) among new partitions and changes of partitions, of partitions where all of a
  lost directory or of all topics are meant, and of the entries of the answers to DeleteTopics, CreatePartitions,
  AlterConfigs, AlterUserScramCredentials, AlterClientQuotas, DeleteAcls, CreateTopics that names some twice, and
  ElectLeaders and ListPartitionReassignments for all topics.
- A topic whose partitions have different numbers of replicas is not widened: Apache Kafka takes the number of any one.
- Nothing is placed at random while a broker is stopping: whether that fails depends on the draw.
- A topic that is deleted while a partition of it has nobody in sync stays behind in one of Apache Kafka's indexes: its
  controller fails (and resigns) if a directory of that partition is lost later. Such directories are not lost here.
- Likewise a replica whose eligibility ends because min.insync.replicas changes: that is not changed while there is one.
- Of several settings, operations or features in one entry, which wrong one the message of a refusal names.
- A session's end: Apache Kafka goes by its clock; when it fences a silent broker, the clock of ours is moved there.
"""

import argparse
import random
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from fencepost.metadata.image import MetadataImage, PartitionState
from fencepost.metadata.records import MetadataRecord, encode_record
from tests.cluster.sides import EPOCH, NODE_ID, OurController, Side, apache_controller, registration_of
from tests.peers import schemas
from tests.peers.schemas import Message
from tests.support.patience import patient

SESSION_TIMEOUT_MS = 2_000
KEEP_ALIVE_SECONDS = SESSION_TIMEOUT_MS / 4_000
BROKER_IDS = (2, 3, 4, 5, 6)
RACKS = (None, "a", "b")
TOPICS = ("orders", "bills", "a.b", "a_b", "t-1", "t-2", "t-3", "t-4")
USERS = ("al", "bo", "cy")
TOPICS_MAX = 8
PARTITIONS_MAX = 4
NO_ID = str(uuid.UUID(int=0))
UNORDERED_ANSWERS = {
    "DeleteTopics": ("Responses",),
    "CreatePartitions": ("Results",),
    "AlterConfigs": ("Responses",),
    "IncrementalAlterConfigs": ("Responses",),
    "AlterUserScramCredentials": ("Results",),
    "AlterClientQuotas": ("Entries",),
    "ListPartitionReassignments": ("Topics",),
    "ElectLeaders": ("ReplicaElectionResults",),
}
UNORDERED_RECORDS = frozenset({
    "ConfigRecord", "ClearElrRecord", "FeatureLevelRecord", "UserScramCredentialRecord",
    "RemoveUserScramCredentialRecord", "RemoveAccessControlEntryRecord", "ClientQuotaRecord", "RemoveTopicRecord",
})  # fmt: skip


class Difference(AssertionError):
    """The two controllers do not do the same."""


@dataclass
class Broker:
    broker_id: int
    rack: str | None
    directories: list[str]
    incarnation: str = ""
    epoch: int = -1
    heard_at: float | None = None
    """When it last sent a heartbeat in its epoch; None if there is no session."""
    heard_ms: int = 0
    """The same by the clock of ours."""


class Differential:
    def __init__(self, seed: int, *, keeps_going: bool = False) -> None:
        self._keeps_going = keeps_going
        self.random = random.Random(seed)
        self.image = MetadataImage()
        self.counts: Counter[str] = Counter()
        self.codes: Counter[int] = Counter()
        self.records: Counter[str] = Counter()
        self.not_to_lose: set[str] = set()
        """Directories whose loss would end Apache Kafka's controller, for a topic that it has not quite forgotten."""
        self.story: list[str] = []
        """The last steps, for whoever looks at a difference."""
        count = self.random.randint(3, 5)
        self.brokers = {
            broker_id: Broker(broker_id, self.random.choice(RACKS), [self.uuid()]) for broker_id in BROKER_IDS[:count]
        }
        self._stack = ExitStack()

    def uuid(self) -> str:
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    def __enter__(self) -> "Differential":
        with ExitStack() as stack:
            process = stack.enter_context(apache_controller(SESSION_TIMEOUT_MS))
            self.ours = stack.enter_context(OurController(process.cluster_id, SESSION_TIMEOUT_MS))
            self.sides = (Side(process.address, process.cluster_id), Side(self.ours.address, process.cluster_id))
            self._process = process
            for side in self.sides:
                stack.callback(side.close)
            self._begin()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            lines = self._process.log_file.read_text(errors="replace").splitlines()
            wrong = [at for at, line in enumerate(lines) if "controller fault" in line]
            print("\n".join(line for at in wrong[:3] for line in lines[at : at + 12]))
        self._stack.close()

    def _begin(self) -> None:
        deadline = time.monotonic() + patient(30)
        theirs = self.sides[0].new_records()
        while not theirs or theirs[-1][1].name != "RegisterControllerRecord":
            if time.monotonic() > deadline:
                raise Difference("Apache Kafka's controller did not register itself")
            time.sleep(0.05)
            theirs += self.sides[0].new_records()
        self.sides[1].call("ControllerRegistration", 0, registration_of(theirs[-1][1]))
        self._compare_records("the beginning", theirs, self.sides[1].new_records())

    # One step

    def call(self, api: str, version: int, message: Message, *, through_envelope: bool = False) -> Message:
        self._catch_up()
        self.ours.now_ms += 1
        self.story = [*self.story[-15:], f"{api} v{version} {message}{' in an envelope' if through_envelope else ''}"]
        theirs = self._ask(self.sides[0], api, version, message, through_envelope)
        their_records = self.sides[0].new_records()
        self._give(api, message, theirs, [record for _, record in their_records])
        ours = self._ask(self.sides[1], api, version, message, through_envelope)
        self._compare_answers(api, version, message, theirs, ours)
        self._compare_records(f"{api} v{version} {message}", their_records, self.sides[1].new_records())
        self.counts[api] += 1
        self.codes.update(_codes(theirs))
        if self.ours.placements.complaints:
            raise Difference("\n".join(self.ours.placements.complaints))
        return theirs

    def _ask(self, side: Side, api: str, version: int, message: Message, through_envelope: bool) -> Message:
        if not through_envelope:
            return side.call(api, version, message)
        name = f"{api}Request"
        head = schemas.api_key(api).to_bytes(2, "big") + version.to_bytes(2, "big") + (7).to_bytes(4, "big") + b"\0\1c"
        frame = head + (b"\0" if schemas.is_flexible(name, version) else b"") + schemas.encode(name, version, message)
        principal = {"Type": "User", "Name": "ANONYMOUS", "TokenAuthenticated": False}
        request = {
            "RequestData": frame,
            "RequestPrincipal": b"\0\0" + schemas.encode("DefaultPrincipalData", 0, principal),
            "ClientHostAddress": bytes((127, 0, 0, 1)),
        }
        answer = side.call("Envelope", 0, request)
        if answer["ErrorCode"]:
            return answer
        content = answer["ResponseData"]
        start = 5 if schemas.response_header_is_flexible(api, version) else 4
        assert content[:4] == (7).to_bytes(4, "big")
        return schemas.decode(f"{api}Response", version, content[start:])

    def _give(self, api: str, message: Message, answer: Message, records: Sequence[MetadataRecord]) -> None:
        """What Apache Kafka drew at random in this step."""
        randomness, placements = self.ours.randomness, self.ours.placements
        randomness.ids.clear()
        placements.given.clear()
        partitions: dict[bytes, list[tuple[int, ...]]] = {}
        for record in records:
            if record.name == "AccessControlEntryRecord":
                randomness.ids.append(record.message.id)
            elif record.name == "PartitionRecord":
                partitions.setdefault(record.message.topic_id, []).append(tuple(record.message.replicas))
        if api == "CreateTopics":
            ids = [topic.get("TopicId", NO_ID) for topic in answer["Topics"] if topic["ErrorCode"] == 0]
            if NO_ID in ids:
                ids = [str(uuid.UUID(bytes=each.message.topic_id)) for each in records if each.name == "TopicRecord"]
            randomness.ids.extend(uuid.UUID(each).bytes for each in ids)
            names = {each.message.name: each.message.topic_id for each in records if each.name == "TopicRecord"}
            for topic in message["Topics"]:
                if topic["Name"] in names and not topic.get("Assignments"):
                    placements.given.append(partitions[names[topic["Name"]]])
        if api == "CreatePartitions":
            for topic in message["Topics"]:
                known = self.image.topics.get(topic["Name"])
                if known is not None and known.topic_id in partitions and topic.get("Assignments") is None:
                    placements.given.append(partitions[known.topic_id])

    def _compare_answers(self, api: str, version: int, message: Message, theirs: Message, ours: Message) -> None:
        theirs, ours = _in_order(api, theirs), _in_order(api, ours)
        if api == "CreateTopics" and len({topic["Name"] for topic in message["Topics"]}) < len(message["Topics"]):
            for answer in (theirs, ours):
                answer["Topics"] = sorted(answer["Topics"], key=repr)
        if api == "ElectLeaders" and message["TopicPartitions"] is None:
            for result in (*theirs["ReplicaElectionResults"], *ours["ReplicaElectionResults"]):
                result["PartitionResult"].sort(key=repr)
        if api == "CreateTopics" and message.get("validateOnly"):
            # Ids of topics that are not created mean nothing.
            for topic in (*theirs["Topics"], *ours["Topics"]):
                topic.pop("TopicId", None)
        if _has_several(message):
            theirs, ours = _without_messages(theirs, ours)
        if theirs != ours:
            different = "\n".join(_different(theirs, ours, ""))
            what = f"{api} v{version}: different answers to {message}\n{different}"
            if not self._keeps_going:
                raise Difference(f"{what}\n{self._told()}")
            print(what)

    def _compare_records(
        self, what: str, theirs: list[tuple[int, MetadataRecord]], ours: list[tuple[int, MetadataRecord]]
    ) -> None:
        is_unordered = "OfflineLogDirs" in what or "'TopicPartitions': None" in what
        same_offsets = [offset for offset, _ in theirs] == [offset for offset, _ in ours]
        if not same_offsets or _canonical(theirs, is_unordered) != _canonical(ours, is_unordered):
            raise Difference(f"{what}: different records\nApache: {theirs}\nours:   {ours}\n{self._told()}")
        for _, record in theirs:
            if record.name == "RemoveTopicRecord":
                self._note_forgotten(record.message.topic_id)
            self.image.apply((record,))
        self.records.update(record.name for _, record in theirs)

    def _note_forgotten(self, topic_id: bytes) -> None:
        for partition in self.image.topics_by_id[topic_id].partitions.values():
            if not partition.isr:
                self.not_to_lose.update(str(uuid.UUID(bytes=each)) for each in partition.directories)

    def _told(self) -> str:
        return "after:\n  " + "\n  ".join(self.story)

    # Time

    def _catch_up(self) -> None:
        """Apache Kafka may have fenced somebody meanwhile, on a machine that is slow."""
        theirs = self.sides[0].new_records()
        if theirs:
            self._follow_expiry(theirs)

    def _follow_expiry(self, theirs: list[tuple[int, MetadataRecord]]) -> None:
        gone = [record.message.broker_id for _, record in theirs if record.name == "BrokerRegistrationChangeRecord"]
        if len(gone) != 1:
            raise Difference(f"Apache Kafka wrote {theirs} unasked\n{self._told()}")
        silent = self.brokers[gone[0]]
        self.ours.now_ms += 1
        others = [each for each in self.brokers.values() if each is not silent and each.heard_at is not None]
        for broker in others:
            self._heartbeat_at_ours(broker)
        self.ours.now_ms = max(self.ours.now_ms, silent.heard_ms + SESSION_TIMEOUT_MS + 1)
        self.ours.tick()
        silent.heard_at = None
        self._compare_records(f"the silence of broker {gone[0]}", theirs, self.sides[1].new_records())
        for broker in others:
            # Now with the same offset at both, which may tell when somebody may stop.
            self.sides[0].call("BrokerHeartbeat", 1, self._life_sign(broker))
            self._heartbeat_at_ours(broker)

    def _heartbeat_at_ours(self, broker: Broker) -> None:
        """It said so to Apache Kafka a moment ago, and nothing has changed by it."""
        self.sides[1].call("BrokerHeartbeat", 1, self._life_sign(broker))
        broker.heard_ms = self.ours.now_ms
        if self.sides[1].new_records():
            raise Difference(f"a sign of life of broker {broker.broker_id} changed something\n{self._told()}")

    def _life_sign(self, broker: Broker) -> Message:
        known = self.image.brokers[broker.broker_id]
        return self.heartbeat_of(broker, WantFence=known.is_fenced)

    def heartbeat_of(self, broker: Broker, **fields: Any) -> Message:
        request = {
            "BrokerId": broker.broker_id, "BrokerEpoch": broker.epoch,
            "CurrentMetadataOffset": self.sides[0].end_offset - 1, "WantFence": False, "WantShutDown": False,
        }  # fmt: skip
        return {**request, **fields}

    def heartbeat(self, broker: Broker, version: int = 1, **fields: Any) -> Message:
        answer = self.call("BrokerHeartbeat", version, self.heartbeat_of(broker, **fields))
        if answer["ErrorCode"] == 0:
            broker.heard_at, broker.heard_ms = time.monotonic(), self.ours.now_ms
        return answer

    def keep_alive(self) -> None:
        for broker in self.brokers.values():
            if broker.heard_at is None:
                continue
            if time.monotonic() - broker.heard_at > KEEP_ALIVE_SECONDS:
                life = self.image.brokers.get(broker.broker_id)
                if life is None:
                    broker.heard_at = None
                else:
                    self.heartbeat(broker, WantFence=life.is_fenced)

    def _keep_alive_quietly(self, silent: Broker) -> None:
        """At Apache Kafka alone, which may fence the silent one at any moment; ours hears of it afterwards."""
        for broker in self.brokers.values():
            if broker is silent or broker.heard_at is None or time.monotonic() - broker.heard_at <= KEEP_ALIVE_SECONDS:
                continue
            known = self.image.brokers.get(broker.broker_id)
            if known is None:
                broker.heard_at = None
            else:
                self.sides[0].call("BrokerHeartbeat", 1, self._life_sign(broker))
                broker.heard_at = time.monotonic()

    def silence(self, silent: Broker) -> None:
        """It says nothing until its session is over."""
        for broker in self.brokers.values():
            # One that is about to stop must have done so: what it says means something else each time.
            for _ in range(4):
                known = self.image.brokers.get(broker.broker_id)
                if broker is silent or broker.heard_at is None or known is None:
                    break
                if known.is_fenced or not known.is_in_controlled_shutdown:
                    break
                self.keep_alive()
                self.heartbeat(broker, WantShutDown=True)
            else:
                return
        self.story.append(f"broker {silent.broker_id} falls silent")
        deadline = time.monotonic() + patient(30) + SESSION_TIMEOUT_MS / 1_000
        while silent.heard_at is not None:
            if time.monotonic() > deadline:
                raise Difference(f"Apache Kafka does not fence broker {silent.broker_id}\n{self._told()}")
            self._keep_alive_quietly(silent)
            self._catch_up()
            time.sleep(0.02)
        self.counts["silence"] += 1


def _has_several(message: Message) -> bool:
    """Whether one entry names several settings, any of which may be the wrong one that is named."""
    parts = {"Configs": message.get("Resources", message.get("Topics")), "Ops": message.get("Entries")}
    several = [len(entry.get(name) or ()) for name, entries in parts.items() for entry in entries or ()]
    return max([*several, len(message.get("FeatureUpdates", ()))], default=0) > 1


def _without_messages(theirs: Any, ours: Any) -> tuple[Any, Any]:
    """Where both refuse, the words are left out."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        if theirs.get("ErrorCode") and theirs.get("ErrorMessage") and ours.get("ErrorMessage"):
            theirs, ours = {**theirs, "ErrorMessage": ""}, {**ours, "ErrorMessage": ""}
        pairs = {key: _without_messages(theirs[key], ours.get(key)) for key in theirs}
        return {key: one for key, (one, _) in pairs.items()}, {key: other for key, (_, other) in pairs.items()}
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        both = [_without_messages(one, ours[at]) for at, one in enumerate(theirs)]
        return [one for one, _ in both], [other for _, other in both]
    return theirs, ours


def _different(theirs: Any, ours: Any, where: str) -> list[str]:
    if isinstance(theirs, dict) and isinstance(ours, dict) and set(theirs) == set(ours):
        return [line for key in theirs for line in _different(theirs[key], ours[key], f"{where}.{key}")]
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        return [line for at, one in enumerate(theirs) for line in _different(one, ours[at], f"{where}[{at}]")]
    return [] if theirs == ours else [f"{where}: Apache has {theirs!r}, ours {ours!r}"]


def _codes(answer: Any) -> list[int]:
    if isinstance(answer, dict):
        return [value for key, value in answer.items() if key == "ErrorCode"] + [
            code for value in answer.values() for code in _codes(value)
        ]
    return [code for each in answer for code in _codes(each)] if isinstance(answer, list) else []


def _without_words(entry: Message) -> tuple[str, str]:
    """To sort by: the words of a refusal, which may differ, come last."""
    return repr({name: value for name, value in entry.items() if name != "ErrorMessage"}), repr(entry)


def _in_order(api: str, answer: Message) -> Message:
    answer = dict(answer)
    for name in UNORDERED_ANSWERS.get(api, ()):
        if answer.get(name):
            answer[name] = sorted(answer[name], key=_without_words)
    if api == "AlterClientQuotas":
        for entry in answer.get("Entries") or ():
            entry["Entity"] = sorted(entry["Entity"], key=repr)
        answer["Entries"] = sorted(answer.get("Entries") or (), key=_without_words)
    if api == "DeleteAcls":
        for result in answer["FilterResults"]:
            result["MatchingAcls"] = sorted(result["MatchingAcls"], key=repr)
    return answer


def _canonical(records: list[tuple[int, MetadataRecord]], is_unordered: bool) -> list[bytes]:
    """In the order that means something. Those of a directory, and of a topic as a whole, are in hash tables."""
    canonical: list[bytes] = []
    run: list[tuple[Any, bytes]] = []
    kind = ""

    def end_run() -> None:
        # Sorting is stable: the partitions of a topic keep their order.
        canonical.extend(content for _, content in sorted(run, key=lambda each: each[0]))
        run.clear()

    for _, record in records:
        name = "unordered" if record.name in UNORDERED_RECORDS else record.name
        if name != kind:
            end_run()
            kind = name
        content = encode_record(record)
        if name == "unordered" or is_unordered:
            run.append((content, content))
        elif name in ("PartitionChangeRecord", "PartitionRecord"):
            run.append((record.message.topic_id, content))
        else:
            run.append((b"", content))
    end_run()
    return canonical


class Administration(Differential):
    """What is asked: drawn at random, with an eye on what there is."""

    def run(self, steps: int) -> None:
        for broker in self.brokers.values():
            self.register(broker)
            self.heartbeat(broker)
        actions: list[tuple[int, Callable[[], None]]] = [
            (10, self.create_topics),
            (4, self.delete_topics),
            (5, self.widen),
            (6, self.alter_topic_settings),
            (3, self.alter_node_settings),
            (4, self.create_acls),
            (3, self.delete_acls),
            (4, self.alter_users),
            (3, self.alter_quotas),
            (2, self.update_features),
            (6, self.elect),
            (22, self.alter_partition),
            (8, self.reassign),
            (2, self.list_reassignments),
            (3, self.assign_directories),
            (3, self.allocate_ids),
            (10, self.odd_heartbeat),
            (4, self.fence_or_return),
            (3, self.shut_down),
            (3, self.register_oddly),
            (1, self.fall_silent),
            (1, self.unregister),
        ]
        weights = [weight for weight, _ in actions]
        for step in range(steps):
            self.keep_alive()
            ((_, action),) = self.random.choices(actions, weights)
            action()
            if step % 500 == 499:
                print(f"{step + 1} steps", flush=True)

    # Drawing

    def admin(self, api: str, version: int, message: Message) -> Message:
        return self.call(api, version, message, through_envelope=self.chance(0.3))

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def some_topic(self) -> str:
        known = list(self.image.topics)
        return self.random.choice(known) if known and self.chance(0.93) else self.random.choice(TOPICS)

    def some_brokers(self, count: int | None = None) -> list[int]:
        ids = list(self.brokers)
        return self.random.sample(ids, min(len(ids), count or self.random.randint(1, 3)))

    def odd_brokers(self) -> list[int]:
        return self.random.choice([[], [2, 2], [99], [2, 99], [-1], self.some_brokers()])

    def some_are_stopping(self) -> bool:
        return any(each.is_in_controlled_shutdown and not each.is_fenced for each in self.image.brokers.values())

    def some_are_eligible(self) -> bool:
        return any(each.elr for topic in self.image.topics.values() for each in topic.partitions.values())

    def some_partition(self) -> tuple[bytes, int, PartitionState] | None:
        found = [
            (topic.topic_id, index, partition)
            for topic in self.image.topics.values()
            for index, partition in topic.partitions.items()
        ]
        return self.random.choice(found) if found else None

    def living(self) -> list[Broker]:
        return [each for each in self.brokers.values() if each.broker_id in self.image.brokers]

    # Brokers

    def register(self, broker: Broker, version: int = 4, *, is_new: bool = True, **fields: Any) -> Message:
        previous = broker.epoch
        if is_new:
            broker.incarnation = self.uuid()
        request: Message = {
            "BrokerId": broker.broker_id, "ClusterId": self.sides[0].cluster_id, "IncarnationId": broker.incarnation,
            "Listeners": [{"Name": "PLAINTEXT", "Host": "h", "Port": 9092, "SecurityProtocol": 0}],
            "Features": [
                {"Name": name, "MinSupportedVersion": low, "MaxSupportedVersion": high}
                for name, low, high in (
                    ("metadata.version", 7, 30), ("kraft.version", 0, 1), ("transaction.version", 0, 2),
                    ("group.version", 0, 1), ("eligible.leader.replicas.version", 0, 1), ("share.version", 0, 1),
                    ("streams.version", 0, 1),
                )
            ],
            "Rack": broker.rack,
        }  # fmt: skip
        if version >= 2:
            request["LogDirs"] = broker.directories
        if version >= 3:
            request["PreviousBrokerEpoch"] = previous if self.chance(0.6) else self.random.choice((-1, 5))
        answer = self.call("BrokerRegistration", version, {**request, **fields})
        if answer["ErrorCode"] == 0 and answer["BrokerEpoch"] != broker.epoch:
            broker.epoch, broker.heard_at = answer["BrokerEpoch"], None
        return answer

    def register_oddly(self) -> None:
        broker = self.random.choice(list(self.brokers.values()))
        kind = self.random.randrange(8)
        if kind == 0:
            self.register(broker, ClusterId="another")
        elif kind == 1:
            self.register(broker, Features=[])
        elif kind == 2:
            low, high = self.random.choice(((7, 20), (31, 31), (30, 30)))
            feature = {"Name": "metadata.version", "MinSupportedVersion": low, "MaxSupportedVersion": high}
            self.register(broker, Features=[feature])
        elif kind == 3:
            self.register(broker, LogDirs=self.random.choice(([], [NO_ID], broker.directories * 2)))
        elif kind == 4:
            other = self.random.choice(list(self.brokers.values()))
            self.register(broker, is_new=False, LogDirs=other.directories)
        elif kind == 5:
            self.register(broker, version=self.random.randint(0, 4))
        elif kind == 6:
            self.register(broker, is_new=False, version=self.random.randint(2, 4))
        else:
            self.register(broker, version=3)

    def fence_or_return(self) -> None:
        broker = self.random.choice(list(self.brokers.values()))
        known = self.image.brokers.get(broker.broker_id)
        if known is None or self.chance(0.1):
            self.register(broker)
        elif known.is_fenced:
            if known.is_in_controlled_shutdown and broker.heard_at is not None:
                self.silence(broker)
            if known.is_in_controlled_shutdown:
                self.register(broker)
            self.heartbeat(broker)
        else:
            self.heartbeat(broker, WantFence=self.chance(0.4))

    def odd_heartbeat(self) -> None:
        broker = self.random.choice(list(self.brokers.values()))
        kind = self.random.randrange(10)
        end = self.sides[0].end_offset
        if kind == 0:
            request = self.heartbeat_of(broker, BrokerEpoch=broker.epoch + self.random.choice((-1, 1)))
            self.call("BrokerHeartbeat", 1, request)
        elif kind == 1:
            self.call("BrokerHeartbeat", 0, {**self.heartbeat_of(broker), "BrokerId": 77})
        elif broker.broker_id not in self.image.brokers:
            self.register(broker)
        elif kind == 2:
            self.heartbeat(broker, CurrentMetadataOffset=self.random.choice((-1, 0, broker.epoch, end + 5)))
        elif kind == 3:
            gone = self.random.choice(([], [self.uuid()], broker.directories))
            gone = [] if self.not_to_lose.intersection(gone) else gone
            self.heartbeat(broker, version=1, OfflineLogDirs=gone)
        elif kind == 4:
            cordoned = self.random.choice(([], broker.directories))
            self.heartbeat(broker, version=2, CordonedLogDirs=cordoned)
        else:
            self.heartbeat(broker)

    def shut_down(self) -> None:
        broker = self.random.choice(list(self.brokers.values()))
        if broker.broker_id not in self.image.brokers:
            return
        for _ in range(self.random.randint(1, 4)):
            answer = self.heartbeat(broker, WantShutDown=True, WantFence=self.chance(0.1))
            if answer.get("ShouldShutDown"):
                break
            for other in self.brokers.values():
                if other is not broker and other.heard_at is not None and self.chance(0.7):
                    self.heartbeat(other, WantFence=self.image.brokers[other.broker_id].is_fenced)
        else:
            return
        if self.chance(0.5):
            self.silence(broker)
            self.register(broker)
            self.heartbeat(broker)

    def fall_silent(self) -> None:
        heard = [each for each in self.brokers.values() if each.heard_at is not None]
        if not heard:
            return
        broker = self.random.choice(heard)
        self.silence(broker)
        if self.chance(0.7):
            if self.chance(0.5):
                self.register(broker)
            self.heartbeat(broker)

    def unregister(self) -> None:
        broker_id = self.random.choice((*self.brokers, 77))
        answer = self.admin("UnregisterBroker", 0, {"BrokerId": broker_id})
        if answer["ErrorCode"] == 0:
            # Its session goes on until it is over, and means nothing.
            self.brokers[broker_id].heard_at = None

    # Topics

    def settings(self) -> list[Message]:
        names = {
            "cleanup.policy": ("compact", "delete", "compact,delete", "nonsense"),
            "min.insync.replicas": ("1", "2", "3", "0"),
            "retention.ms": ("1000", "-1", "-2", "x"),
            "unclean.leader.election.enable": ("true", "false", "perhaps"),
            "segment.bytes": ("2000000", "10", "1048576"),
            "max.message.bytes": ("100", "-1"),
            "compression.type": ("lz4", "zip"),
            "message.timestamp.type": ("LogAppendTime", "now"),
            "min.cleanable.dirty.ratio": ("0.25", "2"),
            "local.retention.ms": ("1000", "-3"),
            "remote.storage.enable": ("true", "false"),
            "unheard.of": ("1",),
        }
        if self.some_are_eligible():
            del names["min.insync.replicas"]
        chosen = self.random.sample(list(names), self.random.choice((0, 0, 1, 1, 2)))
        return [
            {"Name": name, "Value": self.random.choice(names[name] if self.chance(0.97) else (None,))}
            for name in chosen
        ]

    def create_topics(self) -> None:
        topics = []
        for _ in range(self.random.choice((1, 1, 1, 2, 3))):
            name = (
                self.random.choice(TOPICS)
                if self.chance(0.95)
                else self.random.choice(("", ".", "x" * 250, "no such", "__cluster_metadata", "a.b"))
            )
            topic: Message = {"Name": name, "NumPartitions": -1, "ReplicationFactor": -1, "Configs": self.settings()}
            if self.chance(0.45):
                factor = self.random.randint(1, 3)
                topic["Assignments"] = [
                    {"PartitionIndex": index, "BrokerIds": self.some_brokers(factor)}
                    for index in range(self.random.randint(1, PARTITIONS_MAX))
                ]
                if self.chance(0.2):
                    odd = self.random.choice(topic["Assignments"])
                    odd.update(self.random.choice(({"PartitionIndex": 0}, {"PartitionIndex": 9},
                                                   {"BrokerIds": self.odd_brokers()})))  # fmt: skip
                if self.chance(0.05):
                    topic.update(self.random.choice(({"NumPartitions": 2}, {"ReplicationFactor": 2})))
            else:
                topic["NumPartitions"] = self.random.choice((-1, 1, 2, 3, PARTITIONS_MAX))
                topic["ReplicationFactor"] = self.random.choice((-1, 1, 1, 2, 3))
                if self.chance(0.05):
                    topic.update(self.random.choice(({"NumPartitions": 0}, {"NumPartitions": -2},
                                                     {"NumPartitions": 10_001},
                                                     {"ReplicationFactor": 0}, {"ReplicationFactor": 9})))  # fmt: skip
            topics.append(topic)
        if self.chance(0.04):
            topics.append(dict(topics[0]))
        if len(self.image.topics) >= TOPICS_MAX and self.chance(0.5):
            self.delete_topics()
        if self.some_are_stopping():
            topics = [topic for topic in topics if topic.get("Assignments")]
        request = {"Topics": topics, "timeoutMs": 30_000, "validateOnly": self.chance(0.1)}
        self.admin("CreateTopics", self.random.choice((2, 4, 5, 7, 7)), request)

    def delete_topics(self) -> None:
        version = self.random.choice((1, 3, 5, 6, 6, 6))
        names = [self.some_topic() for _ in range(self.random.choice((1, 1, 2)))]
        if version < 6:
            self.admin("DeleteTopics", version, {"TopicNames": names, "TimeoutMs": 30_000})
            return
        wanted: list[Message] = []
        for name in names:
            known = self.image.topics.get(name)
            topic_id = str(uuid.UUID(bytes=known.topic_id)) if known else self.uuid()
            wanted.append(self.random.choice((
                {"Name": name}, {"Name": None, "TopicId": topic_id}, {"Name": name},
                {"Name": None, "TopicId": topic_id},
                {"Name": name, "TopicId": topic_id}, {"Name": None},
            )))  # fmt: skip
        self.admin("DeleteTopics", 6, {"Topics": wanted, "TimeoutMs": 30_000})

    def widen(self) -> None:
        topics = []
        for name in {self.some_topic() for _ in range(self.random.choice((1, 1, 2)))}:
            known = self.image.topics.get(name)
            count = len(known.partitions) if known else 1
            if known and len({len(each.replicas) for each in known.partitions.values()}) > 1:
                continue
            factor = len(known.partitions[0].replicas) if known else 1
            added = self.random.choice((1, 1, 2)) if count < 2 * PARTITIONS_MAX else 0
            added = self.random.choice((added, added, added, added, 0, -1))
            topic: Message = {"Name": name, "Count": count + added, "Assignments": None}
            if self.chance(0.4):
                size = max(0, added) + (self.random.choice((0, 1)) if self.chance(0.1) else 0)
                topic["Assignments"] = [
                    {"BrokerIds": self.some_brokers(factor) if self.chance(0.9) else self.odd_brokers()}
                    for _ in range(size)
                ]
            if topic["Assignments"] is not None or not self.some_are_stopping():
                topics.append(topic)
        if topics and self.chance(0.05):
            topics.append(dict(topics[0]))
        request = {"Topics": topics, "TimeoutMs": 30_000, "ValidateOnly": self.chance(0.1)}
        self.admin("CreatePartitions", self.random.choice((0, 2, 3)), request)

    # Settings, rights, users, quotas, features

    def alter_topic_settings(self) -> None:
        name = self.some_topic() if self.chance(0.97) else self.random.choice(("", "no such"))
        settings = self.settings()
        if self.chance(0.25) and not self.some_are_eligible():
            resource = {"ResourceType": 2, "ResourceName": name, "Configs": settings}
            resources = [resource, dict(resource)] if self.chance(0.05) else [resource]
            self.admin(
                "AlterConfigs", self.random.choice((0, 2)), {"Resources": resources, "ValidateOnly": self.chance(0.1)}
            )
            return
        configs = []
        for each in settings:
            operation = self.random.choice((0, 0, 0, 1, 2, 3))
            if each["Value"] is None and operation in (2, 3):
                operation = 1
            configs.append({**each, "ConfigOperation": operation})
        kind = self.random.choice((2, 2, 2, 2, 2, 2, 2, 2, 3))
        resource = {"ResourceType": kind, "ResourceName": name, "Configs": configs}
        resources = [resource, dict(resource)] if self.chance(0.05) else [resource]
        request = {"Resources": resources, "ValidateOnly": self.chance(0.1)}
        self.admin("IncrementalAlterConfigs", self.random.choice((0, 1)), request)

    def alter_node_settings(self) -> None:
        names = {
            "min.insync.replicas": ("1", "2"),
            "unclean.leader.election.enable": ("true", "false"),
            "log.retention.ms": ("1000", "500000"),
            "log.retention.hours": ("5",),
            "log.cleanup.policy": ("compact", "delete"),
            "log.cleaner.threads": ("2",),
            "unheard.of": ("1", "2"),
        }
        if self.some_are_eligible():
            del names["min.insync.replicas"]
        configs = [
            {"Name": name, "Value": self.random.choice(names[name]), "ConfigOperation": self.random.choice((0, 0, 1))}
            for name in self.random.sample(list(names), self.random.choice((1, 1, 2)))
        ]
        if self.chance(0.1):
            append = {"Name": "log.cleanup.policy", "Value": "compact", "ConfigOperation": self.random.choice((2, 3))}
            configs = [append]
        node = self.random.choice(("", "", "", str(NODE_ID), *map(str, self.brokers), "99", "x", "-3"))
        request = {"Resources": [{"ResourceType": 4, "ResourceName": node, "Configs": configs}], "ValidateOnly": False}
        self.admin("IncrementalAlterConfigs", 1, request)

    def create_acls(self) -> None:
        creations = [
            {
                "ResourceType": self.random.choice((2, 2, 2, 3, 4, 5)),
                "ResourceName": self.random.choice((*TOPICS, *TOPICS, "kafka-cluster", "*", "")),
                "ResourcePatternType": self.random.choice((3, 3, 4)),
                "Principal": self.random.choice(("User:al", "User:bo", "User:*", "nobody")),
                "Host": self.random.choice(("*", "127.0.0.1")),
                "Operation": self.random.choice((2, 3, 4, 8)),
                "PermissionType": self.random.choice((2, 3, 3)),
            }
            for _ in range(self.random.choice((1, 1, 2, 4)))
        ]
        self.admin("CreateAcls", self.random.choice((2, 3)), {"Creations": creations})

    def delete_acls(self) -> None:
        filters = [
            {
                "ResourceTypeFilter": self.random.choice((1, 2, 2, 3)),
                "ResourceNameFilter": self.random.choice((None, *TOPICS)),
                "PatternTypeFilter": self.random.choice((1, 2, 3, 4)),
                "PrincipalFilter": self.random.choice((None, "User:al", "User:bo")),
                "HostFilter": self.random.choice((None, "*")),
                "Operation": self.random.choice((1, 1, 3, 4)),
                "PermissionType": self.random.choice((1, 1, 3)),
            }
            for _ in range(self.random.choice((1, 1, 2)))
        ]
        self.admin("DeleteAcls", self.random.choice((2, 3)), {"Filters": filters})

    def alter_users(self) -> None:
        deletions = [
            {"Name": self.random.choice(USERS), "Mechanism": self.random.choice((1, 2, 2, 7))}
            for _ in range(self.random.choice((0, 0, 1, 2)))
        ]
        upsertions = [
            {
                "Name": self.random.choice((*USERS, *USERS, "")), "Mechanism": self.random.choice((1, 1, 2, 9)),
                "Iterations": self.random.choice((4096, 4096, 8192, 10, 20_000)), "Salt": b"salt",
                "SaltedPassword": self.random.randbytes(32),
            }
            for _ in range(self.random.choice((0, 1, 1, 2)))
        ]  # fmt: skip
        self.admin("AlterUserScramCredentials", 0, {"Deletions": deletions, "Upsertions": upsertions})

    def alter_quotas(self) -> None:
        entities = (
            {"user": "al"}, {"user": None}, {"client-id": "c"}, {"user": "al", "client-id": "c"}, {"ip": "127.0.0.1"},
            {"user": "bo", "client-id": None}, {"ip": None}, {"ip": "127.0.0.1", "user": "al"}, {"moon": "x"},
            {"user": ""},
        )  # fmt: skip
        keys = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate",
                "connection_creation_rate", "unheard.of")  # fmt: skip
        entries = []
        for entity in self.random.sample(entities, self.random.choice((1, 1, 2))):
            ops = [
                {"Key": key, "Value": self.random.choice((1000.0, 12.5, 0.0, -1.0, 1e12)), "Remove": self.chance(0.3)}
                for key in self.random.sample(keys, self.random.choice((1, 1, 2)))
            ]
            parts = [{"EntityType": kind, "EntityName": name} for kind, name in entity.items()]
            entries.append({"Entity": parts, "Ops": ops})
        request = {"Entries": entries, "ValidateOnly": self.chance(0.1)}
        self.admin("AlterClientQuotas", self.random.choice((0, 1)), request)

    def update_features(self) -> None:
        levels = {
            "metadata.version": (30, 30, 29, 31, 6), "transaction.version": (0, 1, 2, 3), "group.version": (0, 1, 2),
            "eligible.leader.replicas.version": (0, 1, 1), "share.version": (0, 1), "streams.version": (0, 1, -1),
            "unheard.of": (0, 1), "kraft.version": (0, 5),
        }  # fmt: skip
        version = self.random.choice((0, 1, 2, 2))
        updates = []
        for name in self.random.sample(list(levels), self.random.choice((1, 1, 1, 2))):
            update = {"Feature": name, "MaxVersionLevel": self.random.choice(levels[name])}
            if version >= 1:
                update["UpgradeType"] = self.random.choice((1, 1, 2, 2, 3, 0))
            updates.append(update)
        request: Message = {"timeoutMs": 30_000, "FeatureUpdates": updates}
        if version >= 1:
            request["ValidateOnly"] = self.chance(0.1)
        self.admin("UpdateFeatures", version, request)

    # Partitions

    def elect(self) -> None:
        wanted = None
        if self.chance(0.85):
            wanted = [
                {"Topic": name, "Partitions": self.random.sample(range(PARTITIONS_MAX), self.random.choice((1, 2, 4)))}
                for name in {self.some_topic() for _ in range(self.random.choice((1, 2)))}
            ]
            wanted = wanted if self.chance(0.97) else []
        version = self.random.choice((0, 1, 2))
        request: Message = {"TopicPartitions": wanted, "TimeoutMs": 30_000}
        if version >= 1:
            request["ElectionType"] = self.random.choice((0, 0, 0, 1, 1, 5) if self.chance(0.3) else (0, 1))
        self.admin("ElectLeaders", version, request)

    def alter_partition(self) -> None:
        found = self.some_partition()
        if found is None:
            return
        topic_id, index, partition = found
        leader = (
            self.brokers.get(partition.leader) if self.chance(0.96) else self.random.choice([*self.brokers.values()])
        )
        if leader is None:
            return
        isr = [each for each in partition.replicas if each in partition.isr or self.chance(0.6)]
        isr = [each for each in isr if each == partition.leader or self.chance(0.8)]
        if self.chance(0.7):
            # What a leader would ask for: only those that are there.
            isr = [each for each in isr if (known := self.image.brokers.get(each)) and not known.is_fenced
                   and not known.is_in_controlled_shutdown] or isr  # fmt: skip
        if self.chance(0.03):
            isr = self.random.choice(([], [*isr, *isr[:1]], [*isr, 99], [99]))
        version = self.random.choice((2, 3, 3, 3))
        wanted: Message = {
            "PartitionIndex": index if self.chance(0.98) else 77,
            "LeaderEpoch": partition.leader_epoch + self.random.choice((0,) * 20 + (1, -1)),
            "PartitionEpoch": partition.partition_epoch + self.random.choice((0,) * 20 + (1, -1)),
            "LeaderRecoveryState": 0 if self.chance(0.95) else 1,
        }
        if version >= 3:
            wanted["NewIsrWithEpochs"] = [
                {"BrokerId": each, "BrokerEpoch": self._epoch_of(each) if self.chance(0.95) else 3} for each in isr
            ]
        else:
            wanted["NewIsr"] = isr
        topic = {
            "TopicId": str(uuid.UUID(bytes=topic_id)) if self.chance(0.97) else self.uuid(),
            "Partitions": [wanted],
        }
        request = {
            "BrokerId": leader.broker_id, "BrokerEpoch": leader.epoch if self.chance(0.97) else leader.epoch - 1,
            "Topics": [topic] if self.chance(0.98) else [],
        }  # fmt: skip
        self.call("AlterPartition", version, request)

    def _epoch_of(self, broker_id: int) -> int:
        known = self.image.brokers.get(broker_id)
        return -1 if known is None else known.epoch

    def reassign(self) -> None:
        topics = []
        for name in {self.some_topic() for _ in range(self.random.choice((1, 1, 2)))}:
            known = self.image.topics.get(name)
            partitions = []
            for index in self.random.sample(range(PARTITIONS_MAX), self.random.choice((1, 1, 2))):
                partition = known.partitions.get(index) if known else None
                factor = len(partition.replicas) if partition and self.chance(0.7) else None
                replicas = self.some_brokers(factor) if self.chance(0.93) else self.odd_brokers()
                partitions.append({"PartitionIndex": index, "Replicas": None if self.chance(0.2) else replicas})
            topics.append({"Name": name, "Partitions": partitions})
        version = self.random.choice((0, 1))
        request: Message = {"TimeoutMs": 30_000, "Topics": topics if self.chance(0.98) else []}
        if version >= 1:
            request["AllowReplicationFactorChange"] = self.chance(0.5)
        self.admin("AlterPartitionReassignments", version, request)

    def list_reassignments(self) -> None:
        topics = None
        if self.chance(0.4):
            topics = [{"Name": self.some_topic(), "PartitionIndexes": [0, 1, 2]}] if self.chance(0.9) else []
        self.admin("ListPartitionReassignments", 0, {"TimeoutMs": 30_000, "Topics": topics})

    def assign_directories(self) -> None:
        broker = self.random.choice(list(self.brokers.values()))
        found = self.some_partition()
        if found is None:
            return
        topic_id, index, _ = found
        directory = self.random.choice((broker.directories[0], broker.directories[0], self.uuid(), NO_ID))
        topic = {"TopicId": str(uuid.UUID(bytes=topic_id)) if self.chance(0.95) else self.uuid(),
                 "Partitions": [{"PartitionIndex": index if self.chance(0.95) else 50}]}  # fmt: skip
        request = {
            "BrokerId": broker.broker_id, "BrokerEpoch": broker.epoch if self.chance(0.95) else 1,
            "Directories": [{"Id": directory, "Topics": [topic]}],
        }  # fmt: skip
        self.call("AssignReplicasToDirs", 0, request)

    def allocate_ids(self) -> None:
        broker = self.random.choice(list(self.brokers.values()))
        epoch = broker.epoch if self.chance(0.9) else broker.epoch + 1
        self.call("AllocateProducerIds", 0, {"BrokerId": broker.broker_id, "BrokerEpoch": epoch})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--keep-going", action="store_true", help="print different answers as long as records are equal"
    )
    arguments = parser.parse_args()
    began = time.monotonic()
    with Administration(arguments.seed, keeps_going=arguments.keep_going) as both:
        try:
            both.run(arguments.steps)
        finally:
            calls = sum(both.counts.values())
            print(f"seed {arguments.seed}: {calls} calls in {time.monotonic() - began:.0f} s, epoch {EPOCH}")
            print("calls:  ", dict(both.counts.most_common()))
            print("errors: ", dict(both.codes.most_common()))
            print("records:", dict(both.records.most_common()))
            print("placements checked:", both.ours.placements.checked)


if __name__ == "__main__":
    main()
