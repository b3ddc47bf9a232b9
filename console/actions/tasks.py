"""User actions on batch tasks and their runs: authorized, and audited in the same transaction.

All raise `PermissionDenied`, and `BadInput` that names the field; then nothing was changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time
from typing import Any

from django.db import transaction
from django.utils import timezone

from common.errors import BadInput
from console.accounts.access import Actor, admit, require_permission, require_recent_confirmation
from console.actions import second_person
from console.actions.task_documents import audit_document
from console.audit import audit_log
from console.input.form_values import check_unchanged
from workers.batch import runs, task_definitions
from workers.batch.catalog import OWN
from workers.batch.job import JobContext
from workers.host import environment
from workers.models import Run, Task
from workers.steering.overrides import read_reason

RETENTION = "retention"


@dataclass(frozen=True)
class WantedTask:
    """A new definition of a task. With neither interval nor crontab it only runs on request."""

    job: str
    parameters: Mapping[str, Any]
    parallel: int
    requirements: Sequence[str]
    interval_seconds: int | None = None
    crontab: str | None = None
    deadline: time | None = None
    enabled: bool = True


def begin(
    actor: Actor, name: str, parameters: Mapping[str, Any], deadline_at: datetime | None, reason: str, where: JobContext
) -> Run:
    """Run a task now, with these parameters over its own. Retention of less than a week requires two people."""
    admit(actor, "task.run")
    why = read_reason(reason)
    task = runs.get_task(name)
    values = {**task.parameters, **parameters}
    require_permission(actor, "task.run", list_parameter_queues(values))
    agreed = second_person.require_second_person(actor, "task.run", name, task.job, values, task.parameters, where.now)
    with transaction.atomic():
        run = runs.begin(name, where, parameters, owner=actor.user, deadline_at=deadline_at)
        audit_log.record(actor, "task.run", name, reason=why, after={"run": run.pk, **run.parameters, **agreed})
    return run


@transaction.atomic
def cancel(actor: Actor, run: Run, reason: str, now: datetime) -> Run:
    """Cancel an open run. Finished work stays, and the run may be resumed."""
    require_permission(actor, "task.cancel", list_parameter_queues(run.parameters))
    why = read_reason(reason)
    return _record_change(actor, "task.cancel", run, runs.cancel(run, now), why)


@transaction.atomic
def resume(actor: Actor, run: Run, reason: str, now: datetime) -> Run:
    """Resume a failed or canceled run."""
    require_permission(actor, "task.resume", list_parameter_queues(run.parameters))
    why = read_reason(reason)
    return _record_change(actor, "task.resume", run, runs.resume(run, now), why)


def change(actor: Actor, name: str, definition: WantedTask, reason: str, digest: str = "") -> Task:
    """Change a task: its schedule, parameters, deadline, workers, requirements; enabled or not.

    Retention of less than a week requires two people. digest: of the task as shown.
    """
    admit(actor, "task.change")
    why = read_reason(reason)
    before = runs.get_task(name)
    check_unchanged(name, audit_document(before), digest)
    for parameters in (before.parameters, definition.parameters):
        require_permission(actor, "task.change", list_parameter_queues(parameters))
    if RETENTION in (before.job, definition.job):
        require_recent_confirmation(actor)  # it decides what is deleted
    if definition.job != before.job:
        require_permission(actor, "task.define")
        _check_own(actor, name, definition.job)
    in_force = before.parameters if before.job == definition.job else None
    agreed = second_person.require_second_person(
        actor, "task.change", name, definition.job, definition.parameters, in_force, timezone.now()
    )
    with transaction.atomic():
        noted = audit_document(before)
        made = _define(name, definition, before.single_instance)
        after = {**audit_document(made), **agreed}
        audit_log.record(actor, "task.change", name, reason=why, before=noted, after=after)
    return made


def define(actor: Actor, name: str, definition: WantedTask, reason: str) -> Task:
    """Create a task of a job.

    Its job may be code of the host's own, so it requires an administrator; retention of less than a week requires two
    people.
    """
    require_permission(actor, "task.define")
    _check_own(actor, name, definition.job)
    why = read_reason(reason)
    if Task.objects.filter(name=name).exists():
        raise BadInput("name", (f"{name} is already taken. Open that task to change it, or choose another name."))
    agreed = second_person.require_second_person(
        actor, "task.define", name, definition.job, definition.parameters, None, timezone.now()
    )
    with transaction.atomic():
        made = _define(name, definition, None)
        audit_log.record(actor, "task.define", name, reason=why, after={**audit_document(made), **agreed})
    return made


@transaction.atomic
def pause_schedules(actor: Actor, reason: str) -> list[str]:
    """Pause the schedules of all tasks; return the names of the tasks that were not paused or disabled before."""
    require_permission(actor, "task.change")
    why, names = read_reason(reason), task_definitions.pause_schedules()
    if not names:
        raise BadInput("schedules", "are all paused or disabled already.")
    audit_log.record(actor, "task.pause_all", "schedules", reason=why, after={"tasks": names})
    return names


@transaction.atomic
def resume_schedules(actor: Actor, reason: str) -> list[str]:
    """Resume exactly the schedules that were paused together; return the names of their tasks."""
    require_permission(actor, "task.change")
    why, names = read_reason(reason), task_definitions.resume_schedules()
    if not names:
        raise BadInput("schedules", "are not paused.")
    audit_log.record(actor, "task.resume_all", "schedules", reason=why, before={"tasks": names})
    return names


def _check_own(actor: Actor, name: str, job: str) -> None:
    """Raise `BadInput`, before any import, for code that people may not name."""
    if job.startswith(OWN):
        with audit_log.audit_refusals(actor, "task.define", name, ("job",)):
            environment.check_handler_path(job.removeprefix(OWN), "job")


def _define(name: str, definition: WantedTask, single_instance: bool | None) -> Task:
    if definition.job.startswith(OWN) and not definition.job.removeprefix(OWN).strip():
        raise BadInput("job", "must be python: followed by the dotted path of a Job.")
    return task_definitions.define(
        name,
        definition.job,
        parameters=definition.parameters,
        requirements=definition.requirements,
        single_instance=single_instance,
        parallel=definition.parallel,
        deadline=definition.deadline,
        every_seconds=definition.interval_seconds,
        crontab_line=definition.crontab,
        enabled=definition.enabled,
    )


def _record_change(actor: Actor, action: str, before: Run, after: Run, reason: str) -> Run:
    states = {"before": {"state": before.state}, "after": {"state": after.state}}
    audit_log.record(actor, action, f"run {after.pk} of {after.task.name}", reason=reason, **states)
    return after


def list_parameter_queues(parameters: Mapping[str, Any]) -> list[str] | None:
    """Return the queues that a task's parameters name; None if it works on all."""
    if parameters.get("queue"):
        return [str(parameters["queue"])]
    names = parameters.get("queues")
    return [str(name) for name in names] if isinstance(names, list | tuple) and names else None
