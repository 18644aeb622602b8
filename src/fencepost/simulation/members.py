"""Simulated members of a consumer group that copy their assigned partitions, each with its own transactional id.

As in KIP-447, offsets are committed with the member's id and generation, so that a member that missed a rebalance
cannot commit offsets of partitions that now belong to another one. Single-threaded: heartbeats are sent between
transactions.
"""

from typing import Any

from fencepost.simulation import requests
from fencepost.simulation.clients import RETRIABLE, RETRY_MS, Request, Sleep, Steps
from fencepost.simulation.transactional_producers import Duty, TransactionalProducer, Verdict
from fencepost.topic_partition import TopicPartition
from fencepost.wire.errors import ErrorCode

SESSION_TIMEOUT_MS = 1_200
ASLEEP_MS = 2_800
"""Longer than a session and a rebalance, shorter than a transaction may take."""
REBALANCE_TIMEOUT_MS = 1_000
"""Shorter than clients wait for an answer, and a JoinGroup is answered when the rebalance is."""
_LEFT_BEHIND = frozenset({ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS})
"""The group has gone on: join again."""


class GroupMember(TransactionalProducer):
    def __init__(self, *arguments: Any, group: str, sources: list[TopicPartition], **producer: Any) -> None:
        super().__init__(*arguments, source_partition=None, **producer)
        self.group = group
        self.sources = sources
        self.generations = 0
        self.left_behind = 0
        """Transactions that were refused because the group had gone on."""
        self._member_id = ""
        self._generation_id = -1
        self._positions: dict[TopicPartition, int] = {}

    @property
    def duties(self) -> list[Duty]:
        """The duties of the whole group: each is done once, by one of the members."""
        return [Duty(self.group, source, tuple(self.outputs)) for source in self.sources]

    def run(self) -> Steps[None]:
        self.starts += 1
        self.has_pair = False
        self._member_id = ""
        while (yield from self.take_over_id()):
            verdict = Verdict.FINE
            while verdict in (Verdict.FINE, Verdict.ABORT):
                verdict = yield from self._take_part()
            if verdict is Verdict.FENCED:
                return

    def _take_part(self) -> Steps[Verdict]:
        """In one generation, until the group goes on."""
        assigned = yield from self._join()
        if assigned is None:
            yield Sleep(self.source.randint(1, 2 * RETRY_MS))
            return Verdict.FINE
        self.generations += 1
        self._positions.clear()
        for self.input in assigned:
            if not (yield from self.find_position()):
                return Verdict.FINE
            self._positions[self.input] = self.position
        while (yield from self._is_alive()):
            if assigned:
                self.input = self.source.choice(assigned)
                self.position = self._positions[self.input]
                verdict = yield from self.transact()
                self._positions[self.input] = self.position
                if verdict is not Verdict.FINE:
                    return verdict
            yield Sleep(self.source.choice((20, 120, 400)))
        return Verdict.FINE

    # Membership

    def _join(self) -> Steps[list[TopicPartition] | None]:
        """What this member is to copy; None: not this time."""
        answer = yield requests.join_group(self.group, self._member_id, SESSION_TIMEOUT_MS, REBALANCE_TIMEOUT_MS)
        if answer is None:
            return None
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = answer.member_id
            return None
        if answer.error_code:
            self._group_trouble("JoinGroup", answer.error_code)
            return None
        self._generation_id = answer.generation_id
        assignments = self._assignments([one.member_id for one in answer.members])
        synced = yield requests.sync_group(self.group, self._member_id, self._generation_id, assignments)
        if synced is None:
            return None
        if synced.error_code:
            self._group_trouble("SyncGroup", synced.error_code)
            return None
        return [self.sources[number] for number in bytes(synced.assignment)]

    def _assignments(self, member_ids: list[str]) -> dict[str, bytes]:
        """Made by the leader, the only member that knows the others: sources in turn, by number."""
        ordered = sorted(member_ids)
        return {member_id: bytes(range(at, len(self.sources), len(ordered))) for at, member_id in enumerate(ordered)}

    def _is_alive(self) -> Steps[bool]:
        answer = yield requests.heartbeat(self.group, self._member_id, self._generation_id)
        if answer is None or not answer.error_code or answer.error_code in RETRIABLE:
            return True  # a member without an answer works on, as real ones do
        self._group_trouble("Heartbeat", answer.error_code)
        return False

    def _group_trouble(self, what: str, code: int) -> None:
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
        if code not in _LEFT_BEHIND and code not in RETRIABLE:
            self.wonder(what, code)

    # Within a transaction

    def _dawdle_ms(self) -> int:
        """Now and then another has taken over meanwhile what this one has copied and not yet committed."""
        return ASLEEP_MS if self.source.random() < 0.1 else super()._dawdle_ms()

    def _offset_commit(self, key: TopicPartition, offset: int) -> Request:
        request = super()._offset_commit(key, offset)
        message = request.message
        message.member_id, message.generation_id = self._member_id, self._generation_id  # reach: a message of the wire
        return request

    def _trouble(self, operation: str, code: ErrorCode) -> Verdict:
        if operation == "TxnOffsetCommit" and code in _LEFT_BEHIND:
            self.left_behind += 1
            return Verdict.ABORT
        return super()._trouble(operation, code)
