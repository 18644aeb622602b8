"""The part of the controller's state that is in no record: who was heard of when, and who is about to stop.

A controller that starts knows none of it: brokers that are not fenced get one session's time to be heard of.
"""

from dataclasses import dataclass

UNKNOWN_OFFSET = -1
ALL_CAUGHT_UP = 2**63 - 1


@dataclass(slots=True)
class BrokerLife:
    is_fenced: bool
    metadata_offset: int = UNKNOWN_OFFSET
    """Up to where it has applied the metadata log, by its last heartbeat."""
    shutdown_offset: int = UNKNOWN_OFFSET
    """Where the log ended when it asked to stop: the others must be there before it goes."""

    @property
    def is_shutting_down(self) -> bool:
        return self.shutdown_offset >= 0

    @property
    def is_active(self) -> bool:
        return not self.is_fenced and not self.is_shutting_down


class Heartbeats:
    def __init__(self, session_timeout_ms: int) -> None:
        self.session_timeout_ms = session_timeout_ms
        self.lives: dict[int, BrokerLife] = {}
        self._heard_ms: dict[tuple[int, int], int] = {}
        """By broker and its epoch: an old incarnation keeps no new one alive."""

    def hear(self, broker_id: int, epoch: int, now_ms: int) -> None:
        self._heard_ms[broker_id, epoch] = now_ms

    def has_session(self, broker_id: int, epoch: int, now_ms: int) -> bool:
        heard_ms = self._heard_ms.get((broker_id, epoch))
        return heard_ms is not None and not self._is_over(heard_ms, now_ms)

    def take_expired(self, now_ms: int) -> tuple[int, int] | None:
        """A broker and its epoch whose session is over: it is given once."""
        for key, heard_ms in self._heard_ms.items():
            if self._is_over(heard_ms, now_ms):
                del self._heard_ms[key]
                return key
        return None

    def _is_over(self, heard_ms: int, now_ms: int) -> bool:
        return heard_ms + self.session_timeout_ms < now_ms

    def register(self, broker_id: int, *, is_fenced: bool) -> None:
        """By a registration or a change of it: how far it is counts anew, unless it was just fenced or unfenced."""
        life = self.lives.get(broker_id)
        offset = UNKNOWN_OFFSET
        if life is None:
            self.lives[broker_id] = BrokerLife(is_fenced)
        elif life.is_fenced != is_fenced:
            offset = life.metadata_offset
        self.touch(broker_id, is_fenced=is_fenced, metadata_offset=offset)

    def touch(self, broker_id: int, *, is_fenced: bool, metadata_offset: int) -> None:
        life = self.lives[broker_id]
        life.is_fenced = is_fenced
        life.metadata_offset = metadata_offset
        if is_fenced:
            life.shutdown_offset = UNKNOWN_OFFSET

    def forget(self, broker_id: int) -> None:
        self.lives.pop(broker_id, None)

    def begin_shutdown(self, broker_id: int, offset: int) -> None:
        life = self.lives[broker_id]
        if not life.is_shutting_down:
            life.shutdown_offset = offset

    def lowest_active_offset(self) -> int:
        return min((life.metadata_offset for life in self.lives.values() if life.is_active), default=ALL_CAUGHT_UP)
