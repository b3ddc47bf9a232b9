"""User actions on drills: start, schedule, and stop; authorized and audited.

The process `drill` of ./run makes and ends the faults (`console.drills.runner`).
"""

import secrets
from datetime import datetime, timedelta
from random import Random

from django.db import transaction

from common import environment as variables
from common.errors import BadInput
from console.accounts.access import Actor, require_permission
from console.audit import audit_log
from console.connections import supervisor
from console.connections.supervisor import NoSupervisor
from console.drills import records
from console.drills.faults import PRACTICE_QUEUE, choose_queue
from console.drills.runner import explain_refusal
from console.drills.scenarios import SCENARIOS, DrillScenario, get_scenario
from console.models import Drill
from queues.models import Node
from workers.documents.snapshot import Snapshot
from workers.steering import plant_settings

MAX_WINDOW, MIN_WINDOW = timedelta(days=7), timedelta(minutes=5)
RETAINED = timedelta(days=400)
MIN_NODES = 2
WELCOME = "plant.welcome"


def explain_absence() -> str | None:
    """Say why drills can't run here; None if they can."""
    if variables.PRODUCTION.is_on():
        return "This console runs in production (WEIR_PRODUCTION). Drills never run here."
    if not supervisor.is_there():
        return "Drills run only on the plant that ./run starts on one machine."
    return explain_refusal()


def start(actor: Actor, name: str, snapshot: Snapshot, now: datetime) -> Drill:
    """Start a drill now. Raises `BadInput` that names the scenario or the plant."""
    require_permission(actor, "drill.run")
    drill = _create(actor, get_scenario(name), snapshot, now, due_at=now, person=actor.name)
    try:
        supervisor.start(supervisor.DRILL)
    except (NoSupervisor, BadInput) as error:
        drill.delete()
        raise BadInput("plant", f"can't run drills: {error}") from None
    return drill


def schedule(actor: Actor, begin: datetime, end: datetime, snapshot: Snapshot, now: datetime) -> Drill:
    """Schedule a surprise drill: a random scenario at a random time of a window. Raises `BadInput`."""
    require_permission(actor, "drill.run")
    if begin < now - MIN_WINDOW or end - begin < MIN_WINDOW or end - now > MAX_WINDOW:
        raise BadInput("window", "must start now or later, last 5 minutes or longer, and end within 7 days.")
    chance = Random(secrets.randbits(64))
    scenario = SCENARIOS[chance.choice(sorted(SCENARIOS))]
    due_at = max(now, begin + (end - begin) * chance.random())
    return _create(actor, scenario, snapshot, now, due_at=due_at, window_end=end, is_surprise=True)


@transaction.atomic
def _create(actor: Actor, scenario: DrillScenario, snapshot: Snapshot, now: datetime, **fields: object) -> Drill:
    if reason := explain_absence():
        raise BadInput("plant", f"can't run drills. {reason}")
    if records.list_open_drills().select_for_update().exists():
        raise BadInput("drill", "is already running or scheduled. Stop it first.")
    nodes = list(Node.objects.values_list("name", flat=True))
    if len(nodes) < MIN_NODES:
        raise BadInput("plant", f"needs {MIN_NODES} nodes for drills, not {len(nodes)}. Add a node.")
    queue = choose_queue(snapshot) if scenario.needs_queue else PRACTICE_QUEUE
    Drill.objects.filter(ended_at__lt=now - RETAINED).delete()
    drill = Drill.objects.create(
        scenario=scenario.name,
        subjects={"queue": queue, "node": secrets.choice(nodes)},
        starter=actor.name,
        created_at=now,
        **fields,
    )
    action, target = "drill.start", f"drill {drill.pk} {scenario.name}"
    after = {"subjects": drill.subjects}
    if drill.is_surprise:  # the audit log must not tell when and what
        action, target = "drill.schedule", f"drill {drill.pk}"
        after = {"window_end": drill.window_end.isoformat() if drill.window_end else None}
    audit_log.record(actor, action, target, after=after)
    return drill


def stop(actor: Actor, drill_id: int, now: datetime) -> Drill:
    """Stop a running drill, or cancel a scheduled one. Raises `BadInput` if it has ended."""
    require_permission(actor, "drill.run")
    with transaction.atomic():
        drill = Drill.objects.select_for_update().filter(pk=drill_id).first()
        if drill is None or drill.ended_at is not None:
            raise BadInput("drill", f"{drill_id} is not running.")
        drill.stop_requested_at = now
        if drill.started_at is None and drill.is_surprise:
            drill.ended_at, drill.ending = now, Drill.Ending.STOPPED
        drill.save(update_fields=["stop_requested_at", "ended_at", "ending"])
        audit_log.record(actor, "drill.stop", f"drill {drill.pk}")
    if drill.ended_at is None:
        try:
            supervisor.start(supervisor.DRILL)  # if its process was killed, the new one ends the faults
        except NoSupervisor as error:
            raise BadInput("plant", f"does not respond: {error} The faults end at its next start.") from None
    return drill


def start_due(now: datetime) -> bool:
    """Start the process of drills if a drill is due or open; return whether one is.

    A drill may also wait because the process of the drill before it was still ending.
    """
    due = records.list_open_drills().filter(due_at__lte=now).exists()
    if due and supervisor.is_there():
        supervisor.start(supervisor.DRILL)
    return due


def shows_welcome(actor: Actor) -> bool:
    """Return whether the page Welcome comes first: on a plant that can run drills, until an operator skipped it."""
    may_run = actor.may("drill.run") and explain_absence() is None
    return may_run and bool(plant_settings.get_setting_value(WELCOME))


@transaction.atomic
def skip_welcome(actor: Actor, now: datetime) -> None:
    """Show the overview after login from now on."""
    require_permission(actor, "drill.run")
    if plant_settings.get_setting_value(WELCOME):
        plant_settings.change(WELCOME, 0, actor.user, now)
        audit_log.record(actor, "welcome.skip", WELCOME, before=1, after=0)
