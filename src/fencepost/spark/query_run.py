"""One run of one streaming query as the sink sees it, and the registry of runs: each has one producer identity.

`foreachBatch` functions are pickled and copied, so nothing about a run can live in them; the registry is a module's
variable of the process that makes the calls, keyed by (query id, run id, name of the sink).
"""

import atexit
import contextlib
import dataclasses
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from fencepost.spark.checkpoint import Checkpoint, refuse_temporary
from fencepost.spark.commit_records import Marker, Record
from fencepost.spark.errors import NotSupported
from fencepost.spark.input_clusters import InputClusters, Source
from fencepost.spark.query_sources import reads_kafka, sources_read, trigger_of
from fencepost.spark.requirements import is_connect, refuse_asynchronous_progress
from fencepost.spark.run_producer import RunProducer
from fencepost.spark.small_batches import SmallBatches
from fencepost.spark.transaction_timeouts import NO_TRIGGER, Trigger

_QUERY_ID, _RUN_ID = "sql.streaming.queryId", "spark.jobGroup.id"
_PROCESS_RUN_ID = str(uuid.uuid4())
RunKey = tuple[str, str, str]
"""Query id, run id, name of the sink."""


@dataclasses.dataclass(frozen=True, slots=True)
class QueryContext:
    """Which query calls, and where its checkpoint is."""

    query_id: str
    run_id: str
    name: str | None
    application_id: str
    checkpoint: Checkpoint
    is_active: Callable[[], bool] = lambda: True
    sources: Callable[[], tuple[Source, ...]] = tuple
    """Those that read Kafka; none if Spark does not tell. Asked once in a run."""
    trigger: Trigger = NO_TRIGGER

    def key(self, name: str) -> "RunKey":
        """A query may have several sinks, each under a name of its own."""
        return self.query_id, self.run_id, name

    @property
    def writer(self) -> str:
        return writer(self.application_id)


def writer(application_id: str) -> str:
    """Who writes, for whoever finds the record later."""
    return f"{application_id} on {socket.gethostname()[:64]}, process {os.getpid()}"


def query_context(spark: Any, checkpoint: str | None = None) -> QueryContext:
    """Found from inside `foreachBatch`. `checkpoint` is needed only under Connect, which does not tell."""
    if is_connect(spark):
        return _connect_context(spark, checkpoint)
    context = spark.sparkContext
    query_id = context.getLocalProperty(_QUERY_ID)
    if not query_id:
        raise NotSupported(
            "this is not called from within foreachBatch of a streaming query",
            "for a batch job use write_exactly_once(df, name, run_id=...)",
        )
    known = _contexts.get(query_id)
    if known is not None and _is_active(known):
        return known
    made = _contexts[query_id] = _classic_context(spark, query_id)
    return made


def _is_active(context: QueryContext) -> bool:
    """One query of an id runs at a time, so the run that is known is the one that asks."""
    try:
        return context.is_active()
    except Exception:
        return False  # It ran in a JVM that is gone.


def _classic_context(spark: Any, query_id: str) -> QueryContext:
    context = spark.sparkContext
    active = spark._jsparkSession.sharedState().activeStreamingQueries()
    execution = active.get(context._jvm.java.util.UUID.fromString(query_id))
    if "AsyncProgressTracking" in execution.getClass().getName():
        refuse_asynchronous_progress({"asyncProgressTrackingEnabled": "true"})
    location = execution.resolvedCheckpointRoot()
    refuse_temporary(location)
    run_id = execution.runId().toString()
    return QueryContext(
        query_id,
        run_id,
        execution.name(),
        context.applicationId,
        Checkpoint(location, spark, reads_kafka=reads_kafka(execution)),
        lambda: bool(execution.isActive()),
        lambda: sources_read(execution),
        trigger_of(execution),
    )


def _connect_context(spark: Any, location: str | None) -> QueryContext:
    location = location or spark.conf.get("spark.sql.streaming.checkpointLocation", None)
    if not location:
        raise NotSupported(
            "under Spark Connect the sink cannot see where the query's checkpoint is",
            "give the sink the same location: checkpoint='/a/directory/that/stays'",
        )
    refuse_temporary(location)
    checkpoint = Checkpoint(location, spark)
    application = spark.conf.get("spark.app.id", None) or "connect"
    # The process that runs foreachBatch lives as long as the run of the query.
    return QueryContext(checkpoint.query_id(), _PROCESS_RUN_ID, None, application, checkpoint)


@dataclasses.dataclass(frozen=True, slots=True)
class FirstLook:
    """Whether a record was there, and which: not by time, the clocks of two hosts differ."""

    marker: Marker | None

    def differs_from(self, record: Record | None) -> bool:
        now = None if record is None else record.marker
        if now is None or self.marker is None:
            return now is not self.marker
        return (now.is_of, now.committed_ms) != (self.marker.is_of, self.marker.committed_ms)


@dataclasses.dataclass(slots=True)
class QueryRun:
    producer: RunProducer
    started_ms: int = dataclasses.field(default_factory=lambda: time.time_ns() // 1_000_000)
    inputs: InputClusters | None = None
    """None where nothing is read from Kafka."""
    first_look: "FirstLook | None" = None
    """What the group held when this run first looked."""
    held: Record | None = None
    """What this run has committed last, or has found committed; None before."""
    may_copy: bool = True
    """Whether the record's copy may be on an output topic. With ACLs that needs the right to read it."""
    finished: int | None = None
    """The batch that this run has brought to its end."""
    fenced_by: Exception | None = None
    """Once another driver has taken over, every further batch of this run is refused with the cause."""
    topics: set[str] = dataclasses.field(default_factory=set)
    """That rows have named so far: looked up by the driver once, not by every task."""
    turn: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    """Of whoever uses the producer: a batch, or the heartbeat."""
    is_in_batch: bool = False
    touched_at: float = dataclasses.field(default_factory=time.monotonic)
    """When the record was committed last, by the monotonic clock."""
    heartbeat: threading.Thread | None = None
    has_ended: threading.Event = dataclasses.field(default_factory=threading.Event)
    small: SmallBatches = dataclasses.field(default_factory=SmallBatches)
    kept: list[Any] = dataclasses.field(default_factory=list)
    """Frames that the batch before had materialised."""

    def look_first(self, stored: Record | None) -> bool:
        """Remember what the group holds when this run looks for the first time. Returns whether this is that time."""
        if self.first_look is not None:
            return False
        self.first_look = FirstLook(None if stored is None else stored.marker)
        return True

    def has_committed(self, record: Record) -> None:
        self.held = record
        self.touch()

    def has_found(self, record: Record | None) -> None:
        """The batch was committed before; its record is the one to go on from."""
        self.held = record

    def touch(self) -> None:
        """The record is committed now, or about to be."""
        self.touched_at = time.monotonic()

    def leave_out_copies(self) -> None:
        self.may_copy = False

    def finish(self, batch_id: int) -> None:
        self.finished = batch_id

    def fence(self, cause: Exception) -> None:
        self.fenced_by = cause

    def take_over_again(self) -> None:
        """The driver that has fenced this one has given way."""
        self.fenced_by = None
        self.producer.take_over_again()

    def begin_batch(self) -> None:
        self.turn.acquire()
        self.is_in_batch = True

    def end_batch(self) -> None:
        self.is_in_batch = False
        self.turn.release()

    def start_heartbeat(self, beat: Callable[[], None]) -> None:
        """In a thread of its own, once."""
        if self.heartbeat is None:
            self.heartbeat = threading.Thread(target=beat, name="fencepost-heartbeat", daemon=True)
            self.heartbeat.start()


_contexts: dict[str, QueryContext] = {}
"""By query id: what a run is asked once, in some thirty calls to the JVM."""
_runs: dict[RunKey, QueryRun] = {}
_lock = threading.Lock()


def run_of(key: RunKey, make: Callable[[], QueryRun]) -> QueryRun:
    """The run, made when its first batch comes. Earlier runs of the same query are over."""
    with _lock:
        found = _runs.get(key)
        if found is None:
            for old in [other for other in _runs if other[0] == key[0] and other[1] != key[1]]:
                _close(_runs.pop(old))
            found = _runs[key] = make()
        return found


def close_runs(query_id: str | None = None) -> None:
    """Let go of the connections of one query's runs, or of all."""
    with _lock:
        for key in [key for key in _runs if query_id in (None, key[0])]:
            _close(_runs.pop(key))
            _contexts.pop(key[0], None)


def _close(run: QueryRun) -> None:
    run.has_ended.set()
    try:
        with run.turn if not run.is_in_batch else contextlib.nullcontext():
            if run.inputs is not None:
                run.inputs.close()
            run.producer.close()
    except Exception:
        pass  # Nothing depends on it: a coordinator ends what a lost producer left open.


atexit.register(close_runs)
