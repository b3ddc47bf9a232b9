"""User actions on the pipeline: declare applications, restore a version, and control a running one.

Authorized and audited (`console.audit.audit_log`). All raise `PermissionDenied`, and `BadInput` that names the field;
then nothing was changed.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import redis
from django.db import IntegrityError, transaction

from common.errors import BadInput, Forbidden
from console.accounts.access import Actor, admit, require_permission
from console.actions import plant_control
from console.audit import audit_log
from queues.models import Queue
from workers.documents.pipeline import PipelineOrder
from workers.models import PipelineVersion
from workers.pipeline.declaration import declaration
from workers.pipeline.declaration.controls import Controls, steer, steer_named
from workers.pipeline.declaration.declaration import Application, check_readers, parse_application_text, parse_queues
from workers.pipeline.declaration.declared import Declarations, DeclarationText, Orders
from workers.plants.holding import PlantHeld
from workers.plants.registry import LOCAL
from workers.steering.overrides import Expiry, read_reason
from workers.windows.freezes import list_queue_subjects

TABLES = Path(declaration.__file__).parents[1] / "applications"
MAX_NOTE = 300


def parse_application(text: str) -> Application:
    """Parse an application.

    Raises `BadInput` that names the field and its line, also for a queue that is missing or of the wrong kind.
    """
    if not text.strip():
        raise BadInput("text", "is missing. Declare an application in YAML.")
    application = parse_application_text(text, TABLES, "declaration")
    kinds = dict(Queue.objects.values_list("name", "kind"))
    for name in application.queues:
        _check_queue("queues", name, kinds, of_pipeline=True)
    for name in sorted({queue for queues in application.sinks.values() for queue in queues}):
        _check_queue("sink", name, kinds, of_pipeline=False)
    return application


def _check_readers(wanted: Application, control: redis.Redis) -> None:
    """Raise `BadInput` for a queue that another application reads, or is going to read."""
    active = PipelineVersion.objects.filter(active=True).values_list("application", "text")
    at_work = {name: row.text for name, row in Declarations(control).load_running().items()}
    for other, text in sorted({**at_work, **dict(active)}.items()):
        if other != wanted.name:
            check_readers(wanted, other, parse_queues(text))


def _check_queue(field: str, name: str, kinds: dict[str, str], of_pipeline: bool) -> None:
    if name not in kinds:
        raise BadInput(field, f"{name} is not a queue. Choose one of {', '.join(sorted(kinds))}.")
    if of_pipeline and kinds[name] != "pipeline":
        raise BadInput(field, f"{name} is a {kinds[name]} queue: its events go to workers, not to the pipeline.")


def parse_application_for(actor: Actor, text: str) -> Application:
    """Parse an application for an actor; forbidden references in the text are recorded in the audit log."""
    try:
        return parse_application(text)
    except Forbidden as error:
        audit_log.record_refusal(actor, "pipeline.declare", error.field, error.message[:MAX_NOTE])
        raise


def declare(actor: Actor, text: str, reason: str, control: redis.Redis, since: int | None = None) -> PipelineVersion:
    """Create a version of the application in the text, which runs from now on.

    It continues where the previous version was, and takes over within seconds. since: the newest version when the text
    was started (0: none); if there is a newer one, it is rejected, because it would drop those changes.
    """
    admit(actor, "pipeline.declare")
    why = read_reason(reason)
    wanted = parse_application_for(actor, text)
    name = wanted.name
    _check_readers(wanted, control)
    with transaction.atomic():
        before = _find_newest_version(name)
        _require_newest_version(before, since)
        replaced = _list_replaced_queues(name, before, control) if actor.queues is not None else []
        queues = [*list_application_queues(wanted), *replaced]
        subjects = [f"application/{name}", *list_queue_subjects(queues)]
        require_permission(actor, "pipeline.declare", queues, subjects)
        number = before.number + 1 if before else 1
        PipelineVersion.objects.filter(application=name, active=True).update(active=False)
        version = PipelineVersion(
            application=name, number=number, text=text, reason=why, owner=actor.account, active=True
        )
        try:
            with transaction.atomic():
                version.save()
        except IntegrityError:  # somebody else has changed it since the request
            _require_newest_version(_find_newest_version(name), number - 1)
            raise
        audit_log.record(actor, "pipeline.declare", name, reason=why, after={"version": number})
        # If this process dies here, `workers.tasks.upkeep` does it.
        Declarations(control).want(DeclarationText(name, number, text))
    return version


def _find_newest_version(application: str) -> PipelineVersion | None:
    return PipelineVersion.objects.filter(application=application).order_by("-number").first()


def _require_newest_version(newest: PipelineVersion | None, since: int | None) -> None:
    if newest is not None and since is not None and newest.number != since:
        by = f"{newest.owner.get_username()} ({newest.reason[:200]})"
        said = (
            f"{newest.number} was created in the meantime by {by}: compare your "
            "declaration with it, then submit yours again."
        )
        raise BadInput("version", said)


def set_tasks(
    actor: Actor,
    application: str,
    operator: str,
    tasks: int,
    reason: str,
    control: redis.Redis,
    minutes: float = plant_control.HAND_MINUTES,
) -> None:
    """Set the number of an operator's tasks, from one of the next two batches on.

    The parallelism loops hold for so many minutes. Raises `BadInput` also while another controller sets the tasks.
    """
    require_permission(
        actor, "pipeline.steer", _list_running_queues(actor, application, control), [f"application/{application}"]
    )
    why = read_reason(reason)
    running = _load_running(application, control)
    if operator not in {graph_operator.name for graph_operator in running.graph.operators}:
        raise BadInput("operator", f"{operator} is not an operator of {application}.")
    Controls().apply_changes({"tasks": {operator: tasks}})
    try:
        before = _read_steered(application, "tasks", control)
        known = {operator: before[operator]} if operator in before else {}
        plant_control.take_by_hand(actor, LOCAL, control, minutes, reason=why, before=known, after={operator: tasks})
    except PlantHeld as error:
        raise BadInput("tasks", f"can't be set now: {error}") from error
    _steer(actor, application, "tasks", operator, tasks, why, control)


def hold_criterion(
    actor: Actor,
    application: str,
    name: str,
    value: float,
    expiry: Expiry,
    reason: str,
    now: datetime,
    control: redis.Redis,
) -> dict[str, Any]:
    """Fix a criterion at a value, from the next dispatch until it expires by the clock, without a running process."""
    require_permission(
        actor, "pipeline.steer", _list_running_queues(actor, application, control), [f"application/{application}"]
    )
    if expiry.endless:
        require_permission(actor, "override.endless", _list_running_queues(actor, application, control))
    why = read_reason(reason)
    until = expiry.compute(now)
    known = _load_running(application, control).controls.criteria
    if name not in known:
        names = ", ".join(sorted(known)) or "none"
        raise BadInput("criterion", f"{name} is not a criterion of {application}. Choose one of {names}.")
    held = {
        "value": value,
        "until_seconds": None if until is None else until.timestamp(),
        "owner": actor.name,
        "reason": why,
    }
    _steer(actor, application, "held_criteria", name, held, why, control)
    return held


def extend_criterion(
    actor: Actor, application: str, name: str, expiry: Expiry, *, now: datetime, control: redis.Redis
) -> datetime:
    """Extend the hold of a criterion; return its new end. Raises `BadInput` if it was not fixed."""
    require_permission(actor, "pipeline.steer", _list_running_queues(actor, application, control), ())
    held = _read_steered(application, "held_criteria", control).get(name)
    ends = held["until_seconds"] if held else None
    if held is None or (ends is not None and ends <= now.timestamp()):
        raise BadInput("criterion", f"{name} of {application} is not held.")
    until = expiry.compute_later(None if ends is None else datetime.fromtimestamp(ends, UTC), now)
    later = {**held, "until_seconds": until.timestamp()}
    _steer(actor, application, "held_criteria", name, later, held["reason"], control)
    return until


def release_criterion(actor: Actor, application: str, name: str, control: redis.Redis, *, reason: str = "") -> None:
    """Release a criterion, which has or follows its own value again. Raises `BadInput` if it was not fixed."""
    require_permission(actor, "pipeline.steer", _list_running_queues(actor, application, control), ())
    if name not in _read_steered(application, "held_criteria", control):
        raise BadInput("criterion", f"{name} of {application} is not held.")
    _steer(actor, application, "held_criteria", name, None, reason, control)


def restart(actor: Actor, application: str, reason: str, control: redis.Redis) -> PipelineOrder:
    """Restart the application within seconds, at its current events.

    A failed one, or one whose Spark is worn out, starts in a new process. Raises `BadInput` if it is not running.
    """
    return _order(actor, application, "restart", reason, control)


def stop(actor: Actor, application: str, reason: str, control: redis.Redis) -> PipelineOrder:
    """Stop the application between two batches until it is started; its events wait."""
    return _order(actor, application, "stop", reason, control)


def start(actor: Actor, application: str, reason: str, control: redis.Redis) -> PipelineOrder:
    """Start a stopped application where it stopped. Raises `BadInput` if it is not stopped."""
    return _order(actor, application, "start", reason, control)


def _order(actor: Actor, application: str, what: str, reason: str, control: redis.Redis) -> PipelineOrder:
    require_permission(
        actor, "pipeline.steer", _list_running_queues(actor, application, control), [f"application/{application}"]
    )
    why = read_reason(reason)
    _load_running(application, control)
    orders = Orders(control)
    before = orders.load(application)
    if before.stopped == (what == "stop") and what != "restart":
        is_so = "already stopped" if before.stopped else "not stopped"
        raise BadInput("application", f"{application} is {is_so}.")
    with audit_log.record_attempt(actor, f"pipeline.{what}", application, reason=why):
        done: PipelineOrder = getattr(orders, what)(application, actor.name, why)
        return done


def list_application_queues(application: Application) -> list[str]:
    """Return the queues that an application reads, and those that its sinks write to."""
    sinks = {queue for queues in application.sinks.values() for queue in queues}
    return sorted({*application.queues, *sinks})


def _list_replaced_queues(name: str, before: PipelineVersion | None, control: redis.Redis) -> list[str]:
    """Return the queues of everything that has this name now.

    This covers the newest version, the running one, and a process's own file.
    """
    known = Declarations(control)
    at_work = known.load_running().get(name)
    texts = {before.text if before else None, at_work.text if at_work else None, known.load_shipped(name)}
    applications = [parse_application_text(text, TABLES, name) for text in texts if text]
    return sorted({queue for application_ in applications for queue in list_application_queues(application_)})


def _list_running_queues(actor: Actor, application: str, control: redis.Redis) -> list[str] | None:
    """Return the queues of the running version; read only if the actor is limited to some."""
    return None if actor.queues is None else list_application_queues(_load_running(application, control))


def _load_running(application: str, control: redis.Redis) -> Application:
    """Return the running version. Raises `BadInput` if the application is not running."""
    running = Declarations(control).load_running().get(application)
    if running is None:
        raise BadInput("application", f"{application} is not running.")
    return parse_application_text(running.text, TABLES, application)


def _steer(
    actor: Actor, application: str, control_name: str, name: str, value: object, why: str, control: redis.Redis
) -> None:
    """Set a control under this name; None removes it."""
    from_before = _read_steered(application, control_name, control)
    target = f"{application}/{name}"
    noted = {"before": {name: from_before.get(name)}, "after": {name: value}}
    with audit_log.record_attempt(actor, "pipeline.steer", target, reason=why, **noted):
        steer_named(control, application, control_name, {name: value}, from_before)


def _read_steered(application: str, control_name: str, control: redis.Redis) -> dict[str, Any]:
    """Return the value in force of a named control: as set, or else as declared."""
    value = steer(control, application, {}).get(control_name)
    if value is not None:
        return dict(value)
    return dict(_load_running(application, control).controls.to_document()[control_name])
