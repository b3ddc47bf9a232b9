"""The page of docs that is made of the benches' figures."""

import importlib
import inspect
import re

import pytest

from bench import performance_page
from bench.performance_page import SECTIONS, human, page
from console.management.commands.bench import BENCHES, get_module_name

ROWS = [row for rows in SECTIONS.values() for row in rows]
MACHINE = {"cores": 2, "memory_bytes": 24 * 2**30, "python": "3.11", "system": "Linux", "load1": 0.5}


def document(value):
    """A run in which every figure of the page is the same."""
    benches = {}
    for row in ROWS:
        bench = benches.setdefault(row.bench, {"name": row.bench, "figures": {}, "peers": {}, "machine": MACHINE})
        bench["figures"][row.figure] = value
        if row.peer:
            bench["peers"][row.peer[1]] = value
    return {"benches": list(benches.values())}


@pytest.mark.parametrize("value", [0.0, 3.2e-7, 0.4, 7.0, 123_456.7, 9.87e9])
def test_every_row_is_on_the_page_and_no_line_is_too_wide(value):
    made = page([document(value)])
    assert max(map(len, made.splitlines())) <= 120
    assert len(re.findall(r"^\| (?!Metric|---)", made, re.MULTILINE)) == len(ROWS)


def test_what_was_not_measured_has_no_row_and_the_last_run_counts():
    first, second = document(1.0), document(2.0)
    second["benches"] = [each for each in second["benches"] if each["name"] == "tick"]
    made = page([{"benches": first["benches"][:1]}, *second["benches"]])
    assert "| tick of 100 loops | 2 s |" in made and "## The console" not in made
    with pytest.raises(ValueError, match="no bench"):
        page([{"benches": []}])


def test_what_was_not_measured_again_stays_with_a_mark_and_is_marked_once():
    first, second = page([document(1.0)]), document(2.0)
    of_ticks = [each for each in second["benches"] if each["name"] == "tick"]
    made = page([{"benches": of_ticks}], first)
    assert "| tick of 100 loops | 2 s |" in made and "| update of 1,000 sockets, p95 | 1 s° |" in made
    assert len(re.findall(r"^\| (?!Metric|---)", made, re.MULTILINE)) == len(ROWS)
    again = page([{"benches": of_ticks}], made)
    assert again == made and "°°" not in again
    assert "°" not in page([document(3.0)], again)


def test_it_says_how_quick_the_host_was():
    quick, slow = (
        {**bench, "machine": {**MACHINE, "loop_seconds": seconds}}
        for bench, seconds in zip(document(1.0)["benches"], (0.7, 2.1), strict=False)
    )
    assert "load 0.5;\nten million additions in Python took 0.7 s)" in page([quick])
    assert "took 0.7 to 2.1 s)" in page([quick, slow])


def test_a_full_bar_is_the_target_whether_more_or_less_is_wanted():
    for row in ROWS:
        if row.target is not None:
            bench = {"figures": {row.figure: row.target}, "peers": {}, "machine": MACHINE}
            line = performance_page._line(row, bench)
            assert line.count("█") == 8, line


def test_every_figure_is_one_that_its_bench_knows():
    """Names that a bench puts together stand in its source in pieces."""
    for row in ROWS:
        assert row.bench in BENCHES
        source = inspect.getsource(importlib.import_module(get_module_name(row.bench)))
        pieces = [row.figure, *(row.figure.split("_", n)[n] for n in range(1, row.figure.count("_") + 1))]
        assert any(piece in source for piece in pieces) or row.bench in ("shedding", "tick"), row.figure


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [(1_234_567, "events/s", "1.23 M events/s"), (0.0123, "s", "12.3 ms"), (2.4e9, "B", "2.4 GB"), (0.9, "", "0.9")],
)
def test_figures_have_three_digits_and_a_prefix(value, unit, words):
    assert human(value, unit) == words
