"""Whether what came out is exactly what went in: nothing lost, repeated, out of order or torn."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.exactly_once.loops import Input, Loop
from tests.exactly_once.reader import Seen

EXAMPLES = 5


@dataclass(slots=True)
class Verdict:
    """How many records broke each promise; `examples` names the first of them."""

    lost: int = 0
    duplicated: int = 0
    disordered: int = 0
    torn: int = 0
    invented: int = 0
    misplaced: int = 0
    examples: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    @property
    def is_clean(self) -> bool:
        return not any((self.lost, self.duplicated, self.disordered, self.torn, self.invented, self.misplaced))

    def note(self, kind: str, records: Iterable[object]) -> None:
        for record in records:
            setattr(self, kind, getattr(self, kind) + 1)
            if len(self.examples[kind]) < EXAMPLES:
                self.examples[kind].append(str(record))


def judge(loop: Loop, inputs: list[Input], records: list[Seen]) -> Verdict:
    """What a read_committed reader got, against what was put in."""
    verdict = Verdict()
    expected = set(inputs)
    numbers: list[set[Input]] = []
    for index, topic in enumerate(loop.outputs):
        outputs = [record for record in records if record.topic == topic]
        times = Counter(record.input for record in outputs)
        numbers.append(set(times))
        verdict.note("lost", (f"{topic}: {one}" for one in expected - set(times)))
        verdict.note("invented", (f"{topic}: {one}" for one in set(times) - expected))
        repeated = [record for record in outputs if times[record.input] > 1]
        verdict.note("duplicated", repeated[: sum(times.values()) - len(times)])
        verdict.note(
            "misplaced", (one for one in outputs if one.key != (one.input.receiver if index else one.input.sender))
        )
        verdict.note("disordered", _disordered(outputs))
    verdict.note("torn", numbers[0] ^ numbers[1])
    return verdict


def _disordered(outputs: list[Seen]) -> Iterable[Seen]:
    """Records that come after a later one of the same sender and the same key, in the same partition."""
    last: dict[tuple[str, str, int], int] = {}
    for record in outputs:
        place = (record.input.sender, record.key, record.partition)
        if record.input.ordinal < last.get(place, -1):
            yield record
        last[place] = max(record.input.ordinal, last.get(place, -1))
