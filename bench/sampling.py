"""One pair of samples: waits for a quiet machine, takes both, and says what else was going on meanwhile.

A pair during which other programs were busy is taken again as long as the row's patience lasts; the last one
counts whatever it was, and the report says how disturbed it was.
"""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench import machine
from bench.experiment import Context, Experiment, Sample
from bench.subjects import Subject

SETTLE_SECONDS_MAX, SETTLE_WINDOW_SECONDS, SETTLED_CORES = 3.0, 0.2, 0.05
QUIET_CORES = 0.2
DISTURBED_CORES = 0.3


@dataclass(frozen=True, slots=True)
class Pair:
    samples: tuple[Sample, Sample]
    # None where brokers come and go during a sample, so that nothing could be told apart.
    idle_cores: float | None
    foreign_cores: float | None


class Meter:
    """What else used the machine during one sample: the idle broker, and everybody else."""

    def __init__(self, subjects: tuple[Subject, Subject], index: int) -> None:
        self._subjects, self._index = subjects, index
        self._started = time.monotonic()
        self._before = self._readings()

    def _readings(self) -> tuple[float, ...]:
        ours = sum(os.times()[:2])
        return machine.busy_seconds(), ours, *(subject.cpu_seconds() for subject in self._subjects)

    def read(self, sample: Sample) -> tuple[float, float]:
        seconds = time.monotonic() - self._started
        now = zip(self._readings(), self._before, strict=True)
        busy, ours, *brokers = (after - before for after, before in now)
        foreign = busy - ours - sum(brokers) - sample.client_cpu_seconds
        return brokers[1 - self._index] / seconds, max(foreign, 0.0) / seconds


class Sampler:
    def __init__(
        self, context: Context, experiment: Experiment, subjects: tuple[Subject, Subject], patience_seconds: float
    ) -> None:
        self._context, self._experiment, self._subjects = context, experiment, subjects
        self._patience_ends = time.monotonic() + patience_seconds

    def pair(self, order: Sequence[int]) -> Pair:
        while True:
            taken = self._take(order)
            if (taken.foreign_cores or 0.0) <= DISTURBED_CORES or time.monotonic() >= self._patience_ends:
                return taken

    def _take(self, order: Sequence[int]) -> Pair:
        samples: dict[int, Sample] = {}
        idle, foreign = 0.0, 0.0
        shared = self._experiment.pair is not None  # else brokers come and go during a sample
        for index in order:
            if shared:
                _settle(self._subjects)
            while machine_is_busy() and time.monotonic() < self._patience_ends:
                pass
            meter = Meter(self._subjects, index) if shared else None
            samples[index] = self._experiment.sample(self._context, self._subjects[index])
            if meter is not None:
                idle_now, foreign_now = meter.read(samples[index])
                idle, foreign = max(idle, idle_now), max(foreign, foreign_now)
        both = (samples[0], samples[1])
        return Pair(both, idle, foreign) if shared else Pair(both, None, None)


def machine_is_busy() -> bool:
    """Watches the whole machine for a moment while the benchmark does nothing."""
    before = machine.busy_seconds()
    time.sleep(SETTLE_WINDOW_SECONDS)
    return machine.busy_seconds() - before > QUIET_CORES * SETTLE_WINDOW_SECONDS


def _settle(subjects: Sequence[Subject]) -> None:
    """Waits until neither broker is busy with the sample before: deleting files, compiling, collecting."""
    deadline = time.monotonic() + SETTLE_SECONDS_MAX
    while time.monotonic() < deadline:
        before = sum(subject.cpu_seconds() for subject in subjects)
        time.sleep(SETTLE_WINDOW_SECONDS)
        used = sum(subject.cpu_seconds() for subject in subjects) - before
        if used <= SETTLED_CORES * SETTLE_WINDOW_SECONDS:
            return
