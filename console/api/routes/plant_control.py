"""The control API of each plant, `/control/{plant}/v1/…`: the operations of Stutz, Table 6.1, and a few more.

As in the table, latencies are milliseconds (in `gettopology`, which is Weir's own, seconds), counts refer to the
plant's window, and unknown values are null. Every operation but `gettopology` reads separately: a controller that needs
several values of one instant uses `gettopology`.
"""

import time
from typing import Annotated, Any

from django.http import Http404, HttpRequest
from django.utils import timezone
from ninja import NinjaAPI, Path, Query

from common.errors import BadInput
from console.accounts.access import Actor
from console.actions import plant_control
from console.api.answer.named_operations import NamedOperations
from console.api.answer.router import Router
from console.api.answer.schema import convert
from console.api.request.authentication import Caller, actor_for
from console.api.request.refusals import RETRY_AFTER_SECONDS, RefusedError, add_refusals, build_no_snapshot
from console.api.schemas.plants import (
    EventCount,
    LogicalTopology,
    Milliseconds,
    OperatorNames,
    PhysicalTopology,
    PlantHolder,
    PlantRelease,
    PlantTopology,
    TaskChannel,
    TaskCount,
    TaskEventCounts,
    TaskEventCountsVariance,
    TaskMilliseconds,
    TaskMillisecondsVariance,
    TasksSet,
)
from console.connections.control_server import control, load_latest_snapshot
from console.input.boundary import Documents
from console.input.row_id import parse_row_id
from controllers.parallelism.measured_topology import AGGREGATES, MeasuredOperator, MeasuredTopology
from workers.plants import holding
from workers.plants.foreign import adapters
from workers.plants.holding import PlantHeld
from workers.plants.plant import InvalidPlantResponse, PlantUnavailable
from workers.plants.published import PublishedPlant
from workers.plants.registry import UnknownPlant, find_topology

MS = 1_000.0
router = Router(tags=["plant control"])


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


def _find_operator(request: HttpRequest, plant: str, operator: str) -> MeasuredOperator:
    """Return an operator that is not a source."""
    operator_measures = _find_topology(request, plant).get_operator(operator)
    if operator_measures.kind == "source":
        raise BadInput("operator", (f"{operator} is a source, which only emits events; choose another operator"))
    return operator_measures


def _get_source_operator(topology: MeasuredTopology, operator: str) -> MeasuredOperator:
    source_operator = topology.get_operator(operator)
    if source_operator.kind != "source":
        sources = ", ".join(name for name, each in topology.operators.items() if each.kind == "source")
        raise BadInput("operator", f"must be a source ({sources}), not {operator}")
    return source_operator


def _aggregate(found: MeasuredOperator, measure: str, operation: str, times: float = 1.0) -> float | None:
    how = operation.upper()
    if how not in AGGREGATES:
        raise BadInput("operation", f"must be one of {', '.join(AGGREGATES)}, not {operation[:40]!r}")
    return _scale_value(found.aggregate(measure, how), times)


def _group_by_task(found: MeasuredOperator, measure: str, times: float = 1.0) -> dict[str, float | None]:
    return {task: _scale_value(value, times) for task, value in found.group_by_task(measure).items()}


def _scale_value(value: float | None, times: float) -> float | None:
    return None if value is None else value * times


@router.get("/getalloperators", response=OperatorNames, summary="Get the names of all operators")
def getalloperators(request: HttpRequest, plant: Path[str]) -> list[str]:
    return list(_find_topology(request, plant).operators)


@router.get("/getlogicaltopology", response=LogicalTopology, summary="Get every path with its operators, in order")
def getlogicaltopology(request: HttpRequest, plant: Path[str]) -> dict[str, list[str]]:
    return {name: list(path) for name, path in _find_topology(request, plant).paths.items()}


@router.get(
    "/getphysicaltopology",
    response=PhysicalTopology,
    summary="Get the tasks of all operators and the channels between tasks (ms)",
)
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
    tasks = {name: list(each.task_names) for name, each in topology.operators.items()}
    return {"tasks": tasks, "channels": channels}


@router.get(
    "/gettopology",
    response=PlantTopology,
    summary="Get the whole topology: operators, tasks, links, and measurements (s)",
)
def gettopology(request: HttpRequest, plant: Path[str], controller: str = "") -> PlantTopology:
    """Return the topology. `holder` is the controller besides the caller."""
    actor, topology = actor_for(request, "plant.view"), load_current_topology(plant)
    own = topology.holder == plant_control.format_holder_name(actor, controller)
    unheld = {"holder": None, "held_until": None} if own else {}
    return convert(PlantTopology, {**topology.to_document(), **unheld})


@router.get("/getoperatorparallelism", response=TaskCount, summary="Get the number of an operator's tasks")
def getoperatorparallelism(request: HttpRequest, plant: Path[str], operator: str) -> int:
    operator_measures = _find_topology(request, plant).get_operator(operator)
    if operator_measures.unknown_tasks is not None:
        raise PlantUnavailable(operator_measures.unknown_tasks)
    return operator_measures.parallelism


@router.get("/getpathlatency", response=Milliseconds, summary=("Get the mean latency of the paths from a source, ms"))
def getpathlatency(request: HttpRequest, plant: Path[str], operator: str) -> float | None:
    topology = _find_topology(request, plant)
    return _scale_value(topology.compute_source_latency_seconds(_get_source_operator(topology, operator).name), MS)


@router.get("/getfailedtuplescount", response=EventCount, summary="Count failed events from a source")
def getfailedtuplescount(request: HttpRequest, plant: Path[str], operator: str) -> float | None:
    return _get_source_operator(_find_topology(request, plant), operator).failed


@router.get("/getackedtuplescount", response=EventCount, summary="Count completed events from a source")
def getackedtuplescount(request: HttpRequest, plant: Path[str], operator: str) -> float | None:
    return _get_source_operator(_find_topology(request, plant), operator).acked


@router.get(
    "/getlatency",
    response=Milliseconds,
    summary="Get the latency of an operator over its tasks (AVG, SUM, MAX, or MIN), ms",
)
def getlatency(request: HttpRequest, plant: Path[str], operator: str, operation: str = "AVG") -> float | None:
    return _aggregate(_find_operator(request, plant, operator), "latency_seconds", operation, MS)


@router.get(
    "/getoperatorlatency", response=TaskMilliseconds, summary=("Get the latency of each task of an operator, ms")
)
def getoperatorlatency(request: HttpRequest, plant: Path[str], operator: str) -> dict[str, float | None]:
    return _group_by_task(_find_operator(request, plant, operator), "latency_seconds", MS)


@router.get(
    "/getoperatorlatencyvariance",
    response=TaskMillisecondsVariance,
    summary="Get the variance of each task's latency, ms²",
)
def getoperatorlatencyvariance(request: HttpRequest, plant: Path[str], operator: str) -> dict[str, float | None]:
    return _group_by_task(_find_operator(request, plant, operator), "latency_variance", MS**2)


@router.get("/getoutputcount", response=EventCount, summary=("Count events that an operator emitted, over its tasks"))
def getoutputcount(request: HttpRequest, plant: Path[str], operator: str, operation: str = "SUM") -> float | None:
    return _aggregate(_find_topology(request, plant).get_operator(operator), "outputs", operation)


@router.get("/getoperatoroutputcount", response=TaskEventCounts, summary="Count events that each task emitted")
def getoperatoroutputcount(request: HttpRequest, plant: Path[str], operator: str) -> dict[str, float | None]:
    return _group_by_task(_find_topology(request, plant).get_operator(operator), "outputs")


@router.get(
    "/getoperatoroutputcountvariance",
    response=TaskEventCountsVariance,
    summary="Get the variance of events that each task emitted",
)
def getoperatoroutputcountvariance(request: HttpRequest, plant: Path[str], operator: str) -> dict[str, float | None]:
    return _group_by_task(_find_topology(request, plant).get_operator(operator), "outputs_variance")


@router.get(
    "/getexecutioncount", response=EventCount, summary=("Count events that an operator processed, over its tasks")
)
def getexecutioncount(request: HttpRequest, plant: Path[str], operator: str, operation: str = "SUM") -> float | None:
    return _aggregate(_find_operator(request, plant, operator), "executions", operation)


@router.get("/getoperatorexecutioncount", response=TaskEventCounts, summary="Count events that each task processed")
def getoperatorexecutioncount(request: HttpRequest, plant: Path[str], operator: str) -> dict[str, float | None]:
    return _group_by_task(_find_operator(request, plant, operator), "executions")


@router.get(
    "/getoperatorexecutioncountvariance",
    response=TaskEventCountsVariance,
    summary="Get the variance of events that each task processed",
)
def getoperatorexecutioncountvariance(request: HttpRequest, plant: Path[str], operator: str) -> dict[str, float | None]:
    return _group_by_task(_find_operator(request, plant, operator), "executions_variance")


@router.get("/getinputcount", response=EventCount, summary=("Count events that an operator received, over its tasks"))
def getinputcount(request: HttpRequest, plant: Path[str], operator: str, operation: str = "SUM") -> float | None:
    return _aggregate(_find_operator(request, plant, operator), "inputs", operation)


@router.get("/getoperatorinputcount", response=TaskEventCounts, summary="Count events that each task received")
def getoperatorinputcount(request: HttpRequest, plant: Path[str], operator: str) -> dict[str, float | None]:
    return _group_by_task(_find_operator(request, plant, operator), "inputs")


@router.get(
    "/getoperatorinputcountvariance",
    response=TaskEventCountsVariance,
    summary="Get the variance of events that each task received",
)
def getoperatorinputcountvariance(request: HttpRequest, plant: Path[str], operator: str) -> dict[str, float | None]:
    return _group_by_task(_find_operator(request, plant, operator), "inputs_variance")


@router.post("/setoperatorparallelism", response=TasksSet, summary="Set the number of an operator's tasks")
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


@router.post(
    "/setmultipleoperatorparallelism",
    response=TasksSet,
    summary="Set the number of tasks of several operators, all or none",
)
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


@router.post(
    "/hold",
    response=PlantHolder,
    summary="Hold the plant for this controller until the returned Unix time, without setting tasks",
)
def hold(request: HttpRequest, plant: Path[str], controller: str = "", seconds: float = holding.SECONDS) -> PlantHolder:
    actor = actor_for(request, "plant.scale")
    name, holder = load_current_topology(plant).plant, plant_control.format_holder_name(actor, controller)
    with adapters.open_plant(plant, PublishedPlant(control(), time.time), holder) as elastic:
        until = plant_control.hold(actor, elastic, name, control(), controller=controller, seconds=seconds)
    return {"holder": holder, "until": until}


@router.post(
    "/release", response=PlantRelease, summary=("Release the plant; returns false if the caller did not hold it")
)
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


def _set(request: HttpRequest, plant: str, tasks: dict[str, int], **more: Any) -> bool:
    actor: Actor = actor_for(request, "plant.scale")
    topology = load_current_topology(plant)
    by = plant_control.format_holder_name(actor, more.get("controller", ""))
    with adapters.open_plant(plant, PublishedPlant(control(), time.time), by) as elastic:
        plant_control.set_parallelism(actor, elastic, topology, tasks, control(), **more)
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
    def answer_held(request: HttpRequest, error: PlantHeld) -> Any:
        said = {"errors": {"plant": [str(error)]}, "holder": error.holder, "until": error.until}
        return api.create_response(request, said, status=409)

    @api.exception_handler(PlantUnavailable)
    @api.exception_handler(InvalidPlantResponse)
    def unseen(request: HttpRequest, error: PlantUnavailable | InvalidPlantResponse) -> Any:
        response = api.create_response(request, {"errors": {"plant": [str(error)]}}, status=503)
        response["Retry-After"] = str(RETRY_AFTER_SECONDS)
        return response


api = build_api()
