"""The load program for machines without a C compiler: the same commands, in Python, client-bound.

`python -m bench.python_load produce|consume|request ...` takes the arguments of native/load.c.
"""

import json
import selectors
import socket
import struct
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def _settings(bootstrap: str, words: Sequence[str]) -> dict[str, Any]:
    settings: dict[str, Any] = dict(word.split("=", 1) for word in words)
    truths = {name: value == "true" for name, value in settings.items() if value in ("true", "false")}
    return {"bootstrap.servers": bootstrap, **settings, **truths}


def produce(arguments: Sequence[str]) -> dict[str, object]:
    import confluent_kafka

    _, bootstrap, topic, count, payloads, *words = arguments
    failures: list[object] = []

    def on_delivery(error: object, message: object) -> None:
        if error is not None:
            failures.append(error)

    producer = confluent_kafka.Producer({**_settings(bootstrap, words), "on_delivery": on_delivery})
    values = Path(payloads).read_bytes().splitlines()
    producer.produce(topic, values[0], partition=0)
    producer.flush()
    begin = time.perf_counter()
    for number in range(1, int(count)):
        while True:
            try:
                producer.produce(topic, values[number % len(values)])
                break
            except BufferError:
                producer.poll(0.01)
    if producer.flush(120) or failures:
        raise SystemExit(f"not delivered: {failures[:1]}")
    seconds = time.perf_counter() - begin
    return {"records": int(count) - 1, "seconds": seconds, "librdkafka": confluent_kafka.libversion()[0]}


def consume(arguments: Sequence[str]) -> dict[str, object]:
    import confluent_kafka

    _, bootstrap, topic, partitions, count, *words = arguments
    consumer = confluent_kafka.Consumer({**_settings(bootstrap, words), "group.id": "bench"})
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(int(partitions))])
    seen = first_seen = 0
    begin = 0.0
    while seen < int(count):
        messages = consumer.consume(min(4096, int(count) - seen), 1.0)
        for message in messages:
            if message.error() is not None:
                raise SystemExit(str(message.error()))
        seen += len(messages)
        if not begin and seen:
            begin, first_seen = time.perf_counter(), seen
    seconds = time.perf_counter() - begin
    return {"records": seen - first_seen, "seconds": seconds, "librdkafka": confluent_kafka.libversion()[0]}


class _Connection:
    def __init__(self, address: tuple[str, int], requests: Sequence[bytes], first: int) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._requests = requests
        self._next = first
        self._answer = bytearray()
        self.sent_ns = 0

    def send_next(self) -> None:
        self._answer.clear()
        self.sent_ns = time.perf_counter_ns()
        self.socket.sendall(self._requests[self._next])
        self._next = (self._next + 1) % len(self._requests)

    def receive(self, error_offset: int) -> bool:
        data = self.socket.recv(65536)
        if not data:
            raise SystemExit("closed by the broker")
        self._answer += data
        if len(self._answer) < 4 or len(self._answer) < 4 + struct.unpack_from(">i", self._answer)[0]:
            return False
        (error_code,) = struct.unpack_from(">h", self._answer, error_offset)
        if error_code:
            raise SystemExit(f"error code in the answer: {error_code}")
        return True


def request(arguments: Sequence[str]) -> dict[str, object]:
    host, port, path, *numbers = arguments
    error_offset, connections, warmup, count = (int(number) for number in numbers[:4])
    limit_ns = int(float(numbers[4]) * 1e9)
    data = Path(path).read_bytes()
    requests: list[bytes] = []
    position = 0
    while position < len(data):
        (size,) = struct.unpack_from(">i", data, position)
        requests.append(data[position : position + 4 + size])
        position += 4 + size
    selector = selectors.DefaultSelector()
    everyone = []
    for number in range(connections):
        one = _Connection((host, int(port)), requests, number * len(requests) // connections)
        selector.register(one.socket, selectors.EVENT_READ, one)
        everyone.append(one)
    latencies: list[int] = []
    seen = 0
    started = time.perf_counter_ns()
    begin = 0 if warmup else started
    end = 0
    for one in everyone:
        one.send_next()
    while not end:
        ready = [everyone[0]] if connections == 1 else [key.data for key, _ in selector.select()]
        for one in ready:
            if end or not one.receive(error_offset):
                continue
            now = time.perf_counter_ns()
            seen += 1
            if begin:
                latencies.append(now - one.sent_ns)
                if len(latencies) == count or now - begin >= limit_ns:
                    end = now
            elif seen >= warmup or now - started >= limit_ns:
                begin = now
            if not end:
                one.send_next()
    latencies.sort()
    parts = {"p50_us": 0.5, "p90_us": 0.9, "p99_us": 0.99, "p999_us": 0.999}
    percentiles = {name: latencies[int(len(latencies) * part)] / 1000 for name, part in parts.items()}
    return {
        "requests": len(latencies),
        "seconds": (end - begin) / 1e9,
        **percentiles,
        "max_us": latencies[-1] / 1000,
    }


COMMANDS: dict[str, Callable[[Sequence[str]], dict[str, object]]] = {
    "produce": produce,
    "consume": consume,
    "request": request,
}

if __name__ == "__main__":
    print(json.dumps(COMMANDS[sys.argv[1]](sys.argv[2:])))
