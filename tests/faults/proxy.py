"""A proxy on loopback that knows where Kafka's frames begin and end, and does to one of them what networks do.

It stands between clients and one broker, in both directions, and rewrites the addresses in Metadata, FindCoordinator
and DescribeCluster, so that clients never learn of a way around it. A rule picks one frame by API, version, count and
transactional id, and holds, drops, duplicates or delays it, or calls the test back.

A held frame freezes its direction of its connection, as a lost packet does: what the client sends after it waits behind
it, and so does its goodbye. When it is released it reaches the broker even if the client has long reconnected.
"""

import enum
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from tests.peers import schemas
from tests.support.patience import patient

WAIT_TIMEOUT_SECONDS = patient(20.0)
APIS_WITH_ADDRESSES = {"Metadata", "FindCoordinator", "DescribeCluster"}
# Every API that a rule may name or that tells addresses.
KNOWN_APIS = (
    "Produce", "Fetch", "ListOffsets", "Metadata", "OffsetCommit", "OffsetFetch", "FindCoordinator", "JoinGroup",
    "Heartbeat", "LeaveGroup", "SyncGroup", "ApiVersions", "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn",
    "EndTxn", "TxnOffsetCommit", "WriteTxnMarkers", "DescribeCluster",
)  # fmt: skip


class Direction(enum.Enum):
    REQUEST = "request"
    RESPONSE = "response"


class Action(enum.Enum):
    HOLD = "hold"
    DROP = "drop"
    """The frame is lost, and with it the connection."""
    DUPLICATE = "duplicate"
    DELAY = "delay"
    CALL = "call"
    """The test does something at this moment; then the frame goes on."""


@dataclass(frozen=True, slots=True)
class Frame:
    api: str
    version: int
    correlation_id: int
    content: bytes
    message: dict[str, Any]


@dataclass(slots=True, eq=False)
class Rule:
    """One frame to catch, and what became of it."""

    action: Action
    api: str
    direction: Direction
    version: int | None = None
    nth: int = 1
    every: int = 0
    """With `every`, each nth frame from the nth on, not only one."""
    transactional_id: str | None = None
    matches: Callable[[dict[str, Any]], bool] | None = None
    seconds: float = 0.0
    hang_up: bool = False
    """The client's connection is closed: before a request is held, so that the client need not lose patience first;
    after a response has gone out."""
    call: Callable[[], None] | None = None
    count: int = 0
    frame: Frame | None = None
    caught: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)
    answer: dict[str, Any] | None = None
    """What the broker said to a request that was caught; None if it hung up instead."""

    def wait(self, timeout: float = WAIT_TIMEOUT_SECONDS) -> Frame:
        """Until the frame has come."""
        assert self.caught.wait(timeout), f"no {self.api} {self.direction.value} came to be caught"
        assert self.frame is not None
        return self.frame

    def release(self) -> Self:
        self.released.set()
        return self

    def outcome(self, timeout: float = WAIT_TIMEOUT_SECONDS) -> dict[str, Any] | None:
        """The broker's answer to the released request, None if it closed the connection without one."""
        assert self.done.wait(timeout), f"the broker did nothing about the {self.api}"
        return self.answer

    def takes(self, frame: Frame, direction: Direction) -> bool:
        if direction is not self.direction or frame.api != self.api:
            return False
        if self.version is not None and frame.version != self.version:
            return False
        if self.transactional_id is not None and _transactional_id(frame.message) != self.transactional_id:
            return False
        if self.matches is not None and not self.matches(frame.message):
            return False
        self.count += 1
        if self.every:
            return self.count >= self.nth and (self.count - self.nth) % self.every == 0
        return self.count == self.nth


class FaultProxy:
    def __init__(self, broker: tuple[str, int]) -> None:
        self.broker = broker
        self._listener = socket.create_server(("127.0.0.1", 0))
        host, port = self._listener.getsockname()
        self.address: tuple[str, int] = (host, port)
        self.bootstrap_servers = f"{host}:{port}"
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        self._links: list[_Link] = []
        self._is_closed = False
        self.accepted = 0
        threading.Thread(target=self._accept, daemon=True).start()

    # Rules

    def rule(self, action: Action, api: str, direction: Direction = Direction.REQUEST, **fields: Any) -> Rule:
        assert api in KNOWN_APIS, api
        rule = Rule(action, api, direction, **fields)
        with self._lock:
            self._rules.append(rule)
        return rule

    def hold(self, api: str, direction: Direction = Direction.REQUEST, **fields: Any) -> Rule:
        return self.rule(Action.HOLD, api, direction, **fields)

    def drop(self, api: str, direction: Direction = Direction.REQUEST, **fields: Any) -> Rule:
        return self.rule(Action.DROP, api, direction, **fields)

    def duplicate(self, api: str, **fields: Any) -> Rule:
        return self.rule(Action.DUPLICATE, api, **fields)

    def delay(self, api: str, seconds: float, direction: Direction = Direction.REQUEST, **fields: Any) -> Rule:
        return self.rule(Action.DELAY, api, direction, seconds=seconds, **fields)

    def on(self, api: str, call: Callable[[], None], direction: Direction = Direction.REQUEST, **fields: Any) -> Rule:
        return self.rule(Action.CALL, api, direction, call=call, **fields)

    def clear(self) -> None:
        with self._lock:
            rules, self._rules = self._rules, []
        for rule in rules:
            rule.release()

    def match(self, frame: Frame, direction: Direction) -> Rule | None:
        with self._lock:
            # Every rule counts every frame.
            found = [rule for rule in self._rules if rule.takes(frame, direction)]
            for rule in found:
                rule.frame = frame
        for rule in found:
            rule.caught.set()
        return found[0] if found else None

    # Connections

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                upstream = socket.create_connection(self.broker, 5)
            except OSError:
                client.close()
                continue
            upstream.settimeout(None)
            for each in (client, upstream):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.accepted += 1
            link = _Link(self, client, upstream)
            with self._lock:
                self._links.append(link)
            link.start()

    def cut_all(self) -> None:
        """Every connection breaks at once."""
        with self._lock:
            links, self._links = self._links, []
        for link in links:
            link.close()

    def close(self) -> None:
        self._is_closed = True
        self._listener.close()
        self.clear()
        self.cut_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Link:
    """One client's connection and the one it stands for."""

    def __init__(self, proxy: FaultProxy, client: socket.socket, upstream: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._upstream = upstream
        self._asked: dict[int, tuple[str, int, Rule | None]] = {}
        self._unwanted: set[int] = set()
        """Answers to duplicates, which the client must not see."""
        self._awaited: list[Rule] = []

    def start(self) -> None:
        threading.Thread(target=self._guarded, args=(self._requests,), daemon=True).start()
        threading.Thread(target=self._guarded, args=(self._responses,), daemon=True).start()

    def _guarded(self, pump: Callable[[], None]) -> None:
        try:
            pump()
        except OSError:
            pass
        finally:
            if pump == self._responses:
                for rule in self._awaited:
                    rule.done.set()
                self.close()

    def close(self) -> None:
        _close(self._client)
        _close(self._upstream)

    def _requests(self) -> None:
        while (content := _read_frame(self._client)) is not None:
            frame = _request(content)
            rule = self._proxy.match(frame, Direction.REQUEST)
            self._asked[frame.correlation_id] = (frame.api, frame.version, rule)
            if rule is not None:
                self._awaited.append(rule)
                if rule.action is Action.DROP:
                    self.close()
                    return
                if rule.hang_up:
                    _close(self._client)
                _act(rule)
                if rule.action is Action.DUPLICATE:
                    self._unwanted.add(frame.correlation_id)
                    _write_frame(self._upstream, content)
            _write_frame(self._upstream, content)
        if any(not rule.done.is_set() for rule in self._awaited):
            # The client has gone, but its request is with the broker, whose answer the test wants to know.
            return
        self.close()

    def _responses(self) -> None:
        while (content := _read_frame(self._upstream)) is not None:
            (correlation_id,) = struct.unpack_from(">i", content)
            if correlation_id in self._unwanted:
                self._unwanted.discard(correlation_id)
                continue
            api, version, asked_by = self._asked.pop(correlation_id)
            rule = None
            if asked_by is not None or api in KNOWN_APIS:
                frame = _response(api, version, correlation_id, content)
                if asked_by is not None:
                    asked_by.answer = frame.message
                    asked_by.done.set()
                rule = self._proxy.match(frame, Direction.RESPONSE)
                if rule is not None:
                    if rule.action is Action.DROP:
                        return
                    _act(rule)
                content = self._rewritten(frame)
            try:
                _write_frame(self._client, content)
            except OSError:
                if not self._asked:
                    return
            if rule is not None and rule.hang_up:
                return

    def _rewritten(self, frame: Frame) -> bytes:
        if frame.api not in APIS_WITH_ADDRESSES:
            return frame.content
        _move(frame.message, self._proxy.address)
        head = struct.pack(">i", frame.correlation_id)
        head += b"\0" if schemas.response_header_is_flexible(frame.api, frame.version) else b""
        return head + schemas.encode(f"{frame.api}Response", frame.version, frame.message)


def _close(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    connection.close()


def _act(rule: Rule) -> None:
    if rule.action is Action.HOLD:
        rule.released.wait()
    elif rule.action is Action.DELAY:
        time.sleep(rule.seconds)
    elif rule.action is Action.CALL:
        assert rule.call is not None
        rule.call()


def _move(message: Any, address: tuple[str, int]) -> None:
    if isinstance(message, list):
        for each in message:
            _move(each, address)
    elif isinstance(message, dict):
        if message.get("Port", -1) > 0:
            message["Host"], message["Port"] = address
        for each in message.values():
            _move(each, address)


def _transactional_id(message: dict[str, Any]) -> Any:
    return message.get("TransactionalId", message.get("V3AndBelowTransactionalId"))


_NAMES: dict[int, str] = {}


def _request(content: bytes) -> Frame:
    if not _NAMES:
        _NAMES.update({schemas.api_key(api): api for api in KNOWN_APIS})
    key, version, correlation_id, client_id_length = struct.unpack_from(">hhih", content)
    api = _NAMES.get(key)
    if api is None:
        return Frame(f"api {key}", version, correlation_id, content, {})
    start = 10 + max(client_id_length, 0)
    if schemas.is_flexible(f"{api}Request", version):
        assert content[start] == 0, "a tagged field in a request header"
        start += 1
    return Frame(api, version, correlation_id, content, schemas.decode(f"{api}Request", version, content[start:]))


def _response(api: str, version: int, correlation_id: int, content: bytes) -> Frame:
    if api not in KNOWN_APIS:
        return Frame(api, version, correlation_id, content, {})
    start = 5 if schemas.response_header_is_flexible(api, version) else 4
    try:
        message = schemas.decode(f"{api}Response", version, content[start:])
    except Exception:
        # An ApiVersions request in a version that the broker does not know is answered in version 0.
        assert api == "ApiVersions", api
        message = {}
    return Frame(api, version, correlation_id, content, message)


def _read_frame(source: socket.socket) -> bytes | None:
    head = _read(source, 4)
    return None if head is None else _read(source, struct.unpack(">i", head)[0])


def _read(source: socket.socket, size: int) -> bytes | None:
    out = bytearray()
    while len(out) < size:
        part = source.recv(size - len(out))
        if not part:
            return None
        out += part
    return bytes(out)


def _write_frame(target: socket.socket, content: bytes) -> None:
    target.sendall(struct.pack(">i", len(content)) + content)
