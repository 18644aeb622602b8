"""What a web service has that is newer than the last time, exactly once.

The service answers GET /rates?after=ID with a JSON list of {"id": ..., "currency": ..., "rate": ...}, in order of id.

RATES_URL=http://127.0.0.1:8000/rates fencepost connect examples/rest_poller.py
"""

import json
import os
import urllib.request
from collections.abc import Iterator

from fencepost.connect import Record, Transaction, source
from fencepost.connect.records import Position

URL = os.environ.get("RATES_URL", "http://127.0.0.1:8000/rates")


@source("rates", topics={"rates": 3}, every_seconds=5)
def rates(position: Position | None) -> Iterator[Transaction]:
    after = position["id"] if position is not None else 0
    while True:
        # A service that does not answer raises OSError: the task tries again from its last position.
        with urllib.request.urlopen(f"{URL}?after={after}", timeout=10) as answer:
            page = json.load(answer)
        if not page:
            return
        after = page[-1]["id"]
        # One page is one transaction: readers see all of it or nothing.
        yield Transaction([Record("rates", rate, key=rate["currency"]) for rate in page], position={"id": after})
