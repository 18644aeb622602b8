"""The views by name, and how often each may be updated while it has viewers."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from fencepost.dashboard.page_context import Page, Parameters
from fencepost.dashboard.views.consumer_groups import group, groups
from fencepost.dashboard.views.fencings import producers
from fencepost.dashboard.views.overview import overview
from fencepost.dashboard.views.partitions import partitions, strip
from fencepost.dashboard.views.pipelines import pipelines
from fencepost.dashboard.views.transactions import transaction, transactions

Make = Callable[[Page, Parameters], Awaitable[dict[str, Any]]]


class View(NamedTuple):
    make: Make
    interval_seconds: float


VIEWS: dict[str, View] = {
    "overview": View(overview, 1.0),
    "transactions": View(transactions, 1.0),
    "transaction": View(transaction, 2.0),
    "partitions": View(partitions, 2.0),
    "strip": View(strip, 2.0),
    "groups": View(groups, 4.0),
    "group": View(group, 3.0),
    "producers": View(producers, 5.0),
    "pipelines": View(pipelines, 4.0),
}
