"""How long the checker takes: `python -m tests.history.scale 1000000` makes a history of so many operations to judge.

Half of the operations are sends and transactions on 16 partitions, half polls of four readers; at the end everything is
read once. Processor time is printed, because it says the same on a busy machine.
"""

import gc
import itertools
import random
import sys
import tempfile
import time
from pathlib import Path

from fencepost.history import HistoryRecorder, JsonLines, check, read_files
from fencepost.history.operations import READ_COMMITTED
from tests.history.model import TinyLog

PARTITIONS = [f"orders-{number}" for number in range(16)]
READERS = 4


def record(path: Path, operations: int) -> None:
    dice, log, ticks = random.Random(1), TinyLog(), itertools.count()
    positions = [dict.fromkeys(PARTITIONS, 0) for _ in range(READERS)]
    with JsonLines(path) as sink:
        recorder = HistoryRecorder(sink, lambda: float(next(ticks)))
        for number in range(operations // 2):
            transaction = number if number % 2 else None
            operation = recorder.transaction("producer", "id") if transaction else recorder.send("producer", [])
            for part in range(2):
                partition = dice.choice(PARTITIONS)
                value = f"{number}/{part}"
                operation.sent(operation.sending(partition, value), log.append(partition, value, transaction))
            if transaction is not None:
                operation.ending(commit=True)
                log.end(transaction, commit=True)
            operation.ok()
            reader = number % READERS
            partition = dice.choice(PARTITIONS)
            operation = recorder.poll(f"reader-{reader}")
            slots = log.slots[partition]
            start, end = positions[reader][partition], len(slots)
            found = [(at, value) for at in range(start, end) if (value := slots[at][0]) is not None]
            positions[reader][partition] = end
            operation.polled({partition: found})
            operation.ok()
        operation = recorder.final_read("final", PARTITIONS, READ_COMMITTED)
        for partition in PARTITIONS:
            slots = log.slots[partition]
            operation.polled({partition: [(at, value) for at, (value, _) in enumerate(slots) if value is not None]})
        operation.ok()


def main(operations: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "history.jsonl"
        record(path, operations)
        size = path.stat().st_size
        gc.disable()  # as the command does
        started = time.process_time()
        history = read_files([path])
        read = time.process_time()
        report = check(history)
        done = time.process_time()
    print(
        f"{len(history.operations)} operations, {history.events} events, {size / 1e6:.0f} MB: read in "
        f"{read - started:.1f} s, judged in {done - read:.1f} s of processor time; anomalies: {report.counts.total()}"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
