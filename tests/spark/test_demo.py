"""The demo's second act with few purchases: every kill finds its moment, and the audit finds everything once."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.extras import require_arrow

require_arrow()
pytest.importorskip("pyspark.sql.streaming.datasource", reason="the demo needs PySpark 4.2")

from tests.peers.build import require_java  # noqa: E402

pytestmark = pytest.mark.timeout(1500)


def test_the_shop_survives_kills_of_workers_broker_and_driver() -> None:
    require_java()
    command = [str(Path(sys.executable).with_name("fencepost")), "demo", "--act", "2", "--json", "--purchases", "60"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["act_two"]
    assert found["exactly_once"] is True
    assert found["purchases"] == found["invoices"] == found["shipments"] >= 60
    assert [found[name] for name in ("lost", "duplicated", "torn", "disagreeing", "dead_letters")] == [0] * 5
    assert [kill["target"] for kill in found["kills"]] == ["worker", "broker", "driver", "worker"]
    assert found["crashes_survived"] == 4
    assert found["driver_starts"] >= 2
