"""The runner of drills: starts and ends faults at their times, until the person has recovered the plant.

It runs in the process `drill` of ./run, which exits when no drill is due.
"""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

import redis
from django.contrib.auth.models import User
from django.utils import timezone

from common.errors import WeirError
from console.audit import audit_log
from console.drills import records
from console.drills.checks import CHECKS, DrillEvidence, update_checks
from console.drills.faults import EmbeddedPlant
from console.drills.scenarios import WARM_UP_SECONDS, DrillFault, get_scenario
from console.models import Drill
from workers.documents.snapshot import Snapshot
from workers.steering import plant_settings

log = logging.getLogger(__name__)
# A drill ends this long after its last fault at the latest: loops and people need time to recover the plant.
RECOVERY_SECONDS = 300.0
AFTER_ACTION_SECONDS = 120.0  # and this long after the right action
CALM_SECONDS = 5.0  # for which all alerts are resolved
PRODUCTION = "plant.production"


class RunnerAuthor:
    """The runner, as the audit log names it."""

    name, address, request_id, account_key = "drill", None, "", None


def explain_refusal() -> str | None:
    """Say why this plant must not be broken; None if it may."""
    if plant_settings.get_setting_value(PRODUCTION):
        return "This plant is marked as production (setting plant.production). Drills never run on it."
    return None


class DrillRunner:
    """A running drill. `step` is called once a second until it returns False."""

    def __init__(self, drill: Drill, plant: EmbeddedPlant, prepared_at: datetime) -> None:
        self.drill, self.plant = drill, plant
        self.scenario = get_scenario(drill.scenario)
        self.prepared_at = prepared_at
        self.before: Snapshot | None = None
        self.most_waiting = 0
        self.by = User.objects.filter(username=drill.starter).first()

    def step(self, now: datetime) -> bool:
        """Start and end what is due; return whether the drill continues."""
        self.drill.refresh_from_db()
        if self.drill.ended_at is not None:
            return False
        warms_up = self.drill.started_at is None and (now - self.prepared_at).total_seconds() < WARM_UP_SECONDS
        if warms_up and self.drill.stop_requested_at is None:
            return True
        if refusal := explain_refusal():
            return self._finish(Drill.Ending.FAILED, now, refusal)
        if self.drill.stop_requested_at is not None:
            return self._finish(Drill.Ending.STOPPED, now)
        if self.drill.started_at is None:
            self._update_checks()
            self._begin(now)
        try:
            self._start_and_end_faults(now)
        except WeirError as error:
            return self._finish(Drill.Ending.FAILED, now, str(error))
        records.evaluate(self.drill, now)
        if self.drill.action_seconds is not None:
            self._end_after_right_action(now)
        self._update_checks()
        self.drill.save_progress()
        if self._has_recovered(now):
            return self._finish(Drill.Ending.RECOVERED, now)
        if self.drill.ends_at is not None and now >= self.drill.ends_at:
            return self._finish(Drill.Ending.TIME_OVER, now)
        return True

    def _begin(self, now: datetime) -> None:
        last = max(fault.after_seconds + fault.seconds for fault in self.scenario.faults)
        self.drill.started_at, self.drill.ends_at = now, now + timedelta(seconds=last + RECOVERY_SECONDS)
        self.drill.save_progress()

    def _start_and_end_faults(self, now: datetime) -> None:
        assert self.drill.started_at is not None
        passed = (now - self.drill.started_at).total_seconds()
        for place, fault in enumerate(self.scenario.faults):
            record = self.drill.faults.get(str(place))
            has_acted = self.drill.action_seconds is not None
            if record is None and not has_acted and fault.after_seconds <= passed < fault.after_seconds + fault.seconds:
                self._start(str(place), fault, now)
            elif record is not None and not record["ended"] and passed >= fault.after_seconds + fault.seconds:
                end_fault(self.drill, self.plant, str(place), now)

    def _update_checks(self) -> None:
        """Note what became true; without a snapshot, later."""
        if self.scenario.name not in CHECKS:
            return
        try:
            snapshot = self.plant.read_snapshot()
        except (WeirError, redis.RedisError):
            return
        self.before = self.before or snapshot
        row = snapshot.queues.get(self.drill.subjects.get("queue", ""))
        self.most_waiting = max(self.most_waiting, (row.waiting_events or 0) if row else 0)
        faults = self.drill.faults.values()
        has_ended = all(record["ended"] for record in faults)
        if not faults:
            return
        evidence = DrillEvidence(self.drill, self.before, snapshot, self.most_waiting, has_ended)
        self.drill.checks = update_checks(self.drill.checks, evidence)

    def _end_after_right_action(self, now: datetime) -> None:
        """End the faults, as their owners would: the plant then has a limited time to recover."""
        for place, record in sorted(self.drill.faults.items()):
            if not record["ended"]:
                end_fault(self.drill, self.plant, place, now)
        latest = now + timedelta(seconds=AFTER_ACTION_SECONDS)
        if self.drill.ends_at is None or self.drill.ends_at > latest:
            self.drill.ends_at = latest

    def _start(self, place: str, fault: DrillFault, now: datetime) -> None:
        """Record how the fault ends, then start it."""
        undo = self.plant.prepare_undo(fault.kind, self.drill.subjects)
        self.drill.faults[place] = {"kind": fault.kind, "undo": undo, "ended": False}
        self.drill.save_progress()
        self.plant.start(fault.kind, self.drill.subjects, undo, self.by, now)

    def _has_recovered(self, now: datetime) -> bool:
        """Return whether the cause has ended or was answered rightly, and all alerts have been resolved for a while."""
        recovered_at = self.drill.recovered_at
        if recovered_at is None or (now - recovered_at).total_seconds() < CALM_SECONDS:
            return False
        faults = self.drill.faults.values()
        return self.drill.action_seconds is not None or (
            len(faults) == len(self.scenario.faults) and all(record["ended"] for record in faults)
        )

    def _finish(self, ending: str, now: datetime, note: str = "") -> bool:
        finish(self.drill, self.plant, ending, now, note)
        return False


def end_fault(drill: Drill, plant: EmbeddedPlant, place: str, now: datetime) -> None:
    """End a recorded fault, and record that it has ended."""
    record = drill.faults[place]
    plant.end(record["kind"], drill.subjects, record["undo"], now)
    record["ended"] = True
    drill.save(update_fields=["faults"])


def finish(drill: Drill, plant: EmbeddedPlant, ending: str, now: datetime, note: str = "") -> None:
    """End all faults of a drill, and record its result in the audit log."""
    notes = [note] if note else []
    for place, record in sorted(drill.faults.items()):
        if record["ended"]:
            continue
        try:
            end_fault(drill, plant, place, now)
        except Exception as error:  # the other faults must still end
            log.exception("The fault %s of drill %s can't be ended", record["kind"], drill.pk)
            notes.append(f"The fault {record['kind'].replace('_', ' ')} could not be ended: {error}")
    records.evaluate(drill, now)
    drill.ended_at, drill.ending, drill.note = now, ending, " ".join(notes)
    if not records.is_scored(drill):
        drill.score = None
    drill.save_progress()
    alerts = [alert.pk for alert in records.list_drill_alerts(drill)]
    after = {"ending": ending, "score": drill.score, "alerts": alerts}
    audit_log.record(RunnerAuthor(), "drill.end", f"drill {drill.pk} {drill.scenario}", reason=note, after=after)


def end_interrupted_drills(plant: EmbeddedPlant, now: datetime) -> int:
    """End what a killed process, or a plant that was stopped, has left; return the number of drills."""
    interrupted = list(records.list_open_drills().exclude(started_at=None))
    for drill in interrupted:
        finish(drill, plant, Drill.Ending.INTERRUPTED, now, "The drill process stopped before the drill ended.")
    return len(interrupted)


def run_due_drills(
    plant: EmbeddedPlant, wait: Callable[[], bool], clock: Callable[[], datetime] = timezone.now
) -> None:
    """Run the drills that are due, one after another. wait: wait for a second; returns True to stop."""
    end_interrupted_drills(plant, clock())
    while drill := records.list_open_drills().filter(due_at__lte=clock()).first():
        try:
            plant.prepare(drill.subjects, clock())
            runner = DrillRunner(drill, plant, clock())
            stopped = False
            while not stopped and runner.step(clock()):
                stopped = wait()
        except Exception as error:
            log.exception("Drill %s failed", drill.pk)
            finish(drill, plant, Drill.Ending.FAILED, clock(), f"The drill failed: {error}")
            continue
        if stopped:
            finish(drill, plant, Drill.Ending.INTERRUPTED, clock(), "The plant was stopped during the drill.")
            return
