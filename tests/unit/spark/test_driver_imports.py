"""What a driver loads before its first batch."""

import subprocess
import sys

from tests.support.extras import require_arrow

require_arrow()


def test_a_driver_does_not_load_numba_which_takes_a_second_and_only_tasks_need() -> None:
    script = "import sys, fencepost.spark.pipeline_run, fencepost.spark.sink; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
