"""A cluster that hides __transaction_state, as managed ones do: the page says so and lists instead."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from fencepost.client.errors import BrokerError
from fencepost.client.kafka_types import IsolationLevel, ListedOffset, TopicMetadata
from fencepost.dashboard import cluster_watch
from fencepost.dashboard.page_context import Page, Parameters
from fencepost.dashboard.views.overview import overview
from fencepost.dashboard.views.session import session
from fencepost.dashboard.views.transactions import transaction, transactions
from fencepost.insight.cluster_view import ClusterView
from fencepost.internal_topic_names import TRANSACTION_STATE
from fencepost.topic_partition import TopicPartition
from fencepost.wire.errors import ErrorCode
from tests.dashboard.conftest import Shown

pytestmark = pytest.mark.timeout(300)


class UnlistedView(ClusterView):
    """Leaves the topic out."""

    async def list_topics(self) -> list[TopicMetadata]:
        return [each for each in await super().list_topics() if each.name != TRANSACTION_STATE]

    async def describe_topic(self, name: str) -> TopicMetadata:
        if name == TRANSACTION_STATE:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name}")
        return await super().describe_topic(name)


class RefusingView(ClusterView):
    """Shows the topic, and refuses to say more of it."""

    async def list_offsets(
        self,
        timestamps: Mapping[TopicPartition, int],
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, ListedOffset]:
        if any(at.topic == TRANSACTION_STATE for at in timestamps):
            raise BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "partition")
        return await super().list_offsets(timestamps, isolation_level)

    async def describe_topic(self, name: str) -> TopicMetadata:
        if name == TRANSACTION_STATE:
            raise BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"topic {name}")
        return await super().describe_topic(name)


async def looked_at(kind: type[ClusterView], bootstrap_servers: str) -> dict[str, Any]:
    async with kind(bootstrap_servers) as view:
        page = Page(view)
        for _ in range(2):
            await page.watch.look()
        assert page.watch.trouble is None
        nothing = Parameters({})
        return {
            "session": await session(page),
            "overview": await overview(page, nothing) if kind is UnlistedView else None,
            "transactions": await transactions(page, Parameters({"q": "shop-"})),
            "transaction": await transaction(page, Parameters({"id": "shop-open"})),
        }


@pytest.mark.parametrize("kind", [UnlistedView, RefusingView])
def test_where_the_states_are_hidden_ids_are_listed_and_it_is_said(
    shown: Shown, kind: type[ClusterView], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_watch, "ABSENT_SECONDS", 0)
    found = asyncio.run(looked_at(kind, shown.broker.bootstrap_servers))
    assert any("does not show __transaction_state" in note for note in found["session"]["notes"])
    table = found["transactions"]
    assert (table["source"], table["matched"]) == ("polling", 5)
    rows = {row["transactional_id"]: row for row in table["rows"]}
    assert rows["shop-open"]["state"] == "Ongoing"
    assert rows["shop-open"]["age_ms"] >= 0, "what is open was described"
    assert rows["shop-commit"]["producer_epoch"] is not None, "so was what is shown"
    assert found["transaction"]["facts"]["is_transaction_state_hidden"] is True
    assert found["transaction"]["lanes"]["coordinator"] == []
    if found["overview"] is not None:
        document = found["overview"]
        assert document["source"] == "polling"
        assert "rates and latencies are unknown" in document["note"]
        assert (document["rates"]["commits"], document["latency"]["p50_ms"]) == ([], [])
        assert document["totals"]["open"] >= 1
        assert document["oldest_open"]["transactional_id"] == "shop-open"
