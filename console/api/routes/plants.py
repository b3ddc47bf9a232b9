"""Plants observed and controlled from here: registered, changed, removed, and temporarily set by hand."""

import time
from typing import Annotated, NotRequired, TypedDict

from django.http import Http404, HttpRequest
from django.utils import timezone

from common.stored_document import Instant, Time, copy_shared_values, describe
from console.actions import plant_control, plant_detach, plant_registration, started_tasks
from console.actions.queues import pause_all
from console.actions.started_tasks import TaskToStart
from console.api.request.answers import Json, Router, build_answer
from console.api.request.authentication import actor_for
from console.api.request.input import Reason, RequestBody
from console.api.routes.control import DesiredValue, compute_desired_value
from console.api.routes.plant_control import load_current_topology
from console.connections.control_server import control, load_latest_snapshot
from console.display.plant_words import describe_discovered_plant, describe_remaining
from console.input.form_values import digest_of
from workers.control.parts.operators import OWNERS
from workers.documents.plants import FoundPlant, PlantStatus
from workers.documents.snapshot import NOTHING_SEEN
from workers.models import Loop
from workers.plants.foreign import adapters, interventions
from workers.plants.foreign.adapters import list_kinds
from workers.plants.foreign.kind import InterventionKind
from workers.plants.models import RegisteredPlant
from workers.plants.steered import PublishedPlant
from workers.steering.scope import list_active_loops

router = Router(tags=["plants"])


class PlantRow(TypedDict):
    """The address of a plant, and its last observation."""

    name: str
    kind: Annotated[str, describe(values=tuple(list_kinds()))]
    url: str
    secret_environment: Annotated[str, describe("Environment variable with the token.")]
    options: dict[str, str]
    created_at: Time
    digest: Annotated[str, describe("Digest of the registration. A change with an older digest is rejected.")]
    seen: PlantStatus | None


class PlantRegistration(PlantRow):
    """A plant that was registered, or whose registration was changed."""

    left: Annotated[str, describe("Changes that may remain in effect at the previous address, and what to do.")]
    advising: Annotated[list[str], describe("Existing loops of the plant, which are in mode advise again.")]


class PlantList(TypedDict):
    plants: list[PlantRow]


class PlantRemoval(TypedDict):
    removed: str
    left: NotRequired[Annotated[str, describe("Changes that may remain in effect at the plant, and what to do.")]]


class TasksByHand(TypedDict):
    """Tasks that were set manually."""

    plant: str
    operator: str
    tasks: int
    until: Annotated[Instant, describe("Loops hold until this Unix time.")]


class HandRelease(TypedDict):
    plant: str
    released: bool


class PlantResumption(TypedDict):
    plant: str
    forgotten: Annotated[int, describe("Number of discarded task requests.")]


class PlantInspection(FoundPlant, frozen=True, kw_only=True):
    """The result of inspecting an address."""

    kind: str
    sentences: Annotated[list[str], describe("The result in sentences.")]


class InterventionRow(TypedDict):
    """An intervention in force."""

    kind: str
    subject: str
    value: str
    before: Annotated[str, describe("The value to restore, in the format of the adapter.")]
    by: str
    until: Instant
    error: Annotated[str, describe("Why the last attempt to undo it failed; empty: no failed attempt.")]
    tried_at: Instant | None


class PlantInterventions(TypedDict):
    interventions: list[InterventionKind]
    in_force: Annotated[list[InterventionRow], describe("Earliest end first.")]


class InterventionResult(TypedDict):
    plant: str
    kind: str
    subject: str
    in_force: bool
    warning: NotRequired[
        Annotated[str, describe("Values that stay if Weir stops without restoring them; empty: none.")]
    ]


class DetachedItem(TypedDict):
    """A value that Weir had set."""

    item: str
    value: str
    result: Annotated[str, describe("Value that was read at the plant afterwards, or why it is unknown.")]
    is_verified: bool


class PlantDetachment(TypedDict):
    """A plant whose values were restored."""

    plant: str
    items: list[DetachedItem]
    removed: Annotated[bool, describe("Whether the registration was removed. It stays if a value is not verified.")]
    advising: Annotated[list[str], describe("Loops of the plant, which are in mode advise now.")]


class GuardFile(TypedDict):
    """A file to review and to apply."""

    file: str
    about: str
    text: str


class PlantGuard(TypedDict):
    plant: str
    files: Annotated[list[GuardFile], describe("Files that start the guard; empty: the system needs no guard.")]


class PausedQueues(TypedDict):
    """Queues that were paused or resumed together."""

    plant: str
    queues: list[str]
    until: Annotated[Instant | None, describe("Time when the pause ends; null: the queues were resumed.")]


class StartedTask(TypedDict):
    """A task that was sent to a plant."""

    plant: str
    id: Annotated[str, describe("ID of the task, which Weir chose.")]
    task: str
    queue: str


class PlantPlace(RequestBody):
    """kind: of its adapter, such as weir or flink. url: its address; empty for a kind without one.

    secret_environment: the variable with the token. options: of its kind.
    """

    kind: str
    url: str = ""
    secret_environment: str = ""
    options: dict[str, str] = {}


class NewPlant(PlantPlace):
    """A plant under its name here, and a reason.

    changes: it may be registered already, and is then changed; with the digest of the row that was read, only if it has
    not changed since.
    """

    name: str
    reason: str
    changes: bool = False
    digest: str = ""


class Detaching(RequestBody):
    """keep: keep the registration, so that the plant is still observed."""

    reason: str
    keep: bool = False


class ByHand(RequestBody):
    """The number of tasks of an operator; loops hold for `minutes`."""

    operator: str
    tasks: int
    reason: str
    minutes: float = plant_control.HAND_MINUTES


class UndoneIntervention(RequestBody):
    """kind: as `GET …/interventions` names it. subject: its target."""

    kind: str
    subject: str
    reason: str


class NewIntervention(UndoneIntervention):
    """value: an additional argument; minutes: until it is undone."""

    value: str = ""
    minutes: float = plant_control.HAND_MINUTES


class NewPauseOfAll(RequestBody):
    """minutes: until all queues resume."""

    reason: str
    minutes: float = plant_control.HAND_MINUTES


class NewStartedTask(RequestBody):
    """A task of the plant's workers, with its arguments.

    args: positional arguments; kwargs: named arguments; delay_seconds: time before its start, at most 3,000 s.
    """

    task: str
    queue: str
    reason: str
    args: list[Json] = []
    kwargs: dict[str, Json] = {}
    delay_seconds: float = 0.0


@router.get("/plants", summary="List registered plants: address and last observation")
def list_plants(request: HttpRequest) -> PlantList:
    actor_for(request, "plant.view")
    seen = (load_latest_snapshot() or NOTHING_SEEN).plants
    return {"plants": [_build_plant_row(row, seen.get(row.name)) for row in adapters.list_adapters()]}


@router.post("/plants", summary="Register a plant, or change its registration")
def register_plant(request: HttpRequest, body: NewPlant) -> PlantRegistration:
    actor = actor_for(request, "plant.register")
    made = plant_registration.register(
        actor,
        body.name,
        body.kind,
        body.url,
        secret_environment=body.secret_environment,
        options=body.options,
        reason=body.reason,
        changes=body.changes,
        digest=body.digest,
    )
    return {**_build_plant_row(made.row, None), "left": made.left, "advising": list(made.advising)}


@router.post("/plants/inspect", summary="Inspect the system at an address without registering it")
def inspect_plant(request: HttpRequest, body: PlantPlace) -> PlantInspection:
    actor = actor_for(request, "plant.register")
    inspected = plant_registration.inspect(
        actor, body.kind, body.url, secret_environment=body.secret_environment, options=body.options
    )
    return PlantInspection(
        kind=body.kind, sentences=describe_discovered_plant(inspected), **copy_shared_values(inspected, FoundPlant)
    )


@router.post("/plants/{plant}/remove", summary="Remove a plant; its ledger is kept")
def remove_plant(request: HttpRequest, plant: str, body: Reason) -> PlantRemoval:
    actor = actor_for(request, "plant.register")
    gone = plant_registration.remove(actor, plant, body.reason)
    return {"removed": plant, "left": gone.left}


@router.post(
    "/plants/{plant}/detach", summary="Restore everything that Weir has set at a plant, verify it, and remove the plant"
)
def detach_plant(request: HttpRequest, plant: str, body: Detaching) -> PlantDetachment:
    actor = actor_for(request, "plant.register")
    done = plant_detach.detach(actor, plant, body.reason, control(), keep=body.keep)
    items = [build_answer(DetachedItem, item) for item in done.items]
    return {"plant": plant, "items": items, "removed": done.is_removed, "advising": done.advising}


@router.get("/plants/{plant}/guard", summary="Get the files that start the guard beside a plant; nothing is applied")
def get_guard_files(request: HttpRequest, plant: str) -> PlantGuard:
    actor_for(request, "plant.view")
    row = RegisteredPlant.objects.filter(name=plant).first()
    if row is None:
        raise Http404(f"No plant {plant} is registered.")
    files = [build_answer(GuardFile, manifest) for manifest in adapters.build_guard_manifests(row)]
    return {"plant": plant, "files": files}


@router.get(
    "/plants/{plant}/desired",
    summary="Get the desired tasks of a plant's loop for external autoscalers (KEDA); 503 if unknown",
)
def get_desired_tasks(request: HttpRequest, plant: str, law: str = "") -> DesiredValue:
    """Return desired tasks. law: of which loop; by default of the one that acts, or would act by default."""
    actor_for(request, "plant.view")
    of_whole = list_active_loops().filter(target__plant=plant, law__in=OWNERS)
    candidates = [loop for loop in of_whole if law in ("", loop.law)]
    ranked = sorted(candidates, key=lambda loop: (loop.mode not in Loop.ACTING, -OWNERS.index(loop.law)))
    if not ranked:
        raise Http404(f"No loop{f' of {law}' if law else ''} sets tasks of {plant}. GET /api/v1/loops lists the loops.")
    return compute_desired_value(ranked[0])


@router.post("/plants/{plant}/tasks", summary="Set an operator's tasks manually; loops hold in the meantime")
def set_tasks(request: HttpRequest, plant: str, body: ByHand) -> TasksByHand:
    actor = actor_for(request, "plant.scale")
    topology = load_current_topology(plant)
    with adapters.open_plant(plant, PublishedPlant(control(), time.time), actor.name) as elastic:
        until = plant_control.set_by_hand(
            actor, elastic, topology, {body.operator: body.tasks}, control(), minutes=body.minutes, reason=body.reason
        )
    return {"plant": plant, "operator": body.operator, "tasks": body.tasks, "until": until}


@router.post("/plants/{plant}/release", summary=("Release manually set tasks; loops decide again at once"))
def release_plant(request: HttpRequest, plant: str) -> HandRelease:
    actor = actor_for(request, "plant.scale")
    with adapters.open_plant(plant, PublishedPlant(control(), time.time), actor.name) as elastic:
        plant_control.release_hand(actor, elastic, plant, control())
    return {"plant": plant, "released": True}


@router.post("/plants/{plant}/resume", summary="Discard ineffective task requests so that loops on hold continue")
def resume_plant(request: HttpRequest, plant: str, body: Reason) -> PlantResumption:
    actor = actor_for(request, "plant.scale")
    return {"plant": plant, "forgotten": plant_control.resume(actor, plant, body.reason)}


@router.get("/plants/{plant}/interventions", summary="List available and active interventions at a plant")
def list_interventions(request: HttpRequest, plant: str) -> PlantInterventions:
    actor_for(request, "plant.view")
    row = RegisteredPlant.objects.filter(name=plant).first()
    known = adapters.list_kinds()[row.kind].interventions if row and row.kind in adapters.list_kinds() else ()
    in_force = interventions.list_active(control(), plant)
    return {
        "interventions": list(known),
        "in_force": [build_answer(InterventionRow, intervention) for intervention in in_force],
    }


@router.post(
    "/plants/{plant}/interventions",
    summary="Start an intervention, such as pausing a queue; it is undone after `minutes`",
)
def add_intervention(request: HttpRequest, plant: str, body: NewIntervention) -> InterventionResult:
    actor = actor_for(request, "plant.scale")
    done = plant_control.intervene(
        actor, plant, body.kind, body.subject, body.value, control(), minutes=body.minutes, reason=body.reason
    )
    seen = (load_latest_snapshot() or NOTHING_SEEN).plants.get(plant)
    warning = describe_remaining(plant, seen) if done.lasting else ""
    return {"plant": plant, "kind": body.kind, "subject": body.subject, "in_force": done.lasting, "warning": warning}


@router.post("/plants/{plant}/start-task", summary="Start a task at a plant, such as a Celery app; it is sent once")
def start_task(request: HttpRequest, plant: str, body: NewStartedTask) -> StartedTask:
    actor = actor_for(request, "plant.start_task")
    wanted = TaskToStart(
        name=body.task, queue=body.queue, args=body.args, kwargs=body.kwargs, delay_seconds=body.delay_seconds
    )
    sent = started_tasks.start_task(actor, plant, wanted, body.reason)
    return {"plant": plant, "id": sent.id, "task": sent.name, "queue": sent.queue}


@router.post("/plants/{plant}/pause-queues", summary="Pause the consumption of all queues of a plant")
def pause_queues(request: HttpRequest, plant: str, body: NewPauseOfAll) -> PausedQueues:
    actor = actor_for(request, "queue.pause")
    seen = (load_latest_snapshot() or NOTHING_SEEN).plants.get(plant)
    pause = pause_all.pause_queues(
        actor,
        plant,
        seen.queue_names if seen else [],
        minutes=body.minutes,
        reason=body.reason,
        now=timezone.now(),
        control=control(),
    )
    return {"plant": plant, "queues": pause.queues, "until": pause.until}


@router.post("/plants/{plant}/resume-queues", summary="Resume the queues that were paused together")
def resume_queues(request: HttpRequest, plant: str, body: Reason) -> PausedQueues:
    actor = actor_for(request, "queue.pause")
    queues = pause_all.resume_queues(actor, plant, reason=body.reason, now=timezone.now(), control=control())
    return {"plant": plant, "queues": queues, "until": None}


@router.post("/plants/{plant}/interventions/undo", summary="Undo an intervention at once")
def undo_intervention(request: HttpRequest, plant: str, body: UndoneIntervention) -> InterventionResult:
    actor = actor_for(request, "plant.scale")
    plant_control.undo_intervention(actor, plant, body.kind, body.subject, control(), reason=body.reason)
    return {"plant": plant, "kind": body.kind, "subject": body.subject, "in_force": False}


def _build_plant_row(row: RegisteredPlant, seen: PlantStatus | None) -> PlantRow:
    return build_answer(PlantRow, row, digest=digest_of(plant_registration.describe_registration(row)), seen=seen)
