"""The projection of the database to `weir:topology`.

The database is the source of truth. Everything that moves events reads the projection.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import redis
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils import timezone

from common.errors import BadInput, BadTopology, NodeUnavailable, UnknownQueue, WeirError, describe_connection_error
from queues import keys
from queues import points as thousand
from queues.control.replies import expect_bytes
from queues.models import Container, Node, Queue, TopologyRevision
from queues.topology import Capacity, NodeSpec, QueueSpec, Topology

Overriding = Mapping[str, Mapping[str, float]]
PointsByQueue = Mapping[str, Mapping[str, int]]


class PointsDrifted(WeirError):  # noqa: N818
    """Raised when a queue's points are not those from which a change was computed; nothing was changed."""


def read_database(thresholds: Overriding | None = None) -> Topology:
    """Return the topology in the database. `thresholds` ({node: {"busy", "toobusy"}}) replace a node's own."""
    number = TopologyRevision.objects.values_list("number", flat=True).first() or 0
    nodes = {
        node.name: _build_node_spec(node, (thresholds or {}).get(node.name, {}))
        for node in Node.objects.order_by("name")
    }
    queues = Queue.objects.prefetch_related("containers__node").order_by("name")
    return Topology(number, nodes, {queue.name: _queue(queue) for queue in queues}).check()


def lock_revision() -> TopologyRevision:
    """Lock the row of the revision, so that no other process projects until the transaction ends.

    If you also take the lock of the audit log, take this one first: the audit entry is the last thing that a
    transaction locks.
    """
    return TopologyRevision.objects.select_for_update().get_or_create(pk=1)[0]


def project(control: redis.Redis, thresholds: Overriding | None = None) -> Topology:
    """Raise the revision and write the topology to the control server. Returns what was written.

    The write happens inside the transaction. Since the revision's row is locked in the meantime, two projections write
    in the order of their revisions, and if the control server does not answer, nothing is changed. Raises
    `NodeUnavailable` in that case, and `BadTopology` for an unreadable topology, which would stop everything that moves
    events, of any queue.
    """
    with transaction.atomic():
        row = lock_revision()
        row.number += 1
        row.save(update_fields=["number"])
        topology = read_database(thresholds)
        document = topology.to_json()
        Topology.from_json(document)
        try:
            control.set(keys.TOPOLOGY, document)
        except (redis.RedisError, OSError) as error:
            raise NodeUnavailable(
                f"The control server is not responding ({describe_connection_error(error)}). Nothing was changed."
            ) from error
    return topology


def reconcile(control: redis.Redis, thresholds: Overriding | None = None) -> bool:
    """Project again if the control server has anything else than the database. Returns True if it had.

    The write comes before the commit (`project`), so a process that dies in between leaves a topology that never
    existed. A control server that lost its last second, or everything, has an old topology or none.
    """
    # A database from which nothing was ever projected has nothing to write.
    if not TopologyRevision.objects.filter(number__gt=0).exists() or _is_projected(control, thresholds):
        return False
    with transaction.atomic():
        # A concurrent projection has ended by now, and the topology may be right.
        lock_revision()
        if _is_projected(control, thresholds):
            return False
        project(control, thresholds)
    return True


def _is_projected(control: redis.Redis, thresholds: Overriding | None) -> bool:
    stored = expect_bytes(control).get(keys.TOPOLOGY)
    return stored is not None and stored.decode() == read_database(thresholds).to_json()


def create_queue(
    control: redis.Redis,
    name: str,
    kind: str,
    points: Mapping[str, int] | None = None,
    thresholds: Overriding | None = None,
    **settings: object,
) -> Topology:
    """Create a queue with its containers, and project it.

    By default, every node that takes containers gets equal points. `settings` are the other fields of `Queue`. Raises
    `BadInput` that names the field; nothing is changed then.
    """
    with transaction.atomic():
        queue = _build_row(Queue, name=name, kind=kind, **settings)
        try:
            with transaction.atomic():
                queue.save()
        except IntegrityError:  # also if another process creates it just now
            raise BadInput("name", f"A queue named {name} already exists.") from None
        shared = points or thousand.share(
            list(Node.objects.filter(drained=False, cordoned=False).order_by("name").values_list("name", flat=True))
        )
        _write_points(queue, shared)
        _check_readable(thresholds)
        return project(control, thresholds)


def change_queue(
    control: redis.Redis, name: str, fields: Mapping[str, Any], thresholds: Overriding | None = None
) -> Topology:
    """Change settings of a queue (fields of `Queue`, not its points), and project it.

    Raises `BadInput` that names the field; nothing is changed then.
    """
    with transaction.atomic():
        row = Queue.objects.select_for_update().filter(name=name).first()
        if row is None:
            raise UnknownQueue("queue", f"{name} is unknown.")
        for field, value in fields.items():
            setattr(row, field, value)
        _clean(row)
        live = row.containers.filter(points__gt=0).count()
        # It may be short already, as nodes were lost: that prevents no other change.
        if "minimum_containers" in fields and not 1 <= row.minimum_containers <= live:
            message = f"must be 1 to {live}, the queue's number of containers. Move points to more nodes first."
            raise BadInput("minimum_containers", message)
        row.save(update_fields=list(fields))
        _check_readable(thresholds)
        return project(control, thresholds)


def _check_readable(thresholds: Overriding | None) -> None:
    """Check that everything that moves events could read the projection. Raises `BadInput` that names the field."""
    try:
        Topology.from_json(read_database(thresholds).to_json())
    except BadTopology as error:
        raise BadInput(error.field.rpartition(".")[2], error.message) from None


def move_points(
    control: redis.Redis,
    before: PointsByQueue,
    after: PointsByQueue,
    thresholds: Overriding | None = None,
    now: datetime | None = None,
    may_be_short: bool = False,
) -> Topology:
    """Give queues the points `after` if they still have those of `before` (draining containers aside).

    Compare-and-set, all queues in one transaction with the projection. A node left without points keeps a draining
    container. `may_be_short`: accept fewer containers than the minimum, as nodes were lost. Raises `PointsDrifted` if
    another change came first, and `BadInput` that names the field; nothing is changed then.
    """
    with transaction.atomic():
        rows = {row.name: row for row in Queue.objects.select_for_update().filter(name__in=list(after))}
        for name in sorted(after):
            if name not in rows:
                read_database().queue(name)
            held = rows[name].containers.filter(points__gt=0).select_related("node")
            if {container.node.name: container.points for container in held} != dict(before[name]):
                raise PointsDrifted(f"The points of queue {name} have changed in the meantime. Nothing was moved.")
            # A queue that is short already, as nodes were lost, gets no shorter; its points may move.
            least = 1 if may_be_short else min(rows[name].minimum_containers, len(before[name]))
            _write_points(rows[name], after[name], now, least)
        return project(control, thresholds)


def keep_draining(
    control: redis.Redis,
    containers: Iterable[tuple[str, str]],
    thresholds: Overriding | None = None,
    now: datetime | None = None,
) -> int:
    """Create draining containers for pairs (queue, node) that have events but no container, and project them.

    Returns how many. A flush that was under way while points moved may arrive after its container was retired, and is
    found in this way.
    """
    made = 0
    with transaction.atomic():
        for queue, node in containers:
            ends = Queue.objects.filter(name=queue).first(), Node.objects.filter(name=node).first()
            if None not in ends:
                defaults = {"points": 0, "draining_since": now or timezone.now()}
                made += Container.objects.get_or_create(queue=ends[0], node=ends[1], defaults=defaults)[1]
        if made:
            project(control, thresholds)
    return made


def retire_containers(
    control: redis.Redis, containers: Iterable[tuple[str, str]], thresholds: Overriding | None = None
) -> int:
    """Remove draining containers (queue, node) that are empty, and project. Returns how many were removed.

    One that has received points in the meantime stays.
    """
    with transaction.atomic():
        gone = 0
        for queue, node in containers:
            rows = Container.objects.filter(queue__name=queue, node__name=node, points=0)
            # Locked before it is judged: PostgreSQL does not repeat a sub-query for a row that it waited for,
            # and would delete one that has received points in the meantime.
            if (row := rows.select_for_update(of=("self",)).first()) is not None:
                gone += row.delete()[0]
        if gone:
            project(control, thresholds)
    return gone


def _write_points(
    queue: Queue, points: Mapping[str, int], now: datetime | None = None, least: int | None = None
) -> None:
    checked, least = thousand.check_points(points), least or queue.minimum_containers
    nodes = {node.name: node for node in Node.objects.filter(name__in=checked)}
    for name in checked:
        if name not in nodes:
            raise BadInput(f"points.{name}", "is not a node.")
    if len(checked) < least:
        message = f"must have at least {least} containers (minimum_containers), not {len(checked)}."
        raise BadInput("points", message)
    # Events in a container that loses its points are still consumed there: it drains, and is removed when empty.
    left = queue.containers.filter(points__gt=0).exclude(node__name__in=checked)
    left.update(points=0, draining_since=now or timezone.now())
    for name, value in checked.items():
        defaults = {"points": value, "draining_since": None}
        Container.objects.update_or_create(queue=queue, node=nodes[name], defaults=defaults)


def _build_row(model: type[Queue], **values: object) -> Queue:
    """Build a validated, unsaved row. An error names the first field that is wrong."""
    known = {field.name for field in model._meta.get_fields()}
    for name in values:
        if name not in known:
            raise BadInput(name, f"is unknown. The fields are {', '.join(sorted(known))}.")
    row = model(**values)
    _clean(row)
    return row


def _clean(row: Queue) -> None:
    """Raise `BadInput` for the first field that is wrong."""
    blank = ["handler"] if row.kind == Queue.Kind.PIPELINE else []
    try:
        row.clean_fields(exclude=blank)
    except ValidationError as error:
        field, messages = next(iter(error.message_dict.items()))
        raise BadInput(field, " ".join(messages)) from None


def _build_node_spec(node: Node, thresholds: Mapping[str, float]) -> NodeSpec:
    spec = NodeSpec(
        name=node.name,
        url=node.get_primary_url(),
        capacity=Capacity(node.capacity_events_per_second, node.capacity_memory_bytes),
        busy=thresholds.get("busy", node.busy_threshold),
        toobusy=thresholds.get("toobusy", node.toobusy_threshold),
        drained=node.drained,
        cordoned=node.cordoned,
        replica_url=node.get_replica_url(),
        promotions=node.promotions if node.replica_url else 0,
    )
    if not 0 < spec.busy < spec.toobusy:
        raise BadTopology(f"nodes.{node.name}.busy", f"must be a share above 0 and below toobusy ({spec.toobusy}).")
    return spec


def _queue(queue: Queue) -> QueueSpec:
    containers = sorted(queue.containers.all(), key=lambda container: container.node.name)
    return QueueSpec(
        name=queue.name,
        kind=queue.kind,
        points={container.node.name: container.points for container in containers},
        priority=queue.priority,
        minimum_containers=queue.minimum_containers,
        handler=queue.handler,
        handler_options=queue.handler_options,
        events_per_worker=queue.events_per_worker,
        tries=queue.tries,
        handler_timeout_seconds=queue.handler_timeout_seconds,
        requirements=tuple(queue.requirements),
        durability=queue.durability,
    )
