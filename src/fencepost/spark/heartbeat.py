"""Keeps the record of a quiet pipeline alive.

A cluster forgets the offsets of a group without members, and transactional ids that nobody uses. While no batch comes,
a run therefore commits its last record again, now and then, in a transaction of its own. It never meets a batch: both
take the run's turn.
"""

import logging
import time
from collections.abc import Callable

from fencepost.client.errors import ClientError, ProducerFenced
from fencepost.spark.commit_records import newest
from fencepost.spark.errors import FencepostSparkError
from fencepost.spark.query_run import QueryRun
from fencepost.spark.run_producer import ClusterLimits
from fencepost.spark.task_errors import is_id_forgotten

_log = logging.getLogger("fencepost.spark")

PERIOD_SECONDS_MAX = 3_600.0
_BEATS_PER_RETENTION = 4


def period_seconds(limits: ClusterLimits) -> float:
    shortest_ms = min(limits.offsets_ms, limits.transactional_id_ms)
    return min(PERIOD_SECONDS_MAX, shortest_ms / _BEATS_PER_RETENTION / 1000)


def keep_alive(run: QueryRun, group_id: str, is_active: Callable[[], bool]) -> None:
    """Start the run's heartbeat, once. It ends with the run, with its query, or when another driver has taken over."""
    run.start_heartbeat(lambda: _watch(run, group_id, is_active))


def _watch(run: QueryRun, group_id: str, is_active: Callable[[], bool]) -> None:
    try:
        period = period_seconds(run.producer.limits())
        while not run.has_ended.wait(max(0.0, run.touched_at + period - time.monotonic())):
            if not is_active() or run.fenced_by is not None:
                return
            if time.monotonic() - run.touched_at < period:
                continue
            if not run.turn.acquire(blocking=False):
                run.has_ended.wait(min(period, 1.0))
                continue
            try:
                if not run.has_ended.is_set():
                    beat(run, group_id)
            finally:
                run.turn.release()
    except Exception as error:
        # The session ended, or the client was closed: the next batch, if there is one, will say why.
        _log.info("the heartbeat of %r has ended: %s", group_id, error)


def beat(run: QueryRun, group_id: str) -> None:
    """Commit the run's record again, if it is still the group's. For whoever has the run's turn."""
    run.touch()
    try:
        try:
            _commit_again(run, group_id)
        except ClientError as error:
            if not is_id_forgotten(error):
                raise
            run.producer.abort()
            _commit_again(run, group_id)
    except ProducerFenced as error:
        run.fence(error)
        _log.warning("another driver has taken over %r: %s", group_id, error)
    except (ClientError, FencepostSparkError) as error:
        _log.warning("the record of the quiet pipeline %r could not be renewed: %s", group_id, error)
        run.producer.abort()


def _commit_again(run: QueryRun, group_id: str) -> None:
    held = run.held
    if held is None:
        return
    run.producer.begin()
    stored = newest(run.producer.committed(group_id, stable=True))
    if stored is not None and stored.marker.is_of != held.marker.is_of:
        run.producer.abort()  # Not this run's any more: the next batch says so.
        return
    run.producer.send_offsets(group_id, held.entries())
    run.producer.commit()
