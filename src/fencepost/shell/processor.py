"""Detects whether this thread has a processor to itself or is preempted frequently.

On a small machine, clients preempt the broker: an answer wakes up a client, which then runs on the broker's processor.
The kernel counts how often that happens to a thread; without such a count, the processor is assumed not to be shared.
"""

from collections.abc import Callable

LOOKS = 64
LOSSES_MAX = 2
"""Preemptions within the last checks at which the processor counts as shared."""


def _losses() -> Callable[[], int]:
    try:
        # Only Linux counts per thread.
        from resource import RUSAGE_THREAD, getrusage
    except ImportError:
        return lambda: 0
    return lambda: getrusage(RUSAGE_THREAD).ru_nivcsw


class Processor:
    def __init__(self, losses: Callable[[], int] | None = None) -> None:
        self._losses = losses or _losses()
        self._lost_before = self._losses()
        self._looks = 0
        self._is_shared = False

    def is_shared(self) -> bool:
        """Called once per turn."""
        self._looks += 1
        if self._looks == LOOKS:
            self._looks = 0
            lost = self._losses()
            self._is_shared = lost - self._lost_before > LOSSES_MAX
            self._lost_before = lost
        return self._is_shared
