"""Plants: this plant and attached ones, each as operators and tasks; set by hand, registered, and removed."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone

from common.errors import BadInput
from console.accounts.access import actor_of
from console.actions import plant_control, plant_detach, plant_registration, started_tasks
from console.actions.queues import pause_all
from console.actions.queues.pause_all import PauseOfAll
from console.actions.started_tasks import StoredRequest, TaskToStart, parse_arguments
from console.actions.task_history import has_history
from console.connections.control_server import control
from console.display.plant_words import describe_remaining
from console.input.form_values import digest_of, parse_number, parse_whole_number
from console.pages.frame.frame import get_snapshot, snapshot_of
from console.pages.frame.page import (
    ActionResult,
    FormPage,
    declare_action,
    declare_page,
    get_rejected_form,
    offer_end,
    open_page,
    read_or,
    render_page,
    text_of,
)
from console.pages.plant import plant_view
from console.pages.plant.attach import FormOption, PlantForm, build_form, iterate_form_options, read_options
from console.pages.task_history.links import build_failures_url, build_search_url
from controllers.framework.reason import format_count
from workers.documents.plants import GuardStatus, SetValue
from workers.plants.foreign import adapters, interventions
from workers.plants.foreign.interventions import Intervention
from workers.plants.foreign.kind import AdapterKind, InterventionKind
from workers.plants.guard.manifests import GuardManifest
from workers.plants.holding import PlantHeld
from workers.plants.models import RegisteredPlant
from workers.plants.plant import ElasticPlant, InvalidPlantResponse, PlantUnavailable
from workers.plants.registry import LOCAL, find_topology
from workers.plants.steered import PublishedPlant


@dataclass(frozen=True)
class ListedPlant:
    """A plant of the list. row: its address (None: this plant); tasks: those that can be set."""

    row: RegisteredPlant | None
    shown: plant_view.ShownPlant
    tasks: int | None
    title: str


@dataclass(frozen=True, kw_only=True)
class PlantHistoryLinks:
    """Addresses of the plant's stored tasks and failures, and of the whole lists of some sections by their title."""

    tasks: str
    failures: str
    sections: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class PlantsPage(FormPage):
    """This plant and the registered ones, and the form for another."""

    TEMPLATE, NAME = "plant/plants.html", "plants"

    plants: list[ListedPlant]
    kinds: Sequence[AdapterKind]
    options: Sequence[FormOption]
    editing: RegisteredPlant | None  # the plant that `?edit=` names
    digest: str  # of its current registration
    form: PlantForm


@dataclass(frozen=True, kw_only=True)
class PlantPage(FormPage):
    """One plant as operators and tasks."""

    TEMPLATE, NAME = "plant/plant.html", "plants"

    shown: plant_view.ShownPlant
    row: RegisteredPlant | None  # its registration; None: this plant
    title: str  # of its kind
    is_local: bool
    operators: list[plant_view.ShownOperator]
    tasks: int  # those that can be set
    paths: list[plant_view.ShownPath]
    settable: list[plant_view.ShownOperator]
    lanes: list[str]  # of its charts: what is measured or can be set
    loops: list[plant_view.PlantLoop]
    hand_minutes: int
    interventions: Sequence[InterventionKind]  # other available actions
    pauses_queues: bool  # whether its queues can be paused
    pause: PauseOfAll | None  # of all queues, in force
    shows_messages: bool  # whether people can view and move the messages of its queues
    starts_tasks: bool  # whether people can start tasks there
    start_again: StoredRequest | None  # the stored task that `?again=` names
    max_delay_seconds: int
    in_force: Sequence[Intervention] | None  # None while the control server is unreachable
    history: PlantHistoryLinks | None  # None: no tasks are stored
    set_values: Sequence[SetValue]  # what becomes of them if Weir vanishes now
    guard: GuardStatus | None  # None: the system needs none
    guard_files: Sequence[GuardManifest]


@declare_page("plant.view")
def plants_page(request: HttpRequest) -> HttpResponse:
    snapshot = snapshot_of(request)
    rows = {row.name: row for row in adapters.list_adapters()}
    plant_rows = [
        ListedPlant(
            rows.get(name),
            view := plant_view.build_view(snapshot, name),
            plant_view.count_settable_tasks(view),
            adapters.get_title(rows[name].kind) if name in rows else "",
        )
        for name in (LOCAL, *rows)
    ]
    rejected = get_rejected_form(request)
    editing = rows.get(request.GET.get("edit", "") or rejected.submitted.get("changes", ""))
    page = PlantsPage(
        plants=plant_rows,
        kinds=list(adapters.list_kinds().values()),
        options=list(iterate_form_options(editing, rejected.submitted, rejected.errors)),
        editing=editing,
        digest=digest_of(plant_registration.describe_registration(editing)) if editing else "",
        form=build_form(editing, rejected.submitted),
    )
    return render_page(request, page, "frame")


@declare_page("plant.view")
def plant_page(request: HttpRequest, name: str) -> HttpResponse:
    row = RegisteredPlant.objects.filter(name=name).first()
    if row is None and name != LOCAL:
        raise Http404(f"No plant {name} is registered.")
    snapshot = snapshot_of(request)
    view = plant_view.build_view(snapshot, name)
    topology = view.topology
    operators = plant_view.list_operators(topology) if topology else []
    paths = plant_view.list_paths(topology) if topology else []
    settable = [operator for operator in operators if operator.settable]
    kind = adapters.list_kinds().get(row.kind) if row else None
    again = request.GET.get("again", "")
    start_again = started_tasks.load_stored_request(actor_of(request), name, again) if again else None
    page = PlantPage(
        shown=view,
        row=row,
        title=adapters.get_title(row.kind) if row else "",
        is_local=name == LOCAL,
        operators=operators,
        tasks=sum(settable_operator.parallelism or 0 for settable_operator in settable),
        paths=paths,
        settable=settable,
        lanes=plant_view.choose_lanes(operators, paths),
        loops=plant_view.list_loops(get_snapshot(request), name),
        hand_minutes=int(plant_control.HAND_MINUTES),
        interventions=kind.interventions if kind else (),
        pauses_queues=name == LOCAL or (kind is not None and pause_all.can_pause(kind)),
        pause=read_or(None, lambda: pause_all.find_pause(control(), name)),
        shows_messages=kind is not None and kind.open_messages is not None,
        starts_tasks=kind is not None and kind.starts_tasks,
        start_again=start_again,
        submitted=_fill_start_form(start_again),
        max_delay_seconds=int(started_tasks.MAX_DELAY_SECONDS),
        in_force=read_or(None, lambda: interventions.list_active(control(), name)) if row else (),
        history=_build_history_links(name) if has_history(name) else None,
        set_values=plant_view.list_set_values(snapshot, name),
        guard=snapshot.plants[name].guard if snapshot and name in snapshot.plants else None,
        guard_files=adapters.build_guard_manifests(row) if row else (),
    )
    return render_page(request, page, "plants")


def _fill_start_form(stored: StoredRequest | None) -> dict[str, str]:
    if stored is None:
        return {}
    return {"task": stored.task, "queue": stored.queue, "args": stored.args, "kwargs": stored.kwargs}


def _build_history_links(plant: str) -> PlantHistoryLinks:
    tasks, failures = build_search_url(plant, ""), build_failures_url(plant)
    return PlantHistoryLinks(tasks=tasks, failures=failures, sections={"Last tasks": tasks, "Last errors": failures})


@declare_action("plant.register", plants_page)
def register(request: HttpRequest) -> ActionResult:
    """Register or change a plant.

    Posted: name, kind, url, secret_environment, the kind's options (as "flink.job"), reason; changes: the name again,
    if a registered plant is to be changed; digest: of the registration as shown.
    """
    name, kind = text_of(request, "name", "Enter a name"), request.POST.get("kind", "")
    known = {option.name for option in adapters.list_kinds()[kind].options} if kind in adapters.list_kinds() else set()
    try:
        made = plant_registration.register(
            actor_of(request),
            name,
            kind,
            request.POST.get("url", ""),
            secret_environment=request.POST.get("secret_environment", ""),
            options=read_options(request.POST, kind),
            reason=request.POST.get("reason", ""),
            changes=request.POST.get("changes") == name,
            digest=request.POST.get("digest", ""),
        )
    except BadInput as error:
        raise BadInput(f"{kind}.{error.field}", error.message) if error.field in known else error from None
    url = reverse("plant", args=[made.row.name])
    return ActionResult(f"{made.row.name} will be observed within seconds. {made.sentence}".strip(), url, {"go": url})


@declare_action("plant.register", plant_page)
def remove(request: HttpRequest, name: str) -> ActionResult:
    """Remove a plant. Posted: reason."""
    gone = plant_registration.remove(actor_of(request), name, request.POST.get("reason", ""))
    said = f"{name} was removed. Its ledger is kept. {gone.left}".strip()
    return ActionResult(said, reverse("plants"), {"go": reverse("plants")})


@declare_action("plant.register", plant_page)
def detach(request: HttpRequest, name: str) -> ActionResult:
    """Restore everything at a plant, verify it, and remove the plant. Posted: reason."""
    with convert_plant_errors():
        done = plant_detach.detach(actor_of(request), name, request.POST.get("reason", ""), control())
    if not done.is_removed:
        left = "; ".join(item.sentence.rstrip(".") for item in done.remaining)
        raise BadInput("plant", f"is still registered, because some values could not be verified: {left}.")
    said = " ".join(f"{item.sentence.rstrip('.')}." for item in done.items) or "Weir had set nothing there."
    return ActionResult(f"{name} was detached. {said}", reverse("plants"), {"go": reverse("plants")})


@declare_action("plant.scale", plant_page)
def tasks(request: HttpRequest, name: str) -> ActionResult:
    """Set tasks. Posted: operator, tasks, minutes, reason."""
    operator = text_of(request, "operator", "Choose an operator")
    wanted = parse_whole_number(text_of(request, "tasks", "Enter a whole number"), "tasks")
    minutes = parse_number(text_of(request, "minutes", "Enter a duration"), "minutes")
    with convert_plant_errors(), _open_adapter(request, name) as elastic:
        snapshot = snapshot_of(request)
        if snapshot is None:
            raise PlantUnavailable("There is no snapshot yet.")
        if old := plant_control.describe_staleness(snapshot, timezone.now()):
            raise PlantUnavailable(old)
        plant_control.set_by_hand(
            actor_of(request),
            elastic,
            find_topology(snapshot, name),
            {operator: wanted},
            control(),
            minutes=minutes,
            reason=request.POST.get("reason", ""),
        )
    count = f"{wanted} task{'' if wanted == 1 else 's'}"
    remaining = describe_remaining(name, snapshot.plants.get(name))
    message = f"{operator} gets {count}; loops hold for {minutes:g} min. {remaining}".strip()
    return ActionResult(message, reverse("plant", args=[name]), {"undo": offer_end(f"tasks/{name}")})


@declare_action("plant.scale", plant_page)
def release(request: HttpRequest, name: str) -> ActionResult:
    """Release the tasks that were set by hand: the loops decide again. Nothing is posted."""
    with convert_plant_errors(), _open_adapter(request, name) as elastic:
        plant_control.release_hand(actor_of(request), elastic, name, control())
    return ActionResult(f"The loops of {name} set tasks again.", reverse("plant", args=[name]))


@declare_action("plant.scale", plant_page)
def resume(request: HttpRequest, name: str) -> ActionResult:
    """Resume a plant. Posted: reason."""
    plant_control.resume(actor_of(request), name, request.POST.get("reason", ""))
    return ActionResult(f"The loops of {name} continue.", reverse("plant", args=[name]))


@declare_action("plant.scale", plant_page)
def intervene(request: HttpRequest, name: str) -> ActionResult:
    """Intervene in a plant. Posted: kind, subject, value, minutes, reason."""
    with convert_plant_errors():
        done = plant_control.intervene(
            actor_of(request),
            name,
            text_of(request, "kind", "Choose an intervention"),
            text_of(request, "subject", "Enter a target"),
            request.POST.get("value", ""),
            control(),
            minutes=parse_number(text_of(request, "minutes", "Enter a duration"), "minutes"),
            reason=request.POST.get("reason", ""),
        )
    snapshot = snapshot_of(request)
    remaining = describe_remaining(name, snapshot.plants.get(name)) if snapshot and done.lasting else ""
    return ActionResult(f"Done: {done.title.lower()}. {remaining}".strip(), reverse("plant", args=[name]))


@declare_action("queue.pause", plant_page)
def pause_queues(request: HttpRequest, name: str) -> ActionResult:
    """Pause the consumption of all queues. Posted: minutes, reason."""
    snapshot = get_snapshot(request)
    known = snapshot.plants[name].queue_names if name in snapshot.plants else []
    with convert_plant_errors():
        pause = pause_all.pause_queues(
            actor_of(request),
            name,
            known,
            minutes=parse_number(text_of(request, "minutes", "Enter a duration"), "minutes"),
            reason=request.POST.get("reason", ""),
            now=timezone.now(),
            control=control(),
        )
    message = f"Consumption of {format_count(len(pause.queues), 'queue')} is paused: {', '.join(pause.queues)}."
    return open_page(message, "plant", name)


@declare_action("queue.pause", plant_page)
def resume_queues(request: HttpRequest, name: str) -> ActionResult:
    """Resume the queues that were paused together. Posted: reason."""
    with convert_plant_errors():
        queues = pause_all.resume_queues(
            actor_of(request), name, reason=request.POST.get("reason", ""), now=timezone.now(), control=control()
        )
    return open_page(f"Consumption is resumed: {', '.join(queues) or 'no queue was left'}.", "plant", name)


@declare_action("plant.start_task", plant_page)
def start_task(request: HttpRequest, name: str) -> ActionResult:
    """Start a task. Posted: task, queue, args, kwargs (JSON), delay_seconds, reason."""
    posted = request.POST
    wanted = TaskToStart(
        name=text_of(request, "task", "Enter the name of a task"),
        queue=text_of(request, "queue", "Enter the name of a queue"),
        args=parse_arguments(posted.get("args", ""), "args", list),
        kwargs=parse_arguments(posted.get("kwargs", ""), "kwargs", dict),
        delay_seconds=parse_number(posted.get("delay_seconds") or "0", "delay_seconds"),
    )
    with convert_plant_errors():
        request_sent = started_tasks.start_task(actor_of(request), name, wanted, posted.get("reason", ""))
    message = f"Task {request_sent.name} was sent to {request_sent.queue} with ID {request_sent.id}."
    return ActionResult(message, reverse("plant", args=[name]))


@declare_action("plant.scale", plant_page)
def undo(request: HttpRequest, name: str) -> ActionResult:
    """Undo an intervention. Posted: kind, subject, reason."""
    kind, subject = (text_of(request, "kind", "Choose an intervention"), text_of(request, "subject", "Enter a target"))
    with convert_plant_errors():
        plant_control.undo_intervention(
            actor_of(request), name, kind, subject, control(), reason=request.POST.get("reason", "")
        )
    return ActionResult(f"{subject} was restored.", reverse("plant", args=[name]))


def _open_adapter(request: HttpRequest, name: str) -> AbstractContextManager[ElasticPlant]:
    return adapters.open_plant(name, PublishedPlant(control(), time.time), actor_of(request).name)


@contextmanager
def convert_plant_errors() -> Iterator[None]:
    """Report errors of another plant, or of the process that holds it, at the form."""
    try:
        yield
    except PlantHeld as error:
        until = datetime.fromtimestamp(error.until, UTC)
        raise BadInput("plant", f"is controlled by {error.holder} until {until:%H:%M:%S} UTC.") from error
    except (PlantUnavailable, InvalidPlantResponse) as error:
        raise BadInput("plant", str(error)) from error
