"""The control API of each plant, `/control/{plant}/v1/…`: the operations of Stutz, Table 6.1, and a few more.

As in the table, latencies are milliseconds (in `gettopology`, which is Weir's own, seconds), counts refer to the
plant's window, and unknown values are null. Every operation but `gettopology` reads separately: a controller that needs
several values of one instant uses `gettopology`.
"""

import time
from typing import Annotated, NotRequired, TypedDict

from django.http import Http404, HttpRequest, HttpResponse
from django.utils import timezone
from ninja import NinjaAPI, Path, Query

from common.errors import BadInput
from common.stored_document import Instant, Seconds, describe
from console.accounts.access import Actor
from console.actions import plant_control
from console.api.request.answers import AnswerRenderer, NamedOperations, Router, convert
from console.api.request.authentication import Caller, actor_for
from console.api.request.refusals import RETRY_AFTER_SECONDS, RefusedError, add_refusals, build_no_snapshot
from console.connections.control_server import control, load_latest_snapshot
from console.input.boundary import Documents
from console.input.form_values import parse_row_id
from controllers.parallelism.measured_topology import AGGREGATES, NAMES, Link, MeasuredOperator, MeasuredTopology
from workers.documents.plants import PlantHolder
from workers.plants import holding
from workers.plants.foreign import adapters
from workers.plants.holding import PlantHeld
from workers.plants.plant import InvalidPlantResponse, PlantUnavailable
from workers.plants.registry import UnknownPlant, find_topology
from workers.plants.steered import PublishedPlant

MS = 1_000.0
router = Router(tags=["plant control"])


class OperatorTopology(TypedDict):
    """An operator of a plant and the measurements of its tasks."""

    kind: Annotated[Annotated[str, describe(values=("source", "operator"))], describe("A source only emits events.")]
    parallelism: Annotated[int, describe("Current number of tasks; 0: unknown.")]
    unknown_tasks: NotRequired[Annotated[str | None, describe("Why the number of tasks is unknown; absent: known.")]]
    minimum: Annotated[int, describe("Minimum number of tasks.")]
    maximum: Annotated[int, describe("Maximum number of tasks.")]
    fixed: Annotated[str | None, describe("Why the number of tasks can't be set; null: it can be set.")]
    failed: Annotated[float | None, describe("Number of failed events from this source in the window.")]
    acked: Annotated[float | None, describe("Number of completed events from this source in the window.")]
    waiting: NotRequired[
        Annotated[float | None, describe("Number of events waiting for the operator; null: not counted.")]
    ]
    batch_overhead_seconds: NotRequired[
        Annotated[float | None, describe("Fixed time of a batch, excluding its events, s; absent: no batches.")]
    ]
    tasks: Annotated[
        list[dict[str, float | None]],
        describe(f"Measurements of each task, in order; null: unknown: {', '.join(NAMES)}."),
    ]


class PlantTopology(TypedDict):
    """A plant's operators and links, measured at one time."""

    plant: str
    at: Instant
    window_seconds: Annotated[Seconds, describe("Length of the window of the counts, s.")]
    holder: Annotated[str | None, describe("Another controller that holds the plant; null: none.")]
    held_until: Instant | None
    change_pause_seconds: Annotated[
        float | None, describe("Measured time that a change of tasks stops operators, s; null: not measured.")
    ]
    operators: dict[str, OperatorTopology]
    links: list[Link]


class TaskChannel(TypedDict):
    """A channel between two tasks."""

    source: str
    target: str
    latency: Annotated[float | None, describe("ms.")]
    batching: Annotated[float | None, describe("Part of the latency in the sender's buffer, ms.")]


class PhysicalTopology(TypedDict):
    tasks: Annotated[dict[str, list[str]], describe("The names of each operator's tasks.")]
    channels: list[TaskChannel]


def load_current_topology(plant: str) -> MeasuredTopology:
    """Return the plant as last observed. Raises `RefusedError`: 404 unknown, 503 not observed (recently)."""
    snapshot = load_latest_snapshot()
    if snapshot is None:
        raise build_no_snapshot()
    try:
        topology = find_topology(snapshot, plant)
    except UnknownPlant as error:
        raise Http404(error.message) from None
    if message := plant_control.describe_staleness(snapshot, timezone.now()):
        raise RefusedError(503, "snapshot", message, RETRY_AFTER_SECONDS)
    return topology


def _find_topology(request: HttpRequest, plant: str) -> MeasuredTopology:
    actor_for(request, "plant.view")
    return load_current_topology(plant)


def _find_operator(request: HttpRequest, plant: str, operator: str, measure: str) -> MeasuredOperator:
    operator_measures = _find_topology(request, plant).get_operator(operator)
    if operator_measures.kind == "source" and not measure.startswith("outputs"):
        raise BadInput("operator", (f"{operator} is a source, which only emits events. Choose another operator."))
    return operator_measures


def _get_source_operator(topology: MeasuredTopology, operator: str) -> MeasuredOperator:
    source_operator = topology.get_operator(operator)
    if source_operator.kind != "source":
        sources = ", ".join(name for name, operator in topology.operators.items() if operator.kind == "source")
        raise BadInput("operator", f"must be a source ({sources}), not {operator}")
    return source_operator


def _scale_value(value: float | None, times: float) -> float | None:
    return None if value is None else value * times


@router.get("/getalloperators", summary="Get the names of all operators")
def getalloperators(request: HttpRequest, plant: Path[str]) -> list[str]:
    return list(_find_topology(request, plant).operators)


@router.get("/getlogicaltopology", summary="Get every path with its operators, in order")
def getlogicaltopology(request: HttpRequest, plant: Path[str]) -> dict[str, list[str]]:
    return {name: list(path) for name, path in _find_topology(request, plant).paths.items()}


@router.get("/getphysicaltopology", summary="Get the tasks of all operators and the channels between tasks (ms)")
def getphysicaltopology(request: HttpRequest, plant: Path[str]) -> PhysicalTopology:
    topology = _find_topology(request, plant)
    channels: list[TaskChannel] = [
        {
            "source": channel.source,
            "target": channel.target,
            "latency": _scale_value(channel.latency_seconds, MS),
            "batching": _scale_value(channel.batching_seconds, MS),
        }
        for channel in topology.channels
    ]
    tasks = {name: list(operator.task_names) for name, operator in topology.operators.items()}
    return {"tasks": tasks, "channels": channels}


@router.get("/gettopology", summary="Get the whole topology: operators, tasks, links, and measurements (s)")
def gettopology(request: HttpRequest, plant: Path[str], controller: str = "") -> PlantTopology:
    """Return the topology. `holder` is the controller besides the caller."""
    actor, topology = actor_for(request, "plant.view"), load_current_topology(plant)
    own = topology.holder == plant_control.format_holder_name(actor, controller)
    unheld = {"holder": None, "held_until": None} if own else {}
    return convert(PlantTopology, {**topology.to_document(), **unheld})


@router.get("/getoperatorparallelism", summary="Get the number of an operator's tasks")
def getoperatorparallelism(request: HttpRequest, plant: Path[str], operator: str) -> int:
    operator_measures = _find_topology(request, plant).get_operator(operator)
    if operator_measures.unknown_tasks is not None:
        raise PlantUnavailable(operator_measures.unknown_tasks)
    return operator_measures.parallelism


@router.get("/getpathlatency", summary=("Get the mean latency of the paths from a source, ms"))
def getpathlatency(request: HttpRequest, plant: Path[str], operator: str) -> float | None:
    topology = _find_topology(request, plant)
    return _scale_value(topology.compute_source_latency_seconds(_get_source_operator(topology, operator).name), MS)


@router.get("/getfailedtuplescount", summary="Count failed events from a source")
def getfailedtuplescount(request: HttpRequest, plant: Path[str], operator: str) -> float | None:
    return _get_source_operator(_find_topology(request, plant), operator).failed


@router.get("/getackedtuplescount", summary="Count completed events from a source")
def getackedtuplescount(request: HttpRequest, plant: Path[str], operator: str) -> float | None:
    return _get_source_operator(_find_topology(request, plant), operator).acked


# Operations of a measure of an operator, over its tasks and by task. Sources only have outputs.
MILLISECONDS = {"latency_seconds": MS, "latency_variance": MS**2}
OVER_TASKS = (
    ("getlatency", "latency_seconds", "Get the latency of an operator over its tasks (AVG, SUM, MAX, or MIN), ms"),
    ("getoutputcount", "outputs", "Count events that an operator emitted, over its tasks"),
    ("getexecutioncount", "executions", "Count events that an operator processed, over its tasks"),
    ("getinputcount", "inputs", "Count events that an operator received, over its tasks"),
)
BY_TASK = (
    ("getoperatorlatency", "latency_seconds", "Get the latency of each task of an operator, ms"),
    ("getoperatorlatencyvariance", "latency_variance", "Get the variance of each task's latency, ms²"),
    ("getoperatoroutputcount", "outputs", "Count events that each task emitted"),
    ("getoperatoroutputcountvariance", "outputs_variance", "Get the variance of events that each task emitted"),
    ("getoperatorexecutioncount", "executions", "Count events that each task processed"),
    ("getoperatorexecutioncountvariance", "executions_variance", "Get the variance of events that each task processed"),
    ("getoperatorinputcount", "inputs", "Count events that each task received"),
    ("getoperatorinputcountvariance", "inputs_variance", "Get the variance of events that each task received"),
)


def _add_over_tasks(name: str, measure: str, summary: str) -> None:
    how = "AVG" if measure == "latency_seconds" else "SUM"

    def get_over_tasks(request: HttpRequest, plant: Path[str], operator: str, operation: str = how) -> float | None:
        found = _find_operator(request, plant, operator, measure)
        if operation.upper() not in AGGREGATES:
            raise BadInput("operation", f"must be one of {', '.join(AGGREGATES)}, not {operation[:40]!r}")
        return _scale_value(found.aggregate(measure, operation.upper()), MILLISECONDS.get(measure, 1.0))

    get_over_tasks.__name__ = name
    router.get(f"/{name}", summary=summary)(get_over_tasks)


def _add_by_task(name: str, measure: str, summary: str) -> None:
    def get_by_task(request: HttpRequest, plant: Path[str], operator: str) -> dict[str, float | None]:
        values = _find_operator(request, plant, operator, measure).group_by_task(measure)
        return {task: _scale_value(value, MILLISECONDS.get(measure, 1.0)) for task, value in values.items()}

    get_by_task.__name__ = name
    router.get(f"/{name}", summary=summary)(get_by_task)


for declared in OVER_TASKS:
    _add_over_tasks(*declared)
for declared in BY_TASK:
    _add_by_task(*declared)


@router.post("/setoperatorparallelism", summary="Set the number of an operator's tasks")
def setoperatorparallelism(
    request: HttpRequest,
    plant: Path[str],
    operator: str,
    parallelism: int,
    controller: str = "",
    seconds: float = holding.SECONDS,
    reason: str = "",
) -> bool:
    """Set the tasks of an operator, and hold the plant for so many `seconds`.

    The plant's own parallelism loops hold in the meantime, and another controller gets 409 with the holder and until
    when.
    """
    tasks = {operator: parallelism}
    return _set(request, plant, tasks, controller=controller, seconds=seconds, reason=reason)


@router.post("/setmultipleoperatorparallelism", summary="Set the number of tasks of several operators, all or none")
def setmultipleoperatorparallelism(
    request: HttpRequest,
    plant: Path[str],
    wanted: Annotated[str, Query(..., alias="map")],
    controller: str = "",
    seconds: float = holding.SECONDS,
    reason: str = "",
) -> bool:
    """Set the tasks of several operators. `map` is `operator:tasks;operator:tasks`."""
    tasks = parse_operator_tasks(wanted)
    return _set(request, plant, tasks, controller=controller, seconds=seconds, reason=reason)


@router.post("/hold", summary="Hold the plant for this controller until the returned Unix time, without setting tasks")
def hold(request: HttpRequest, plant: Path[str], controller: str = "", seconds: float = holding.SECONDS) -> PlantHolder:
    actor = actor_for(request, "plant.scale")
    name, holder = load_current_topology(plant).plant, plant_control.format_holder_name(actor, controller)
    with adapters.open_plant(plant, PublishedPlant(control(), time.time), holder) as elastic:
        until = plant_control.hold(actor, elastic, name, control(), controller=controller, seconds=seconds)
    return PlantHolder(holder=holder, until=until)


@router.post("/release", summary=("Release the plant; returns false if the caller did not hold it"))
def release(request: HttpRequest, plant: Path[str], controller: str = "") -> bool:
    actor = actor_for(request, "plant.scale")
    name, holder = load_current_topology(plant).plant, plant_control.format_holder_name(actor, controller)
    with adapters.open_plant(plant, PublishedPlant(control(), time.time), holder) as elastic:
        return plant_control.release(actor, elastic, name, control(), controller=controller)


def parse_operator_tasks(text: str) -> dict[str, int]:
    """Return tasks by operator of `operator:tasks;operator:tasks`. Raises `BadInput`."""
    tasks: dict[str, int] = {}
    for part in filter(None, (word.strip() for word in text.split(";"))):
        operator, _, count = part.rpartition(":")
        tasks_wanted = parse_row_id(count.strip())
        if not operator or tasks_wanted is None:
            raise BadInput("map", f"must be operator:tasks;operator:tasks, not {part[:60]!r}")
        if operator in tasks:
            raise BadInput("map", f"must name {operator} only once")
        tasks[operator] = tasks_wanted
    if not tasks:
        raise BadInput("map", "must be operator:tasks;operator:tasks, not empty")
    return tasks


def _set(
    request: HttpRequest, plant: str, tasks: dict[str, int], *, controller: str, seconds: float, reason: str
) -> bool:
    actor: Actor = actor_for(request, "plant.scale")
    topology = load_current_topology(plant)
    by = plant_control.format_holder_name(actor, controller)
    with adapters.open_plant(plant, PublishedPlant(control(), time.time), by) as elastic:
        plant_control.set_parallelism(
            actor, elastic, topology, tasks, control(), controller=controller, seconds=seconds, reason=reason
        )
    return True


def build_api() -> NamedOperations:
    """Build the API with its rejections; the document at `/api/schema` also contains its paths."""
    api = NamedOperations(
        title="Weir plant control",
        version="1",
        openapi_url=None,
        docs_url=None,
        auth=Caller(),
        parser=Documents(),
        renderer=AnswerRenderer(),
        urls_namespace="control",
    )
    add_refusals(api)
    add_plant_refusals(api)
    api.add_router("/{plant}/v1", router)
    return api


def add_plant_refusals(api: NinjaAPI) -> None:
    """Add rejections with status 409 or 503.

    409 has holder and until while another controller holds. 503 applies while the plant is not observed.
    """

    @api.exception_handler(PlantHeld)
    def answer_held(request: HttpRequest, error: PlantHeld) -> HttpResponse:
        said = {"errors": {"plant": [str(error)]}, "holder": error.holder, "until": error.until}
        return api.create_response(request, said, status=409)

    @api.exception_handler(PlantUnavailable)
    @api.exception_handler(InvalidPlantResponse)
    def unseen(request: HttpRequest, error: PlantUnavailable | InvalidPlantResponse) -> HttpResponse:
        response = api.create_response(request, {"errors": {"plant": [str(error)]}}, status=503)
        response["Retry-After"] = str(RETRY_AFTER_SECONDS)
        return response


api = build_api()
