"""Events per second: how many, and how long they took. Pure: every time is an argument."""

from collections import Counter

KEPT_SECONDS = 300


class PerSecond:
    """Counts of the last five minutes."""

    def __init__(self, kept_seconds: int = KEPT_SECONDS) -> None:
        self._kept_seconds = kept_seconds
        self._counts: Counter[int] = Counter()

    def add(self, time_ms: int) -> None:
        second = time_ms // 1000
        self._counts[second] += 1
        _drop_old(self._counts, self._kept_seconds)

    def window(self, end_s: int) -> list[int]:
        """One number for each of the seconds before `end_s`, oldest first."""
        return [self._counts[second] for second in range(end_s - self._kept_seconds, end_s)]


class Durations:
    """Durations by the second in which they ended. Exact: counts how often each duration in milliseconds occurs."""

    def __init__(self, kept_seconds: int = KEPT_SECONDS) -> None:
        self._kept_seconds = kept_seconds
        self._seconds: dict[int, Counter[int]] = {}

    def add(self, time_ms: int, took_ms: int) -> None:
        self._seconds.setdefault(time_ms // 1000, Counter())[max(took_ms, 0)] += 1
        _drop_old(self._seconds, self._kept_seconds)

    def window(self, end_s: int, percent: int) -> list[int | None]:
        """A percentile for each of the seconds before `end_s`; None if nothing ended."""
        wanted = range(end_s - self._kept_seconds, end_s)
        return [percentile(self._seconds[second], percent) if second in self._seconds else None for second in wanted]


def percentile(counted: Counter[int], percent: int) -> int | None:
    """By nearest rank; None if there are no values."""
    rank = -(-counted.total() * percent // 100)
    for value in sorted(counted):
        rank -= counted[value]
        if rank <= 0 and counted[value]:
            return value
    return None


def _drop_old(seconds: "dict[int, int] | dict[int, Counter[int]]", kept_seconds: int) -> None:
    # Keeps twice as many as are shown, so that this rarely runs.
    if len(seconds) > 2 * kept_seconds:
        for second in sorted(seconds)[:-kept_seconds]:
            del seconds[second]
