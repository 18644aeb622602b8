"""Requests that are almost right: made from the schemas with values that get far, then damaged."""

import random
from collections import deque
from collections.abc import Iterator
from typing import Any

from fencepost.wire.batch import build_batch, seal
from fencepost.wire.catalog import API_VERSIONS, ApiKey, request_class
from fencepost.wire.framing import request_frame
from tests.support.random_messages import INTEGER_BITS, MessageMaker

CASES = [(key, version) for key, (low, high) in API_VERSIONS.items() for version in range(low, high + 1)]
CORRELATION_ID = 77
CLIENT_ID = "fuzz"

NAMES = ("orders", "payments", "", "__consumer_offsets", "no good", "zażółć", "x" * 249, "x" * 32_767, "group", "1")
SETTINGS = (
    "segment.bytes",
    "cleanup.policy",
    "compact",
    "delete",
    "retention.ms",
    "100000",
    "nan",
    "consumer",
    "range",
)
REPEATED = ("member_id", "session_id", "generation_id", "producer_id")
HEARD_MAX = 4
DURATIONS_MS = (0, 1, 6_000, 60_000, -1, 2**31 - 1)
COUNTS = (0, 1, 2, -1, -2)
ENDS = {kind: (2**bits - 1, -(2**bits)) for kind, bits in INTEGER_BITS.items()}


class RequestMaker(MessageMaker):
    """Values that name things that exist, lie on the edges of their ranges, or look like records."""

    strings = NAMES + SETTINGS

    def __init__(self, source: random.Random) -> None:
        super().__init__(source)
        self.topic_ids: tuple[bytes, ...] = (bytes(16),)
        self.heard: dict[str, deque[Any]] = {name: deque(maxlen=HEARD_MAX) for name in REPEATED}

    def listen(self, answer: Any) -> None:
        """Remember the ids that the broker gave, to use them in later requests."""
        for name, values in self.heard.items():
            value = getattr(answer, name, None)
            if value:
                values.append(value)

    def plain(self, kind: str, name: str) -> Any:
        heard = self.heard.get(name)
        if heard and self.source.random() < 0.7:
            return self.source.choice(heard)
        if name == "group_id" and self.source.random() < 0.7:
            return "group"
        if kind == "records":
            return self.records()
        if kind == "uuid":
            return self.source.choice((*self.topic_ids, self.source.randbytes(16)))
        return super().plain(kind, name)

    def integer(self, kind: str, name: str) -> int:
        if kind in ("int32", "int64") and name.endswith("_ms"):
            return self.source.choice(DURATIONS_MS)
        if name == "resource_type":
            return self.source.choice((2, 4, 8, 16, 32, 0, -1))
        if self.source.random() < 0.1:
            return self.source.choice(ENDS.get(kind, (65_535, 0)))
        return self.source.choice(COUNTS)

    def records(self) -> bytes:
        """A batch, whole or damaged; half of the damaged ones with a CRC that says that all is well."""
        source = self.source
        keys = (None, b"key", b"k" * 200)
        content = [(1_700_000_000_000 + n, source.choice(keys), b"value", ()) for n in range(source.randrange(1, 4))]
        producer = source.choice((-1, 4_000, 4_001))
        batch = build_batch(
            content,
            producer_id=producer,
            producer_epoch=min(producer, 0),
            base_sequence=min(producer, source.randrange(3)),
            compression=source.randrange(5),
            transactional=source.random() < 0.1,
        )
        if source.random() < 0.5:
            flip_bits(batch, source, source.randrange(1, 4))
            if source.random() < 0.5:
                seal(batch, 0, len(batch))
        return bytes(batch) * source.choice((1, 1, 1, 2))


def flip_bits(data: bytearray, source: random.Random, count: int) -> None:
    for _ in range(count):
        data[source.randrange(len(data))] ^= 1 << source.randrange(8)


def valid_frame(key: ApiKey, version: int, maker: MessageMaker) -> bytes:
    """A request without its length."""
    message = maker.make(request_class(key).__name__, version)
    return b"".join(request_frame(key, version, CORRELATION_ID, CLIENT_ID, message))[4:]


def damaged_frames(frame: bytes, source: random.Random) -> Iterator[bytes]:
    """The frame cut short, made longer, with flipped bits, and with a tail of chance."""
    yield frame[: source.randrange(len(frame))]
    yield frame[: source.randrange(8, len(frame))]
    yield frame + source.randbytes(source.randrange(1, 40))
    for count in (1, 1, 2, 8):
        flipped = bytearray(frame)
        flip_bits(flipped, source, count)
        yield bytes(flipped)
    for _ in range(2):
        keep = source.randrange(8, len(frame))
        yield frame[:keep] + source.randbytes(len(frame) - keep)
    grown = bytearray(frame)
    position = source.randrange(8, len(frame))
    grown[position:position] = source.choice((b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff", b"\x80" * 6, b"\xff\xff"))
    yield bytes(grown)
