"""Says in the log why nothing happens: a barrier stage starts only when all its writers have a slot."""

import logging
import threading
from types import TracebackType
from typing import Any, Self

from fencepost.spark.requirements import is_connect

_log = logging.getLogger("fencepost.spark")

FIRST_LOOK_SECONDS = 10.0
INTERVAL_SECONDS = 60.0


class SlotWatch:
    """Around the job that writes. Looks now and then whether a stage waits with no task of it running."""

    def __init__(self, spark: Any, writers: int, batch_id: int) -> None:
        self._context = None if is_connect(spark) else spark.sparkContext
        self._writers = writers
        self._batch_id = batch_id
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._context is not None:
            self._thread = threading.Thread(target=self._watch, name="fencepost-slots", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        wait = FIRST_LOOK_SECONDS
        while not self._is_over.wait(wait):
            wait = INTERVAL_SECONDS
            try:
                is_waiting = self._is_waiting()
            except Exception:
                return  # The session ended; whoever runs the job will say so.
            if is_waiting:
                _log.warning(
                    "batch %d waits for %d free slots at once: other jobs hold them", self._batch_id, self._writers
                )

    def _is_waiting(self) -> bool:
        assert self._context is not None
        tracker = self._context.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return any(
            stage is not None and stage.numTasks == self._writers and not stage.numActiveTasks + stage.numCompletedTasks
            for stage in stages
        )
