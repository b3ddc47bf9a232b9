"""`manage.py publish`, as people and scripts call it."""

import gzip
import io
import json
import re
import sys
from pathlib import Path

import pytest
from django.core.management import call_command
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from queues import throttling
from queues.events.block import decode
from queues.publishing.replay import Pace, limit_events, multiply_events
from queues.segments.segment import Segment
from tests.workers.samples import TIME_US, batch_of

pytestmark = pytest.mark.usefixtures("plant_topology")


def publish(capsys, *arguments):
    """(exit code, the document, standard error)."""
    code = 0
    try:
        call_command("publish", *arguments)
    except SystemExit as end:
        code = int(end.code or 0)
    captured = capsys.readouterr()
    return code, json.loads(captured.out) if captured.out.strip() else {}, captured.err


def stored(nodes, queue="alert"):
    rows = []
    for server in nodes.values():
        for _, block_id, data, _ in Segment(server.client(), queue).read("0-0", "+"):
            rows += decode(block_id, data).batch.to_pylist()
    return rows


def jsonl(path, count):
    lines = [json.dumps({"id": f"e{n}", "time": 1_790_000_000 + n, "type": "t", "value": n}) for n in range(count)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_every_line_is_published_and_counted(tmp_path, nodes, capsys):
    code, document, _ = publish(capsys, "alert", str(jsonl(tmp_path / "e.jsonl", 2000)))
    assert code == 0
    assert (document["published"], document["rejected"]) == (2000, 0)
    assert sum(document["by_container"].values()) == 2000
    assert {row["id"] for row in stored(nodes)} == {f"e{n}" for n in range(2000)}


def test_a_zipped_table_is_read_by_its_columns(tmp_path, nodes, capsys):
    path = tmp_path / "jobs.csv.gz"
    path.write_bytes(gzip.compress(b"when_s,kind,job,cpu\n1790000000,start,j1,0.5\n1790000001,end,j1,\n"))
    named = ("--time", "when_s", "--type", "kind", "--key", "job", "--value", "cpu")
    code, document, _ = publish(capsys, "alert", str(path), *named)
    assert (code, document["published"]) == (0, 2)
    rows = sorted(stored(nodes), key=lambda row: row["time"])
    assert [(row["type"], row["key"], row["value"]) for row in rows] == [("start", "j1", 0.5), ("end", "j1", None)]


def test_malformed_lines_are_named_counted_and_skipped(tmp_path, nodes, capsys):
    path = tmp_path / "e.jsonl"
    bad = ['{"value": "much"}', "not json", '{"time": "yesterday"}']
    path.write_text("\n".join(['{"type": "a"}', *bad, '{"type": "b"}']) + "\n")
    code, document, errors = publish(capsys, "alert", str(path))
    assert (code, document["published"], document["rejected"]) == (0, 2, 3)
    for line in (2, 3, 4):
        assert f"line {line}: " in errors
    assert "value" in errors and "time" in errors
    assert sorted(row["type"] for row in stored(nodes)) == ["a", "b"]


def test_only_the_first_twenty_malformed_lines_are_named(tmp_path, capsys):
    path = tmp_path / "e.jsonl"
    path.write_text('{"type": "a"}\n' + "oops\n" * 30)
    _, document, errors = publish(capsys, "alert", str(path))
    assert document["rejected"] == 30
    assert "line 21: " in errors and "line 22: " not in errors
    assert "10 more" in errors


def test_strict_stops_at_the_first_malformed_line_and_names_it(tmp_path, capsys):
    path = tmp_path / "e.jsonl"
    path.write_text('{"type": "a"}\nnot json\n{"type": "b"}\n')
    code, document, errors = publish(capsys, "alert", str(path), "--strict")
    assert (code, document) == (2, {})
    assert "line 2" in errors and "stored before the error: 0 events" in errors


def test_of_a_damaged_file_all_that_was_read_is_stored_and_counted(tmp_path, nodes, capsys):
    packed = gzip.compress(jsonl(tmp_path / "e.jsonl", 30_000).read_bytes())
    path = tmp_path / "damaged.jsonl.gz"
    path.write_bytes(packed[: len(packed) // 2])
    code, document, errors = publish(capsys, "alert", str(path))
    assert (code, document) == (2, {})
    count = len(stored(nodes))
    assert count and f"stored before the error: {count:,} events" in errors


def test_an_unknown_queue_is_refused_with_the_known_ones(tmp_path, capsys):
    code, _, errors = publish(capsys, "alarms", str(jsonl(tmp_path / "e.jsonl", 1)))
    assert code == 2
    assert "alarms" in errors and "alert, process, telemetry" in errors


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("alert", "no-such-file.csv"), "file"),
        (("alert", "-", "--speed=-1"), "speed"),
        (("alert", "-", "--speed=nan"), "speed"),
        (("alert", "-", "--multiply=0"), "multiply"),
        (("alert", "-", "--limit=0"), "limit"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_published(nodes, capsys, arguments, field):
    code, _, errors = publish(capsys, *arguments)
    assert code == 2 and errors.startswith(f"{field}: ")
    assert stored(nodes) == []


def test_a_column_that_is_not_there_is_named(tmp_path, capsys):
    path = tmp_path / "e.csv"
    path.write_text("a,b\n1,2\n")
    code, _, errors = publish(capsys, "alert", str(path), "--type", "c")
    assert code == 2 and "column c is not in the file" in errors


def test_events_come_from_standard_input(nodes, capsys, monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(b'{"type": "a"}\n{"type": "b"}\n'))
    monkeypatch.setattr(sys, "stdin", stream)
    assert publish(capsys, "alert", "-", "--limit", "1")[1]["published"] == 1
    assert [row["type"] for row in stored(nodes)] == ["a"]


@pytest.mark.parametrize("page", ["README.md", "docs/start/first-steps.md"])
def test_the_second_step_of_a_newcomer_publishes_what_it_says(page, nodes, capsys, monkeypatch):
    text = (Path(__file__).parents[3] / page).read_text(encoding="utf-8")
    ((line, arguments),) = re.findall(r"echo '(.+)' \| \.venv/bin/python manage\.py publish ([^`]+)`", text)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{line}\n".encode())))
    code, document, _ = publish(capsys, *arguments.split())
    assert (code, document["published"], document["rejected"]) == (0, 50_000, 0)
    assert {row["type"] for row in stored(nodes)} == {"login"}


def test_copies_are_events_of_their_own(tmp_path, nodes, capsys):
    publish(capsys, "alert", str(jsonl(tmp_path / "e.jsonl", 2)), "--multiply", "3")
    ids = [row["id"] for row in stored(nodes)]
    assert sorted(ids) == ["e0", "e0#2", "e0#3", "e1", "e1#2", "e1#3"]


def test_a_plant_without_topology_says_what_to_do(control, tmp_path, capsys):
    control.flushall()
    code, _, errors = publish(capsys, "alert", str(jsonl(tmp_path / "e.jsonl", 1)))
    assert code != 0 and "seed" in errors


def test_what_was_rejected_is_in_the_producers_figures(control, tmp_path, capsys):
    path = tmp_path / "e.jsonl"
    path.write_text('{"type": "a"}\noops\n')
    publish(capsys, "alert", str(path))
    row = json.loads(control.hget("weir:producers", "publish|alert") or b"{}")
    assert (row["events"], row["rejected"]) == (1, 1)


@pytest.mark.thorough
@pytest.mark.faults
def test_a_node_killed_while_publishing_loses_nothing(tmp_path, nodes, capsys, monkeypatch):
    def killing(batches, events):
        for place, batch in enumerate(limit_events(batches, events)):
            if place == 1:
                nodes["n2"].kill()
            yield batch

    monkeypatch.setattr("console.management.commands.publish.limit_events", killing)
    count = 120_000
    path = jsonl(tmp_path / "e.jsonl", count)
    code, document, _ = publish(capsys, "alert", str(path), "--limit", str(count))
    assert (code, document["published"]) == (0, count)
    nodes["n2"].start()
    assert {row["id"] for row in stored(nodes)} == {f"e{n}" for n in range(count)}


# Shaping, pure


@pytest.mark.parametrize("speed", [1.0, 10.0])
def test_replay_keeps_the_distances_of_event_time(speed):
    now, sleeps = [100.0], []

    def sleep(seconds):
        sleeps.append(seconds)
        now[0] += seconds

    times_us = [TIME_US + offset for offset in (0, 1_000_000, 1_010_000, 9_000_000)]
    due = []
    for piece in Pace(speed, sleep, lambda: now[0])([batch_of(4, time=times_us)]):
        due += [round(now[0] - 100.0, 3)] * piece.num_rows
    expected = [0.0, 1.0 / speed, 1.0 / speed, 9.0 / speed]
    assert due == pytest.approx(expected, abs=0.02)


@hypothesis_settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 10_000_000), min_size=1, max_size=20), min_size=1, max_size=5))
def test_replay_loses_no_event_and_waits_no_longer_than_the_latest_time(offsets):
    now = [0.0]

    def sleep(seconds):
        now[0] += seconds

    batches = [batch_of(len(each), time=[TIME_US + offset for offset in each]) for each in offsets]
    pieces = list(Pace(1.0, sleep, lambda: now[0])(batches))
    values = [value for piece in pieces for value in piece["time"].to_pylist()]
    assert values == [value for batch in batches for value in batch["time"].to_pylist()]
    assert now[0] <= max(0, max(offset for each in offsets for offset in each) - offsets[0][0]) / 1e6 + 1e-6


@given(st.lists(st.integers(0, 5), max_size=6), st.integers(1, 12))
def test_a_limit_takes_the_first_events_and_reads_no_further(sizes, limit):
    read = []

    def source():
        for size in sizes:
            read.append(size)
            yield batch_of(size)

    assert sum(batch.num_rows for batch in limit_events(source(), limit)) == min(limit, sum(sizes))
    assert sum(read[:-1]) < limit


def test_a_copy_of_an_event_without_an_id_derives_one_from_its_own_block():
    copies = list(multiply_events([batch_of(2)], 2))
    assert [copy["id"].null_count for copy in copies] == [2, 2]


def test_a_throttled_queue_delays_the_command_and_every_event_is_stored(tmp_path, nodes, control, capsys):
    throttling.throttle(control, "alert", 0.5)
    code, document, _ = publish(capsys, "alert", str(jsonl(tmp_path / "e.jsonl", 2000)))
    assert (code, document["published"], len(stored(nodes))) == (0, 2000, 2000)
    assert document["throttled_seconds"] > 0
