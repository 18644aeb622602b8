"""Whether this thread has a processor to itself, or others take it away again and again.

On a small machine the clients are those others: an answer wakes one up, and it runs where the broker ran. The kernel
counts how often that happens to a thread; where it does not say, nobody is disturbed.
"""

from collections.abc import Callable

LOOKS = 64
LOSSES_MAX = 2
"""In so many looks, before the processor counts as shared."""


def _losses() -> Callable[[], int]:
    try:
        # Linux alone counts per thread.
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
        """Asked once in every turn."""
        self._looks += 1
        if self._looks == LOOKS:
            self._looks = 0
            lost = self._losses()
            self._is_shared = lost - self._lost_before > LOSSES_MAX
            self._lost_before = lost
        return self._is_shared
