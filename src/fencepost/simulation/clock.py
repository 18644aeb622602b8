"""Virtual time: it does not pass until the scheduler moves it, so that a minute of timeouts costs nothing."""

# Any fixed time will do; records need plausible timestamps.
START_WALL_MS = 1_700_000_000_000
# Work takes no virtual time, but is interrupted after so many looks at the clock as a slice has room for.
LOOK_NS = 5_000


class VirtualClock:
    def __init__(self, wall_ms: int = START_WALL_MS) -> None:
        self._monotonic_ms = 0
        self._looks = 0
        self._wall_lead_ms = wall_ms
        self._drift_ppm = 0
        self._drift_since_ms = 0

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def work_ns(self) -> int:
        self._looks += 1
        return self._looks * LOOK_NS

    def cpu_ns(self) -> int:
        return self._looks * LOOK_NS

    def wall_ms(self) -> int:
        drifted = (self._monotonic_ms - self._drift_since_ms) * self._drift_ppm // 1_000_000
        return self._monotonic_ms + self._wall_lead_ms + drifted

    def advance_to(self, monotonic_ms: int) -> None:
        assert monotonic_ms >= self._monotonic_ms, "time went back"
        self._monotonic_ms = monotonic_ms

    def jump_wall(self, by_ms: int) -> None:
        """The clock of the machine is set; timeouts must not be affected."""
        self._wall_lead_ms += by_ms

    def drift(self, parts_per_million: int) -> None:
        """From now on the wall clock gains (or loses) so much on true time."""
        self._wall_lead_ms = self.wall_ms() - self._monotonic_ms
        self._drift_since_ms = self._monotonic_ms
        self._drift_ppm = parts_per_million

    @property
    def wall_lead_ms(self) -> int:
        """The difference between the wall clock and the time without any changes."""
        return self.wall_ms() - self._monotonic_ms - START_WALL_MS
