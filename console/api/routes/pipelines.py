"""Declared applications of the pipeline: the running version, new versions, and control of a running one."""

from typing import Annotated, TypedDict

from django.http import HttpRequest
from django.utils import timezone

from common.stored_document import Instant, copy_shared_values, describe
from console.actions import pipelines
from console.actions.plant_control import HAND_MINUTES
from console.api.request.answers import NextPage, Router, build_answer, convert
from console.api.request.authentication import actor_for
from console.api.request.input import RequestBody
from console.connections.control_server import control
from console.input.form_values import Id
from workers.coordination import keyset
from workers.documents.pipeline import ApplicationAtWork, PipelineOrder
from workers.models import PipelineVersion
from workers.pipeline.declaration.declared import Declarations
from workers.steering.overrides import Expiry

router = Router(tags=["pipeline"])
USUAL_MINUTES = 30.0
MAX_VERSIONS = 50  # in one answer, each with its text


class ApplicationVersion(TypedDict):
    """A version of a declared application."""

    application: str
    number: int
    active: bool
    reason: str
    text: Annotated[str, describe("The declaration, in YAML.")]
    owner: str | None


class ApplicationList(TypedDict):
    at_work: dict[str, ApplicationAtWork]
    versions: Annotated[list[ApplicationVersion], describe("Versions of the declaration, newest first.")]
    next: NextPage


class ApplicationOrder(PipelineOrder, frozen=True, kw_only=True):
    """The state that a person requested for an application."""

    application: str


class OperatorTasks(TypedDict):
    application: str
    operator: str
    tasks: int


class CriterionRelease(TypedDict):
    application: str
    criterion: str


class CriterionOverride(CriterionRelease):
    """A value in place of a criterion's own."""

    value: float
    until_seconds: Instant | None
    owner: str
    reason: str


class Declaration(RequestBody):
    """The YAML text of an application, which contains its name.

    version: the newest when the text was started (0: none); if there is a newer one, the request is rejected.
    """

    text: str
    reason: str
    version: int | None = None


class OrderReason(RequestBody):
    """The reason, which the audit log records."""

    reason: str


class Tasks(RequestBody):
    """The number of tasks, from one of the next two batches on; the parallelism loops hold for `minutes`."""

    tasks: int
    reason: str
    minutes: float = HAND_MINUTES


class Criterion(RequestBody):
    """A value in place of the one that a criterion has or follows, for so many minutes."""

    value: float
    reason: str
    minutes: float = USUAL_MINUTES


@router.get("/applications", summary="List running applications of the pipeline, with their versions")
def list_applications(request: HttpRequest, before: Id | None = None) -> ApplicationList:
    """Return the newest 50 versions; `next` is the value of `before` for older ones, null at the end."""
    actor_for(request, "plant.view")
    at_work = Declarations(control()).load_running()
    page = keyset.load_page(PipelineVersion.objects.select_related("owner"), MAX_VERSIONS, before)
    return {"at_work": dict(at_work), "versions": [_build_version_row(row) for row in page.rows], "next": page.older}


@router.post("/applications", summary="Declare an application or a new version")
def declare_application(request: HttpRequest, body: Declaration) -> ApplicationVersion:
    """Declare a version, which continues where the previous one was, and takes over within seconds."""
    actor = actor_for(request, "pipeline.declare")
    text = body.text.replace("\r\n", "\n")
    return _build_version_row(pipelines.declare(actor, text, body.reason, control(), body.version))


@router.post("/applications/{name}/restart", summary="Restart an application")
def restart_application(request: HttpRequest, name: str, body: OrderReason) -> ApplicationOrder:
    """Restart an application at its current events. A failed one starts in a new process."""
    actor = actor_for(request, "pipeline.steer")
    return _order(name, pipelines.restart(actor, name, body.reason, control()))


@router.post("/applications/{name}/stop", summary="Stop an application")
def stop_application(request: HttpRequest, name: str, body: OrderReason) -> ApplicationOrder:
    """Stop an application between two batches, until it is started. Its events wait in their segments."""
    actor = actor_for(request, "pipeline.steer")
    return _order(name, pipelines.stop(actor, name, body.reason, control()))


@router.post("/applications/{name}/start", summary="Start a stopped application")
def start_application(request: HttpRequest, name: str, body: OrderReason) -> ApplicationOrder:
    """Start an application where it stopped."""
    actor = actor_for(request, "pipeline.steer")
    return _order(name, pipelines.start(actor, name, body.reason, control()))


@router.post("/applications/{name}/operators/{operator}/tasks", summary="Set the number of an operator's tasks")
def set_operator_tasks(request: HttpRequest, name: str, operator: str, body: Tasks) -> OperatorTasks:
    actor = actor_for(request, "pipeline.steer")
    pipelines.set_tasks(actor, name, operator, body.tasks, body.reason, control(), body.minutes)
    return {"application": name, "operator": operator, "tasks": body.tasks}


@router.post(
    "/applications/{name}/criteria/{criterion}",
    summary="Hold a criterion (a value that rules compare events with) at a given value",
)
def hold_criterion(request: HttpRequest, name: str, criterion: str, body: Criterion) -> CriterionOverride:
    actor = actor_for(request, "pipeline.steer")
    held = pipelines.hold_criterion(
        actor, name, criterion, body.value, Expiry(body.minutes), body.reason, timezone.now(), control()
    )
    return convert(CriterionOverride, {"application": name, "criterion": criterion, **held})


@router.post("/applications/{name}/criteria/{criterion}/release", summary="Release a held criterion")
def release_criterion(request: HttpRequest, name: str, criterion: str) -> CriterionRelease:
    actor = actor_for(request, "pipeline.steer")
    pipelines.release_criterion(actor, name, criterion, control())
    return {"application": name, "criterion": criterion}


def _order(name: str, order: PipelineOrder) -> ApplicationOrder:
    return ApplicationOrder(application=name, **copy_shared_values(order, PipelineOrder))


def _build_version_row(row: PipelineVersion) -> ApplicationVersion:
    owner = row.owner.get_username() if row.owner else None
    return build_answer(ApplicationVersion, row, owner=owner)
