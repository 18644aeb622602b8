"""Checks the files of keys and certificates periodically, and reports reloads and failures."""

import asyncio
from typing import TYPE_CHECKING

from fencepost.broker.events import EventFeed, KeysNotReloaded, KeysReloaded
from fencepost.settings import InvalidSetting

if TYPE_CHECKING:
    from fencepost.shell.issuer_keys import IssuerKeys
    from fencepost.shell.tls import TlsKeys


class KeyWatch:
    def __init__(self, events: EventFeed, interval_ms: int) -> None:
        self._events = events
        self._interval_seconds = interval_ms / 1000
        self._certificates: list[TlsKeys] = []
        self._issuers: list[IssuerKeys] = []
        self._task: asyncio.Task[None] | None = None

    def watch_certificates(self, keys: "TlsKeys") -> None:
        self._certificates.append(keys)

    def watch_issuer(self, keys: "IssuerKeys") -> None:
        self._issuers.append(keys)

    async def load(self) -> None:
        """Raises InvalidSetting if the keys of an issuer are not available, because nobody could authenticate."""
        for issuer in self._issuers:
            await issuer.refresh()

    def start(self) -> None:
        if self._certificates or self._issuers:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_seconds)
            for certificates in self._certificates:
                try:
                    self._tell(certificates, certificates.refresh())
                except InvalidSetting as error:
                    self._events.emit(KeysNotReloaded(certificates.listener, certificates.what, str(error)))
            for issuer in self._issuers:
                if issuer.is_due:
                    try:
                        self._tell(issuer, await issuer.refresh())
                    except InvalidSetting as error:
                        self._events.emit(KeysNotReloaded(issuer.listener, issuer.what, str(error)))

    def _tell(self, keys: "TlsKeys | IssuerKeys", has_changed: bool) -> None:
        if has_changed:
            self._events.emit(KeysReloaded(keys.listener, keys.what))
