"""Takes the samples: warm-up, then alternating pairs (A B, B A, A B, ...), and the ratio within each pair."""

import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from tests.peers.broker_process import BrokerFailed

from bench.experiment import Context, Experiment, Metric, Sample
from bench.load import LoadFailed
from bench.sampling import Sampler
from bench.subjects import PAIRS, Subject
from bench.wire import RequestFailed

WARM_UP_SECONDS, WARM_UP_SECONDS_QUICK = 25.0, 8.0  # for each of the two brokers
FAILURES = (LoadFailed, RequestFailed, BrokerFailed, OSError, TimeoutError)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: a metric of an experiment over all pairs."""

    experiment: str
    metric: Metric
    names: tuple[str, str]
    ours: tuple[float, ...]
    theirs: tuple[float, ...]
    ratios: tuple[float, ...]
    work_unit: str
    # Broker CPU seconds per unit of work, broker and client CPU in cores while the sample ran: ours, theirs.
    cpu_per_work: tuple[float, float] | None
    cpu_ratio: float | None
    broker_cores: tuple[float, float]
    client_cores: tuple[float, float]
    other_broker_cores: float | None
    # What processes that are no part of the benchmark used, in the worst sample.
    foreign_cores: float | None

    @property
    def name(self) -> str:
        return f"{self.experiment}: {self.metric.key}"

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def client_bound(self) -> bool:
        """On both sides the client worked harder than the broker it waited for."""
        pairs = zip(self.client_cores, self.broker_cores, strict=True)
        return self.metric.client_bound_ratio_target is not None and all(client > broker for client, broker in pairs)

    @property
    def target(self) -> float | None:
        """The ratio (or, with an absolute target, the value) that has to be reached."""
        if self.metric.absolute_target is not None:
            return self.metric.absolute_target
        if self.metric.difference_target is not None:
            return self.metric.difference_target
        if self.client_bound:
            return self.metric.client_bound_ratio_target
        return self.metric.ratio_target

    @property
    def met(self) -> bool | None:
        if self.target is None:
            return None
        value = self.ratio
        if self.metric.absolute_target is not None:
            value = statistics.median(self.ours)
        elif self.metric.difference_target is not None:
            value = statistics.median(a - b for a, b in zip(self.ours, self.theirs, strict=True))
        reached = value <= self.target if self.metric.lower_is_better else value >= self.target
        if self.metric.must_use_less_cpu and self.cpu_ratio is not None:
            reached = reached and self.cpu_ratio < 1.0
        return reached


@dataclass(slots=True)
class Outcome:
    rows: list[Row] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    is_complete: bool = True


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


class Runner:
    def __init__(self, context: Context, pairs: int, patience_seconds: float) -> None:
        self._context = context
        self._pairs = pairs
        self._patience_seconds = patience_seconds
        # Rows that are done, also when the run is cut short.
        self.outcome = Outcome()

    def run(self, experiments: Iterable[Experiment]) -> Outcome:
        outcome = self.outcome
        chosen = list(experiments)
        # Experiments that start processes of their own go first, while nothing else is running.
        for experiment in chosen:
            if experiment.pair is None:
                with ExitStack() as stack:
                    self._guarded(outcome, experiment, stack, experiment.subjects(self._context))
        for pair, make in PAIRS.items():
            rows = [experiment for experiment in chosen if experiment.pair == pair]
            if not rows:
                continue
            with ExitStack() as stack:
                subjects = make(self._context.launcher)
                for subject in subjects:
                    stack.callback(subject.discard)
                    subject.process.start()
                self._warm_up(rows, subjects)
                for experiment in rows:
                    self._guarded(outcome, experiment, None, subjects)
        return outcome

    def _warm_up(self, rows: Sequence[Experiment], subjects: tuple[Subject, Subject]) -> None:
        """Rounds of all that will be measured: a JVM goes on compiling for many seconds of load."""
        begin = time.monotonic()
        seconds = 2 * (WARM_UP_SECONDS_QUICK if self._context.quick else WARM_UP_SECONDS)
        rounds = 0
        while not rounds or time.monotonic() - begin < seconds:
            for experiment in rows:
                try:
                    experiment.warm_up(self._context, subjects)
                except FAILURES as error:
                    say(f"warm-up, {experiment.name}: {error}")
                if time.monotonic() - begin >= seconds:
                    break
            rounds += 1
        say(f"warmed up for {time.monotonic() - begin:.0f} s")

    def _guarded(
        self, outcome: Outcome, experiment: Experiment, stack: ExitStack | None, subjects: tuple[Subject, Subject]
    ) -> None:
        """A row that cannot be measured is a failure in the report, not the end of the run."""
        try:
            if stack is not None:
                for subject in subjects:
                    stack.callback(subject.discard)
                    subject.process.start()
            outcome.rows += self._measure(experiment, subjects)
        except FAILURES as error:
            say(f"{experiment.name}: FAILED: {error}")
            # The log that may follow is for the eyes of whoever watches, not for the results.
            outcome.failures[experiment.name] = str(error).splitlines()[0]

    def _measure(self, experiment: Experiment, subjects: tuple[Subject, Subject]) -> list[Row]:
        context = self._context
        begin = time.monotonic()
        experiment.prepare(context, subjects)
        pairs = min(self._pairs, experiment.pairs_max or self._pairs)
        sampler = Sampler(context, experiment, subjects, self._patience_seconds)
        taken = [sampler.pair((0, 1) if number % 2 == 0 else (1, 0)) for number in range(pairs)]
        samples = ([pair.samples[0] for pair in taken], [pair.samples[1] for pair in taken])
        disturbance = (_worst(pair.idle_cores for pair in taken), _worst(pair.foreign_cores for pair in taken))
        experiment.finish(context, subjects)
        names = (subjects[0].name, subjects[1].name)
        rows = [_row(experiment, metric, names, samples, disturbance) for metric in experiment.metrics]
        for row in rows:
            say(f"{row.name}: {row.ratio:.2f} ({time.monotonic() - begin:.0f} s)")
        return rows


def _row(
    experiment: Experiment,
    metric: Metric,
    names: tuple[str, str],
    samples: tuple[Sequence[Sample], Sequence[Sample]],
    disturbance: tuple[float | None, float | None],
) -> Row:
    ours, theirs = (tuple(sample.values[metric.key] for sample in side) for side in samples)
    cpu_per_work: tuple[float, float] | None = None
    cpu_ratio: float | None = None
    if all(sample.work for side in samples for sample in side):
        # Clock ticks are coarse: the CPU of all samples of a side is added up before it is divided.
        totals = [sum(s.broker_cpu_seconds for s in side) / sum(s.work for s in side) for side in samples]
        cpu_per_work = (totals[0], totals[1])
        cpu_ratio = totals[0] / totals[1] if totals[1] else None
    return Row(
        experiment=experiment.name,
        metric=metric,
        names=names,
        ours=ours,
        theirs=theirs,
        ratios=tuple(a / b if b else 1.0 if a == b else float("inf") for a, b in zip(ours, theirs, strict=True)),
        work_unit=experiment.work_unit,
        cpu_per_work=cpu_per_work,
        cpu_ratio=cpu_ratio,
        broker_cores=_cores(samples, "broker_cpu_seconds"),
        client_cores=_cores(samples, "client_cpu_seconds"),
        other_broker_cores=disturbance[0],
        foreign_cores=disturbance[1],
    )


def _worst(readings: Iterable[float | None]) -> float | None:
    return max((reading for reading in readings if reading is not None), default=None)


def _cores(samples: tuple[Sequence[Sample], Sequence[Sample]], field_name: str) -> tuple[float, float]:
    ours, theirs = (
        sum(getattr(sample, field_name) for sample in side) / max(sum(sample.seconds for sample in side), 1e-9)
        for side in samples
    )
    return ours, theirs
