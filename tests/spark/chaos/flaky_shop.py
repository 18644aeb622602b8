"""The shop, some of whose tasks fail: a row in a few hundred raises, by chance, so that a second try may succeed."""

import importlib.util
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fencepost.spark import Output, pipeline

FAILURES = 0.002

_file = Path(__file__).parents[3] / "examples" / "shop.py"
_spec = importlib.util.spec_from_file_location("shop_example", _file)
assert _spec is not None
assert _spec.loader is not None
_example = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_example)


def _sometimes_fail(batches: Iterator[Any], failures: float = FAILURES) -> Iterator[Any]:
    for batch in batches:
        if random.random() < 1 - (1 - failures) ** batch.num_rows:
            raise RuntimeError("a row that fails by chance")
        yield batch


@pipeline(
    "shop",
    source="purchases",
    schema="purchase_id string NOT NULL, customer string NOT NULL, item string, quantity int, price_cents bigint",
    outputs=[Output("invoices", key="purchase_id"), Output("shipments", key="purchase_id")],
    dead_letter="purchases.dlq",
)
def shop(purchases: Any, once: Any) -> dict[str, Any]:
    return _example.shop.transform(purchases.mapInArrow(_sometimes_fail, purchases.schema), once)
