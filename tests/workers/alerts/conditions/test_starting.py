"""The first minutes of a plant on a slow machine wake nobody, and what dies afterwards does."""

import pytest

from common.stored_document import convert_to_plain
from tests.workers.alerts.checks import START, Looks, node, plant, queue, rule
from tests.workers.snapshots import snapshot_of
from workers.alerts.conditions.evidence import STALE, LedgerTick, LoopFacts
from workers.alerts.lifecycle.models import Alert
from workers.alerts.rules.rules import ensure_rules
from workers.snapshot.parts import STARTING_SECONDS, PartsRecord

pytestmark = pytest.mark.django_db
NODES, WORKERS, PIPELINE, CAUGHT_UP = 8, 40, 90, 150  # seconds after the start
HOURS = 7_200.0


@pytest.fixture
def looks():
    made = Looks()
    ensure_rules(made.at)
    return made


def at_second(second: float, record: PartsRecord, pipeline: str | None = "running") -> dict:
    """The plant so long after its start: nodes first, then workers, the pipeline last, and then a backlog."""
    late = {"wait_seconds": 70.0 if second < CAUGHT_UP else 0.2}
    state = pipeline if second >= PIPELINE else ("starting" if second > 30 else "offline")
    document = plant(
        at=START + second,
        nodes={name: node(age_seconds=0.4 if second >= NODES else None) for name in ("n1", "n2")},
        queues={"alert": {**queue(), **late}, "telemetry": {**queue(kind="pipeline"), **late}},
        hosts={"c": {"role": "control"}, "j": {"role": "jobs"}} if second >= WORKERS else {},
        totals={"worker_slots": 2 if second >= WORKERS else 0, "workers_busy": 0, "shed_share": 0.0},
        pipeline={"state": state, "age_seconds": 0.5 if state != "offline" else HOURS, "error": "no worker"},
    )
    if pipeline is None:
        document["pipeline"] = {}
    document["pipeline"]["watermark_lag_seconds"] = 400.0 if second < CAUGHT_UP else 1.0
    for each in document["nodes"].values():
        each["stale"] = second < NODES
    return {**document, "parts": convert_to_plain(record.step(snapshot_of(document), START + second))}


def facts(second: float) -> dict:
    """What the records say: of the run before, until something ticks and publishes again."""
    ran = second >= WORKERS + 10
    ticked = START + second - 2 if ran else START - HOURS
    blind = [LedgerTick(1, ticked - 100, False, None, STALE, "no action")] if ran else []
    ticks = [*blind, LedgerTick(2, ticked, False, None, STALE, "no action")] if second < PIPELINE else []
    target = {"application": "performance"}
    loop = LoopFacts(7, "flow/performance", "flow", target, 2.0, 5.0, ticked, ticks=ticks)
    silent = START - HOURS if second < NODES else START + second
    return {"loops": [loop], "producers": {"host": START + second - silent}, "started_seconds": second}


def walk(looks: Looks, record: PartsRecord, until: int, pipeline: str | None = "running") -> None:
    while looks.now < START + until:
        second = looks.now + 2 - START
        looks.snapshot, looks.more = at_second(second, record, pipeline), facts(second)
        looks.look()


def fired() -> list[str]:
    return sorted({alert.rule_name for alert in Alert.objects.exclude(state="pending")})


@pytest.mark.thorough
def test_the_first_five_minutes_of_a_slow_start_raise_no_alert(looks):
    walk(looks, PartsRecord(), 300)
    assert fired() == []


@pytest.mark.thorough
@pytest.mark.parametrize("pipeline", ["failed", None])
def test_a_pipeline_that_never_comes_or_never_reports_is_an_alert_when_its_time_is_over(looks, pipeline):
    record = PartsRecord()
    walk(looks, record, int(STARTING_SECONDS) - 4, pipeline)
    assert "pipeline-down" not in fired()
    walk(looks, record, int(STARTING_SECONDS) + 60, pipeline)
    assert "pipeline-down" in fired()


def test_a_part_that_dies_later_is_an_alert_at_once(looks):
    record = PartsRecord()
    walk(looks, record, 300)
    walk(looks, record, 330, pipeline="failed")
    assert "pipeline-down" in fired()


def test_conditions_that_do_not_wait_are_heard_during_a_start(looks):
    rule("shed", condition="shedding", title="Events are shed", threshold=1, clear_threshold=1)
    looks.snapshot = at_second(20, PartsRecord())
    looks.snapshot["totals"]["shed_share"] = 0.5
    looks.look()
    assert "shed" in fired()
