"""From the database, which is the truth, to `weir:topology`, which everything that moves events reads."""

from collections.abc import Mapping
from typing import Any

import redis
from django.core.exceptions import ValidationError
from django.db import transaction

from queues import points as thousand
from queues.errors import BadInput, BadTopology, NodeUnavailable
from queues.models import Container, Node, Queue, TopologyRevision
from queues.topology import KEY, Capacity, NodeSpec, QueueSpec, Topology

Overriding = Mapping[str, Mapping[str, float]]


def read_database(thresholds: Overriding | None = None) -> Topology:
    """The topology in the database. `thresholds` ({node: {"busy", "toobusy"}}) replace a node's own."""
    number = TopologyRevision.objects.values_list("number", flat=True).first() or 0
    nodes = {
        node.name: _node(node, (thresholds or {}).get(node.name, {}))
        for node in Node.objects.order_by("name")
    }
    queues = Queue.objects.prefetch_related("containers__node").order_by("name")
    return Topology(number, nodes, {queue.name: _queue(queue) for queue in queues}).checked()


def project(control: redis.Redis, thresholds: Overriding | None = None) -> Topology:
    """Raise the revision and write the topology to the control server; returns what was written.

    The write happens inside the transaction: while it lasts the revision's row is locked, so two projections
    write in the order of their revisions, and when the control server does not answer nothing is changed.
    Raises `NodeUnavailable` then.
    """
    with transaction.atomic():
        row, _ = TopologyRevision.objects.select_for_update().get_or_create(pk=1)
        row.number += 1
        row.save(update_fields=["number"])
        topology = read_database(thresholds)
        try:
            control.set(KEY, topology.to_json())
        except (redis.RedisError, OSError) as error:
            raise NodeUnavailable(
                f"The control server does not answer ({error}); nothing was changed."
            ) from error
    return topology


def create_queue(
    control: redis.Redis,
    name: str,
    kind: str,
    points: Mapping[str, int] | None = None,
    thresholds: Overriding | None = None,
    **settings: Any,
) -> Topology:
    """A new queue with its containers (equal points on every node that is not drained by default), projected.

    `settings` are the other fields of `Queue`. Raises `BadInput` naming the field; nothing is changed then.
    """
    with transaction.atomic():
        queue = _made(Queue, name=name, kind=kind, **settings)
        if Queue.objects.filter(name=name).exists():
            raise BadInput("name", f"{name} is a queue already.")
        shared = points or thousand.share(
            list(Node.objects.filter(drained=False).order_by("name").values_list("name", flat=True))
        )
        queue.save()
        _write_points(queue, shared)
        return project(control, thresholds)


def set_points(
    control: redis.Redis, queue: str, points: Mapping[str, int], thresholds: Overriding | None = None
) -> Topology:
    """Give a queue other points, projected. Raises `BadInput` naming the field; nothing is changed then."""
    with transaction.atomic():
        row = Queue.objects.select_for_update().filter(name=queue).first()
        if row is None:
            read_database().queue(queue)
        _write_points(row, points)
        return project(control, thresholds)


def _write_points(queue: Queue, points: Mapping[str, int]) -> None:
    checked = thousand.checked(points)
    nodes = {node.name: node for node in Node.objects.filter(name__in=checked)}
    for name in checked:
        if name not in nodes:
            raise BadInput(f"points.{name}", "is not a node.")
    if len(checked) < queue.minimum_containers:
        message = (
            f"takes {queue.minimum_containers} containers or more (minimum_containers), not {len(checked)}."
        )
        raise BadInput("points", message)
    queue.containers.exclude(node__name__in=checked).delete()
    for name, value in checked.items():
        Container.objects.update_or_create(queue=queue, node=nodes[name], defaults={"points": value})


def _made(model: type[Queue], **values: Any) -> Queue:
    """A validated, unsaved row; the first field that is wrong is named."""
    known = {field.name for field in model._meta.get_fields()}
    for name in values:
        if name not in known:
            raise BadInput(name, f"is not known; the fields are {', '.join(sorted(known))}.")
    row = model(**values)
    try:
        row.clean_fields()
    except ValidationError as error:
        field, messages = next(iter(error.message_dict.items()))
        raise BadInput(field, " ".join(messages)) from None
    return row


def _node(node: Node, thresholds: Mapping[str, float]) -> NodeSpec:
    spec = NodeSpec(
        name=node.name,
        url=node.url,
        capacity=Capacity(node.capacity_events_per_second, node.capacity_memory_bytes),
        busy=thresholds.get("busy", node.busy_threshold),
        toobusy=thresholds.get("toobusy", node.toobusy_threshold),
        drained=node.drained,
    )
    if not 0 < spec.busy < spec.toobusy:
        raise BadTopology(
            f"nodes.{node.name}.busy", f"takes a share above 0 and below toobusy ({spec.toobusy})."
        )
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
    )
