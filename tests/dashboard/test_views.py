"""Every view of the page on Fencepost and on Apache Kafka, with one scene of which everything is known."""

import asyncio
from typing import Any
from urllib.parse import quote

import pytest

from fencepost.client import TopicPartition
from fencepost.insight.cluster_view import ClusterView
from fencepost.insight.partition_scan import PartitionScan
from tests.dashboard.conftest import Shown
from tests.dashboard.scene import ABORTS, APPLICATION, COMMITS, LONG_MS, PER_TRANSACTION, PIPELINE, TOPIC

pytestmark = pytest.mark.timeout(300)
SHOP_IDS = ["shop-abort", "shop-behind", "shop-commit", "shop-fenced", "shop-open"]
IDS = {*SHOP_IDS, PIPELINE}


def test_the_session_says_what_it_is_connected_to_and_what_cannot_be_seen(shown: Shown) -> None:
    session = shown.page.document("/api/session")
    assert session["bootstrap"] == shown.broker.bootstrap_servers
    assert session["is_fencepost"] == shown.is_fencepost
    assert session["cluster_id"]
    assert [f"{each['host']}:{each['port']}" for each in session["brokers"]] == [shown.broker.bootstrap_servers]
    assert (session["actions_allowed"], session["needs_token"]) == (False, False)
    assert any("no journal of causes" in note for note in session["notes"]) == (not shown.is_fencepost)


def test_the_overview_counts_what_ended_and_names_what_is_open(shown: Shown) -> None:
    overview = shown.overview
    assert overview["source"] == "log"
    assert overview["note"] is None
    assert overview["totals"]["ids"] == len(IDS)
    assert overview["totals"]["open"] == overview["states"]["Ongoing"] == 1
    assert sum(overview["states"].values()) == len(IDS)
    commits, aborts = COMMITS + 2 + 1, ABORTS + 1 + 1  # with those of the pipeline, behind the open one, and the fenced
    ended = [each["outcome"] for each in overview["recent"]]
    assert (ended.count("commit"), ended.count("abort")) == (commits, aborts)
    assert (sum(overview["rates"]["commits"]), sum(overview["rates"]["aborts"])) == (commits, aborts)
    assert len(overview["rates"]["commits"]) == len(overview["latency"]["p50_ms"]) == 300
    assert any(each is not None for each in overview["latency"]["p99_ms"])
    assert any(each is not None for each in overview["duration"]["p50_ms"])
    newest = overview["recent"][0]
    assert newest["transactional_id"] == "shop-behind"
    assert newest["start_ms"] <= newest["prepared_ms"] <= newest["completed_ms"]
    assert newest["partition_count"] == 1
    oldest = overview["oldest_open"]
    assert (oldest["transactional_id"], oldest["state"], oldest["timeout_ms"]) == ("shop-open", "Ongoing", LONG_MS)
    held = {(each["topic"], each["partition"]): each for each in overview["held"]}
    assert held[TOPIC, 0]["transactional_id"] == "shop-open"
    assert held[TOPIC, 0]["last_stable_offset"] < held[TOPIC, 0]["high_watermark"]
    assert overview["held_count"] == len(held) == 2, "the other one is in __consumer_offsets"


def test_the_client_of_the_oldest_open_transaction_is_named_where_it_is_recorded(shown: Shown) -> None:
    with shown.page.events("view=overview") as events:
        found = events.next("overview", lambda document: document["oldest_open"]["age_ms"] > 2_500)
    client = found["oldest_open"]["client"]
    assert client == ("night-shift at 127.0.0.1" if shown.is_fencepost else None)


def test_the_table_is_searched_filtered_sorted_and_cut(shown: Shown) -> None:
    def ids(query: str) -> list[str]:
        return [row["transactional_id"] for row in shown.page.document(f"/api/transactions?{query}")["rows"]]

    table = shown.page.document("/api/transactions?q=shop-")
    assert table["total"] >= len(IDS)
    assert table["matched"] == len(SHOP_IDS)
    assert table["rows"][0]["transactional_id"] == "shop-open", "the oldest open one comes first"
    assert ids("q=shop-&sort=id&order=asc") == SHOP_IDS
    assert ids("q=shop-&sort=id&order=desc") == SHOP_IDS[::-1]
    assert ids("q=shop-&sort=id&order=asc&limit=2&offset=1") == SHOP_IDS[1:3]
    assert ids("q=shop-a") == ["shop-abort"]
    assert ids("q=shop-&state=Ongoing") == ["shop-open"]
    assert set(ids("q=shop-&state=Ongoing,CompleteAbort")) == {"shop-open", "shop-abort"}
    assert ids("q=shop-&older_than_ms=1") == ["shop-open"]
    assert ids(f"q=shop-&older_than_ms={100 * LONG_MS}") == []
    row = shown.page.document("/api/transactions?q=shop-open")["rows"][0]
    assert ids(f"q={row['producer_id']}") == ["shop-open"]
    assert (row["state"], row["timeout_ms"], row["partition_count"]) == ("Ongoing", LONG_MS, 2)
    assert row["age_ms"] >= 0
    assert shown.page.get("/api/transactions?sort=size").status == 400
    assert shown.page.get("/api/transactions?limit=-3").status == 400


def test_an_open_transaction_in_full(shown: Shown) -> None:
    document = shown.page.document("/api/transactions/shop-open")
    assert document["facts"]["state"] == "Ongoing"
    where = f"--bootstrap-server {shown.broker.bootstrap_servers}"
    assert document["history_command"] == f"fencepost explain --id --history shop-open {where}"
    judgement = document["judgement"]
    assert judgement["next_command"] in (None, document["history_command"])
    assert judgement["is_abort_offered"] is False, "its time-out is far, and its client may be at work"
    lanes = document["lanes"]
    assert lanes["coordinator"][0]["state"] == "Empty"
    assert lanes["coordinator"][-1]["state"] == "Ongoing"
    orders = next(lane for lane in lanes["partitions"] if lane["topic"] == TOPIC)
    (span,) = orders["spans"]
    assert (span["records"], span["end"], span["marker_offset"]) == (3, None, None)
    assert orders["leader"] == document["facts"]["coordinator"]
    (pending,) = lanes["groups"]
    assert (pending["group"], pending["topic"], pending["offset"]) == ("readers", TOPIC, 7)
    assert {moment["kind"] for moment in document["facts"]["history"]} >= {"state", "records"}


def test_the_lanes_of_a_fenced_producer_show_epochs_ends_and_causes(shown: Shown) -> None:
    document = shown.page.document("/api/transactions/shop-fenced")
    lanes = document["lanes"]
    (lane,) = lanes["partitions"]
    (span,) = lane["spans"]
    assert (lane["partition"], span["end"], span["records"]) == (1, "ABORT", 1)
    assert span["marker_offset"] > span["last_offset"]
    numbers = [each["producer_epoch"] for each in lanes["epochs"]]
    assert numbers == sorted(numbers)
    assert len(numbers) > 1
    assert document["judgement"]["verdict"] == "healthy"
    if not shown.is_fencepost:
        assert lanes["causes"] is None
        assert {each["client"] for each in lanes["epochs"]} == {None}
        return
    assert "ProducerFenced" in {cause["event"] for cause in lanes["causes"]}
    assert lanes["epochs"][0]["client"] == "first at 127.0.0.1"
    assert lanes["epochs"][-1]["client"] == "second at 127.0.0.1"


def test_a_second_look_reads_what_came_since_and_shows_the_same(shown: Shown) -> None:
    first = shown.page.document("/api/transactions/shop-commit")
    second = shown.page.document("/api/transactions/shop-commit")
    assert first["lanes"] == second["lanes"]
    (lane,) = second["lanes"]["partitions"]
    assert [span["end"] for span in lane["spans"]] == ["COMMIT"] * COMMITS


def test_partitions_with_their_offsets(shown: Shown) -> None:
    found = shown.page.document(f"/api/partitions?q={TOPIC}")
    assert found["matched"] == 2 < found["total"]
    held, free = found["rows"]
    assert (held["topic"], held["partition"], held["is_held"], held["open_transactions"]) == (TOPIC, 0, True, 1)
    assert (free["is_held"], free["open_transactions"]) == (False, 0)
    assert held["log_start_offset"] == 0 < held["last_stable_offset"] < held["high_watermark"]
    assert free["last_stable_offset"] == free["high_watermark"]
    assert shown.page.document(f"/api/partitions?held=1&q={TOPIC}")["matched"] == 1
    assert [row["partition"] for row in shown.page.document(f"/api/partitions?q={TOPIC}&limit=1&offset=1")["rows"]] == [
        1
    ]


def expected_strip(scan: PartitionScan) -> list[tuple[int, int, str]]:
    """First offset, records and kind of each batch, as one walk over the whole log finds them."""
    found = []
    for base_offset, count, transaction in scan.pieces:
        kind = "plain"
        if transaction is not None:
            marker = transaction.marker
            kind = "open" if marker is None else "committed" if marker.is_commit else "aborted"
        found.append((base_offset, count, kind))
    return found


async def rescan(bootstrap_servers: str, partition: TopicPartition) -> PartitionScan:
    async with ClusterView(bootstrap_servers) as view:
        offsets = (await view.offsets([partition]))[partition]
        return await view.scan(partition, 0, offsets.high_watermark)


def covered(strip: dict[str, Any], batches: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """The batches again, each with the kind of the piece that it is in."""
    kinds = {
        offset: piece["kind"]
        for piece in strip["pieces"]
        for offset in range(piece["first_offset"], piece["last_offset"] + 1)
    }
    return [(base, count, kinds[base]) for base, count, _ in batches if base in kinds]


@pytest.mark.parametrize("partition", [0, 1])
def test_the_strip_is_what_a_walk_over_the_whole_log_finds(shown: Shown, partition: int) -> None:
    at = TopicPartition(TOPIC, partition)
    scan = asyncio.run(rescan(shown.broker.bootstrap_servers, at))
    batches = expected_strip(scan)
    kinds = {base: kind for base, _, kind in batches}
    strip = shown.page.document(f"/api/partitions/{TOPIC}/{partition}/strip")
    assert (strip["from"], strip["to"], strip["is_truncated"]) == (0, strip["high_watermark"], False)
    assert covered(strip, batches) == batches
    assert sum(piece["records"] for piece in strip["pieces"]) == sum(count for _, count, _ in batches)
    markers = [(each.marker.offset, each.marker.kind) for each in scan.ended if each.marker]
    assert [(each["offset"], each["kind"]) for each in strip["markers"]] == sorted(markers)
    # Any stretch of it says the same of what it covers, though most of the markers are outside.
    for base, _, _ in batches:
        part = shown.page.document(f"/api/partitions/{TOPIC}/{partition}/strip?from={base}&to={base + 1}")
        (piece,) = part["pieces"]
        assert (piece["first_offset"], piece["kind"]) == (base, kinds[base])


def test_the_pieces_of_a_strip_are_named(shown: Shown) -> None:
    strip = shown.page.document(f"/api/partitions/{TOPIC}/0/strip")
    by_kind = {(piece["kind"], piece["transactional_id"]) for piece in strip["pieces"]}
    assert by_kind == {
        ("plain", None),
        ("committed", "shop-commit"),
        ("aborted", "shop-abort"),
        ("open", "shop-open"),
        ("committed", "shop-behind"),
    }
    assert strip["pieces"][0]["records"] == 4
    assert {piece["records"] for piece in strip["pieces"] if piece["kind"] == "aborted"} == {PER_TRANSACTION}


def test_groups_and_one_with_its_pending_offset(shown: Shown) -> None:
    rows = {row["group_id"]: row for row in shown.page.document("/api/groups")["rows"]}
    assert PIPELINE in rows
    assert rows[PIPELINE]["members"] == 0
    assert [row["group_id"] for row in shown.page.document("/api/groups?q=bill")["rows"]] == [PIPELINE]
    group = shown.page.document("/api/groups/readers")
    (lag,) = group["partitions"]
    assert lag["has_pending_offset"] is True
    assert [each["offset"] for each in lag["pending_offsets"]] == [7]
    billing = shown.page.document(f"/api/groups/{PIPELINE}")
    assert billing["lag_min"] < billing["lag_max"], "the open records count only if they are committed"
    assert shown.page.get("/api/groups/nobody").status == 404


def test_producers_and_who_was_fenced(shown: Shown) -> None:
    found = shown.page.document(f"/api/producers?topic={TOPIC}")
    names = {row["transactional_id"] for row in found["rows"]}
    assert names >= {"shop-commit", "shop-abort", "shop-open", "shop-fenced", PIPELINE}
    (opened,) = (row for row in found["rows"] if row["transaction_start_offset"] >= 0)
    assert (opened["transactional_id"], opened["last_sequence"]) == ("shop-open", 2)
    chosen = shown.page.document(f"/api/producers?q=shop-abort&topic={TOPIC}")
    assert (chosen["matched"], chosen["total"]) == (1, found["total"])
    assert shown.page.get("/api/producers?topic=nowhere").status == 404
    if not shown.is_fencepost:
        assert found["fencings"] is None
        return
    fenced = next(each for each in found["fencings"] if each["transactional_id"] == "shop-fenced")
    assert fenced["text"]
    assert any(each["event"] == "ProducerFenced" for each in found["fencings"])


def test_a_pipeline_is_told_from_its_marks(shown: Shown) -> None:
    (row,) = shown.page.document("/api/pipelines")["rows"]
    assert (row["pipeline"], row["group_id"], row["transactional_ids"]) == (PIPELINE, PIPELINE, [PIPELINE])
    assert row["application"] == (APPLICATION if shown.is_fencepost else None)
    assert row["batch"] == 1
    assert [(each["batch"], each["outcome"]) for each in row["batches"]] == [(1, "commit"), (1, "abort"), (0, "commit")]
    newest = row["batches"][0]
    assert row["last_commit_ms"] == newest["completed_ms"]
    assert row["last_batch_took_ms"] == newest["completed_ms"] - newest["start_ms"] >= 0
    assert row["lag_min"] <= row["lag_max"]


def test_what_is_not_there_is_said_so(shown: Shown) -> None:
    for path in ("/api/transactions/nobody", f"/api/partitions/{quote('no such')}/0/strip", "/api/nothing"):
        answer = shown.page.get(path)
        assert answer.status == 404, path
        assert answer.json["error"]
    assert shown.page.get(f"/api/partitions/{TOPIC}/9/strip").status == 404
    assert shown.page.get("/api/events?view=nothing").status == 400


@pytest.mark.parametrize(
    "query",
    [
        "view=overview",
        "view=transactions&q=shop",
        "view=transaction&id=shop-open",
        "view=partitions&held=1",
        f"view=strip&topic={TOPIC}&partition=0",
        "view=groups",
        "view=group&id=readers",
        f"view=producers&topic={TOPIC}",
        "view=pipelines",
    ],
)
def test_a_stream_begins_with_the_same_document(shown: Shown, query: str) -> None:
    view = query.split("&")[0].removeprefix("view=")
    with shown.page.events(query) as events:
        document = events.next(view)
    assert events.lines[0] == "retry: 1000"
    assert document["at_ms"] > 0
