"""Damage to the files of a data directory, as a fuzzing target."""

import random

from tests.fuzz.damage import Damage, run, systematic
from tests.fuzz.directory import WAYS_TO_END, file_kind, image

__all__ = ["first_inputs", "run"]

PER_KIND_AND_WAY = 10


def first_inputs() -> list[bytes]:
    """Some damage to every kind of file, after a stop and after a kill."""
    source = random.Random(2)
    made = []
    for way in WAYS_TO_END:
        by_kind: dict[str, list[Damage]] = {}
        for damage in systematic(way):
            by_kind.setdefault(file_kind(damage.path), []).append(damage)
        for damages in by_kind.values():
            made += [one.to_bytes() for one in source.sample(damages, min(PER_KIND_AND_WAY, len(damages)))]
    assert image  # made once, by the first of them
    return made
