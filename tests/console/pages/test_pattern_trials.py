"""Trials on the page of a declaration: matches, reasons, the newest events, limits, and permissions."""

import json

import pytest
from django.urls import reverse

from console.actions import pattern_trials
from console.actions.pattern_trials import MAX_BYTES, MAX_EVENTS
from console.embedded.seeding import seed
from console.models import AuditEntry, QueueLimit, Submission
from queues.events.block import BlockIds, cut, from_events
from queues.models import Queue
from queues.segments.segment import Segment
from tests.console.page_form import source_of
from tests.console.pipeline_sample import DECLARATION
from workers.models import PipelineVersion
from workers.pipeline.declaration.declared import Declarations, DeclarationText
from workers.pipeline.matching.attempt import AutomatonRules

pytestmark = pytest.mark.django_db
ROWS = [
    {"id": "c1", "time": 0, "type": "cpu", "source": "a", "value": 90},
    {"id": "l1", "time": 5, "type": "load", "source": "a", "value": 3},
    {"id": "c2", "time": 10, "type": "cpu", "source": "a", "value": 80},
    {"id": "c3", "time": 100, "type": "cpu", "source": "<b>b</b>", "value": 95},
]
BUSY = DECLARATION.replace("busy: 'value > 85'", "busy: \"type = 'cpu' and value > 85\"")


@pytest.fixture
def at_work(control, stored_snapshot):
    Declarations(control).note_at_work(DeclarationText("performance", 0, DECLARATION))
    for name, kind in (("telemetry", "pipeline"), ("alert", "jobs")):
        Queue.objects.create(name=name, kind=kind)


def attempt(client, rows=ROWS, pattern="load-rises", text=BUSY):
    events = rows if isinstance(rows, str) else "\n".join(map(json.dumps, rows))
    posted = {"text": text, "pattern": pattern, "events": events}
    return client.post(reverse("pattern-trial", args=["performance"]), posted)


def test_a_trial_shows_matches_and_reasons_and_changes_nothing(browsers, at_work):
    answer = attempt(browsers["operator"])
    found = answer.json()
    assert answer.status_code == 200 and found["sentence"] == "1 match. 2 of 4 events matched."
    assert found["matches"] == [
        {"number": 1, "events": ["c1", "l1"], "measures": [], "conditions": [], "suppressed": False}
    ]
    said = {event["id"]: event["reasons"] for event in found["events"]}
    assert said["c2"] == ["Doesn't fit busy: busy.value 80 > 85 is false."]
    assert said["c3"] == ["Starts a match as busy. The next step, load, is missing.", "No further events."]
    assert not (AuditEntry.objects.exists() or Submission.objects.exists() or PipelineVersion.objects.exists())


def test_a_later_pattern_is_tried_with_the_complex_events_of_earlier_ones(browsers, at_work):
    rows = [*ROWS[:2], {**ROWS[0], "id": "c4", "time": 20}, {**ROWS[1], "id": "l2", "time": 25}]
    found = attempt(browsers["operator"], rows, "outage").json()
    assert found["matches"][0]["events"] == ["load-rises:0", "load-rises:1"]


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        ({"rows": ""}, "Events", "are missing"),
        ({"rows": [{"type": "a"}, {"type": 2.5}]}, "Events, line 2", "type"),
        ({"rows": '[{"time": "soon"}]'}, "Events[0].time", "must be a time"),
        ({"rows": "x" * (MAX_BYTES + 1)}, "Events", "must have at most 256 KiB, not 256 KiB"),
        ({"rows": "{}\n" * (MAX_EVENTS + 1)}, "Events", "must be at most 500 events, not 501"),
        ({"pattern": "other"}, "Pattern", "'other' is not a pattern of performance; choose one of load-rises, outage"),
        ({"text": ""}, "Text", "is missing"),
        ({"text": BUSY.replace("[telemetry]", "[nowhere]")}, "Queues", "nowhere is not a queue"),
    ],
)
def test_invalid_input_is_refused_by_field_and_line(browsers, at_work, change, field, says):
    answer = attempt(browsers["operator"], **change)
    errors = answer.json()["errors"]
    assert answer.status_code == 422 and list(errors) == [field] and says in errors[field][0], errors


def test_an_error_of_the_declaration_names_its_line(browsers, at_work):
    answer = attempt(browsers["operator"], text=BUSY.replace("SEQ(busy; load)", "SEQ(busy; "))
    assert answer.json()["line"] == 10


def test_a_viewer_cannot_run_a_trial_and_sees_no_form(browsers, at_work):
    assert attempt(browsers["viewer"]).status_code == 403
    address = reverse("pattern-trial-events", args=["performance"])
    assert browsers["viewer"].post(address, {"text": BUSY}).status_code == 403
    page = reverse("pipeline-declaration", args=["performance"])
    assert "Try a pattern" not in source_of(browsers["viewer"].get(page))
    text = source_of(browsers["operator"].get(f"{page}?pattern=outage"))
    assert "Try a pattern" in text and "selected>outage</option>" in " ".join(text.split())


def test_a_search_that_takes_too_long_is_stopped_and_recorded(people, at_work):
    """From its second call on, the clock returns the end of the limit."""
    actor, times = actor_of_name(people, "operator"), iter([0.0, *[1e9] * 1_000])
    rows = [{"id": f"e{at}", "time": at / 1000, "type": "cpu", "source": "a", "value": 90} for at in range(300)]
    with pytest.raises(pattern_trials.Forbidden, match="take more than 2 s to match"):
        pattern_trials.try_pattern(
            actor, BUSY, "load-rises", "\n".join(map(json.dumps, rows)), monotonic=lambda: next(times)
        )
    assert AuditEntry.objects.get(action="refused.pipeline.declare").target == "performance/load-rises"


HOSTILE = """
name: performance
queues: [telemetry]
sink: alert
key: source
patterns:
  - name: many
    pattern: SEQ(A+; C+; NOT N; B)
    define:
      A: "type = 'a'"
      C: "type = 'a' and value > A.value"
      N: "type = 'n' and value < A.value - C.value"
      B: "type = 'b'"
    within_seconds: 3600
"""


def try_hostile(people, events: int, others: int, monotonic):
    """Try the pattern with events of which each doubles the choices, and events that each branch passes over."""
    types = ["a"] * events + ["n"] * others
    rows = [{"id": f"e{at}", "time": at, "type": type, "source": "x", "value": at} for at, type in enumerate(types)]
    text = "\n".join(map(json.dumps, rows))
    return pattern_trials.try_pattern(actor_of_name(people, "operator"), HOSTILE, "many", text, monotonic)


def test_the_steps_of_all_parts_of_a_trial_count_for_its_time(people, at_work, monkeypatch):
    """A step takes 12 µs here, so that the recorded search ends in time, but the matcher does not."""
    now = 0.0
    for name in ("list_takes", "pass_over"):
        original = getattr(AutomatonRules, name)

        def step(rules, *arguments, original=original):
            nonlocal now
            now += 12e-6
            return original(rules, *arguments)

        monkeypatch.setattr(AutomatonRules, name, step)
    with pytest.raises(pattern_trials.Forbidden, match="take more than 2 s to match"):
        try_hostile(people, 200, 300, lambda: now)
    assert now == pytest.approx(pattern_trials.MAX_SECONDS, abs=0.01)


def test_a_trial_with_too_many_branches_is_stopped_and_recorded(people, at_work):
    with pytest.raises(pattern_trials.Forbidden, match="have more than 50,000 branches"):
        try_hostile(people, 500, 0, lambda: 0.0)
    assert AuditEntry.objects.get(action="refused.pipeline.declare").target == "performance/many"


def actor_of_name(people, name):
    return pattern_trials.Actor(name, "operator", people[name])


@pytest.fixture
def waiting(control, nodes):
    """Two events of the queue telemetry on n1, one with attributes."""
    seed(control, {"WEIR_NODES": " ".join(f"{name}={server.url}" for name, server in nodes.items())})
    rows = [{"id": "w1", "type": "t", "attributes": {"host": "<b>"}}, {"id": "w2", "type": "t", "value": 3}]
    Segment(nodes["n1"].client(), "telemetry").publish(cut(from_events(rows, 1_000_000), BlockIds()))


def newest(client, text=BUSY):
    return client.post(reverse("pattern-trial-events", args=["performance"]), {"text": text})


def test_the_newest_waiting_events_are_loaded_as_lines_and_that_is_recorded(browsers, waiting):
    found = newest(browsers["operator"]).json()
    lines = [json.loads(line) for line in found["events"].splitlines()]
    assert [line["id"] for line in lines] == ["w1", "w2"] and lines[0]["attributes"] == {"host": "<b>"}
    assert found["sentence"].startswith("Loaded 2 waiting events.") and found["notes"] == []
    seen = AuditEntry.objects.filter(action="queue.peek").values_list("target", flat=True)
    assert "telemetry/n1" in seen
    assert attempt(browsers["operator"], found["events"]).json()["sentence"] == "No matches. 0 of 2 events matched."


def test_events_of_queues_that_a_user_may_not_see_are_not_loaded(browsers, people, waiting):
    QueueLimit.objects.create(user=people["operator"], queues=["alert"])
    assert newest(browsers["operator"]).status_code == 403


def test_without_waiting_events_or_queues_it_says_so(browsers, at_work):
    found = newest(browsers["operator"]).json()
    assert found["events"] == "" and found["sentence"].startswith("No events are waiting in the queues.")
    assert list(newest(browsers["operator"], "name: x").json()["errors"]) == ["Queues"]
