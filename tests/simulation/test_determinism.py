"""The same seed is the same run: byte for byte, whatever the hash seed, in another process, after other runs."""

import os
import subprocess
import sys
from pathlib import Path

from fencepost.simulation.seed_run import run_seed

PROGRAM = """
import sys
from fencepost.simulation.seed_run import run_seed
result = run_seed(11, 10, trace_file=sys.argv[1])
print(result.digest)
"""


def trace_under(hash_seed: str, path: Path) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_the_same_seed_gives_the_same_trace_under_any_hash_seed(tmp_path: Path) -> None:
    traces = [tmp_path / "one", tmp_path / "other"]
    digests = [trace_under(hash_seed, path) for hash_seed, path in zip(("1", "4242"), traces, strict=True)]
    assert traces[0].read_bytes() == traces[1].read_bytes()
    assert traces[0].stat().st_size > 10_000
    assert digests[0] == digests[1]
    # Nothing that other worlds have left in this process changes it.
    assert [run_seed(2, 3).digest, run_seed(11, 10).digest][1] == digests[0]


def test_another_seed_gives_another_trace() -> None:
    assert run_seed(1, 3).digest != run_seed(2, 3).digest
