"""A digest of everything that happens in a simulated world: two runs are identical if and only if their digests are.

Every frame, fault and event goes into it. The lines themselves are only kept on demand, to examine a seed.
"""

import hashlib
from zlib import crc32

from fencepost.simulation.clock import VirtualClock


class Trace:
    def __init__(self, clock: VirtualClock, *, keeps_lines: bool = False) -> None:
        self._clock = clock
        self._hash = hashlib.blake2b(digest_size=16)
        self.lines: list[str] | None = [] if keeps_lines else None
        self.events = 0

    def add(self, kind: str, number: int, data: bytes) -> None:
        """Bytes that went over a connection, or anything else that has a number."""
        self.note(f"{kind} {number} {len(data)} {crc32(data):08x}")

    def note(self, line: str) -> None:
        self.events += 1
        line = f"{self._clock.monotonic_ms()} {line}"
        self._hash.update(line.encode())
        self._hash.update(b"\n")
        if self.lines is not None:
            self.lines.append(line)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()
