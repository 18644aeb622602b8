"""Records what simulated clients did and which answers they got: the history of a run, and unexplained answers."""

from collections import Counter

from fencepost.history.operations import Outcome
from fencepost.history.recording import Event, HistoryRecorder
from fencepost.simulation.clock import VirtualClock


class ClientJournal:
    def __init__(self, clock: VirtualClock) -> None:
        self.events: list[Event] = []
        self.recorder = HistoryRecorder(self.events.append, lambda: clock.monotonic_ms() / 1000)
        self.transactions: Counter[Outcome] = Counter()
        """By outcome, as far as their clients know it."""
        self.producer_ids: dict[tuple[int, int], str] = {}
        """Every assigned pair of producer id and epoch, with its process."""
        self.findings: list[str] = []
        """What a client noticed by itself."""

    def handed_out(self, pair: tuple[int, int], process: str) -> None:
        """Records a pair; no two processes may get the same."""
        known = self.producer_ids.setdefault(pair, process)
        if known != process:
            self.findings.append(f"producer-id-reused: {pair} was handed out to {known} and to {process}")

    def wonder(self, what: str) -> None:
        self.findings.append(f"unexpected-answer: {what}")


def partition_name(key: tuple[str, int]) -> str:
    return f"{key[0]}-{key[1]}"
