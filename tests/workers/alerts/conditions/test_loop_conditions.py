"""What conditions of loops read from their ticks."""

from dataclasses import replace

import pytest

from tests.workers.alerts.checks import Looks, loop_facts
from workers.alerts.evaluation import evaluator

pytestmark = pytest.mark.django_db


@pytest.fixture
def looks():
    return Looks()


@pytest.mark.parametrize(
    ("condition", "ticks", "value"),
    [
        ("loop_oscillation", [(None, "no action", value) for value in (0, 10, 0, 10, 0, 10)], 4),
        ("loop_saturated", [("maximum_rate", "no action", 1.0)] * 60, 50),
        ("loop_saturated", [("stale measurement", "no action", 1.0)] * 60, 0),
        ("loop_ineffective", [(None, each, 1.0) for each in ("harmful", "effective", "ineffective", "harmful")], 2),
        ("loop_harmful", [(None, each, 1.0) for each in ("harmful", "effective", "harmful")], 2),
        ("loop_stale", [(None, "no action", 1.0)] + [("stale measurement", "no action", None)] * 7, 30),
    ],
)
def test_conditions_of_loops_read_their_ticks(condition, ticks, value, looks):
    reading = next(
        evaluator.CONDITIONS[condition].read(replace(looks.evidence(), loops=[loop_facts(looks, ticks)]), 600.0)
    )
    assert reading.value == value
    assert reading.labels == {"loop": "worker_rate/alert/n1", "queue": "alert", "node": "n1"}


@pytest.mark.parametrize(
    ("limited_by", "seconds", "value"),
    [(None, 40.0, 0), ("nothing to decide", 40.0, 0), (None, 20.0, 3), ("executed workers", 40.0, 3)],
)
def test_actions_without_effect_are_over_once_a_loop_has_wanted_nothing_for_half_a_minute(
    limited_by, seconds, value, looks
):
    """A busy host kept workers of one queue waiting; a minute after it was over, the alert fired."""
    facts = loop_facts(looks, [(None, "ineffective", 1.0)] * 3)
    last = facts.ticks[-1]
    ticks = [replace(each, at=each.at - seconds) for each in facts.ticks]
    ticks.append(replace(last, at=looks.now, acted=False, limited_by=limited_by, verdict="no action"))
    evidence = replace(looks.evidence(), loops=[replace(facts, ticks=ticks)])
    reading = next(evaluator.CONDITIONS["loop_ineffective"].read(evidence, 600.0))
    assert reading.value == value
    assert reading.sentence.startswith("Worker rate of alert on n1: its last 3 actions had no effect")
    assert reading.sentence.endswith("it has requested no change since." if value == 0 else "no effect.")


@pytest.mark.parametrize(
    ("law", "kept", "value"), [("flow", 7.0, 0), ("flow", None, 3), ("ladder", 7.0, 3), ("worker_rate", 7.0, 3)]
)
def test_a_limit_that_only_lasts_on_is_no_act_while_a_ladders_level_and_each_start_of_workers_is(
    law, kept, value, looks
):
    """Flow sets its limit at each tick: after a node had come back, its alert stayed for half an hour."""
    ticks = [(None, "ineffective", 7.0)] * 3
    ticks += [(None, "no action", kept if kept is not None else float(number)) for number in range(8)]
    facts = replace(loop_facts(looks, ticks), law=law, target={"application": "flow", "queue": "alert"})
    evidence = replace(looks.evidence(), loops=[facts])
    assert next(evaluator.CONDITIONS["loop_ineffective"].read(evidence, 600.0)).value == value
