"""One client connection, without its socket: requests in, answers out, in order.

Request N+1 starts only after N has passed its append point. A call that may be pipelined (its append is done when its
handler returns) lets the next one start at once; any other parked call mutes the connection until it is answered.
Answers leave in the order of the requests, all that are ready in one write.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from fencepost.broker.security.access import Access
from fencepost.broker.security.principal import ANONYMOUS, Principal
from fencepost.coordinators.context import Caller
from fencepost.ports import Buffer, Scheduler
from fencepost.promise import Promise
from fencepost.wire.catalog import ApiKey
from fencepost.wire.framing import response_frame

if TYPE_CHECKING:
    from fencepost.broker.processor_shares import Bill
    from fencepost.broker.security.sasl_server import Verdict


_PRODUCE = ApiKey.PRODUCE.value


class Admission(Protocol):
    """Decides which requests reach the dispatcher, as long as a connection has to log in, or to log in again."""

    @property
    def is_stranger(self) -> bool:
        """Whether the client has not proved yet who it is."""

    def takes(self, frame: memoryview) -> bool:
        """Whether a request was dealt with and goes no further."""


class Login(Admission, Protocol):
    """What becomes of a client's SASL requests."""

    @property
    def mechanisms(self) -> list[str]: ...

    def handshake(self, version: int, mechanism: str) -> Verdict: ...

    def authenticate(self, content: bytes) -> Verdict: ...

    def delayed(self, message: Any, failure: str) -> Promise[Any]:
        """An answer that ends the connection, given only after a while."""


@dataclass(slots=True, eq=False)
class Call:
    """One request on its way: who asks, in which version."""

    connection: Connection
    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    access: Access | None = None
    """The caller's rights, for handlers that check them. None: there is no authorizer, everything is allowed."""
    bill: Bill | None = None
    """What it takes of the processor, if it is served in slices and clients have shares."""
    is_large: ClassVar[bool] = False
    """Whether it was read in slices, and has to be served in slices."""

    def grant(self, access: Access | None) -> None:
        self.access = access

    def charge(self, bill: Bill) -> None:
        self.bill = bill

    def failed(self, error: Exception) -> None:
        """What was left of the request, to be done later, failed: a mistake of ours, which ends the connection."""
        self.connection.failed(self, error)

    @property
    def client_host(self) -> str:
        return self.connection.peer_host

    @property
    def caller(self) -> Caller:
        """Who asks, for a coordinator."""
        connection = self.connection
        return Caller(self.client_id or "", connection.peer_host, connection.number)


class LargeCall(Call):
    __slots__ = ()
    is_large = True


class Staged(NamedTuple):
    """An answer that waits twice: until the request has passed its append point, then until it is durable."""

    appended: Promise[None]
    answer: Promise[Any]


class Connection:
    __slots__ = (
        "_answers",
        "_failed",
        "_flush_scheduled",
        "_is_muted",
        "_limits_after_login",
        "_on_ready",
        "_scheduler",
        "_write",
        "access",
        "admission",
        "close",
        "frame_is_kept",
        "is_closed",
        "listener_name",
        "login",
        "number",
        "on_closed",
        "peer_host",
        "pipelined_requests_max",
        "principal",
        "request_max_bytes",
        "software",
    )

    def __init__(
        self,
        number: int,
        peer_host: str,
        listener_name: str,
        scheduler: Scheduler,
        write: Callable[[list[Buffer]], None],
        close: Callable[[str], None],
        failed: Callable[[Call, Exception], None],
        pipelined_requests_max: int,
        request_max_bytes: int,
    ) -> None:
        self.number = number
        """In the order of acceptance: a later connection has a higher number."""
        self.peer_host = peer_host
        self.listener_name = listener_name
        self.principal: Principal = ANONYMOUS
        self.access: Access | None = None
        """What the principal may do; made with the first request, if there is an authorizer."""
        self.close = close
        self.is_closed = False
        self.frame_is_kept = False
        """Set when a request that was handed in is still being read where it is: nothing may be received there."""
        self.on_closed: dict[object, Callable[[], None]] = {}
        """What to release when the client is gone, by what waits."""
        self.pipelined_requests_max = pipelined_requests_max
        self.request_max_bytes = request_max_bytes
        self.admission: Admission | None = None
        """None on listeners that ask for no login, and after a login that does not expire."""
        self.login: Login | None = None
        self.software = ""
        self._scheduler = scheduler
        self._write = write
        self._failed = failed
        self._answers: deque[list[Any]] = deque()  # [call, message or None while it is parked, is answered]
        self._is_muted = False
        self._on_ready: Callable[[], None] | None = None
        self._flush_scheduled = False
        self._limits_after_login = request_max_bytes, pipelined_requests_max

    # Who is at the other end

    def identify(self, principal: Principal) -> None:
        self.principal = principal
        self.access = None

    def grant(self, access: Access) -> None:
        """What the principal may do, looked up once."""
        self.access = access

    def name_software(self, software: str) -> None:
        self.software = software

    def hold_back(self, login: Login, request_max_bytes: int) -> None:
        """Until the client has logged in its requests are small and come one at a time."""
        self._limits_after_login = self.request_max_bytes, self.pipelined_requests_max
        self.request_max_bytes = min(request_max_bytes, self.request_max_bytes)
        self.pipelined_requests_max = 1
        self.login = login
        self.admission = login

    def hold_again(self) -> None:
        """The client logs in again: its requests pass the login first."""
        self.admission = self.login

    def admit(self, principal: Principal, *, has_session_end: bool) -> None:
        """The client has proved who it is. A session that ends stays under admission."""
        self.identify(principal)
        self.request_max_bytes, self.pipelined_requests_max = self._limits_after_login
        self.admission = self.login if has_session_end else None

    # Requests

    def keep_frame(self) -> None:
        """The request that was handed in last is still being read where it is."""
        self.frame_is_kept = True

    def frame_left(self) -> None:
        """Its buffer was left to it: the next bytes are received elsewhere."""
        self.frame_is_kept = False

    def failed(self, call: Call, error: Exception) -> None:
        self._failed(call, error)

    def when_ready(self, hand_in: Callable[[], None]) -> None:
        """Call this each time when the next request may be handed in again."""
        self._on_ready = hand_in

    @property
    def is_ready(self) -> bool:
        """Whether the next request may be handed in."""
        return not self._is_muted and len(self._answers) < self.pipelined_requests_max

    @property
    def is_idle(self) -> bool:
        """Whether every request has been answered."""
        return not self._answers

    def answer(self, call: Call, message: Any) -> None:
        """An answer that is there at once. None means that the request wants none (Produce with acks=0)."""
        if message is None:
            return
        if call.api_key == _PRODUCE:
            self._answers.append([call, message, True])
        elif self._answers:
            self._answers.append([call, message, True])
            # It may be large: the next request must not begin before it counts as unread.
            self.flush()
        else:
            self._write_now(call, message)

    def park(self, call: Call, promise: Promise[Any], gate: Promise[Any] | None) -> None:
        """An answer that is still to come. The next request waits for the gate; None: it may start at once."""
        if promise.done:
            self.answer(call, promise.value)
            return
        slot: list[Any] = [call, None, False]
        self._answers.append(slot)
        if gate is not None and not gate.done:
            self._is_muted = True
            gate.then(self._unmute)

        def resolved(message: Any) -> None:
            slot[1] = message
            slot[2] = True
            self._flush_soon()

        promise.then(resolved)

    def _unmute(self, _: Any) -> None:
        self._is_muted = False
        self._flush_soon()

    def _write_now(self, call: Call, message: Any) -> None:
        """An answer with no other ahead of it."""
        if type(message) is not list:
            try:
                message = response_frame(call.api_key, call.version, call.correlation_id, message)
            except Exception as error:
                self._failed(call, error)
                return
        self._write(message)

    def flush(self) -> None:
        """Write every answer that is ready and not behind one that is not."""
        answers = self._answers
        if not answers:
            return
        parts: list[Buffer] = []
        failure: tuple[Call, Exception] | None = None
        while answers and answers[0][2]:
            call, message, _ = answers.popleft()
            # A hot handler may hand over finished bytes; any other message is encoded here.
            if type(message) is list:
                parts += message
                continue
            if message is None:
                continue
            try:
                parts += response_frame(call.api_key, call.version, call.correlation_id, message)
            except Exception as error:
                failure = call, error
                answers.clear()
                break
        if parts:
            self._write(parts)
        if failure is not None:
            self._failed(*failure)

    def closing(self) -> None:
        """The socket is being closed: no more requests."""
        self.is_closed = True

    def closed(self) -> None:
        """The socket is gone: answers that are still to come are dropped."""
        self.is_closed = True
        self._answers.clear()
        for release in list(self.on_closed.values()):
            release()
        self.on_closed.clear()

    def _flush_soon(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._scheduler.call_soon(self._flush_and_go_on)

    def _flush_and_go_on(self) -> None:
        self._flush_scheduled = False
        if self.is_closed:
            return
        self.flush()
        if self.is_ready and self._on_ready is not None:
            self._on_ready()
