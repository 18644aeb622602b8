"""Ghosts: delayed calls of protocol 1 that would end or extend the wrong transaction.

Until protocol 2 nothing in EndTxn or AddPartitionsToTxn says which transaction of an epoch it means, so a call that was
held up somewhere and resent on a new connection can hit the next transaction (KAFKA-17754). But a client sends its
coordinator calls over one connection at a time: a call on a connection accepted before the newest one that has carried
such a call is a ghost. It is dropped with its connection and without an answer, since a live client would reconnect and
resend, and every error code it could get is fatal to somebody. If live clients do come back, the rule was wrong for
this id and switches itself off.

In memory only: per transactional id, for one (producer id, epoch) at a time.
"""

from typing import Final, final

NO_CONNECTION = -1
"""Calls from inside the broker have no connection and cannot be ghosts."""
RETURNED_CALLS_MAX = 2
"""So many dropped calls of one transaction that come back on newer connections switch the rule off."""
DROPPED_CALLS_MAX = 16

Signature = tuple[object, ...]
"""What makes two calls the same call sent twice."""


@final
class DropConnection:
    """The answer to a ghost: none, and the end of its connection."""

    __slots__ = ()


DROP_CONNECTION: Final = DropConnection()


class GhostGuard:
    __slots__ = ("_dropped", "_pair", "_returned", "is_off", "newest_connection")

    def __init__(self) -> None:
        self.is_off = False
        self.newest_connection = NO_CONNECTION
        self._pair: tuple[int, int] | None = None
        self._dropped: dict[Signature, int] = {}
        self._returned = 0

    def is_ghost(self, pair: tuple[int, int], connection: int) -> bool:
        return (
            not self.is_off
            and connection != NO_CONNECTION
            and pair == self._pair
            and connection < self.newest_connection
        )

    def dropped(self, signature: Signature) -> None:
        if len(self._dropped) >= DROPPED_CALLS_MAX:
            self._dropped.clear()
        self._dropped[signature] = self.newest_connection

    def admitted(self, pair: tuple[int, int], connection: int, signature: Signature) -> bool:
        """A call is about to take effect. True if that shows the rule to be wrong for this id: then it is off now."""
        if connection == NO_CONNECTION:
            return False
        if pair != self._pair:
            self._pair = pair
            self.newest_connection = connection
            self._dropped.clear()
            self._returned = 0
            return False
        newest_when_dropped = self._dropped.pop(signature, None) if self._dropped else None
        if newest_when_dropped is not None and connection > newest_when_dropped:
            self._returned += 1
        if connection > self.newest_connection:
            self.newest_connection = connection
        if self._returned < RETURNED_CALLS_MAX or self.is_off:
            return False
        self.is_off = True
        return True

    def transaction_began(self) -> None:
        self._returned = 0
