"""Plants: this one and other people's, each as operators and tasks; set by hand, registered, removed."""

import time
<<<<<<< HEAD
from collections.abc import Iterator, Sequence
=======
from collections.abc import Iterator
>>>>>>> 41f313a (Processes: what they tell each other has a type; a document that is wrong is refused by its field)
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.urls import reverse
from django.views.decorators.http import require_safe
from msgspec import structs

from console.accounts.access import actor_of, requires
from console.actions import plant_control, plant_registration
from console.connections.control_server import control
from console.input.form_values import number_of
from console.pages.frame.action import Done, action, text_of
<<<<<<< HEAD
from console.pages.frame.frame import snapshot_of
from console.pages.frame.page import Document, Errors, FormPage, render_page
from console.pages.plant.plant_view import (
    ShownOperator,
    ShownPath,
    ShownPlant,
    loops_of,
    operators_of,
    paths_of,
    settable_tasks,
    shown,
)
from controllers.parallelism.measured_topology import MeasuredTopology
from queues.errors import BadInput
=======
from console.pages.frame.frame import seen_of, show, snapshot_of
from controllers.parallelism.inputs import rate_per_second, service_seconds
from controllers.parallelism.measured_topology import MeasuredOperator, MeasuredTopology
from queues.errors import BadInput
from workers.documents.plants import PlantHolder
from workers.documents.snapshot import Snapshot
from workers.models import Loop
>>>>>>> 41f313a (Processes: what they tell each other has a type; a document that is wrong is refused by its field)
from workers.plants.foreign import adapters
from workers.plants.holding import PlantHeld
from workers.plants.models import RegisteredPlant
from workers.plants.plant import Elastic, PlantConfused, PlantSilent
from workers.plants.published import PublishedPlant
from workers.plants.registry import LOCAL, seen


@dataclass(frozen=True)
class ListedPlant:
    """A plant of the list. row: how it is reached (None: this one); tasks: those that can be set."""

    row: RegisteredPlant | None
    shown: ShownPlant
    tasks: int | None


@dataclass(frozen=True, kw_only=True)
class PlantsPage(FormPage):
    """This plant and the registered ones, and the form of another."""

    TEMPLATE, NAME = "plant/plants.html", "plants"

    found: list[ListedPlant]
    kinds: Sequence[tuple[str, str]]
    editing: RegisteredPlant | None  # the one that `?edit=` names
    form: Document


@dataclass(frozen=True, kw_only=True)
class PlantPage(FormPage):
    """One plant as operators and tasks."""

    TEMPLATE, NAME = "plant/plant.html", "plants"

    shown: ShownPlant
    row: RegisteredPlant | None  # how it is reached; None: this one
    is_local: bool
    operators: list[ShownOperator]
    tasks: int  # those that can be set
    paths: list[ShownPath]
    settable: list[ShownOperator]
    loops: list[Document]
    hand_minutes: int


@require_safe
@requires("plant.view")
def plants(request: HttpRequest) -> HttpResponse:
    """The list of plants."""
    return plants_page(request)


def plants_page(
    request: HttpRequest, errors: Errors | None = None, submitted: QueryDict | None = None, **_: Any
) -> HttpResponse:
    snapshot = snapshot_of(request)
    rows = {row.name: row for row in adapters.registered()}
    found = [
        ListedPlant(rows.get(name), each := shown(snapshot, name), settable_tasks(each))
        for name in (LOCAL, *rows)
    ]
    editing = rows.get(request.GET.get("edit", ""))
    page = PlantsPage(
        found=found,
        kinds=RegisteredPlant.Kind.choices,
        editing=editing,
        form=_form(editing, submitted),
        errors=errors or {},
        submitted=submitted or {},
    )
    return render_page(request, page, "frame")


@require_safe
@requires("plant.view")
def plant(request: HttpRequest, name: str) -> HttpResponse:
    """One plant."""
    return plant_page(request, name)


def plant_page(
    request: HttpRequest, name: str, errors: Errors | None = None, submitted: QueryDict | None = None
) -> HttpResponse:
    row = RegisteredPlant.objects.filter(name=name).first()
    if row is None and name != LOCAL:
        raise Http404(f"No plant {name} is registered.")
    snapshot = snapshot_of(request)
    found = shown(snapshot, name)
    topology = found.topology
    operators = operators_of(topology) if topology else []
    settable = [each for each in operators if each.settable]
    page = PlantPage(
        shown=found,
        row=row,
        is_local=name == LOCAL,
        operators=operators,
<<<<<<< HEAD
        tasks=sum(each.parallelism for each in settable),
        paths=paths_of(topology) if topology else [],
        settable=settable,
        loops=loops_of(snapshot or {}, name),
=======
        tasks=sum(each["parallelism"] for each in operators if each["settable"]),
        paths=_paths(topology) if topology else [],
        settable=[each for each in operators if each["settable"]],
        loops=_loops(seen_of(request), name),
>>>>>>> 41f313a (Processes: what they tell each other has a type; a document that is wrong is refused by its field)
        hand_minutes=int(plant_control.HAND_MINUTES),
        errors=errors or {},
        submitted=submitted or {},
    )
    return render_page(request, page, "plants")


<<<<<<< HEAD
def _form(editing: RegisteredPlant | None, submitted: QueryDict | None) -> Document:
=======
def shown(snapshot: Snapshot | None, name: str) -> Shown:
    """The plant as the snapshot has it; what was last seen of it where it is stale."""
    if snapshot is None:
        return Shown(name, "weir", "unseen", None, "there is no snapshot yet", None, None, None)
    if name == LOCAL:
        held = snapshot.steered_by or PlantHolder()
        topology, error = _local(snapshot)
        return Shown(name, "weir", "seen", 0.0, error, topology, held.holder, held.until)
    row = snapshot.plants.get(name)
    if row is None:
        return Shown(name, "", "unseen", None, "it has not been looked at yet", None, None, None)
    topology = MeasuredTopology.from_document(row.topology) if row.topology else None
    held = row.steered_by or PlantHolder()
    holder = held.holder or (topology.holder if topology else None)
    until = held.until or (topology.held_until if topology else None)
    error = None if row.error is None else why_unseen(name, row)
    return Shown(name, row.kind, row.state, row.age_seconds, error, topology, holder, until)


def _local(snapshot: Snapshot) -> tuple[MeasuredTopology | None, str | None]:
    try:
        return topology_of(snapshot), None
    except BadInput as error:
        return None, str(error)


def _tasks(found: Shown) -> int | None:
    """Those that can be set."""
    if found.topology is None:
        return None
    return sum(each.parallelism for each in found.topology.operators.values() if each.fixed is None)


def _operators(topology: MeasuredTopology) -> list[dict[str, Any]]:
    names = dict.fromkeys(name for path in topology.paths.values() for name in path)
    return [_operator(topology.operators[name], topology.window_seconds) for name in names]


def _operator(operator: MeasuredOperator, window_seconds: float) -> dict[str, Any]:
    outputs = operator.measure("outputs")
    return {
        "name": operator.name,
        "kind": operator.kind,
        "parallelism": operator.parallelism,
        "minimum": operator.minimum,
        "maximum": operator.maximum,
        "fixed": operator.fixed,
        "settable": operator.fixed is None,
        "in_per_second": rate_per_second(operator, window_seconds),
        "out_per_second": None if outputs is None else outputs / window_seconds,
        "service_seconds": service_seconds(operator) or operator.measure("service_seconds"),
        "utilisation": operator.aggregate("utilisation", "MAX"),
        "latency_seconds": operator.measure("latency_seconds"),
        "tasks": [
            {"name": name, **(operator.tasks[place] if place < len(operator.tasks) else {})}
            for place, name in enumerate(operator.task_names)
        ],
    }


def _paths(topology: MeasuredTopology) -> list[dict[str, Any]]:
    """The slowest first; those whose latency isn't known last."""
    found = [
        {"name": name, "operators": path, "latency_seconds": topology.path_latency_seconds(path)}
        for name, path in topology.paths.items()
    ]
    return sorted(found, key=lambda each: -(each["latency_seconds"] or -1.0))


def _loops(snapshot: Snapshot, name: str) -> list[dict[str, Any]]:
    """The loops that set its tasks; one that acts first."""
    found = [
        {"name": loop, **structs.asdict(row)}
        for loop, row in snapshot.loops.items()
        if row.law.startswith("parallelism")
        and (row.target.get("plant") == name or (name == LOCAL and "application" in row.target))
    ]
    return sorted(found, key=lambda row: row["mode"] not in Loop.ACTING)


def _form(editing: RegisteredPlant | None, submitted: Any) -> dict[str, Any]:
>>>>>>> 41f313a (Processes: what they tell each other has a type; a document that is wrong is refused by its field)
    if submitted:
        return dict(submitted.items())
    if editing is None:
        return {"kind": RegisteredPlant.Kind.WEIR}
    fields = ("name", "kind", "url", "secret_environment")
    return {**{name: getattr(editing, name) for name in fields}, **editing.options}


@action("plant.register", plants_page)
def register(request: HttpRequest) -> Done:
    """Posted: name, kind, url, secret_environment, the kind's options, reason."""
    name, kind = text_of(request, "name", "give the plant one"), request.POST.get("kind", "")
    options = {key: request.POST.get(key, "").strip() for key in adapters.OPTIONS.get(kind, {})}
    made = plant_registration.register(
        actor_of(request),
        name,
        kind,
        text_of(request, "url", "give its address"),
        secret_environment=request.POST.get("secret_environment", ""),
        options=options,
        reason=request.POST.get("reason", ""),
    )
    url = reverse("plant", args=[made.name])
    return Done(f"{made.name} is observed within seconds.", url, {"go": url})


@action("plant.register", plant_page)
def remove(request: HttpRequest, name: str) -> Done:
    """Posted: reason."""
    plant_registration.remove(actor_of(request), name, request.POST.get("reason", ""))
    return Done(f"{name} is forgotten; its ledger stays.", reverse("plants"), {"go": reverse("plants")})


@action("plant.scale", plant_page)
def tasks(request: HttpRequest, name: str) -> Done:
    """Posted: operator, tasks, minutes, reason."""
    operator = text_of(request, "operator", "choose one")
    wanted = number_of(text_of(request, "tasks", "give a whole number"), "tasks")
    minutes = number_of(text_of(request, "minutes", "say for how long"), "minutes")
    if wanted != int(wanted):
        raise BadInput("tasks", f"takes a whole number, not {wanted:g}")
    with _refusals(), _adapter(name) as elastic:
        plant_control.set_by_hand(
            actor_of(request),
            elastic,
            _seen(request, name),
            {operator: int(wanted)},
            control(),
            minutes=minutes,
            reason=request.POST.get("reason", ""),
        )
    count = f"{int(wanted)} task{'' if int(wanted) == 1 else 's'}"
    return Done(f"{operator} gets {count}; loops hold for {minutes:g} min.", reverse("plant", args=[name]))


@action("plant.scale", plant_page)
def release(request: HttpRequest, name: str) -> Done:
    """Nothing need be posted: whoever set tasks by hand lets the loops decide again."""
    with _refusals(), _adapter(name) as elastic:
        plant_control.release_hand(actor_of(request), elastic, name, control())
    return Done(f"The loops of {name} decide again.", reverse("plant", args=[name]))


@contextmanager
def _refusals() -> Iterator[None]:
    """What another plant, or its holder, says no with, at the form."""
    try:
        yield
    except PlantHeld as error:
        until = datetime.fromtimestamp(error.until, UTC)
        raise BadInput("plant", f"is steered by {error.holder} until {until:%H:%M:%S} UTC.") from error
    except (PlantSilent, PlantConfused) as error:
        raise BadInput("plant", str(error)) from error


def _seen(request: HttpRequest, name: str) -> MeasuredTopology:
    snapshot = snapshot_of(request)
    if snapshot is None:
        raise PlantSilent("There is no snapshot yet.")
    return seen(snapshot, name)


def _adapter(name: str) -> AbstractContextManager[Elastic]:
    return adapters.plant_named(name, PublishedPlant(control(), time.time))
