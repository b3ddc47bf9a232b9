"""The current plant: queues, nodes, and the live snapshot."""

from typing import Any

from django.forms.models import model_to_dict
from django.http import Http404, HttpRequest

from common.errors import UnknownQueue
from common.stored_document import convert_to_plain
from console.api.answer.router import Router
from console.api.answer.schema import convert
from console.api.request.authentication import actor_for
from console.api.request.refusals import build_no_snapshot
from console.api.schemas.plant import NodeList, NodeRow, QueueList, QueueRow
from console.api.schemas.snapshot import SnapshotMessage
from console.connections.control_server import load_latest_snapshot, load_live_snapshot
from console.live.view import find_view
from queues.models import Node, Queue

router = Router(tags=["plant"])


@router.get("/live", response=SnapshotMessage, summary="Get the newest snapshot")
def get_live(request: HttpRequest, of: str = "whole") -> SnapshotMessage:
    """Return the first message of a websocket: `{"seq", "at", "topic", "snapshot"}`; 503 if there is none.

    `of` names the requested part: whole, frame, flow, nodes, loops, queue:NAME, or node:NAME.
    """
    actor_for(request, "plant.view")
    view = find_view(of)
    snapshot = load_latest_snapshot()
    if snapshot is None:
        raise build_no_snapshot()
    whole = {"seq": snapshot.seq, "at": snapshot.at, "topic": "plant"}
    return convert(SnapshotMessage, {**whole, "snapshot": view.narrow(convert_to_plain(snapshot))})


@router.get("/queues", response=QueueList, summary="List queues: configuration, points, live figures")
def list_queues(request: HttpRequest) -> QueueList:
    actor_for(request, "plant.view")
    figures = _load_live_figures("queues")
    queues = Queue.objects.prefetch_related("containers__node").order_by("name")
    return {"queues": [_queue(queue, figures) for queue in queues]}


@router.get("/queues/{name}", response=QueueRow, summary="Get a queue")
def get_queue(request: HttpRequest, name: str) -> QueueRow:
    actor_for(request, "plant.view")
    return _queue(queue_named(name), _load_live_figures("queues"))


@router.get("/nodes", response=NodeList, summary="List nodes: configuration and live figures")
def list_nodes(request: HttpRequest) -> NodeList:
    actor_for(request, "plant.view")
    figures = _load_live_figures("nodes")
    return {"nodes": [_build_node_row(node, figures) for node in Node.objects.order_by("name")]}


@router.get("/nodes/{name}", response=NodeRow, summary="Get a node")
def get_node(request: HttpRequest, name: str) -> NodeRow:
    actor_for(request, "plant.view")
    return _build_node_row(get_node_or_404(name), _load_live_figures("nodes"))


def queue_named(name: str) -> Queue:
    """Return the queue. Raises `UnknownQueue` (404) that lists the known ones."""
    queue = Queue.objects.filter(name=name).first()
    if queue is None:
        known = ", ".join(Queue.objects.order_by("name").values_list("name", flat=True)) or "none"
        raise UnknownQueue("queue", f"{name} is unknown. Known queues: {known}.")
    return queue


def get_node_or_404(name: str) -> Node:
    """Return the node, or 404 that lists the known ones."""
    node = Node.objects.filter(name=name).first()
    if node is None:
        known = ", ".join(Node.objects.order_by("name").values_list("name", flat=True)) or "none"
        raise Http404(f"Node {name} is unknown. Known nodes: {known}.")
    return node


def _load_live_figures(part: str) -> dict[str, Any]:
    rows = getattr(load_live_snapshot(), part)
    return {name: convert_to_plain(row) for name, row in rows.items()}


def _queue(queue: Queue, figures: dict[str, Any]) -> QueueRow:
    points = {container.node.name: container.points for container in queue.containers.all()}
    # A handler's options may include a database password, so they are not published.
    row = model_to_dict(queue, exclude=["id", "handler_options"])
    return convert(QueueRow, {**row, "points": points, "live": figures.get(queue.name)})


def _build_node_row(node: Node, figures: dict[str, Any]) -> NodeRow:
    # The URL may include the server's password, so it is not published.
    row = model_to_dict(node, exclude=["id", "url"])
    return convert(NodeRow, {**row, "live": figures.get(node.name)})
