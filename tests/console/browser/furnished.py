"""A console that has one of everything, so that pages of single things can be walked like the others."""

import json
import subprocess
import sys
import time
from contextlib import contextmanager

from tests.console.served import ROOT

OBJECTIVE = {
    "target": 0.999, "window_days": 30, "kind": "queue", "bad": 720.0, "total": 3_600.0, "left": -716.4,
    "left_share": -199.0, "window_budget": 5_184.0, "burn": {"fast": 20.0, "medium": None, "slow": 200.0},
}  # fmt: skip
# On the console's own database; prints the ids by what they are of.
FURNISH = """
import json, os, time, django
os.environ["DJANGO_SETTINGS_MODULE"] = "console.settings"
django.setup()
from datetime import UTC, datetime, timedelta
from django.contrib.auth.models import User
from django.utils import timezone
from workers.batch import task_definitions
from workers.alerts.lifecycle.models import Alert, AlertEvent, Incident
from workers.lab.models import Experiment, ExperimentResult
from workers.models import LedgerEntry, Loop, Override, Plan, Run
from workers.objectives.models import Objective, ObjectiveMinute
from workers.task_history.models import TaskGap
from workers.task_history.record import TaskRecord
from workers.task_history.recorder import record_finished
from console.incidents.changes import keep_changes
from console.models import Drill
from workers.retries.items import encode_items
from workers.plants.models import OffsetResetPlan, RegisteredPlant
from workers.retries.models import RetryPlan
from workers.windows.models import ExpectedAlert, PlannedWindow
from pathlib import Path

now, admin = timezone.now(), User.objects.get(username="admin")
loop = Loop.objects.get(name="worker_rate/alert/n1")
entry = LedgerEntry.objects.create(
    loop=loop, at=now - timedelta(minutes=9), mode="auto", parameters={}, action={"start": 2},
    acted=True, verdict="harmful",
    reason="Start 2 workers on n1: 4,210 events wait 36 s, and 3 workers handle 110 of 120 events/s.",
)
override = Override.objects.create(
    loop=loop, name="upper_limit", value=3, owner=admin, reason="the database is being backed up",
    created_at=now - timedelta(minutes=12), expires_at=now + timedelta(hours=1),
)
plan = Plan.objects.create(
    kind="rebalance", title="Move 120 points of alert from n1 to n2", law="rebalancing",
    reason="n1 is used to 91 %, n2 to 38 %.", base={"alert": {"n1": 700, "n2": 300}}, base_revision=1,
    moves=[{"queue": "alert", "from": "n1", "to": "n2", "points": 120}], hash="a3" * 32,
    before={"n1": {"utilisation": 0.91, "state": "TOOBUSY", "points": 700},
            "n2": {"utilisation": 0.38, "state": "NORMAL", "points": 300}},
    after={"n1": {"utilisation": 0.75, "state": "BUSY", "points": 580},
           "n2": {"utilisation": 0.52, "state": "NORMAL", "points": 420}},
    progress=[{"state": "pending", "points_moved": 0, "blocks": 0, "blocks_total": 0,
               "events": 0, "bytes": 0}],
    expires_at=now + timedelta(hours=8),
)
alert = Alert.objects.create(
    rule_name="queue-behind", condition="queue_wait", fingerprint="walked", labels={"queue": "alert"},
    severity="critical", title="Queue alert falls behind", threshold=30.0, value=36.0, worst=61.0,
    sentence="4,210 events wait; the oldest has waited 36 s.", state="firing",
    began_at=now - timedelta(minutes=6), fired_at=now - timedelta(minutes=5),
)
window = PlannedWindow.objects.create(
    name="Year-end closing", kind="freeze", scope=["plant/elsewhere"], loop_mode="hold", owner=admin,
    reason="The books are closed.", time_zone="Europe/Berlin", duration_minutes=120, rule="FREQ=DAILY",
    local_start=f"{now - timedelta(days=1):%Y-%m-%dT%H:%M:%S}", created_at=now - timedelta(days=2),
)
ExpectedAlert.objects.create(
    window=window, alert=alert, local_start=window.local_start, starts_at=now, ends_at=now, at=now)
AlertEvent.objects.create(alert=alert, kind="fired", at=alert.fired_at)
AlertEvent.objects.create(alert=alert, kind="note", at=now, by=admin, text="asked the owner of the database")
keep_changes(alert, Path(os.environ["WEIR_DATA"]), now)
objective = Objective.objects.create(
    name="orders-in-time", kind="queue", condition="wait_seconds <= 30", target=0.999)
begin = int(time.time() // 86_400 * 1_440) - 1_440 + 120
for minute in range(30):
    bad = 60.0 if minute < 12 else 0.0
    parts = {"alert": 40.0, "telemetry": 20.0} if bad else {}
    ObjectiveMinute.objects.create(
        objective=objective, minute=begin + minute, bad=bad, total=120.0, burnt=parts)
drill = Drill.objects.create(
    scenario="slow-handler", subjects={"queue": "alert", "node": "n2"}, starter="admin", person="admin",
    due_at=now - timedelta(minutes=9), started_at=now - timedelta(minutes=9), alerted_at=now - timedelta(minutes=8),
    noticed_at=now - timedelta(minutes=7), action_seconds=107.0, recovered_at=now - timedelta(minutes=3),
    ended_at=now - timedelta(minutes=2), ending="recovered", faults={"0": {"kind": "slow_handler", "ended": True}},
    points={"notice": 30, "right_action": 46, "no_wrong_action": 15}, score=91,
)
failed, failure = now.timestamp() - 240, "f00d" * 4
long = "/".join(["a-very-long-argument-without-any-space"] * 20)
record_finished("main", [
    TaskRecord(id="walked-root", state="succeeded", at=failed - 9, name="shop.order", run_seconds=0.2),
    TaskRecord(id="walked", state="failed", at=failed, name="shop.payments.tasks.charge_the_card_of_a_customer",
               worker="celery@worker-1.shop.example", queue="alert", args=f"({long!r},)", kwargs="{'order': 4711}",
               error=f"ConnectionError: {long}", traceback="Traceback (most recent call last):\\n  " + long,
               failure=failure, sent=failed - 8, received=failed - 7, started=failed - 4, ended=failed,
               run_seconds=4.0, retries=2, retried=2, parent="walked-root", root="walked-root"),
    TaskRecord(id="walked-child", state="started", at=failed, name="shop.mail", parent="walked", root="walked-root"),
])
TaskGap.objects.create(plant="main", since=failed - 8, until=failed - 2, reason="Weir was not listening")
run = Run.objects.create(task=task_definitions.define("walked", "retention"), single_instance=True)
experiment = Experiment.objects.create(scenario="crash", laws=["thesis"])
ExperimentResult.objects.create(experiment=experiment, law="thesis", metrics={"events_lost": 1}, seconds=2)
retry = RetryPlan.objects.create(
    plant="shop", query="state:failed name:shop.pay since:2h", reason="The bank is back.", items=encode_items([]),
    total=1240, sent=320, succeeded=290, failed=12, skipped={"arguments": 31, "succeeded-later": 4},
    queues={"pay": 1240}, min_rate=0.5, max_rate=200.0, hash="b7" * 32, state="paused",
    note="Paused by admin: lunch.", created_at=now, expires_at=now + timedelta(hours=8), started_at=now,
)
RegisteredPlant.objects.create(name="walked-app", kind="celery", url="amqp://127.0.0.1:5672")
record_finished("walked-app", [
    TaskRecord(id=f"walked-{number}", state="received", at=failed, name="shop.pay", queue="pay", root="walked-0",
               worker="celery@worker-1.shop.example") for number in range(4)])
RegisteredPlant.objects.create(name="walked-log", kind="kafka", url="kafka://127.0.0.1:9092")
rows = [{"topic": "orders-of-all-shops-in-europe", "partition": number, "now": 41_000 + number, "then": 38_000,
         "skipped": 0, "again": 3_000 + number} for number in range(4)]
for state, note in (("proposed", "operator has approved it. Another user has to approve it."), ("done", "")):
    OffsetResetPlan.objects.create(
        plant="walked-log", group="billing", target="2026-11-30T20:00:00Z", partitions=rows, skipped=0, again=12_006,
        hash="c8" * 32, reason="The invoices of an hour are missing.", owner=admin, state=state, note=note,
        approvals=[{"by": "operator", "reason": "agreed", "at": now.timestamp()}], created_at=now,
        expires_at=now + timedelta(hours=8), ended_at=now if state == "done" else None)
print(json.dumps({"retry": retry.pk, "loop": loop.pk, "entry": entry.pk, "plan": plan.pk, "alert": alert.pk,
    "override": override.pk, "objective": objective.name, "run": run.pk,
    "experiment": experiment.pk, "task": "walked", "drill": drill.pk,
    "window": window.pk}))
"""


# 200 s of a worker rate loop, which is enough to be replayed; gone again with the argument "clear".
RECORD = """
import os, sys, django
os.environ["DJANGO_SETTINGS_MODULE"] = "console.settings"
django.setup()
from datetime import timedelta
from django.utils import timezone
from workers.models import LedgerEntry, Loop

loop = Loop.objects.get(pk=int(sys.argv[1]))
reason, now = "of a furnished record", timezone.now()
LedgerEntry.objects.filter(reason=reason).delete()
seen = {"queue_length": 0, "removed": 80, "started": 1, "waiting_to_run": 0, "running": 1}
rows = [
    LedgerEntry(loop=loop, at=now - timedelta(seconds=200 - 2 * place), mode="auto", parameters={},
                observation=seen, reason=reason)
    for place in range(100)
]
if sys.argv[2] != "clear":
    LedgerEntry.objects.bulk_create(rows)
"""


@contextmanager
def recorded(served, loop):
    """A loop with a record, for as long."""
    command = [sys.executable, "-c", RECORD, str(loop)]
    try:
        subprocess.run([*command, "make"], cwd=ROOT, env=served.environment, check=True)
        yield
    finally:
        subprocess.run([*command, "clear"], cwd=ROOT, env=served.environment, check=True)


CLEAR = """
import json, os, sys, django
os.environ["DJANGO_SETTINGS_MODULE"] = "console.settings"
django.setup()
from workers.alerts.lifecycle.models import Alert
from workers.lab.models import Experiment
from console.models import Drill
from workers.models import LedgerEntry, Override, Plan, Run
from workers.objectives.models import Objective
from workers.task_history.models import FailureGroup, RecentTask, TaskFeed, TaskGap
from workers.plants.models import OffsetResetPlan, RegisteredPlant
from workers.retries.models import RetryPlan
from workers.windows.models import PlannedWindow
ids = json.loads(sys.argv[1])
for kind, model in (("alert", Alert), ("plan", Plan), ("override", Override), ("entry", LedgerEntry),
                    ("run", Run), ("experiment", Experiment), ("drill", Drill), ("window", PlannedWindow),
                    ("retry", RetryPlan)):
    model.objects.filter(pk=ids[kind]).delete()
Objective.objects.filter(name=ids["objective"]).delete()
RegisteredPlant.objects.filter(name__startswith="walked-").delete()
OffsetResetPlan.objects.all().delete()
for model in (RecentTask, FailureGroup, TaskGap, TaskFeed):
    model.objects.filter(plant__in=("main", "walked-app")).delete()
"""


def clear(served, things):
    """As it was: other tests have the same console."""
    command = [sys.executable, "-c", CLEAR, json.dumps(things)]
    subprocess.run(command, cwd=ROOT, env=served.environment, check=True)


def furnish(served):
    """What addresses are filled with, by what it is of."""
    command = [sys.executable, "-c", FURNISH]
    made = subprocess.run(command, cwd=ROOT, env=served.environment, stdout=subprocess.PIPE, check=True)
    return dict(json.loads(made.stdout.splitlines()[-1]))


def with_objective(snapshot):
    """The observer has counted it."""
    snapshot["objectives"] = {"orders-in-time": OBJECTIVE}
    snapshot["at"] = time.time()
