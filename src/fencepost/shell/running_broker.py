"""A broker on the real machine: locks its data directory and opens its listeners on the running event loop."""

import asyncio
import errno
import gc
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fencepost.broker.cluster_metadata import ForeignMetadata
from fencepost.broker.node import Ports
from fencepost.broker.serving import ServingNode
from fencepost.broker.storage import WrongDirectory, make_directory_durably
from fencepost.config import broker_config
from fencepost.log.side_files import CorruptSideFile
from fencepost.metadata.records import UnreadableMetadata
from fencepost.settings import InvalidSetting
from fencepost.shell.descriptors import TooFewDescriptors, raise_limit, share_out
from fencepost.shell.directory_lock import DirectoryInUse, DirectoryLock
from fencepost.shell.disk import RealDisk, make_private
from fencepost.shell.flusher import ThreadedFlusher
from fencepost.shell.key_watch import KeyWatch
from fencepost.shell.ports import RealClock, RealRandomness, RealScheduler
from fencepost.shell.server import Connections, connection_limits, listen
from fencepost.shell.turns import Turns
from fencepost.shell.workers import ThreadedWorkers
from fencepost.wire.scram import FirstUser, credential_of, salted_password

if TYPE_CHECKING:
    from fencepost.shell.tls import TlsKeys
    from fencepost.shell.tls_listener import TlsListener

DEFAULT_LISTENER = "PLAINTEXT"
LOCK_CHECK_SECONDS = 2.0
SALT_BYTES = 32
ANY_ADDRESS = ("", "0.0.0.0", "::")


class CannotStart(Exception):
    """The broker cannot start; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Listener:
    name: str
    host: str
    port: int


def parse_listeners(texts: Sequence[str]) -> list[Listener]:
    """Parses [NAME://]HOST:PORT; listeners without a name are identified by their order."""
    listeners = []
    for index, text in enumerate(texts):
        name, _, address = text.rpartition("://")
        host, _, port = address.rpartition(":")
        default = DEFAULT_LISTENER if index == 0 else f"{DEFAULT_LISTENER}{index + 1}"
        listeners.append(Listener(name or default, host.strip("[]"), int(port)))
    return listeners


class RunningBroker:
    def __init__(
        self, data: Path, settings: Mapping[str, str], *, on_events: Callable[[object], None] | None = None
    ) -> None:
        """`on_events` gets every event, beginning with the first."""
        self._data = data.absolute()
        self._settings = dict(settings)
        self._lock: DirectoryLock | None = None
        self._lock_timer: asyncio.TimerHandle | None = None
        self._servers: list[asyncio.Server | TlsListener] = []
        self._on_events = on_events
        self.node: ServingNode
        self.addresses: list[tuple[str, int]] = []
        """The actual addresses, in the order of the listeners."""

    async def start(
        self,
        listen_texts: Sequence[str],
        advertise_texts: Sequence[str] = (),
        users: Sequence[FirstUser] = (),
    ) -> None:
        self._lock = _lock_directory(self._data)
        try:
            await self._start(listen_texts, advertise_texts, users)
        except BaseException:
            self._unlock()
            raise

    async def _start(
        self, listen_texts: Sequence[str], advertise_texts: Sequence[str], users: Sequence[FirstUser]
    ) -> None:
        loop = asyncio.get_running_loop()
        # Reserves the ports before touching anything in the directory.
        listeners = parse_listeners(listen_texts)
        advertised = _match_advertised(listeners, parse_listeners(advertise_texts), advertise_texts)
        reserved = [reserve(listener) for listener in listeners]
        turns = Turns(loop)
        scheduler = RealScheduler(loop, turns)
        config = broker_config(self._settings)
        try:
            shares = share_out(raise_limit(), config.max_connections, config.open_files_max)
        except TooFewDescriptors as error:
            for bound in reserved:
                bound.close()
            raise CannotStart(str(error)) from None
        make_private(str(self._data))
        disk = RealDisk(shares.files)
        self._flusher = ThreadedFlusher(loop, int(self._settings.get("flush.threads", "4")))
        self._workers = ThreadedWorkers(loop)
        ports = Ports(RealClock(), scheduler, disk, self._flusher, RealRandomness(), self._workers)
        self.node = ServingNode(
            ports, str(self._data), self._settings | _as_settings(listeners, reserved, advertise_texts)
        )
        if self._on_events is not None:
            self.node.events.subscribe(self._on_events)
        try:
            keys = self._secure(listeners, loop)
            await self._key_watch.load()
        except InvalidSetting as error:
            for bound in reserved:
                bound.close()
            raise CannotStart(str(error)) from None
        try:
            self.node.start()
        except (WrongDirectory, CorruptSideFile, UnreadableMetadata, ForeignMetadata, InvalidSetting) as error:
            raise CannotStart(str(error)) from None
        except OSError as error:
            raise CannotStart(f"cannot use the data directory {self._data}: {error.strerror or error}") from None
        for user in users:
            self._add_user(user)
        limits = connection_limits(self.node.config, shares, is_per_ip_given="max.connections.per.ip" in self._settings)
        self.connections = Connections(self.node, loop, turns, limits)
        self.connections.start()
        for listener, bound in zip(listeners, reserved, strict=True):
            port = bound.getsockname()[1]
            host, advertised_port = advertised.get(listener.name, (_reachable(listener.host), port))
            self.node.set_endpoint(listener.name, host, advertised_port or port)
            if listener.name in keys:
                # Most brokers start without TLS and tokens, so that code is loaded only if needed.
                from fencepost.shell.tls_listener import TlsListener

                self._servers.append(TlsListener(self.connections, listener.name, bound, keys[listener.name]))
            else:
                self._servers.append(await listen(self.connections, listener.name, bound))
            self.addresses.append((listener.host, port))
        self._key_watch.start()
        self._renew_lock()
        # Everything allocated now stays: the garbage collector need not scan it again.
        gc.collect()
        gc.freeze()

    def _secure(self, listeners: Sequence[Listener], loop: asyncio.AbstractEventLoop) -> "dict[str, TlsKeys]":
        """Applies the security settings to every listener before clients can connect. Returns the keys of those with
        TLS."""
        self._key_watch = KeyWatch(self.node.events, self.node.config.ssl_reload_interval_ms)
        keys = {}
        for listener in listeners:
            security = self.node.secure(listener.name)
            if security is None:
                continue
            if security.needs_keys:
                # As above.
                from fencepost.shell.issuer_keys import IssuerKeys

                self._key_watch.watch_issuer(IssuerKeys(security, loop))
            if security.config.has_tls:
                # As above.
                from fencepost.shell.tls import TlsKeys

                keys[listener.name] = TlsKeys(security.config)
                self._key_watch.watch_certificates(keys[listener.name])
        return keys

    def _add_user(self, user: FirstUser) -> None:
        if user.mechanism not in self.node.metadata.scram_credentials.get(user.name, {}):
            salt = self.node.randomness.random_bytes(SALT_BYTES)
            salted = salted_password(user.mechanism, user.password.encode(), salt, user.iterations)
            credential = credential_of(user.mechanism, salted, salt, user.iterations)
            self.node.metadata.set_scram_credentials(user.name, {user.mechanism: credential})

    async def stop(self) -> None:
        """Stops answering and writes everything, so that nothing has to be recovered."""
        await self._disconnect()
        self._workers.close()
        self.node.quiesce()
        # Waits for the results of all pending syncs: a failed one leaves something to recover.
        idle = asyncio.Event()
        self.node.syncing.stop(idle.set)
        await idle.wait()
        self._flusher.close()
        self.node.stop()
        self._unlock()

    async def abort(self) -> None:
        """Stops like a killed process: writes and answers nothing."""
        self.node.quiesce()
        for server in self._servers:
            server.close()
        self.connections.abort_all()
        await self._key_watch.stop()
        self._workers.close()
        self._flusher.close()
        self._unlock()

    async def _disconnect(self) -> None:
        for server in self._servers:
            server.close()
        self.connections.close_all()
        await self._key_watch.stop()
        await asyncio.sleep(0)

    def _unlock(self) -> None:
        if self._lock_timer is not None:
            self._lock_timer.cancel()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _renew_lock(self) -> None:
        """Somebody may have deleted the file, and another broker may have locked the directory since."""
        assert self._lock is not None
        try:
            self._lock.renew()
        except DirectoryInUse:
            self.node.storage_failed(OSError(errno.EBUSY, "another broker uses the data directory", str(self._data)))
            return
        except OSError:
            pass  # no descriptor or no room: try again later
        self._lock_timer = asyncio.get_running_loop().call_later(LOCK_CHECK_SECONDS, self._renew_lock)


def _lock_directory(data: Path) -> DirectoryLock:
    try:
        make_directory_durably(RealDisk(), str(data))
        return DirectoryLock(data)
    except OSError as error:
        raise CannotStart(
            f"cannot use the data directory {data}: {error.strerror}; give --data a writable directory"
        ) from None
    except DirectoryInUse:
        raise CannotStart(
            f"the data directory {data} is in use by another broker; stop that one or give --data another directory"
        ) from None


def reserve(listener: Listener) -> socket.socket:
    """Binds a socket to the address, without listening yet."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            listener.host or None, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise CannotStart(f"cannot listen on {listener.host}:{listener.port}: {error.strerror}") from None
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        hint = "; another process uses this port, choose another" if error.errno == errno.EADDRINUSE else ""
        raise CannotStart(
            f"cannot listen on {listener.host}:{listener.port}: {os.strerror(error.errno or 0)}{hint}"
        ) from None
    return bound


def _as_settings(
    listeners: Sequence[Listener], reserved: Sequence[socket.socket], advertise_texts: Sequence[str]
) -> dict[str, str]:
    """The listeners in the form of Kafka's settings, with their actual ports."""
    given = ",".join(
        f"{listener.name}://{_in_url(listener.host)}:{bound.getsockname()[1]}"
        for listener, bound in zip(listeners, reserved, strict=True)
    )
    settings = {"listeners": given}
    if advertise_texts:
        settings["advertised.listeners"] = ",".join(
            text if "://" in text else f"{listener.name}://{text}"
            for listener, text in zip(listeners, advertise_texts, strict=False)
        )
    return settings


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _match_advertised(
    listeners: Sequence[Listener], advertised: Sequence[Listener], texts: Sequence[str]
) -> dict[str, tuple[str, int]]:
    """Advertised addresses by listener name; those given without a name go by their order."""
    if len(advertised) > len(listeners):
        raise CannotStart(f"{len(advertised)} advertised addresses for {len(listeners)} listeners")
    matched = {}
    for place, (address, text) in enumerate(zip(advertised, texts, strict=True)):
        name = address.name if "://" in text else listeners[place].name
        if all(listener.name != name for listener in listeners):
            raise CannotStart(
                f"--advertise {text} names a listener that does not exist; "
                f"listeners are {', '.join(one.name for one in listeners)}"
            )
        matched[name] = (address.host, address.port)
    return matched


def _reachable(host: str) -> str:
    return socket.getfqdn() if host in ANY_ADDRESS else host
