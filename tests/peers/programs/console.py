"""What the Python programs share: arguments in, events out."""

import json
import sys
import threading
from collections.abc import Callable
from typing import Any

Options = dict[str, Any]


def arguments() -> tuple[str, Options]:
    return sys.argv[1], json.loads(sys.argv[2])


def say(event: str, **facts: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, **facts}) + "\n")
    sys.stdout.flush()


def say_record(
    partition: int,
    offset: int,
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
) -> None:
    say(
        "record",
        partition=partition,
        offset=offset,
        timestamp=timestamp,
        key=text(key),
        value=text(value),
        headers=[[name, text(content)] for name, content in headers],
    )


def text(content: bytes | None) -> str | None:
    return None if content is None else bytes(content).decode()


def octets(content: str | None) -> bytes | None:
    return None if content is None else content.encode()


def when_input_closes(action: Callable[[], object]) -> None:
    def wait() -> None:
        sys.stdin.read()
        action()

    threading.Thread(target=wait, daemon=True).start()
