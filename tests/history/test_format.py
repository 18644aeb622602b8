"""Recording, reading and explaining: files, threads, broken lines, drawings, and the command."""

import itertools
import json
import threading
import xml.etree.ElementTree
from pathlib import Path
from typing import Any

import pytest

from fencepost.cli.main import run
from fencepost.history import HistoryError, HistoryRecorder, JsonLines, check, read_events, read_files
from fencepost.history.finding_svg import draw_svg
from fencepost.history.finding_text import explain, explain_finding
from tests.history.model import Model
from tests.history.story import P, Q, Story
from tests.history.test_planted import STORIES


def write(path: Path, events: list[dict[str, Any]]) -> Path:
    with JsonLines(path) as sink:
        for event in events:
            sink(event)
    return path


def torn(story: Story) -> Story:
    story.transaction("producer", (P, "one", 0), (Q, "two", 0), transactional_id="billing")
    story.poll("reader", p=[(0, "one")])
    story.final(p=[(0, "one")], q=[])
    return story


def test_a_file_gives_what_was_recorded(tmp_path: Path) -> None:
    events = Model(seed=1).events
    path = write(tmp_path / "history.jsonl", events)
    assert [json.loads(line) for line in path.read_text().splitlines()] == events
    read, kept = read_files([path]), read_events(events)
    assert read.count() == kept.count()
    assert read.events == kept.events == len(events)


def test_files_of_several_processes_are_merged_by_time(tmp_path: Path) -> None:
    events = torn(Story()).events
    paths = [
        write(tmp_path / f"{name}.jsonl", [event for event in events if event["process"] == name])
        for name in ("reader", "final", "producer")
    ]
    assert check(read_files(paths)).as_json() == check(read_events(events)).as_json()


def test_threads_may_share_a_recorder(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    ticks = itertools.count()
    with JsonLines(path) as sink:
        recorder = HistoryRecorder(sink, lambda: float(next(ticks)))

        def work(name: str) -> None:
            for number in range(200):
                operation = recorder.send(name, [(name, number)])
                operation.sent(0, number)
                operation.ok()

        threads = [threading.Thread(target=work, args=(f"process-{number}",)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    history = read_files([path])
    assert history.count() == {("send", "ok"): 1600}
    assert check(history).is_clean


def test_the_last_line_of_a_killed_process_may_be_cut_short(tmp_path: Path) -> None:
    path = write(tmp_path / "history.jsonl", torn(Story()).events)
    whole = read_files([path]).events
    path.write_bytes(path.read_bytes()[:-10])
    assert read_files([path]).events == whole - 1


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("nonsense", "line 1: not a JSON object"),
        ("[1]", "line 1: not a JSON object"),
        ('{"process":"a","type":"invoke"}', "no 'op'"),
        ('{"process":"a","type":"invoke","op":"dance"}', "'dance' is not one of send, poll"),
        ('{"process":"a","type":"ok"}', "a has no running operation"),
        ('{"process":"a","type":"invoke","op":"poll","isolation":"dirty"}', "isolation 'dirty'"),
        ('{"process":"a","type":"invoke","op":"send","do":[["sing"]]}', "'sing' is not one of send"),
        ('{"process":"a","type":"invoke","op":"send","do":[["send","p",[1]]]}', "neither text nor a whole number"),
        ('{"process":"a","type":"invoke","op":"final-read"}', "no 'partitions'"),
    ],
)
def test_a_line_that_is_no_event_is_named(line: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(HistoryError, match=complaint):
        read_files([path])


def test_an_operation_is_completed_once() -> None:
    operation = Story().recorder.poll("reader")
    operation.ok()
    with pytest.raises(RuntimeError, match="completed twice"):
        operation.fail()


def test_a_history_that_says_too_little_says_so() -> None:
    story = Story()
    story.transaction("a", (P, "one", 0), offset=1)
    notes = " ".join(story.report().unjudged)
    for missing in ("no final read", "nobody fetched", "nobody polled"):
        assert missing in notes


def test_a_finding_is_explained_in_words_and_drawn() -> None:
    (finding,) = torn(Story()).report().findings
    assert "\n".join(explain_finding(finding)) == "\n".join(
        [
            '"one" in orders-0 was read, but of the same transaction of producer "two" in orders-1 cannot be read',
            "  producer  A├────●─────┤ok",
            "  reader                      B├────┤ok",
            "  final                                   C├────┤ok",
            '  A  producer, events 1-5: txn of billing; sends "two" to orders-1@0, "one" to orders-0@0; asks to commit;'
            " ok",
            '  B  reader, events 6-8: poll, read_committed; polls orders-0@0 "one"; ok',
            '  C  final, events 9-11: final-read, read_committed; polls orders-0@0 "one"; ok',
        ]
    )


@pytest.mark.parametrize("plant", [story for _, story in STORIES])
def test_everything_can_be_explained_and_drawn(plant: Any) -> None:
    story = Story()
    plant(story)
    report = story.report()
    text = "\n".join(explain(report))
    for finding in report.findings:
        assert finding.message in text
    root = xml.etree.ElementTree.fromstring(draw_svg(report.findings))
    drawn = "".join(root.itertext())
    assert all(finding.message in drawn for finding in report.findings)


def test_of_many_findings_the_first_are_kept_and_all_are_counted() -> None:
    story = Story()
    for number in range(300):
        story.send("a", P, f"value {number}", None)
    story.final(p=[])
    report = story.report()
    assert report.counts["unseen"] == 300
    assert len(report.findings) == 100


def test_the_command_judges_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "history.jsonl", torn(Story()).events)
    picture = tmp_path / "findings.svg"
    assert run(["check-history", str(path), "--svg", str(picture)]) == 1
    text = capsys.readouterr().out
    assert "torn-transaction: 1 found" in text
    assert "A├────●─────┤ok" in text
    assert picture.read_text().startswith("<svg")
    assert run(["check-history", str(path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["anomalies"] == {"torn-transaction": 1}


def test_the_command_is_content_with_a_clean_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "history.jsonl", Model(seed=2).events)
    assert run(["check-history", str(path)]) == 0
    assert "no anomaly found" in capsys.readouterr().out


def test_the_command_says_in_one_line_what_it_cannot_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "history.jsonl"
    assert run(["check-history", str(path)]) == 1
    assert "cannot read" in capsys.readouterr().err
    path.write_text("nonsense\n")
    assert run(["check-history", str(path)]) == 1
    assert "line 1: not a JSON object" in capsys.readouterr().err
