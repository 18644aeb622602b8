"""The corpus, input by input: what the fuzzer found worth keeping still does no harm, in bounded memory."""

import importlib
import resource

import pytest

from tests.fuzz import corpus
from tests.fuzz.targets import TARGETS

CORPUS_BYTES_MAX = 1 << 20
GROWTH_BYTES_MAX = 128 << 20


@pytest.mark.parametrize("target", TARGETS)
def test_every_input_that_is_kept_does_no_harm(target: str) -> None:
    run = importlib.import_module(f"tests.fuzz.{target}").run
    inputs = corpus.inputs(target)
    assert inputs, "the corpus is gone"
    before_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    for path in inputs:
        try:
            run(path.read_bytes())
        except BaseException as error:
            error.add_note(f"input {path.name} of {target}")
            raise
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before_bytes < GROWTH_BYTES_MAX


def test_the_corpus_is_small() -> None:
    assert sum(path.stat().st_size for target in TARGETS for path in corpus.inputs(target)) < CORPUS_BYTES_MAX
