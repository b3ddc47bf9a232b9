"""Sliding quantiles become criteria: near the true ones, of the window only, without a restart."""

import json

import numpy as np
import pyarrow as pa
import pytest

from queues import keys
from workers.pipeline.events.layout import MonitoredQuantile
from workers.pipeline.tiers.monitor import MIN_EVENTS, Monitor, MonitorStore, Sketches

SLOW = MonitoredQuantile("slow", "value", 0.99, 60.0, "response")


def rows(values, types="response") -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": list(values), "type": [types] * len(values)})


def seen(control, values, writer: str, now_seconds: float, types: str = "response") -> None:
    sketches = Sketches((SLOW,))
    sketches.add(rows(values, types))
    MonitorStore(control, "app").keep(sketches, writer, now_seconds)


def criteria(control) -> dict:
    return json.loads(control.get(keys.PIPELINE_CONTROLS.build("app")) or b"{}").get("criteria", {})


def test_the_criterion_is_near_the_quantile_of_all_tasks_of_the_window(control):
    source = np.random.default_rng(3)
    values = source.exponential(1.0, 40_000)
    for number, part in enumerate(np.split(values, 8)):
        seen(control, part, f"task{number}", 1_000.0 + number)
    seen(control, [1e9] * 500, "other", 1_000.0, types="another type")
    # What is declared is far off: a sketch differs by chance, and what is near is not worth changing.
    shown = Monitor(control, "app", (SLOW,), {"slow": 50.0}, lambda: 1_010.0).step()
    rank = (values <= shown["slow"].value).mean()
    assert abs(rank - 0.99) < 0.015
    assert shown["slow"].events == 40_000
    assert criteria(control) == {"slow": shown["slow"].value}


def test_what_has_left_the_window_counts_no_more(control):
    now = 1_000.0
    seen(control, [100.0] * 200, "a", now)
    monitor = Monitor(control, "app", (SLOW,), {"slow": 5.0}, lambda: now)
    monitor.step()
    assert criteria(control)["slow"] == 100.0
    now += 61.0
    seen(control, [1.0] * 200, "b", now)
    assert monitor.step()["slow"].events == 200
    assert criteria(control)["slow"] == 1.0
    assert control.hlen("weir:pipeline:sketches:app") == 1


def test_what_a_clock_that_was_ahead_has_noted_counts_no_more(control):
    """It would have been in each window until the clock was there again: for a day, or for ever."""
    now = 100_000.0
    seen(control, [100.0] * 200, "ahead", now)
    now -= 86_400.0
    monitor = Monitor(control, "app", (SLOW,), {"slow": 5.0}, lambda: now)
    seen(control, [1.0] * 200, "b", now)
    seen(control, [1.0] * 200, "another host, a little ahead", now + 5.0)
    assert monitor.step()["slow"].events == 400
    assert criteria(control)["slow"] == 1.0
    assert control.hlen("weir:pipeline:sketches:app") == 2


@pytest.mark.parametrize("values", [[], [7.0] * (MIN_EVENTS - 1), [None] * 300])
def test_too_few_values_change_nothing(control, values):
    seen(control, values, "a", 1_000.0)
    Monitor(control, "app", (SLOW,), {"slow": 5.0}, lambda: 1_000.0).step()
    assert criteria(control) == {}


def test_what_a_person_holds_beside_it_stays(control):
    held = {"by_hand": {"value": 3.0, "until_seconds": None, "owner": "ada", "reason": "a test"}}
    control.set(keys.PIPELINE_CONTROLS.build("app"), json.dumps({"held_criteria": held}))
    seen(control, [9.0] * 200, "a", 1_000.0)
    Monitor(control, "app", (SLOW,), {"slow": 5.0, "by_hand": 1.0}, lambda: 1_000.0).step()
    assert criteria(control) == {"slow": 9.0}
    assert json.loads(control.get(keys.PIPELINE_CONTROLS.build("app")))["held_criteria"] == held


def test_a_criterion_that_a_version_declares_anew_or_monitors_no_more_has_its_declared_value(control):
    """What the monitor has steered is of the criteria that it monitors, and of this version."""
    seen(control, [9.0] * 200, "a", 1_000.0)
    Monitor(control, "app", (SLOW,), {"slow": 5.0, "least": 30.0}, lambda: 1_000.0).step()
    assert criteria(control) == {"slow": 9.0}
    Monitor(control, "app", (), {"slow": 5.0, "least": 50.0}, lambda: 1_000.0)
    assert criteria(control) == {}
