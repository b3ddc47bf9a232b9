"""Queues created and changed by users: validated as topology, shown as a difference, authorized, and audited.

Points are excluded: those of an existing queue change by a plan (`console.actions.proposals`).
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import redis
from django.conf import settings
from django.db import transaction

from common.checks import check_capabilities
from common.errors import BadInput
from console.accounts.access import Actor, require_permission
from console.audit import audit_log
from console.input.form_values import digest_of
from console.models import AuditEntry
from queues import projection
from queues.durability import MEMORY
from queues.durability import NAMES as DURABILITY_NAMES
from queues.models import Queue
from queues.nodes.write_sync import check_nodes
from queues.topology import NodeSpec, Topology
from workers.consumer import registry
from workers.consumer.handler import Place
from workers.host.egress import HIDDEN
from workers.steering import enforcing
from workers.steering.overrides import read_reason

FIELDS = (
    "handler",
    "handler_options",
    "events_per_worker",
    "tries",
    "handler_timeout_seconds",
    "priority",
    "minimum_containers",
    "requirements",
    "durability",
)
# Rejections of these are recorded: somebody tries addresses that workers must not contact, or code that must not run.
REACHING = ("handler", "handler_options.url")
MAX_CHANGES = 20  # the newest changes of a queue that show which of them are rollbacks


@dataclass(frozen=True)
class QueueChange:
    """The differences of a change. digest: of the queue as shown."""

    queue: str
    before: dict[str, Any]
    after: dict[str, Any]
    digest: str

    def list_changed_lines(self) -> list[str]:
        """Return a line for each changed field."""
        return [
            f"{name}: {_format_value(self.before.get(name))} → {_format_value(self.after[name])}" for name in self.after
        ]


def get_queue_definition(queue: Queue) -> dict[str, Any]:
    """Return the definition of a queue: what can be changed."""
    return {name: getattr(queue, name) for name in FIELDS}


def build_queue_change(actor: Actor, queue: Queue, fields: Mapping[str, Any]) -> QueueChange:
    """Return what the fields would change, fully validated. Raises `BadInput` that names the field."""
    before = get_queue_definition(queue)
    unknown = [name for name in fields if name not in FIELDS]
    if unknown:
        raise BadInput(unknown[0], f"can't be changed here. The fields are {', '.join(FIELDS)}.")
    given = _check_requirements(queue.kind, fields)
    if given.get("durability", queue.durability) != queue.durability:
        _check_durability(given["durability"], _list_nodes(queue))
    changed = {name: value for name, value in given.items() if value != before[name]}
    if {"handler", "handler_options"} & changed.keys():  # what the host itself has set stays unchanged
        _check(actor, queue.name, queue.kind, {**before, **changed})
    return QueueChange(queue.name, {name: before[name] for name in changed}, changed, digest_of(before))


def _check_durability(durability: str, nodes: Sequence[NodeSpec]) -> None:
    """Raise `BadInput` if a queue on these nodes can't have the durability."""
    if durability not in DURABILITY_NAMES:
        raise BadInput("durability", f"must be one of {', '.join(DURABILITY_NAMES)}, not {durability[:40]!r}.")
    check_nodes(durability, nodes)


def _list_nodes(queue: Queue) -> list[NodeSpec]:
    """Return the nodes with points of a queue, or all that accept points for a new queue."""
    nodes = projection.read_database().nodes.values()
    if queue.pk is None:
        return [spec for spec in nodes if spec.takes_points]
    held = set(queue.containers.filter(points__gt=0).values_list("node__name", flat=True))
    return [spec for spec in nodes if spec.name in held]


def _check_requirements(kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields with valid requirements. Raises `BadInput`."""
    if not fields.get("requirements"):
        return dict(fields)
    if kind != Queue.Kind.JOBS:
        raise BadInput(
            "requirements", "apply only to jobs queues, but the pipeline reads this queue. Leave the field empty."
        )
    return {**fields, "requirements": list(check_capabilities(fields["requirements"], "requirements"))}


def preview(actor: Actor, queue: Queue, fields: Mapping[str, Any]) -> QueueChange:
    """Return the difference for a user who may make it. Validating a definition may import code of the host."""
    require_permission(actor, "queue.define", [queue.name], ())
    return build_queue_change(actor, queue, fields)


def audit_document(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a queue for the audit log, without possible secrets."""
    options = fields.get("handler_options")
    hidden = {"handler_options": registry.remove_secrets(options)} if isinstance(options, Mapping) else {}
    return {**fields, **hidden}


def _check(actor: Actor, name: str, kind: str, definition: Mapping[str, Any]) -> None:
    if kind == Queue.Kind.JOBS:
        handler, options, data = definition["handler"], definition["handler_options"], settings.WEIR_DATA
        with audit_log.audit_refusals(actor, "queue.define", name, REACHING):
            registry.check(handler, options, data)
            registry.build(handler, options, Place(name, data))
    elif definition["handler"] or definition["handler_options"]:
        raise BadInput("handler", "is for jobs queues. The pipeline reads this queue. Leave the field empty.")


@transaction.atomic
def change(
    actor: Actor, name: str, fields: Mapping[str, Any], *, digest: str, reason: str, now: datetime, control: redis.Redis
) -> QueueChange:
    """Change a queue as the difference said; workers that start from now on follow it.

    digest: of the queue as shown, so that nobody overwrites another change. Raises `BadInput`.
    """
    require_permission(actor, "queue.define", [name])
    why = read_reason(reason)
    queue = Queue.objects.select_for_update().filter(name=name).first()
    if queue is None:
        raise BadInput("queue", f"{name[:40]} is not a queue.")
    change_ = build_queue_change(actor, queue, fields)
    if digest != change_.digest:
        raise BadInput("digest", f"{name} was changed in the meantime. Reload the page and change it again.")
    if not change_.after:
        raise BadInput("queue", "is unchanged. Change at least one field.")
    projection.change_queue(control, name, change_.after, enforcing.get_node_thresholds(now))
    before, after = audit_document(change_.before), audit_document(change_.after)
    audit_log.record(actor, "queue.change", name, reason=why, before=before, after=after)
    return change_


def find_version_before(queue: Queue) -> AuditEntry | None:
    """Return the audit entry of the queue's last change; None if its previous values can't be restored.

    They can't if somebody changed the same fields outside the console, or if the log hides secrets of the handler. A
    rollback can't be rolled back.
    """
    entry = AuditEntry.objects.filter(action="queue.change", target=queue.name).order_by("-pk").first()
    if entry is None or not isinstance(entry.before, dict) or not isinstance(entry.after, dict):
        return None
    if is_roll_back(entry):
        return None
    current = get_queue_definition(queue)
    is_current = entry.after == audit_document({name: current.get(name) for name in entry.after})
    return entry if is_current and is_restorable(entry.before) else None


def is_roll_back(entry: AuditEntry) -> bool:
    """Return whether a change of a queue restored the values from before its previous change."""
    changes = AuditEntry.objects.filter(action="queue.change", target=entry.target, pk__lte=entry.pk)
    newest = list(changes.order_by("-pk")[:MAX_CHANGES])
    is_back = False
    for before, after in itertools.pairwise(newest[::-1]):
        is_back = not is_back and before.before == after.after
    return is_back


def is_restorable(before: Mapping[str, Any]) -> bool:
    """Return whether the audit log has all previous values of a change: it hides secrets and paths of addresses."""
    options = before.get("handler_options") or {}
    return not any(name == "url" or HIDDEN in str(value) for name, value in options.items())


def roll_back(actor: Actor, name: str, entry: int, *, reason: str, now: datetime, control: redis.Redis) -> QueueChange:
    """Undo the queue's last change, which the audit entry records. Raises `BadInput` that names queue or entry."""
    require_permission(actor, "queue.define", [name])
    queue = Queue.objects.filter(name=name).first()
    if queue is None:
        raise BadInput("queue", f"{name[:40]} is not a queue.")
    last = find_version_before(queue)
    if last is None or last.pk != entry:
        raise BadInput("entry", f"is not the last change of {name}. Reload the page to see its current definition.")
    digest = digest_of(get_queue_definition(queue))
    return change(actor, name, last.before or {}, digest=digest, reason=reason, now=now, control=control)


@transaction.atomic
def create(
    actor: Actor,
    name: str,
    kind: str,
    fields: Mapping[str, Any],
    *,
    points: Mapping[str, int] | None = None,
    reason: str,
    now: datetime,
    control: redis.Redis,
) -> Topology:
    """Create a queue, with equal points on every node that accepts any unless `points` are given.

    Raises `BadInput` that names the field; nothing is changed then.
    """
    require_permission(actor, "queue.define", [name])
    why = read_reason(reason)
    unknown = [field for field in fields if field not in FIELDS]
    if unknown:
        raise BadInput(unknown[0], f"is unknown. The fields are {', '.join(FIELDS)}.")
    if kind not in Queue.Kind.values:
        raise BadInput("kind", f"must be {' or '.join(Queue.Kind.values)}, not {kind[:40]!r}.")
    given = _check_requirements(kind, fields if kind != Queue.Kind.PIPELINE else {"handler": "", **fields})
    _check(actor, name, kind, {**get_queue_definition(Queue()), **given})
    _check_durability(given.get("durability", MEMORY), _list_nodes(Queue()))
    topology = projection.create_queue(control, name, kind, points, enforcing.get_node_thresholds(now), **given)
    after = {"kind": kind, "points": dict(topology.queues[name].points), **audit_document(given)}
    audit_log.record(actor, "queue.create", name, reason=why, after=after)
    return topology


def _format_value(value: object) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
