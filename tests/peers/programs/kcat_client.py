"""kcat as a program: translates our verbs into its options and its output into events.

kcat prints no offsets for what it produced and cannot set a timestamp; headers hold for a whole run,
so records that carry headers of their own get a run of their own.
"""

import json
import re
import signal
import subprocess
import sys
import threading
from itertools import groupby
from typing import Any

from tests.peers.programs.console import Options, arguments, say, when_input_closes

KEY_DELIMITER = "\x1f"
RECORD_DELIMITER = "\x1e"
REBALANCED = re.compile(r"^% Group \S+ rebalanced \(.*\): (assigned|revoked): ?(.*)$")
PARTITION = re.compile(r"\[(\d+)\]")


def produce(options: Options) -> None:
    def run_of(record: dict[str, Any]) -> tuple[int, list[list[str]], bool]:
        # -Z makes an empty value a null one; without a delimiter the key is null.
        return record["partition"], record.get("headers", []), record["key"] is None

    for (partition, headers, keyless), records in groupby(options["records"], run_of):
        command = ["kcat", "-P", "-b", options["bootstrap"], "-t", options["topic"], "-p", str(partition), "-Z"]
        command += ["-D", RECORD_DELIMITER, "-X", "enable.idempotence=true", "-X", "linger.ms=50"]
        command += ["-z", options.get("compression") or "none"]
        command += [] if keyless else ["-K", KEY_DELIMITER]
        for name, value in headers:
            command += ["-H", name if value is None else f"{name}={value}"]
        batch = list(records)
        lines = [
            (record["value"] or "") if keyless else f"{record['key']}{KEY_DELIMITER}{record['value'] or ''}"
            for record in batch
        ]
        subprocess.run(command, input=RECORD_DELIMITER.join(lines).encode(), check=True)
        for _ in batch:
            say("produced", partition=partition, offset=None)


def consume(options: Options) -> None:
    for partition in options["partitions"]:
        command = ["kcat", "-C", "-b", options["bootstrap"], "-t", options["topic"], "-p", str(partition)]
        command += ["-o", "beginning", "-e", "-q", "-J"]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
        for line in done.stdout.splitlines():
            _record(json.loads(line))


def member(options: Options) -> None:
    command = ["kcat", "-b", options["bootstrap"], "-J", "-u"]
    for setting in (
        "auto.offset.reset=earliest",
        f"session.timeout.ms={options.get('session_timeout_ms', 10_000)}",
        "heartbeat.interval.ms=300",
        f"client.id={options.get('client_id', 'kcat')}",
        f"partition.assignment.strategy={options.get('assignor', 'range')}",
    ):
        command += ["-X", setting]
    command += ["-G", options["group"], options["topic"]]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    when_input_closes(lambda: process.send_signal(signal.SIGTERM))
    watcher = threading.Thread(target=_watch_rebalances, args=(process,))
    watcher.start()
    assert process.stdout is not None
    for line in process.stdout:
        _record(json.loads(line))
    watcher.join()
    code = process.wait()
    say("left")
    sys.exit(code)


def _watch_rebalances(process: subprocess.Popen[str]) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        found = REBALANCED.match(line.strip())
        if found is None:
            sys.stderr.write(line)
        else:
            say(found[1], partitions=sorted(int(each) for each in PARTITION.findall(found[2])))


def _record(message: dict[str, Any]) -> None:
    flat = message.get("headers", [])
    say(
        "record",
        partition=message["partition"],
        offset=message["offset"],
        timestamp=message["ts"],
        key=message.get("key"),
        value=message.get("payload"),
        headers=[list(pair) for pair in zip(flat[::2], flat[1::2], strict=True)],
    )


if __name__ == "__main__":
    verb, given_options = arguments()
    {"produce": produce, "consume": consume, "member": member}[verb](given_options)
