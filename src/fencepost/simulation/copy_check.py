"""Checks that copiers copied exactly once, by values alone, independently of the history checker.

Every input before a group's position has one output in each output partition of its copier, and none after has one.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from fencepost.simulation.consumers import FinalReader
from fencepost.simulation.transactional_producers import Duty

COPY_MARK = ">"


def check_copies(duties: Iterable[Duty], final: FinalReader) -> Iterator[str]:
    for group, source, outputs in duties:
        if (group, source) not in final.positions:
            continue
        position = final.positions[group, source]
        for target in outputs:
            copied = Counter(
                value.partition(COPY_MARK)[0] for _, value in final.committed[target] if COPY_MARK in value
            )
            for offset, value in final.committed[source]:
                expected = 1 if offset < position else 0
                if copied[value] != expected:
                    yield (
                        f"not-exactly-once: {value} at {source} {offset} was copied {copied[value]} times to {target}; "
                        f"{group} stands at {position}"
                    )
