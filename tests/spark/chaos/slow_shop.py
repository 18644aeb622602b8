"""The shop, one of whose tasks hangs until Spark has run a copy of it elsewhere."""

import os
from collections.abc import Iterator
from typing import Any

from failures import DIRECTORY  # type: ignore[import-not-found]

from fencepost.examples import shop as example
from fencepost.spark.pipelines import Pipeline

PATIENCE_SECONDS = 240.0
_place = os.environ[DIRECTORY]


def _hang_once(batches: Iterator[Any], place: str = _place, patience: float = PATIENCE_SECONDS) -> Iterator[Any]:
    import os
    import time

    from pyspark import TaskContext

    context = TaskContext.get()
    name = f"{context.stageId()}-{context.partitionId()}"
    if context.attemptNumber() == 0:
        try:
            with open(f"{place}/hangs", "x") as file:
                file.write(name)
        except FileExistsError:
            yield from batches
            return
        deadline = time.monotonic() + patience
        while not os.path.exists(f"{place}/copied") and time.monotonic() < deadline:
            time.sleep(0.05)
        yield from batches
        return
    yield from batches
    if os.path.exists(f"{place}/hangs"):
        with open(f"{place}/hangs") as file:
            is_copy = file.read() == name
        if is_copy:
            with open(f"{place}/copied", "w"):
                pass


def _transform(purchases: Any, once: Any) -> Any:
    return example.shop.transform(purchases.mapInArrow(_hang_once, purchases.schema), once)


shop = Pipeline(example.shop.definition, _transform)
