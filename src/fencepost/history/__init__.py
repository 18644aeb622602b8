"""Histories: the requests of clients, the answers they got, and a checker that decides whether the answers are
possible.

One format (`operations.py`), one recorder (`recording.py`) and one checker (`checker.py`) for simulations, real
processes and pipelines. Everything here is standard library only and knows nothing of the broker.
"""

from fencepost.history.anomalies import ANOMALIES
from fencepost.history.checker import Report, check
from fencepost.history.findings import Finding
from fencepost.history.operations import HistoryError, Operation
from fencepost.history.reading import History, read_events, read_files
from fencepost.history.recording import HistoryRecorder, JsonLines, RecordedOperation

__all__ = [
    "ANOMALIES",
    "Finding",
    "History",
    "HistoryError",
    "HistoryRecorder",
    "JsonLines",
    "Operation",
    "RecordedOperation",
    "Report",
    "check",
    "read_events",
    "read_files",
]
