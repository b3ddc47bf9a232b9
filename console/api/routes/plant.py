"""The current plant: queues, nodes, the live snapshot, its history, its processes, and the palette."""

import math
from typing import Annotated, Any, TypedDict, cast

from django.conf import settings
from django.forms.models import model_to_dict
from django.http import Http404, HttpRequest
from ninja import Query

from common.errors import BadInput, UnknownQueue
from common.stored_document import Bytes, Instant, PerSecond, Points, Seconds, Share, Time, convert_to_plain, describe
from console import palette
from console.actions.queues import processes
from console.api.request.answers import Router, build_answer, convert
from console.api.request.authentication import actor_for
from console.api.request.input import Reason
from console.api.request.refusals import RefusedError, build_no_snapshot
from console.connections.control_server import control, load_latest_snapshot, load_live_snapshot
from console.connections.supervisor import NoSupervisor, ProcessRow
from console.display.downsampling import downsample
from console.live.view import find_view
from console.palette import KINDS as PALETTE_KINDS
from queues.durability import NAMES as DURABILITY_NAMES
from queues.durability import SUMMARY as DURABILITY_HELP
from queues.models import Node, Queue
from workers.documents.nodes import NodeStatus
from workers.documents.queues import QueueStatus
from workers.documents.snapshot import Snapshot
from workers.history import metric_history

router = Router(tags=["plant"])


class QueueRow(TypedDict):
    """The configuration of a queue, and its live figures."""

    name: str
    kind: Annotated[str, describe(values=Queue.Kind.values)]
    minimum_containers: int
    priority: Annotated[int, describe("0 (served first) to 9 (served last).")]
    handler: str
    events_per_worker: int
    tries: int
    handler_timeout_seconds: Seconds
    requirements: Annotated[list[str], describe("Capabilities that worker hosts need.")]
    durability: Annotated[str, describe(DURABILITY_HELP, values=DURABILITY_NAMES)]
    points: Annotated[dict[str, Points], describe("Points of the queue, keyed by node.")]
    live: Annotated[QueueStatus | None, describe("Live values; null: not observed in the last 30 s.")]


class QueueList(TypedDict):
    queues: list[QueueRow]


class NodeRow(TypedDict):
    """The configuration of a node, and its live figures."""

    name: str
    capacity_events_per_second: PerSecond
    capacity_memory_bytes: Bytes
    busy_threshold: Share
    toobusy_threshold: Share
    drained: bool
    cordoned: bool
    offline_since: Time | None
    live: Annotated[NodeStatus | None, describe("Live values; null: not observed in the last 30 s.")]


class NodeList(TypedDict):
    nodes: list[NodeRow]


class SnapshotMessage(TypedDict):
    """The newest snapshot, as the first message of a websocket."""

    seq: int
    at: Instant
    topic: Annotated[str, describe(values=("plant",))]
    snapshot: Snapshot


@router.get("/live", summary="Get the newest snapshot")
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


@router.get("/queues", summary="List queues: configuration, points, live figures")
def list_queues(request: HttpRequest) -> QueueList:
    actor_for(request, "plant.view")
    figures = _load_live_figures("queues")
    queues = Queue.objects.prefetch_related("containers__node").order_by("name")
    return {"queues": [_queue(queue, figures) for queue in queues]}


@router.get("/queues/{name}", summary="Get a queue")
def get_queue(request: HttpRequest, name: str) -> QueueRow:
    actor_for(request, "plant.view")
    return _queue(queue_named(name), _load_live_figures("queues"))


@router.get("/nodes", summary="List nodes: configuration and live figures")
def list_nodes(request: HttpRequest) -> NodeList:
    actor_for(request, "plant.view")
    figures = _load_live_figures("nodes")
    return {"nodes": [_build_node_row(node, figures) for node in Node.objects.order_by("name")]}


@router.get("/nodes/{name}", summary="Get a node")
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
    row = model_to_dict(node, exclude=["id", "url", "replica_url", "promotions", "promoted_at"])
    return convert(NodeRow, {**row, "live": figures.get(node.name)})


MAXIMUM_POINTS = 5_000
MAXIMUM_SERIES = 100
MAXIMUM_SECONDS = 400 * 86_400


class HistorySeries(TypedDict):
    """Columns for a chart, with one time axis."""

    time: list[Instant]
    series: Annotated[dict[str, list[float | None]], describe("Values of each series, keyed by name; null: unknown.")]


@router.get("/history", summary="Get time series")
def get_history(
    request: HttpRequest,
    series: Annotated[list[str], Query(...)],
    since: Annotated[float, Query(..., alias="from")],
    until: Annotated[float, Query(..., alias="to")],
    points: int = 600,
) -> HistorySeries:
    """Return `{"time": [seconds], "series": {name: [value or null]}}` from `from` to `to` (Unix time).

    A series is named by its path in the snapshot, such as `queues.alert.waiting_events`; repeat `series` for several.
    At most `points` rows are returned (2 to 5000); if there are more, each interval keeps its minimum and maximum.
    """
    actor_for(request, "plant.view")
    _check(series, since, until, points)
    columns = metric_history.read_columns(control(), settings.WEIR_DATA, since, until, series)
    times = cast(list[float], columns.pop("at"))
    time, kept = downsample(times, columns, points)
    return {"time": time, "series": kept}


def _check(series: list[str], since: float, until: float, points: int) -> None:
    if not 1 <= len(series) <= MAXIMUM_SERIES:
        raise BadInput("series", f"must have 1 to {MAXIMUM_SERIES} names, not {len(series)}.")
    if "at" in series or any(not name for name in series):
        raise BadInput("series", "must be paths in the snapshot, such as totals.in_per_second.")
    if not math.isfinite(since):
        raise BadInput("from", "must be a Unix time in seconds.")
    if not math.isfinite(until) or until <= since:
        raise BadInput("to", "must be a Unix time in seconds, after from.")
    if until - since > MAXIMUM_SECONDS:
        raise BadInput("from", f"must be at most {MAXIMUM_SECONDS // 86_400} days before to.")
    if not 2 <= points <= MAXIMUM_POINTS:
        raise BadInput("points", f"must be 2 to {MAXIMUM_POINTS}, not {points}.")


class PaletteRow(TypedDict):
    """A destination or an action."""

    kind: Annotated[str, describe(values=PALETTE_KINDS)]
    label: str
    url: Annotated[str, describe("URL of the destination or action.")]
    about: str
    group: Annotated[str, describe("The heading of its group.")]
    icon: Annotated[str, describe("Name of its icon; empty: the icon of its kind.")]
    narrow: Annotated[str, describe("The search text that lists its subjects; empty: it has one page.")]


class PaletteList(TypedDict):
    results: Annotated[list[PaletteRow], describe("Matches, best first.")]
    total: Annotated[int, describe("Number of matches.")]


@router.get("/palette", summary="Search pages, subjects, and actions by name")
def search_everything(request: HttpRequest, text: str = "") -> PaletteList:
    """Return what matches all words of `text` and the caller may use, group by group, at most 20.

    Without a text, return the jobs, what waits for a person, and the pages.
    """
    actor = actor_for(request, "plant.view")
    if len(text) > palette.MAX_TEXT:
        raise BadInput("text", f"must have at most {palette.MAX_TEXT} characters, not {len(text)}.")
    results = palette.search(actor, load_latest_snapshot(), text)
    return {"results": [build_answer(PaletteRow, entry) for entry in results.entries], "total": results.total}


class ProcessList(TypedDict):
    supervised: Annotated[bool, describe("Whether ./run started this console. In Compose, processes can't be listed.")]
    processes: list[ProcessRow]


class ProcessLog(TypedDict):
    process: str
    lines: Annotated[list[str], describe("Last lines of the log, oldest first.")]


class RestartRequest(Reason):
    """at_once: it is killed, and does not finish its work."""

    at_once: bool = False


@router.get("/processes", summary="List processes of this plant")
def list_processes(request: HttpRequest) -> ProcessList:
    """Return the processes, stopped ones first; none if ./run did not start this console, as in Compose."""
    actor = actor_for(request, "process.view")
    try:
        return {"supervised": True, "processes": list(processes.list_processes(actor))}
    except NoSupervisor:
        return {"supervised": False, "processes": []}


@router.get("/processes/{process}/log", summary="Get the last lines of a process's log")
def get_process_log(request: HttpRequest, process: str) -> ProcessLog:
    """Return the log without secrets."""
    actor = actor_for(request, "process.view")
    try:
        return {"process": process, "lines": processes.log_lines(actor, process)}
    except NoSupervisor as error:
        raise Http404(str(error)) from None


@router.post("/processes/{process}/restart", summary="Restart a process")
def restart_process(request: HttpRequest, process: str, body: RestartRequest) -> ProcessRow:
    """Restart a process after it finishes its work, or at once; return the previous process."""
    actor = actor_for(request, "process.restart")
    try:
        return processes.restart(actor, process, body.reason, body.at_once)
    except NoSupervisor as error:
        raise RefusedError(409, "supervisor", str(error)) from None
