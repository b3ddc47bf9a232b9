"""Keeping data for less than a week, or in so little room that it may be less (FLOORS), asks a second person,
as a plan may: one proposes, another agrees.

Who asks for it is refused, and the request stands in the audit as `retention.propose`. When somebody else
asks for the very same within VALID, it is done, and the entry of what was done names the proposal: an
agreement is good for one change. Nothing is kept but the audit, so that neither a proposal nor its use can be
made up afterwards.

The audit itself is no job's to delete: it grows by some 600 bytes an entry, and leaves by its export only.
"""

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from console.accounts.access import Actor
from console.audit import audit_log
from console.models import AuditEntry
from queues.errors import BadInput
from workers.batch.jobs import retention

JOB = "retention"
FLOOR_DAYS = 7
# By the end of a parameter's name: the least that one person may set, and its unit.
FLOORS = {"_days": (FLOOR_DAYS, "d"), "_megabytes": (1_000, "MB"), "_entries": (1_000_000, "entries")}
VALID = timedelta(days=1)
PROPOSED = "retention.propose"
USED = "agreed_with"  # in the entry of what was done: the sequence number of the proposal


def agreement(
    actor: Actor,
    action: str,
    name: str,
    job: str,
    parameters: Mapping[str, Any],
    before: Mapping[str, Any] | None,
    now: datetime,
) -> dict[str, int]:
    """What the audit's entry of the change is to say besides; {} when it takes no second person.

    before: the values that are in force, which are not asked about again. Raises BadInput naming the value,
    and notes the proposal; to be called outside of the change's transaction, or the note is rolled back.
    """
    short = list_shortened(job, parameters, before or {})
    if not short:
        return {}
    mark = _mark(action, name, parameters)
    for entry in _proposals(name, mark, now):
        if entry.after["person"] != person(actor) and not _is_used(entry):
            return {USED: entry.sequence}
    if not any(entry.after["person"] == person(actor) for entry in _proposals(name, mark, now)):
        after = {"person": person(actor), "mark": mark, "for": action, "values": short}
        audit_log.record(actor, PROPOSED, name, after=after)
    field, value = next(iter(short.items()))
    floor, unit = floor_of(field)
    raise BadInput(
        field,
        f"is {value} {unit}, less than {floor} {unit}: a second person has to agree. Your proposal is noted;"
        " when somebody else sends the very same within 24 hours, it is done.",
    )


def list_shortened(job: str, parameters: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, int]:
    """The values under the floor that are lower than what is in force."""
    if job != JOB:
        return {}
    found = {}
    for parameter in retention.PARAMETERS:
        value = _whole(parameter, parameters.get(parameter.name, parameter.default))
        known = _whole(parameter, before.get(parameter.name, parameter.default))
        floor, _ = floor_of(parameter.name)
        was_short = bool(before) and is_short(known, floor) and known <= value
        if is_short(value, floor) and not was_short:
            found[parameter.name] = value
    return found


def floor_of(name: str) -> tuple[int, str]:
    """The least that one person may set of a parameter, and its unit."""
    return next(floor for end, floor in FLOORS.items() if name.endswith(end))


def is_short(value: int, floor: int = FLOOR_DAYS) -> bool:
    return retention.FOREVER < value < floor


def person(actor: Actor) -> str:
    """Whoever stands behind a session, a token or a command: two tokens of one person are one."""
    return actor.user.get_username() if actor.user else actor.name


def list_waiting(name: str, now: datetime) -> list[AuditEntry]:
    """Proposals about a task that somebody else may still agree with, the newest first."""
    found = AuditEntry.objects.filter(action=PROPOSED, target=name, at__gt=now - VALID).order_by("-sequence")
    return [entry for entry in found if not _is_used(entry)]


def _proposals(name: str, mark: str, now: datetime) -> list[AuditEntry]:
    return [entry for entry in list_waiting(name, now) if entry.after["mark"] == mark]


def _is_used(entry: AuditEntry) -> bool:
    later = AuditEntry.objects.filter(sequence__gt=entry.sequence, target=entry.target)
    documents = (proposal.after for proposal in later if isinstance(proposal.after, dict))
    return any(document.get(USED) == entry.sequence for document in documents)


def _mark(action: str, name: str, parameters: Mapping[str, Any]) -> str:
    """The very same: of the same task, with the same values, however they are written."""
    values = {
        parameter.name: _whole(parameter, parameters[parameter.name])
        for parameter in retention.PARAMETERS
        if parameter.name in parameters
    }
    return hashlib.sha256(json.dumps([action, name, values], sort_keys=True).encode()).hexdigest()


def _whole(parameter: Any, value: Any) -> int:
    """Raises BadInput naming the parameter."""
    return int(parameter.read(value))
