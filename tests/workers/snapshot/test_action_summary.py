"""What is being done, and whether it helps: by plans, loops and people, each of whose hands is counted."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.stored_document import replace_fields
from tests.workers.snapshots import snapshot_of
from workers.consumer.handler import get_sink_name
from workers.control.kinds.registry import find_display
from workers.snapshot.evaluate import evaluate_states
from workers.snapshot.health import add_action_summary, format_age

CALM: dict[str, Any] = {
    "at": 1_000.0,
    "health": {"state": "NORMAL", "sentence": "All 3 nodes normal.", "severity": "well"},
    "totals": {"backlog_events": 10, "backlog_trend": "steady", "backlog_seconds": 0.2},
    "nodes": {"n1": {"state": "NORMAL"}},
    "queues": {"alert": {"wait_seconds": 0.2}},
    "plans": [],
    "deeds": [],
    "loops": {"rebalancing": {"law": "rebalancing", "mode": "auto"}},
}


BUSY = {"state": "BUSY", "sentence": "Node n2 is busy: 78 % of its capacity.", "severity": "warning"}


NO_EFFECT = ", without effect: "


def deed(law: str, did: str, at: float, points: int = 0) -> dict[str, Any]:
    return {"law": law, "entry": 1, "at": at, "verdict": "effective", "did": did, "points": points}


def sentence(**changes: Any) -> str:
    """The headline's second line; what is wrong stands in the first, and stays as it is."""
    snapshot = snapshot_of({**CALM, **changes})
    snapshot = replace_fields(snapshot, states=evaluate_states(snapshot))
    found = add_action_summary(snapshot)
    assert found.sentence == snapshot.health.sentence
    return found.doing


def test_what_a_loop_did_is_said_with_its_age_and_its_effect_on_the_backlog():
    deeds = [deed("rebalancing", "moved 120 points", 955.0, 120)]
    totals = {"backlog_events": 900, "backlog_trend": "falling", "backlog_seconds": 9.0}
    told = sentence(health=BUSY, deeds=deeds, totals=totals)
    assert told == "Rebalancing moved 120 points 40 s ago; backlog falling."


def test_what_was_done_before_the_clock_was_set_back_was_not_done_just_now():
    assert sentence(deeds=[deed("rebalancing", "moved 120 points", 4_600.0, 120)]) == ""


def test_while_all_is_well_only_moved_points_are_worth_a_word():
    deeds = [deed("worker_rate", "started 3 workers", 999.0), deed("rebalancing", "moved 120 points", 940.0, 120)]
    assert sentence(deeds=deeds) == "Rebalancing moved 120 points 1 min ago."


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        (
            {"totals": {"worker_slots": 2}, "crowd": {"queue": "slow"}},
            ", without effect: the pool is full (2 of 2 slots)",
        ),
        ({"totals": {"worker_slots": 2, "workers_busy": 1}}, ""),
        (
            {"totals": {"worker_slots": 0}, "queues": {"alert": {"kind": "jobs"}}},
            ", without effect: no worker host runs",
        ),
        (
            {
                "queues": {"telemetry": {"kind": "pipeline", "wait_seconds": 50.0, "waiting_events": 9}},
                "pipeline": {"state": "offline", "age_seconds": 30.0},
            },
            ", which can't help: the pipeline makes no progress",
        ),
    ],
)
def test_of_an_action_that_can_not_help_now_that_is_said(trouble, words):
    deeds = [deed("worker_rate", "started 1 worker", 999.0)]
    told = sentence(health=BUSY, deeds=deeds, **trouble)
    assert told.startswith(f"Worker rate started 1 worker just now{words}")
    assert bool(words) or "," not in told


def test_an_overload_that_no_loop_acts_on_is_said():
    old = [deed("rebalancing", "moved 120 points", 0.0)]
    busy, behind = {"n2": {"state": "BUSY"}}, {"alert": {"wait_seconds": 90.0, "waiting_events": 9}}
    for trouble in ({"nodes": busy}, {"queues": behind}):
        assert sentence(health=BUSY, deeds=old, **trouble).endswith("No loop acted in the last 2 min.")
    assert sentence(health=BUSY, deeds=old) == ""


def test_a_plan_under_way_speaks_for_the_points_it_moves():
    plan = {"id": 12, "state": "running", "points": 120, "progress_share": 0.35}
    deeds = [deed("rebalancing", "moved 120 points", 999.0, 120), deed("worker_rate", "started 3 workers", 999.0)]
    told = sentence(health=BUSY, plans=[plan], deeds=deeds)
    assert told.endswith("Plan 12 moves 120 points, 35 % done; worker rate started 3 workers just now.")


def test_a_proposal_and_a_held_loop_are_shown_also_while_all_is_well():
    plan = {"id": 12, "state": "proposed", "points": 120, "progress_share": 0.0}
    loops = {"worker_rate/alert/n1": {"mode": "hold"}}
    told = sentence(plans=[plan], loops=loops)
    assert told == ("Plan 12 (120 points) is waiting for approval; worker rate/alert/n1 is on hold.")


@pytest.mark.parametrize(
    ("trend", "words"),
    [("falling", "backlog falling"), ("rising", "backlog rising"), ("steady", "backlog steady"), (None, "")],
)
def test_the_backlogs_trend_is_shown_where_it_is_known(trend, words):
    totals = {"backlog_events": 1_000, "backlog_trend": trend, "backlog_seconds": 30.0}
    told = sentence(health=BUSY, totals=totals)
    assert told.lower() == (f"{words}." if words else "")


@pytest.mark.parametrize(
    ("law", "action", "words"),
    [
        ("worker_rate", {"start": 1}, "started 1 worker"),
        ("rebalancing", {"moves": [{"points": 100}, {"points": 20}]}, "moved 120 points"),
        ("node_scaling", {"use": ["n3"], "release": ["n4"], "restore": []}, "added n3 and released n4"),
        ("node_scaling", {"use": [], "release": [], "restore": [{}]}, "restored points"),
        ("flow", {"admit": 412.3456}, "set admit 412.3"),
        ("flow", {"admit": 20_343.2}, "set admit 20,343"),
        ("balance", {"shares": {"a": 0.5, "b": 0.5}}, "set shares of 2 replicas"),
        ("shedding", {"shed": {"p": {"cpu": 0.25, "load": 0.1}}}, "set shedding to up to 25 % of a type"),
        ("shedding", {"shed": {}}, "stopped shedding"),
        ("ladder", {"rung": 4}, "enabled throttling"),
        ("ladder", {"rung": 0}, "disabled all levels"),
        ("a law that is gone", {"valve": 2}, "set valve 2"),
    ],
)
def test_every_action_has_words(law, action, words):
    assert find_display(law).past(action) == words


@given(st.floats(0, 60), st.floats(0, 9))
def test_an_age_changes_at_most_each_ten_seconds(seconds, more):
    assert len({format_age(seconds), format_age(seconds + more)}) <= 2
    assert format_age(59.9) == "50 s ago" and format_age(61) == "1 min ago"


@pytest.mark.parametrize(
    ("handler", "options", "sink"),
    [
        ("parquet", {}, "archive"),
        ("sql", {"table": "alerts", "url": "postgres://me:secret@db/weir"}, "table alerts"),
        ("webhook", {"url": "https://me:secret@feeds.example/in?key=secret"}, "feeds.example"),
        ("python:shop.orders.place", {}, "place"),
        ("noop", {}, "nowhere"),
    ],
)
def test_a_sink_is_named_without_its_secrets(handler, options, sink):
    assert get_sink_name(handler, options) == sink
