"""How long tests wait for what must happen: every limit is scaled by one variable, FENCEPOST_TEST_PATIENCE.

A limit says when to give up, never how long something takes: with more patience a test that passes takes as long as
before. On a machine with much else to do: `FENCEPOST_TEST_PATIENCE=8 make test`.
"""

import os

PATIENCE = float(os.environ.get("FENCEPOST_TEST_PATIENCE", "2"))


def patient(seconds: float) -> float:
    """A limit for a wait that ends as soon as what it waits for has happened."""
    return seconds * PATIENCE
