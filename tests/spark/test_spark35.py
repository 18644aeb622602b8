"""The sink on Spark 3.5, with Spark's own Kafka source: its tests once more, in an environment that has PySpark 3.5."""

import os
import subprocess

import pytest

from tests.peers.build import BUILD, REPOSITORY, missing, set_up
from tests.support.patience import patient

TIMEOUT_SECONDS = patient(600)


@pytest.mark.timeout(TIMEOUT_SECONDS + 60)
@pytest.mark.parametrize(
    ("file", "chosen"), [("test_sink_stream.py", "not apache"), ("test_failure_signs.py", "lost_processes")]
)
def test_the_sink_passes_its_tests_on_spark_3_5(file: str, chosen: str) -> None:
    set_up()
    python = BUILD / "venv35" / "bin" / "python"
    if not python.exists():
        missing("PySpark 3.5 is not in peers/.build/venv35 (run peers/setup)")
    asked = [python, "-c", "import pyspark; print(pyspark.__version__)"]
    version = subprocess.run(asked, capture_output=True, text=True)
    assert version.stdout.startswith("3.5."), version.stdout + version.stderr
    done = subprocess.run(
        [python, "-m", "pytest", "-p", "no:cacheprovider", "-W", "ignore", f"tests/spark/{file}", "-k", chosen],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=TIMEOUT_SECONDS,
        env={name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYSPARK_"))},
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-2000:]}"
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout, done.stdout
