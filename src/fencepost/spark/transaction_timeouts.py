"""How long a transaction of the sink may stay open: what the user says, or a time derived from Spark's own.

The clock of a transaction runs while finished batches are sent and committed, not while rows are computed (a barrier
stage begins when the stage before it has ended). So the derived time need not cover the function of a pipeline. It
covers two things: the interval of the trigger, because a batch holds what has come meanwhile, and the time after which
Spark gives an executor up that is silent. Below that, the broker would end a transaction which the driver is about to
abort and try again. How often a task may fail does not count: a barrier stage is given up with its first task.

A driver that died for good holds the readers of its topics for that long. Pure.
"""

import dataclasses
import re

NETWORK_TIMEOUT, NETWORK_TIMEOUT_INTERVAL = "spark.network.timeout", "spark.network.timeoutInterval"
SPARK_DEFAULTS = {NETWORK_TIMEOUT: "120s", NETWORK_TIMEOUT_INTERVAL: "60s"}
UNBOUNDED_MS = 900_000
"""For a batch of any size: all there is with the trigger `once`, or the frame of a batch job. A broker's own default
maximum."""

_UNITS_MS = {"us": 0.001, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_TIME = re.compile(r"(\d+)\s*([a-z]*)")


@dataclasses.dataclass(frozen=True, slots=True)
class TransactionTimeout:
    ms: int
    rule: str
    """Where it comes from, for people."""
    is_given: bool = False
    """A person has said it: then a broker that does not allow it is told, not obeyed."""

    def at_most(self, broker_max_ms: int | None) -> "TransactionTimeout":
        if self.is_given or broker_max_ms is None or self.ms <= broker_max_ms:
            return self
        return TransactionTimeout(broker_max_ms, "the broker's transaction.max.timeout.ms")

    def __str__(self) -> str:
        return f"{self.ms / 1000:g} s ({self.rule})"


@dataclasses.dataclass(frozen=True, slots=True)
class Trigger:
    """Of a query, as far as it says how much one batch holds."""

    interval_ms: int = 0
    is_once: bool = False


NO_TRIGGER = Trigger()


def given(ms: int) -> TransactionTimeout:
    return TransactionTimeout(ms, "transaction_timeout_ms", is_given=True)


UNBOUNDED = TransactionTimeout(UNBOUNDED_MS, "one batch of any size")


def derived(trigger: Trigger, network_timeout: str, network_timeout_interval: str) -> TransactionTimeout:
    """The two settings as Spark's configuration has them."""
    if trigger.is_once:
        return UNBOUNDED
    silent_ms = time_ms(network_timeout, "s") + time_ms(network_timeout_interval, "ms")
    if trigger.interval_ms > silent_ms:
        return TransactionTimeout(trigger.interval_ms, "the trigger's interval")
    return TransactionTimeout(silent_ms, f"{NETWORK_TIMEOUT} + {NETWORK_TIMEOUT_INTERVAL}")


def time_ms(text: str, unit: str) -> int:
    """A time of Spark's configuration; `unit` is that of a bare number."""
    found = _TIME.fullmatch(text.strip().lower())
    if found is None or (found[2] or unit) not in _UNITS_MS:
        raise ValueError(f"{text!r} is not a time")
    return max(1, round(int(found[1]) * _UNITS_MS[found[2] or unit]))
