"""Approval of short retention by a second person.

Retention shorter than a week, or in so little space that it may be shorter (FLOORS), requires two people, as a plan
may. The first request is rejected and recorded in the audit log as `retention.propose`. If another person requests
exactly the same within VALID, it is done, and its audit entry names the proposal: an agreement is valid for one change.
Only the audit log is stored, so neither a proposal nor its use can be forged afterwards.

No job can delete the audit log itself: it grows by some 600 bytes an entry, and only its export removes entries.
"""

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from common.errors import BadInput
from common.parameter import Parameter
from console.accounts.access import Actor
from console.audit import audit_log
from console.models import AuditEntry
from workers.batch.job import read_value
from workers.batch.jobs import retention

JOB = "retention"
FLOOR_DAYS = 7
# By the end of a parameter's name: the minimum that one person may set, and its unit.
FLOORS = {"_days": (FLOOR_DAYS, "d"), "_megabytes": (1_000, "MiB"), "_entries": (1_000_000, "entries")}
# What is moved to files after this time, and not deleted.
MOVED = frozenset({"task_database_days"})
VALID = timedelta(days=1)
PROPOSED = "retention.propose"
USED = "agreed_with"  # in the entry of the change: the sequence number of the proposal


def require_second_person(
    actor: Actor,
    action: str,
    name: str,
    job: str,
    parameters: Mapping[str, Any],
    before: Mapping[str, Any] | None,
    now: datetime,
) -> dict[str, int]:
    """Return additional details for the audit entry of the change; {} if it needs no second person.

    before: the values in force, which need no agreement. Raises `BadInput` that names the value, and records the
    proposal; call it outside of the change's transaction, or the entry is rolled back.
    """
    short = list_shortened(job, parameters, before or {})
    if not short:
        return {}
    values = {
        parameter.name: _parse_whole_number(parameter, parameters[parameter.name])
        for parameter in retention.PARAMETERS
        if parameter.name in parameters
    }
    mark = hashlib.sha256(json.dumps([action, name, values], sort_keys=True).encode()).hexdigest()
    for entry in _list_matching_proposals(name, mark, now):
        if entry.after["person"] != get_person_name(actor) and not _is_used(entry):
            return {USED: entry.sequence}
    if not any(entry.after["person"] == get_person_name(actor) for entry in _list_matching_proposals(name, mark, now)):
        after = {"person": get_person_name(actor), "mark": mark, "for": action, "values": short}
        audit_log.record(actor, PROPOSED, name, after=after)
    field, value = next(iter(short.items()))
    floor, unit = get_parameter_floor(field)
    raise BadInput(
        field,
        f"is {value} {unit}, less than {floor} {unit}, which requires a second user. Your proposal was "
        "recorded. To approve it, another user must send the same request within 24 hours.",
    )


def list_shortened(job: str, parameters: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, int]:
    """Return the values under the floor that are lower than those in force."""
    if job != JOB:
        return {}
    shortened_values = {}
    for parameter in retention.PARAMETERS:
        if parameter.name in MOVED:
            continue
        value = _parse_whole_number(parameter, parameters.get(parameter.name, parameter.default))
        known = _parse_whole_number(parameter, before.get(parameter.name, parameter.default))
        floor, _ = get_parameter_floor(parameter.name)
        was_short = bool(before) and is_short(known, floor) and known <= value
        if is_short(value, floor) and not was_short:
            shortened_values[parameter.name] = value
    return shortened_values


def get_parameter_floor(name: str) -> tuple[int, str]:
    """Return the minimum that one person may set of a parameter, and its unit."""
    return next(floor for end, floor in FLOORS.items() if name.endswith(end))


def is_short(value: int, floor: int = FLOOR_DAYS) -> bool:
    return retention.FOREVER < value < floor


def get_person_name(actor: Actor) -> str:
    """Return the person behind a session, a token, or a command: two tokens of one person count as one."""
    return actor.user.get_username() if actor.user else actor.name


def list_waiting(name: str, now: datetime) -> list[AuditEntry]:
    """Return proposals about a task that another person may still agree to, the newest first."""
    proposals = AuditEntry.objects.filter(action=PROPOSED, target=name, at__gt=now - VALID).order_by("-sequence")
    return [entry for entry in proposals if not _is_used(entry)]


def _list_matching_proposals(name: str, mark: str, now: datetime) -> list[AuditEntry]:
    return [entry for entry in list_waiting(name, now) if entry.after["mark"] == mark]


def _is_used(entry: AuditEntry) -> bool:
    later = AuditEntry.objects.filter(sequence__gt=entry.sequence, target=entry.target)
    documents = (proposal.after for proposal in later if isinstance(proposal.after, dict))
    return any(document.get(USED) == entry.sequence for document in documents)


def _parse_whole_number(parameter: Parameter, value: object) -> int:
    """Return the whole number. Raises `BadInput` that names the parameter."""
    return int(read_value(parameter, value))
