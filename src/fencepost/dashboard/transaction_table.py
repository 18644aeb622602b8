"""The table of transactional ids: searched, filtered, sorted and cut to a page. Pure."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from fencepost.dashboard.transaction_model import IdRow

Key = tuple[Any, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class TableQuery:
    text: str = ""
    """Part of a transactional id, or a producer id."""
    states: frozenset[str] = frozenset()
    """Empty means all."""
    older_than_ms: int = 0
    sort: str = "age"
    is_descending: bool = True
    limit: int = 100
    offset: int = 0


# Ids without the value come last in either order.
SORTS: dict[str, Callable[[IdRow, int], Any]] = {
    "age": lambda row, now_ms: row.age_ms(now_ms),
    "id": lambda row, now_ms: row.transactional_id,
    "state": lambda row, now_ms: row.state,
    "changed": lambda row, now_ms: row.changed_ms,
    "producer": lambda row, now_ms: row.producer_id,
}


def choose(rows: Iterable[IdRow], query: TableQuery, now_ms: int) -> tuple[int, list[IdRow]]:
    """The number of matching rows, and those on the requested page."""
    matched = [row for row in rows if _matches(row, query, now_ms)]
    value = SORTS[query.sort]
    keyed = [(value(row, now_ms), row) for row in matched]
    with_value = sorted(
        ((key, row) for key, row in keyed if key is not None), key=lambda each: each[1].transactional_id
    )
    with_value.sort(key=lambda each: each[0], reverse=query.is_descending)
    without = sorted((row for key, row in keyed if key is None), key=lambda row: row.transactional_id)
    ordered = [row for _, row in with_value] + without
    return len(ordered), ordered[query.offset : query.offset + query.limit]


def _matches(row: IdRow, query: TableQuery, now_ms: int) -> bool:
    if query.states and row.state not in query.states:
        return False
    if query.older_than_ms and (row.age_ms(now_ms) or 0) < query.older_than_ms:
        return False
    return not query.text or query.text in row.transactional_id or query.text == str(row.producer_id)
