"""Batches that foreachBatch did not give to the sink (`if df.isEmpty(): return`), and whether the next may go on.

Such a batch leaves no record, so the group is behind the checkpoint as if its offsets had been lost. Two things show
that nothing is missing. Pure.
"""

import dataclasses
from collections.abc import Callable, Mapping

from fencepost.client.values import TopicPartition
from fencepost.spark.markers import Marker

Positions = Mapping[TopicPartition, int]


def without_gap(
    stored: Marker | None,
    query_id: str,
    batch_id: int,
    *,
    is_of_this_run: bool,
    recorded: Positions,
    ends_before: Callable[[], Positions],
) -> Marker | None:
    """The marker as the batch before would have left it, if that one was skipped by the user's code; else as it is.

    `is_of_this_run`: this run has written under the marker. Spark calls foreachBatch with every batch and goes on only
    when it has returned, so what this run did not write it was not meant to write. `recorded` and `ends_before`: where
    the inputs end in the group and, in the checkpoint, after the batch before. If these are the same there were no
    input rows between.
    """
    if stored is None or stored.query_id != query_id or stored.batch_id >= batch_id - 1:
        return stored
    if is_of_this_run or (recorded and dict(recorded) == dict(ends_before())):
        return dataclasses.replace(stored, batch_id=batch_id - 1)
    return stored
