"""The shop, some of whose tasks fail (`failures.py`, found beside this file)."""

from typing import Any

from failures import sometimes_failing  # type: ignore[import-not-found]

from fencepost.examples import shop as example
from fencepost.spark.pipelines import Pipeline

_fail_sometimes = sometimes_failing()


def _transform(purchases: Any, once: Any) -> Any:
    return example.shop.transform(purchases.mapInArrow(_fail_sometimes, purchases.schema), once)


shop = Pipeline(example.shop.definition, _transform)
