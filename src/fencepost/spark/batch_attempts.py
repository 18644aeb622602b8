"""One micro-batch: attempts until it is committed, found to be committed, or refused.

Every attempt: an epoch of its own, then the group's stable offsets, then the decision, then the writing, then offsets
and EndTxn. What failed is aborted before the next attempt begins, and an old attempt's late writes carry an old epoch.
"""

import dataclasses
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fencepost.client.errors import ClientError, ProducerFenced, TransactionMustAbort, UnknownTopic
from fencepost.client.kafka_types import CommittedOffset
from fencepost.client.sending import Sending
from fencepost.client.transaction_calls import TransactionProtocol
from fencepost.spark import small_batches, task_errors
from fencepost.spark.batch_decisions import Decision, Step, View, decide
from fencepost.spark.commit_records import NO_OFFSET, Record, newest
from fencepost.spark.errors import (
    BatchRefused,
    FencedBySuccessor,
    FencepostSparkError,
    RequirementNotMet,
    TransactionTimedOut,
    WriteFailed,
)
from fencepost.spark.job_failures import Failure, failure_of
from fencepost.spark.materialising import materialised, release
from fencepost.spark.outputs import Output, bounded_arrow, output_partitions, packed, touched, written
from fencepost.spark.ownership import refuse_members
from fencepost.spark.planned_batches import Planned
from fencepost.spark.query_run import QueryRun
from fencepost.spark.requirements import slots
from fencepost.spark.sink_settings import SinkSettings
from fencepost.spark.slot_watch import SlotWatch
from fencepost.topic_partition import TopicPartition
from fencepost.wire.errors import ErrorCode

_log = logging.getLogger("fencepost.spark")

ATTEMPTS_MAX = 4
SLOTS_TIMEOUT_SECONDS = 60
GIVE_WAY_SECONDS = 5.0


@dataclasses.dataclass(frozen=True, slots=True)
class Batch:
    """What is to be written as one transaction, and where that is recorded."""

    query_id: str
    batch_id: int
    group_id: str
    client_id: str
    writer: str
    planned: Callable[[int], Planned | None]
    """What the checkpoint says about a batch; None if that cannot be read."""


@dataclasses.dataclass(frozen=True, slots=True)
class Committed:
    """What became of a batch."""

    records: Mapping[TopicPartition, int]
    replayed: bool = False
    seconds: float = 0.0

    @property
    def record_count(self) -> int:
        return sum(self.records.values())


class CopyRefused(Exception):
    """The record may not be on an output topic as well; the next attempt leaves that out."""


class OwnRowsLost(Exception):
    """What this attempt had kept went with an executor; the next attempt computes it again."""


class Attempts:
    def __init__(self, spark: Any, run: QueryRun, settings: SinkSettings, batch: Batch) -> None:
        self._spark = spark
        self._run = run
        self._settings = settings
        self._batch = batch
        self._decision: Decision | None = None
        self._found: Record | None = None
        """The newest record when it was last looked for."""

    # Entering

    def enter(self) -> Step:
        """Take an epoch and decide; raises a refusal before any data moves."""
        run = self._run
        if run.fenced_by is not None and not self._may_take_over_again():
            raise self._fenced(run.fenced_by)
        run.producer.call_itself(self._batch.client_id)
        try:
            try:
                return self._enter()
            except ProducerFenced:
                if not self._may_take_over_again():
                    raise
                return self._enter()
        except ProducerFenced as error:
            raise self._fenced(error) from error

    def _enter(self) -> Step:
        run = self._run
        if run.held is None:
            self._check_ownership()
        run.producer.begin()
        try:
            self._decision = self._decide(stable=True)
        except BatchRefused:
            self._give_way()
            raise
        return self._decision.step

    def _give_way(self) -> None:
        """The bare call of this run was not its turn, and may have fenced the driver whose turn it is: say so in the
        record, so that it may go on. A driver that was suspended before that call comes here when it wakes up."""
        run, batch = self._run, self._batch
        stored = newest(run.producer.committed(batch.group_id, stable=True))
        if run.held is None and stored is not None:
            yielded = dataclasses.replace(stored, marker=dataclasses.replace(stored.marker, is_yielded=True))
            run.producer.send_offsets(batch.group_id, yielded.entries())
            run.producer.commit()
        else:
            run.producer.abort()

    def _may_take_over_again(self) -> bool:
        """Whether the driver that has fenced this one has given way, with this run's record as the newest. It may need
        a moment for that."""
        run = self._run
        deadline = time.monotonic() + GIVE_WAY_SECONDS
        while run.held is not None:
            stored = newest(run.producer.committed(self._batch.group_id, stable=False))
            if stored is None or stored.marker.is_of != run.held.marker.is_of:
                return False
            if stored.marker.is_yielded:
                _log.warning("a driver that was not its turn had fenced %r, and has given way", self._settings.name)
                run.take_over_again()
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return False

    def _check_ownership(self) -> None:
        """Before the one call of a run that fences others: is this writer the one whose turn it is?

        What a predecessor has decided is waited for, so that nothing has changed later but by a driver that is at work.
        What it has left open is not: only that call ends it.
        """
        producer = self._run.producer
        refuse_members(self._batch.group_id, producer.members(self._batch.group_id))
        self._decide(stable=producer.is_settled())

    def _decide(self, *, stable: bool) -> Decision:
        batch, run = self._batch, self._run
        committed = run.producer.committed(batch.group_id, stable=stable)
        stored = newest(committed)
        if stored is None and run.held is not None and run.producer.is_settled():
            # A group does not tell of offsets that are on their way and have none before them.
            stored = newest(run.producer.committed(batch.group_id, stable=stable))
        if run.look_first(stored):
            self._tell_of_offsets_set_by_others(stored, committed)
        assert run.first_look is not None
        record = self._found = run.held if stored is None else stored
        is_first = stored is None and batch.batch_id == 0
        view = View(
            batch.group_id,
            batch.query_id,
            batch.batch_id,
            stored,
            held=run.held,
            finished=run.finished,
            planned=batch.planned,
            has_changed=run.first_look.differs_from(stored),
            made_again=run.inputs.made_again(dict(record.marker.topic_ids)) if run.inputs and record else (),
            started_ms=run.started_ms,
            retention_ms=run.producer.limits().offsets_ms if is_first else None,
        )
        if view.has_expired:
            _log.warning(
                "group %r has forgotten its offsets (expired or deleted); this run goes on from what it has committed",
                batch.group_id,
            )
        return decide(view, adopt=self._settings.adopt)

    def _tell_of_offsets_set_by_others(
        self, stored: Record | None, committed: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        """`kafka-consumer-groups --reset-offsets` moves nothing here: a query reads where its checkpoint says."""
        if stored is None:
            return
        moved = [
            at
            for at, offset in stored.positions.items()
            if at in committed and committed[at].offset not in (offset, NO_OFFSET)
        ]
        if moved:
            _log.warning(
                "offsets of group %r were set by another than this sink (%s); the query goes on from its checkpoint, "
                "and the next batch sets them right", self._batch.group_id, ", ".join(map(str, sorted(moved)[:4])),
            )  # fmt: skip

    # Writing

    def write(self, outputs: Sequence[Output]) -> Committed:
        """After `enter` has said WRITE. An attempt may find that the one before was committed after all."""
        began = time.monotonic()
        for attempt in range(1, ATTEMPTS_MAX + 1):
            if attempt > 1 and self.enter() is Step.SKIP:
                return self.skip(replayed=False)
            started = time.monotonic()
            try:
                records = self._write_once(outputs)
                return Committed(records, seconds=time.monotonic() - began)
            except ProducerFenced as error:
                seconds = time.monotonic() - started
                if self._has_timed_out(seconds) or attempt == ATTEMPTS_MAX or not self._may_take_over_again():
                    raise self._fenced(error, seconds) from error
            except Exception as error:
                self._give_up(error, attempt, time.monotonic() - started)
        raise AssertionError("the last attempt returns or raises")

    def _write_once(self, outputs: Sequence[Output]) -> Mapping[TopicPartition, int]:
        run, batch = self._run, self._batch
        assert self._decision is not None
        records = self._write_rows(outputs) if outputs else {}
        record = self._record(outputs, records)
        self._send_offsets(record)
        run.producer.commit()
        run.has_committed(record)
        run.topics.update(where.topic for where in records)
        planned = batch.planned(batch.batch_id)
        if planned is not None:
            run.small.has_read(planned)
        if run.inputs is not None:
            run.inputs.tell(planned.offsets if planned is not None else {})
        return records

    def _write_rows(self, outputs: Sequence[Output]) -> Mapping[TopicPartition, int]:
        run, batch = self._run, self._batch
        named = [output.topic for output in outputs if output.topic is not None]
        counts = output_partitions(run.producer, [*named, *sorted(run.topics)])
        if self._is_small():
            collected = small_batches.collected(outputs, counts, run.producer, run.small.rows_max)
            if collected is not None:
                _log.debug("the driver writes the %d rows of batch %d", len(collected), batch.batch_id)
                settings = self._settings
                sending = Sending(settings.compression, batch_bytes=settings.batch_bytes, linger_ms=0)
                return run.producer.write(collected, sending)
            run.small.was_too_large(batch.batch_id)
        # A topic that only rows name may have any number of partitions.
        known = sum(counts[topic] for topic in set(named)) if len(named) == len(outputs) else None
        writers = self._writers(known)
        batches = packed(outputs, counts, writers, self._settings)
        records: dict[TopicPartition, int] = {}
        with SlotWatch(self._spark, writers, batch.batch_id), bounded_arrow(self._spark):
            for row in self._written(batches, writers):
                if row["failure"] is not None:
                    raise task_errors.unpack(row["failure"])
                where = TopicPartition(row["topic"], row["partition"])
                records[where] = records.get(where, 0) + row["records"]
        return records

    def _is_small(self) -> bool:
        batch, small = self._batch, self._run.small
        is_known = small.read_until is not None or not batch.batch_id
        before = None if is_known else batch.planned(batch.batch_id - 1)
        return small.is_next(batch.batch_id, batch.planned(batch.batch_id), before)

    def _record(self, outputs: Sequence[Output], records: Mapping[TopicPartition, int]) -> Record:
        batch, run = self._batch, self._run
        assert self._decision is not None
        planned = batch.planned(batch.batch_id)
        if planned is None:
            raise FencepostSparkError(
                f"offsets/{batch.batch_id} of the checkpoint cannot be read, so where the batch ends is not known"
            )
        marker = dataclasses.replace(
            self._decision.marker,
            digest=planned.digest,
            writer=batch.writer,
            committed_ms=time.time_ns() // 1_000_000,
        )
        here, ids = self._inputs(planned)
        copy_at = self._copy_place(outputs, records) if run.may_copy or not here else None
        if copy_at in here:
            copy_at = None  # What is written is also read: the entry is the input's.
        if copy_at is None and not here:
            raise FencepostSparkError(
                "no source of the query reads this cluster, no output has a topic of its own and no row names one, so "
                "the batch cannot be recorded",
                "give topic= for at least one output",
            )
        if copy_at is None and here == dict(planned.offsets):
            return Record(marker, here)
        return Record(marker.with_inputs(planned.offsets, ids), here, copy_at)

    def _inputs(self, planned: Planned) -> tuple[dict[TopicPartition, int], dict[str, str]]:
        """The offsets that the group can hold, and the ids of the topics that were read."""
        run = self._run
        if run.inputs is None:
            return {}, {}
        before = planned.offsets if run.held is None else {**run.held.offsets, **run.held.positions}
        # A log that has become shorter, or was not there, may be that of another topic.
        doubtful = {at.topic for at, offset in planned.offsets.items() if at not in before or offset < before[at]}
        ids = run.inputs.topic_ids({at.topic for at in planned.offsets}, look_again_at=doubtful)
        return run.inputs.here(planned.offsets), ids

    def _send_offsets(self, record: Record) -> None:
        run = self._run
        try:
            run.producer.send_offsets(self._batch.group_id, record.entries())
        except ClientError as error:
            code = task_errors.code_of(error)
            if run.inputs is not None and code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                run.inputs.look_again()  # An input was deleted: the next attempt leaves its offsets out.
            if code != ErrorCode.TOPIC_AUTHORIZATION_FAILED or record.copy_at is None or not record.offsets:
                raise
            run.leave_out_copies()
            raise CopyRefused(f"no right to read {record.copy_at}") from error

    def _copy_place(self, outputs: Sequence[Output], records: Mapping[TopicPartition, int]) -> TopicPartition | None:
        """A partition that is written. Deleting an input does not touch it, and it is there without any input."""
        topic = next((output.topic for output in outputs if output.topic is not None), None)
        if topic is not None:
            return TopicPartition(topic, 0)
        found = self._found
        before = (
            None if found is None else found.copy_at or min(set(found.offsets) - set(found.positions), default=None)
        )
        return before if before is not None and self._is_there(before.topic) else min(records, default=None)

    def _is_there(self, topic: str) -> bool:
        try:
            self._run.producer.topic(topic)
        except UnknownTopic:
            return False
        return True

    def _written(self, batches: Any, writers: int) -> list[Any]:
        producer = self._run.producer
        if producer.protocol is TransactionProtocol.TV2:
            return written(batches, writers, producer.handle())
        # Here partitions must be announced, and that starts the transaction's clock: first finish the rows.
        kept = materialised(batches)
        try:
            announced = touched(kept)
            if announced:
                producer.add(announced)
            return written(kept, writers, producer.handle())
        except Exception as error:
            if failure_of(error) is Failure.KEPT_ROWS_LOST:
                raise OwnRowsLost from error
            raise
        finally:
            release(kept)

    def _writers(self, partitions: int | None) -> int:
        wanted = [number for number in (partitions, self._settings.max_writers) if number is not None]
        available = self._await_slots()
        if available is None and self._settings.max_writers is None:
            raise RequirementNotMet(
                "the number of tasks that can run at once is not known here", "give the sink max_writers="
            )
        return max(1, min([*wanted, available] if available is not None else wanted))

    def _await_slots(self) -> int | None:
        deadline = time.monotonic() + SLOTS_TIMEOUT_SECONDS
        is_told = False
        while (available := slots(self._spark)) is not None and available < 1:
            if time.monotonic() > deadline:
                raise RequirementNotMet(
                    f"Spark has had no slot for a task for {SLOTS_TIMEOUT_SECONDS} s", "start executors, or more cores"
                )
            if not is_told:
                _log.warning("waiting for executors: Spark has no slot for a writer now")
                is_told = True
            time.sleep(0.2)
        return available

    # What else may happen

    def skip(self, *, replayed: bool = True) -> Committed:
        """The batch is committed: nothing is written, and the epoch goes unused."""
        assert self._decision is not None
        self._run.has_found(self._decision.record)
        self._run.producer.abort()
        return Committed({}, replayed=replayed)

    def abort(self) -> None:
        try:
            self._run.producer.abort()
        except ProducerFenced as error:
            raise self._fenced(error) from error

    def _give_up(self, error: Exception, attempt: int, seconds: float) -> None:
        """Abort what failed. Returns if another attempt makes sense, else raises what the user is to know."""
        try:
            self._run.producer.abort()
        except ProducerFenced as fenced:
            if self._has_timed_out(seconds) or attempt == ATTEMPTS_MAX or not self._may_take_over_again():
                raise self._fenced(fenced, seconds) from error
            return
        if self._has_timed_out(seconds) and isinstance(error, ClientError) and task_errors.is_epoch_old(error):
            raise self._timed_out() from error
        if failure_of(error) is Failure.NO_PACKAGE:
            raise RequirementNotMet(
                "the Python of the executors does not have fencepost",
                "install it there, or, where they run on this machine, set PYSPARK_PYTHON to the Python of this driver",
            ) from error
        if attempt == ATTEMPTS_MAX or not _is_worth_another_attempt(error):
            if isinstance(error, FencepostSparkError) or not isinstance(error, ClientError):
                raise error
            raise WriteFailed(
                f"batch {self._batch.batch_id} was not written: {error}", task_errors.advice_of(error)
            ) from error
        _log.warning("attempt %d to write batch %d failed: %s", attempt, self._batch.batch_id, _first_line(error))

    def _has_timed_out(self, seconds: float) -> bool:
        return seconds * 1000 >= self._run.producer.timeout.ms

    def _timed_out(self) -> TransactionTimedOut:
        return TransactionTimedOut(
            f"writing batch {self._batch.batch_id} took longer than the transaction timeout of "
            f"{self._run.producer.timeout}, and the broker has ended its transaction",
            "read less per batch (maxOffsetsPerTrigger), or raise transaction_timeout_ms, and the broker's "
            "transaction.max.timeout.ms if that is the limit; see also that no other query runs under this name",
        )

    def _fenced(self, error: Exception, seconds: float = 0.0) -> FencepostSparkError:
        self._run.fence(error)
        if self._has_timed_out(seconds):
            return self._timed_out()
        return FencedBySuccessor(
            f"another driver has taken over {self._settings.name!r}: {error}",
            "this one stops, nothing of its batch is visible; see that only one query runs under this name",
        )


def _is_worth_another_attempt(error: Exception) -> bool:
    """What the user's own code raises would be raised again; a process that was lost will not be."""
    if isinstance(error, ClientError):
        if task_errors.is_id_forgotten(error):
            return True
        if isinstance(error, TransactionMustAbort):
            return task_errors.is_worth_another_attempt(error)
        return error.is_retriable  # A broker that is away for a moment, for example.
    if isinstance(error, FencepostSparkError):
        return False
    return isinstance(error, OwnRowsLost | CopyRefused) or failure_of(error) is Failure.PROCESS_LOST


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
