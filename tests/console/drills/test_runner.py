"""A drill from its start to its result, on a plant that only records what is done to it."""

from datetime import UTC, datetime, timedelta

import pytest

from common.errors import WeirError
from console.accounts.access import Actor
from console.audit import audit_log
from console.display.formats import format_minutes
from console.drills import records, results
from console.drills.runner import PRODUCTION, DrillRunner, end_interrupted_drills, run_due_drills
from console.drills.scenarios import WARM_UP_SECONDS
from console.models import AuditEntry, Drill
from tests.console.rows import an_alert
from workers.steering import plant_settings

pytestmark = pytest.mark.django_db
BEGIN = datetime(2026, 11, 29, 8, 0, tzinfo=UTC)
SUBJECTS = {"queue": "slow", "node": "n2"}


class RecordingPlant:
    """A plant with the faults that it has now."""

    def __init__(self, fails=()):
        self.faults, self.prepared, self.fails, self.snapshot = {}, [], set(fails), None
        self.while_starting = lambda: None

    def prepare(self, subjects, now):
        self.prepared.append(dict(subjects))

    def prepare_undo(self, kind, subjects):
        return {"before": kind}

    def start(self, kind, subjects, undo, by, now):
        stored = Drill.objects.exclude(started_at=None).get(ended_at=None)
        assert any(record["undo"] == undo for record in stored.faults.values()), "the undo is recorded first"
        self.while_starting()
        if kind in self.fails:
            raise WeirError("The plant has no snapshot yet.")
        self.faults[kind] = undo

    def end(self, kind, subjects, undo, now):
        assert undo == {"before": kind}
        self.faults.pop(kind, None)

    def read_snapshot(self):
        if self.snapshot is None:
            raise WeirError("The plant has no snapshot yet.")
        return self.snapshot

    def close(self):
        pass


def at(seconds):
    return BEGIN + timedelta(seconds=WARM_UP_SECONDS + seconds)


@pytest.fixture
def plant():
    return RecordingPlant()


@pytest.fixture
def run(people, plant):
    """A drill that its starter responds to."""

    def begin(scenario="slow-handler", **fields):
        more = {"starter": "operator", "person": "operator", "due_at": BEGIN, "subjects": SUBJECTS, **fields}
        return DrillRunner(Drill.objects.create(scenario=scenario, **more), plant, BEGIN)

    return begin


@pytest.fixture
def act(people, monkeypatch):
    """An audited action of the operator at an instant."""

    def record(seconds, action, target, after=None):
        monkeypatch.setattr("django.utils.timezone.now", lambda: at(seconds))
        audit_log.record(Actor("operator", "operator", people["operator"]), action, target, after=after)

    return record


def alert_at(seconds, **fields):
    return an_alert(fired_at=at(seconds), began_at=at(seconds), severity="critical", **fields)


def steps(runner, *seconds):
    return [runner.step(at(each)) for each in seconds][-1]


def test_the_fault_starts_after_the_usual_load_and_ends_at_its_time(run, plant):
    runner = run()
    runner.step(BEGIN + timedelta(seconds=1))
    assert plant.faults == {} and runner.drill.started_at is None
    assert steps(runner, 0) and plant.faults == {"slow_handler": {"before": "slow_handler"}}
    assert steps(runner, 299) and plant.faults
    assert steps(runner, 300) and plant.faults == {}


def test_a_drill_with_a_right_action_is_scored_and_recorded(run, plant, act):
    runner = run()
    steps(runner, 0)
    alert = alert_at(65)
    records.note_incident_opened("operator", alert, at(83))
    act(118, "override.set", "concurrency/jobs@here", {"pool_size": 3})
    act(172, "queue.pause", "queue slow", {"consumption": "paused"})
    assert steps(runner, 173)
    alert.resolved_at = at(220)
    alert.save()
    assert not steps(runner, 221, 226)
    drill = Drill.objects.get()
    assert (drill.ending, drill.score, plant.faults) == ("recovered", 91, {})
    assert drill.points == {"notice": 30, "right_action": 46, "no_wrong_action": 15}
    (entry,) = AuditEntry.objects.filter(action="drill.end")
    assert entry.after == {"ending": "recovered", "score": 91, "alerts": [alert.pk]}
    (result,) = results.list_results()
    assert (result.notice_seconds, result.action_seconds, result.recovery_seconds) == (18, 107, 155)


def test_the_debrief_tells_what_happened_in_the_order_of_time(run, act):
    runner = run()
    steps(runner, 0)
    alert = alert_at(65, title="Queue slow falls behind")
    records.note_incident_opened("operator", alert, at(83))
    act(118, "override.set", "concurrency/jobs@here", {"pool_size": 3})
    act(172, "queue.pause", "queue slow", {"consumption": "paused"})
    alert.resolved_at = at(220)
    alert.save()
    steps(runner, 226)
    rows = [(format_minutes(row.seconds), row.mark, row.note) for row in records.build_debrief(Drill.objects.get())]
    assert rows == [
        ("0:00", "fault", ""), ("1:05", "alert", ""), ("1:23", "neutral", "0:18"), ("1:58", "no effect", "\u22125"),
        ("2:52", "right", "1:47"), ("3:40", "over", ""), ("3:46", "over", ""),
    ]  # fmt: skip


def test_the_right_action_ends_the_fault_and_the_drill_soon_after(run, plant, act):
    runner = run()
    steps(runner, 0)
    alert_at(65)
    act(100, "queue.pause", "queue slow", {"consumption": "paused"})
    assert steps(runner, 101) and plant.faults == {}
    assert steps(runner, 220) and not steps(runner, 221)
    assert (Drill.objects.get().ending, Drill.objects.get().recovered_at) == ("time over", None)


def test_a_drill_that_nobody_answers_ends_by_itself_with_no_points(run, plant):
    runner = run()
    steps(runner, 0)
    alert_at(65)
    assert not steps(runner, 600)
    assert (Drill.objects.get().ending, Drill.objects.get().score, plant.faults) == ("time over", 0, {})


def test_a_stopped_drill_ends_its_faults_at_once_and_is_not_scored(run, plant):
    runner = run("two-failures")
    steps(runner, 0, 30)
    assert set(plant.faults) == {"node_lost", "slow_handler"}
    Drill.objects.update(stop_requested_at=at(31))
    assert not steps(runner, 31)
    assert (Drill.objects.get().ending, Drill.objects.get().score, plant.faults) == ("stopped", None, {})


def test_a_stop_before_the_fault_needs_no_wait(run, plant):
    runner = run()
    Drill.objects.update(stop_requested_at=BEGIN)
    assert not runner.step(BEGIN + timedelta(seconds=1))
    assert Drill.objects.get().ending == "stopped" and plant.faults == {}


def test_a_stop_while_the_fault_is_being_started_is_not_forgotten(run, plant):
    """It takes seconds to keep a process down."""
    runner = run()
    plant.while_starting = lambda: Drill.objects.update(stop_requested_at=at(0))
    steps(runner, 0)
    assert not steps(runner, 1)
    assert (Drill.objects.get().ending, plant.faults) == ("stopped", {})


def test_who_opens_the_incident_while_the_fault_is_being_started_responds(run, plant):
    runner = run(person="", is_surprise=True)
    plant.while_starting = lambda: records.note_incident_opened("viewer", alert_at(0), at(1))
    steps(runner, 0, 2)
    assert (Drill.objects.get().person, Drill.objects.get().noticed_at) == ("viewer", at(1))


def test_what_a_killed_process_left_is_ended_by_the_next_one(run, plant):
    runner = run()
    steps(runner, 0)
    assert end_interrupted_drills(plant, at(5)) == 1
    assert (Drill.objects.get().ending, plant.faults) == ("interrupted", {})
    assert end_interrupted_drills(plant, at(6)) == 0
    assert not steps(runner, 7), "the killed process does nothing more if it was only suspended"


def test_one_fault_that_can_not_be_ended_keeps_no_other_from_its_end(run, plant, monkeypatch):
    runner = run("two-failures")
    steps(runner, 0, 30)
    end = plant.end

    def fail(kind, *rest):
        if kind == "node_lost":
            raise OSError("no supervisor")
        end(kind, *rest)

    monkeypatch.setattr(plant, "end", fail)
    Drill.objects.update(stop_requested_at=at(31))
    steps(runner, 31)
    assert set(plant.faults) == {"node_lost"} and "node lost could not be ended" in Drill.objects.get().note


def test_a_plant_that_is_marked_as_production_is_never_broken(run, plant):
    runner = run()
    plant_settings.change(PRODUCTION, 1, None, BEGIN)
    assert not steps(runner, 0)
    assert (Drill.objects.get().ending, plant.faults) == ("failed", {})
    assert "production" in Drill.objects.get().note


def test_a_fault_that_can_not_start_ends_the_drill_with_the_reason(run, plant):
    plant.fails = {"slow_handler"}
    assert not steps(run(), 0)
    assert (Drill.objects.get().ending, Drill.objects.get().note) == ("failed", "The plant has no snapshot yet.")


def test_who_opens_the_incident_of_a_surprise_drill_first_responds(run):
    runner = run(person="", is_surprise=True)
    steps(runner, 0)
    alert = alert_at(65)
    records.note_incident_opened("viewer", alert, at(70))
    records.note_incident_opened("operator", alert, at(80))
    steps(runner, 81)
    assert (Drill.objects.get().person, Drill.objects.get().noticed_at) == ("viewer", at(70))


def test_an_alert_from_before_the_drill_is_none_of_its_alerts(run):
    runner, before = run(), alert_at(-5)
    steps(runner, 0)
    records.note_incident_opened("operator", before, at(3))
    steps(runner, 4)
    assert Drill.objects.get().noticed_at is None and records.list_drill_alerts(Drill.objects.get()) == []


def test_due_drills_run_one_after_another_and_later_ones_wait(people, plant):
    for minutes in (0, 60):
        Drill.objects.create(scenario="burst", starter="operator", due_at=BEGIN + timedelta(minutes=minutes))
    times = iter(BEGIN + timedelta(seconds=5 * each) for each in range(720))
    run_due_drills(plant, lambda: False, lambda: next(times))
    first, second = Drill.objects.order_by("due_at")
    assert first.ending == "time over" and second.started_at is None
    assert len(plant.prepared) == 1


def test_a_plant_that_is_stopped_ends_the_drill(run, plant):
    run()
    run_due_drills(plant, lambda: True, lambda: at(0))
    assert (Drill.objects.get().ending, plant.faults) == ("interrupted", {})


def test_who_acts_rightly_in_a_surprise_drill_without_opening_an_incident_responds(run, act):
    runner = run(person="", is_surprise=True, starter="administrator")
    runner.step(at(0))
    an_alert(fired_at=at(5), began_at=at(4))
    act(9, "alert.acknowledge", "alert 1")
    runner.step(at(10))
    assert runner.drill.person == "", "that is no right action for a slow handler"
    act(12, "queue.pause", "queue slow", {"part": "consumption"})
    runner.step(at(13))
    assert (runner.drill.person, runner.drill.action_seconds) == ("operator", 7.0)


def test_the_action_that_the_headline_offers_for_a_burst_is_right(run, act):
    runner = run("burst")
    runner.step(at(0))
    an_alert(fired_at=at(5), began_at=at(4))
    act(8, "loop.mode", "concurrency/jobs@vm", {"mode": "manual"})
    runner.step(at(9))
    assert runner.drill.action_seconds == 3.0
