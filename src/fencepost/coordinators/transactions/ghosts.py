"""Ghosts: delayed calls of protocol 1 that would end or extend the wrong transaction.

Until protocol 2 nothing in EndTxn or AddPartitionsToTxn says which transaction of an epoch it means, so a call that was
held up somewhere and resent on a new connection can hit the next transaction (KAFKA-17754). But a client sends its
coordinator calls over one connection at a time: a call on a connection accepted before the newest one that has carried
such a call is a ghost. It is dropped with its connection and without an answer, since a live client would reconnect and
resend, and every error code it could get is fatal to some client. If live clients do come back, the rule was wrong for
this id and switches itself off.

In memory only: per transactional id, for one (producer id, epoch) at a time.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, final

NO_CONNECTION = -1
"""Calls from inside the broker have no connection and cannot be ghosts."""
RETURNED_CALLS_MAX = 2
"""So many dropped calls of one transaction that come back on newer connections switch the rule off."""
DROPPED_CALLS_MAX = 16

Signature = tuple[object, ...]
"""What makes two calls the same call sent twice."""
_NONE_DROPPED: Mapping[Signature, int] = MappingProxyType({})


@final
class DropConnection:
    """The answer to a ghost: none, and the end of its connection."""

    __slots__ = ()


DROP_CONNECTION: Final = DropConnection()


class GhostGuard(NamedTuple):
    """A value: a call that changes what is known makes a new one."""

    pair: tuple[int, int] | None = None
    newest_connection: int = NO_CONNECTION
    dropped_calls: Mapping[Signature, int] = _NONE_DROPPED
    """With the newest connection at that time."""
    returned_count: int = 0
    is_off: bool = False

    def is_ghost(self, pair: tuple[int, int], connection: int) -> bool:
        return (
            connection < self.newest_connection
            and connection != NO_CONNECTION
            and not self.is_off
            and pair == self.pair
        )

    def dropped(self, signature: Signature) -> "GhostGuard":
        """A call was dropped."""
        known = {} if len(self.dropped_calls) >= DROPPED_CALLS_MAX else dict(self.dropped_calls)
        known[signature] = self.newest_connection
        return self._replace(dropped_calls=known)

    def admitted(self, pair: tuple[int, int], connection: int, signature: Signature) -> "GhostGuard":
        """A call is about to take effect. If that shows the rule to be wrong for this id, the rule is off now."""
        if connection == NO_CONNECTION:
            return self
        if pair != self.pair:
            return GhostGuard(pair, connection, is_off=self.is_off)
        if connection == self.newest_connection and not self.dropped_calls:
            return self
        known, returned_count = self.dropped_calls, self.returned_count
        if signature in known:
            if connection > known[signature]:
                returned_count += 1
            known = {other: newest for other, newest in known.items() if other != signature}
        return GhostGuard(
            pair,
            max(connection, self.newest_connection),
            known,
            returned_count,
            self.is_off or returned_count >= RETURNED_CALLS_MAX,
        )

    def transaction_began(self) -> "GhostGuard":
        return self._replace(returned_count=0) if self.returned_count else self


NO_GHOSTS_SEEN = GhostGuard()
