"""What a row is: an experiment that takes samples of a broker, and the metrics read from them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.load import JavaTools, Librdkafka
from bench.subjects import Launcher, Subject
from bench.transaction_clients import JavaTransactions


@dataclass(frozen=True, slots=True)
class Metric:
    """One line of the table. A ratio is Fencepost divided by Apache Kafka, whichever is better."""

    key: str
    unit: str
    lower_is_better: bool = False
    ratio_target: float | None = None
    # The target where the client, and not the broker, is what both sides wait for.
    client_bound_ratio_target: float | None = None
    absolute_target: float | None = None
    # How much larger than the other side's the value may be.
    difference_target: float | None = None
    must_use_less_cpu: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    values: dict[str, float]
    broker_cpu_seconds: float = 0.0
    client_cpu_seconds: float = 0.0
    seconds: float = 0.0
    # What the CPU time is divided by: megabytes, or requests where a megabyte means nothing.
    work: float = 0.0


@dataclass(slots=True)
class Context:
    """What every experiment may use: the clients, the size of a run, and where to start brokers."""

    launcher: Launcher
    quick: bool
    java: JavaTools = field(default_factory=JavaTools)
    librdkafka: Librdkafka = field(default_factory=Librdkafka)
    java_transactions: JavaTransactions = field(default_factory=JavaTransactions)
    topics_made: int = 0
    spark_records: int = 20_000_000

    @property
    def sample_seconds(self) -> float:
        return 0.6 if self.quick else 2.0

    def topic_name(self) -> str:
        self.topics_made += 1
        return f"bench-{self.topics_made:06}"


class Experiment(ABC):
    """Samples are taken in alternating order from two subjects that run side by side."""

    name: str
    metrics: tuple[Metric, ...]
    # A key of subjects.PAIRS; None for an experiment that starts its own processes in `subjects`.
    pair: str | None
    work_unit = "MB"
    pairs_max: int | None = None
    # Whether `--quick` takes the row when nobody asked for it by name.
    in_quick = True

    def subjects(self, context: Context) -> tuple[Subject, Subject]:
        """Makes the two subjects, not yet started, of an experiment without a shared pair."""
        raise NotImplementedError

    def warm_up(self, context: Context, subjects: Sequence[Subject]) -> None:
        """A short run of the row's load, before any row of the pair is measured."""
        return None

    @abstractmethod
    def prepare(self, context: Context, subjects: Sequence[Subject]) -> None:
        """Makes topics, settles the size of a sample (the same for both) and takes a few that do not count."""

    @abstractmethod
    def sample(self, context: Context, subject: Subject) -> Sample: ...

    def finish(self, context: Context, subjects: Sequence[Subject]) -> None:
        """Removes what `prepare` left on the brokers."""
        return None


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"


def seconds_of_sample(context: Context) -> float:
    return 0.5 if context.quick else 0.8
