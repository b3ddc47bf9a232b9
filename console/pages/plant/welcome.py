"""Welcome: the first page of a new plant. Guided drills show Weir at work; then people connect their own systems."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone

from console.accounts.access import Actor, actor_of
from console.actions.lab import drills
from console.display.formats import format_minutes
from console.drills import records
from console.drills.checks import CHECKS
from console.drills.faults import choose_queue
from console.drills.scenarios import SCENARIOS, WARM_UP_SECONDS, DrillScenario
from console.models import Drill
from console.pages.frame.frame import get_snapshot
from console.pages.frame.page import ActionResult, FormPage, declare_action, declare_page, render_page
from controllers.framework.reason import format_count
from workers.alerts.lifecycle.models import Receiver
from workers.documents.snapshot import Snapshot
from workers.objectives.models import Objective
from workers.plants.models import RegisteredPlant

GUIDED = ("burst", "slow-handler", "node-lost")
MORE = ("poison-events", "measurements-stop", "harmful-plan")


@dataclass(frozen=True)
class WelcomeStep:
    """A step of the first hour. is_next: the first one that is not done."""

    title: str
    about: str
    url: str
    is_done: bool
    is_next: bool = False


@dataclass(frozen=True)
class CheckRow:
    """Something to watch, and whether it was observed."""

    text: str
    is_true: bool
    is_next: bool


@dataclass(frozen=True)
class GuidedDrill:
    """A drill with what to watch. drill: its newest run, None before the first. elapsed: of a running drill."""

    scenario: DrillScenario
    checks: list[CheckRow]
    drill: Drill | None
    is_running: bool
    elapsed: str
    share: float


@dataclass(frozen=True)
class ConnectedKind:
    """A kind of system that people connect: what Weir needs, and what it shows."""

    title: str
    needs: str
    shows: str
    url: str


@dataclass(frozen=True, kw_only=True)
class WelcomePage(FormPage):
    """The steps, three guided drills, live figures, and the systems to connect."""

    TEMPLATE, NAME = "plant/welcome.html", "overview"

    refusal: str | None
    is_skipped: bool
    steps: list[WelcomeStep]
    guided: list[GuidedDrill]
    more: list[DrillScenario]
    open_drill: Drill | None
    queue: str  # whose wait is charted
    has_queue: bool  # the practice queue comes with the first drill
    systems: Sequence[ConnectedKind]


@declare_page("plant.view")
def welcome_page(request: HttpRequest) -> HttpResponse:
    """Show the page; it stays available after it was skipped."""
    actor, snapshot = actor_of(request), get_snapshot(request)
    open_drill = records.list_open_drills().first()
    newest = open_drill or Drill.objects.exclude(started_at=None).order_by("-pk").first()
    queue = (newest.subjects.get("queue") if newest else None) or choose_queue(snapshot)
    page = WelcomePage(
        refusal=drills.explain_absence(),
        is_skipped=not drills.shows_welcome(actor),
        steps=_list_steps(snapshot, open_drill),
        guided=[_build_guided(SCENARIOS[name], queue) for name in GUIDED],
        more=[SCENARIOS[name] for name in MORE],
        open_drill=open_drill,
        queue=queue,
        has_queue=open_drill is not None or queue in snapshot.queues,
        systems=_list_systems(actor),
    )
    return render_page(request, page)


def _list_steps(snapshot: Snapshot, open_drill: Drill | None) -> list[WelcomeStep]:
    counts = (format_count(len(snapshot.nodes), "node"), format_count(len(snapshot.queues), "queue"))
    slots = format_count(snapshot.totals.worker_slots or 0, "worker slot")
    runs = Drill.objects.exclude(started_at=None).exclude(ended_at=None).count()
    drill_words = "in progress" if open_drill else f"{runs} completed" if runs else "watch Weir respond to a fault"
    steps = [
        WelcomeStep("The plant runs", ", ".join((*counts, slots)), reverse("overview"), bool(snapshot.nodes)),
        WelcomeStep("Run a drill", drill_words, reverse("drills"), runs > 0),
        WelcomeStep("Connect your plant", "read-only at first", reverse("plants"), RegisteredPlant.objects.exists()),
        WelcomeStep(
            "Set a service level", "a target for wait or latency", reverse("objectives"), Objective.objects.exists()
        ),
        WelcomeStep(
            "Add a person to notify",
            "email, webhook, or schedule",
            reverse("receivers"),
            Receiver.objects.exclude(channel=Receiver.Channel.BROWSER).exists(),
        ),
    ]
    following = next((step for step in steps if not step.is_done), None)
    return [WelcomeStep(step.title, step.about, step.url, step.is_done, step is following) for step in steps]


def _build_guided(scenario: DrillScenario, queue: str) -> GuidedDrill:
    drill = Drill.objects.filter(scenario=scenario.name).order_by("-pk").first()
    shown = drill if drill is not None and drill.started_at is not None else None
    subjects = drill.subjects if drill is not None else {"queue": queue, "node": "A node"}
    observed = shown.checks if shown is not None else {}
    is_running = drill is not None and drill.ended_at is None
    checks = [
        CheckRow(
            observed.get(str(place)) or check.expected.format(**subjects),
            str(place) in observed,
            is_running and place == len(observed),
        )
        for place, check in enumerate(CHECKS[scenario.name])
    ]
    seconds = (timezone.now() - drill.created_at).total_seconds() if drill is not None and is_running else 0.0
    whole = 60.0 * scenario.minutes + WARM_UP_SECONDS
    return GuidedDrill(scenario, checks, drill, is_running, format_minutes(seconds), min(1.0, seconds / whole))


def _list_systems(actor: Actor) -> list[ConnectedKind]:
    attach, help_page = reverse("plant-attach"), reverse("help")
    declared = f"{attach}?kind=declared"
    systems = [
        ConnectedKind("Celery", "broker address", "workers, queues, and tasks", f"{attach}?kind=celery"),
        ConnectedKind("Kafka", "bootstrap servers", "consumer groups and their lag", f"{attach}?kind=kafka"),
        ConnectedKind("Flink", "REST address", "jobs and parallelism", f"{attach}?kind=flink"),
        ConnectedKind("Kubernetes", "API address", "Deployments and StatefulSets", f"{attach}?kind=kubernetes"),
        ConnectedKind("Prometheus", "server address", "any metric as a sensor", f"{declared}&example=http-service"),
        ConnectedKind("Another Weir", "control API and token", "its plant and its loops", f"{attach}?kind=weir"),
        ConnectedKind("Your own system", "a file that describes it", "its operators and tasks", declared),
    ]
    publish = ConnectedKind("Your own events", "a CSV or JSON file", "events in a queue", f"{help_page}start/publish/")
    return [*(systems if actor.may("plant.register") else []), publish]


@declare_action("drill.run", welcome_page)
def skip(request: HttpRequest) -> ActionResult:
    """Show the overview after login from now on. Nothing is posted."""
    drills.skip_welcome(actor_of(request), timezone.now())
    return ActionResult("Welcome stays available in the search and under Drills.", reverse("overview"))


@declare_action("drill.run", welcome_page)
def start(request: HttpRequest) -> ActionResult:
    """Start a guided drill, and stay on this page. Posted: scenario."""
    drills.start(actor_of(request), request.POST.get("scenario", ""), get_snapshot(request), timezone.now())
    return ActionResult("The drill starts within 15 seconds.", reverse("welcome"))
