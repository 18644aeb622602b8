"""A trace of system calls shows the sync before the reply: the promise as the kernel sees it.

With `flush=group` the log file is written, its fdatasync returns, and only then the response goes to the socket. With
`flush=os` no sync is on that path, as in Kafka's defaults.
"""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.peers.batches import batch
from tests.peers.fencepost_process import FencepostProcess
from tests.peers.raw import RawClient
from tests.support.patience import patient

TOPIC = "purchases"
CALLS = "fdatasync,fsync,syncfs,sync_file_range,pwrite64,pwritev,write,writev,sendto,sendmsg"
MARK = b"traced-record"
ATTACH_TIMEOUT_SECONDS = patient(20.0)

FINISHED = re.compile(
    r"^(?P<pid>\d+) +(?P<time>\d+\.\d+) (?P<call>\w+)\((?P<target>[^,)]*)(?P<rest>.*)= (?P<result>-?\d+)"
)
UNFINISHED = re.compile(r"^(?P<pid>\d+) +(?P<time>\d+\.\d+) (?P<call>\w+)\((?P<target>[^,) ]*)(?P<rest>.*)<unfinished")
RESUMED = re.compile(r"^(?P<pid>\d+) +(?P<time>\d+\.\d+) <\.\.\. (?P<call>\w+) resumed>.*= (?P<result>-?\d+)")


@dataclass(frozen=True, slots=True)
class Call:
    """One system call; the places in the trace where it began and returned tell what came before what."""

    name: str
    target: str
    data: str
    began: int
    returned: int
    result: int

    @property
    def is_sync(self) -> bool:
        return "sync" in self.name


def parse(trace: str) -> list[Call]:
    calls: list[Call] = []
    begun: dict[str, tuple[int, re.Match[str]]] = {}
    for place, line in enumerate(trace.splitlines()):
        if found := FINISHED.match(line):
            calls.append(Call(found["call"], found["target"], found["rest"], place, place, int(found["result"])))
        elif found := UNFINISHED.match(line):
            begun[found["pid"]] = place, found
        elif (found := RESUMED.match(line)) and found["pid"] in begun:
            began, start = begun.pop(found["pid"])
            calls.append(Call(start["call"], start["target"], start["rest"], began, place, int(found["result"])))
    return calls


@pytest.fixture
def strace() -> str:
    found = shutil.which("strace")
    if found is None:
        reason = "strace is not installed, so the order of sync and reply cannot be seen"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        print(reason)
        pytest.skip(reason)
    return found


@contextmanager
def traced(strace: str, pid: int, output: Path) -> Iterator[None]:
    """Attach to the running broker and all of its threads; the trace is whole when this ends."""
    command = [strace, "-f", "-ttt", "-y", "-s", "400", "-e", f"trace={CALLS}", "-p", str(pid), "-o", str(output)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + ATTACH_TIMEOUT_SECONDS
        status = Path(f"/proc/{pid}/task")
        while not all("TracerPid:\t0" not in (task / "status").read_text() for task in status.iterdir()):
            if process.poll() is not None:
                reason = f"strace cannot attach: {process.stderr.read() if process.stderr else ''}"
                if os.environ.get("CI") == "true":
                    pytest.fail(reason)
                pytest.skip(reason)
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(patient(10))
        if process.stderr is not None:
            process.stderr.close()


def one_produce(strace: str, tmp_path: Path, flush: str, acks: int = -1) -> list[Call]:
    """Every system call of a broker while it takes one batch and answers it."""
    with FencepostProcess({"flush": flush}, tmp_path / "broker") as broker:
        with RawClient(broker.address) as client:
            topic = {"Name": TOPIC, "NumPartitions": 1, "ReplicationFactor": 1}
            client.call("CreateTopics", 5, {"Topics": [topic], "timeoutMs": 1000})
            # The first batch also makes the partition's directory durable, and starts the threads that sync.
            for _ in range(3):
                assert produce(client, b"warm-up", acks)["ErrorCode"] == 0
            output = tmp_path / "trace"
            with traced(strace, broker.pid, output):
                assert produce(client, MARK, acks)["ErrorCode"] == 0
                # Once the broker has taken another request, the trace holds the end of every call of this one.
                client.call("ApiVersions", 0, {})
        return parse(output.read_text(errors="replace"))


def produce(client: RawClient, value: bytes, acks: int) -> dict[str, Any]:
    data = {"Index": 0, "Records": batch([value])}
    request = {"Acks": acks, "TimeoutMs": 5000, "TopicData": [{"Name": TOPIC, "PartitionData": [data]}]}
    answer: dict[str, Any] = client.call("Produce", 9, request)["Responses"][0]["PartitionResponses"][0]
    return answer


def only(calls: list[Call]) -> Call:
    assert len(calls) == 1, calls
    return calls[0]


def log_write(calls: list[Call]) -> Call:
    return only([call for call in calls if call.name.startswith("pwrite") and MARK.decode() in call.data])


def reply(calls: list[Call]) -> Call:
    """The first bytes to a socket after the write."""
    sends = [call for call in calls if "socket:" in call.target or "TCP:" in call.target]
    sends = [call for call in sends if call.name in ("write", "writev", "sendto", "sendmsg")]
    assert sends, calls
    return sends[0]


def test_the_log_is_synced_before_the_reply_is_sent(strace: str, tmp_path: Path) -> None:
    calls = one_produce(strace, tmp_path, "group")
    written, sent = log_write(calls), reply(calls)
    assert written.target.endswith(f"/{TOPIC}-0/00000000000000000000.log>")
    sync = only([call for call in calls if call.is_sync and call.target == written.target])
    assert sync.name == "fdatasync"
    assert sync.result == 0
    assert written.returned < sync.began
    assert sync.returned < sent.began


def test_with_flush_os_no_sync_is_on_the_path(strace: str, tmp_path: Path) -> None:
    calls = one_produce(strace, tmp_path, "os")
    assert log_write(calls).returned < reply(calls).began
    assert [call for call in calls if call.is_sync] == []


def test_with_acks_of_one_the_reply_waits_for_the_sync_too(strace: str, tmp_path: Path) -> None:
    calls = one_produce(strace, tmp_path, "group", acks=1)
    written, sent = log_write(calls), reply(calls)
    syncs = [call for call in calls if call.is_sync and call.target == written.target]
    assert any(written.returned <= sync.began and sync.returned <= sent.began for sync in syncs)
