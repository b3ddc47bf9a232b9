"""Others' programs beside the pipeline: no time counts whose answer is not right."""

import json

import pytest

from bench.peers import peers
from bench.peers.work import WINDOW_EVENTS, run_matcher, sequence_events, shorten_window, write_sequence

RIGHT = {"production": [3, 1.5], "None": [1, 0.25]}


@pytest.mark.parametrize(
    ("answer", "is_right"),
    [
        (RIGHT, True),
        ({**RIGHT, "production": [3, 1.5 * (1 + 1e-12)]}, True),
        ({**RIGHT, "production": [4, 1.5]}, False),
        ({**RIGHT, "production": [3, 1.6]}, False),
        ({"production": [3, 1.5]}, False),
    ],
)
def test_sums_may_differ_by_the_order_of_adding_alone(answer, is_right):
    assert peers._alike(answer, RIGHT) == is_right


def test_each_partition_of_a_sequence_is_in_order_and_has_all_events_of_its_keys(tmp_path):
    write_sequence(tmp_path, sequence_events(300, 7))
    rows = [[line.split(",") for line in (tmp_path / "csv" / f"{number}.csv").read_text().split()] for number in (0, 1)]
    keys = [{key for *_, key in part} for part in rows]
    assert not keys[0] & keys[1] and sum(map(len, rows)) == 300
    assert all([int(row[1]) for row in part] == sorted(int(row[1]) for row in part) for part in rows)


def test_what_skips_past_the_last_event_finds_fewer_matches():
    events = sequence_events(3_000, 3)
    once, ends = run_matcher(events, "once")
    skipping, _ = run_matcher(events, "skip-past-last")
    assert once["matches"] > skipping["matches"] > 0 and ends["matches"] == once["matches"]
    assert shorten_window(3) == 3 * WINDOW_EVENTS - 0.5


def test_a_program_that_fails_is_named_with_what_it_said(tmp_path, monkeypatch):
    monkeypatch.setattr(peers, "INSTALLED", tmp_path)
    python = tmp_path / "python" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho no duck >&2; exit 3\n")
    python.chmod(0o700)
    with pytest.raises(RuntimeError, match=r"rules_duckdb.py failed: no duck"):
        peers.program("python", "rules_duckdb.py")
    python.write_text(f"#!/bin/sh\necho noise; echo '{json.dumps({'seconds': 2.0, 'answer': RIGHT})}'\n")
    assert peers.program("python", "rules_duckdb.py") == peers.Ran(2.0, RIGHT)
