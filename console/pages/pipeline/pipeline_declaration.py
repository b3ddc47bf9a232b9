"""The declaration of an application: its text, its versions, and the form for a new version."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.http import require_POST

from common.errors import BadInput
from console.accounts.access import actor_of, requires
from console.actions import pipelines
from console.connections.control_server import control
from console.display.text_difference import MAX_LINES, TextDifference, compute_text_difference
from console.input.form_values import find_line_number, find_wrong_line, parse_row_id
from console.pages.frame.page import (
    ActionResult,
    FormPage,
    declare_action,
    declare_page,
    get_rejected_form,
    read_or,
    read_reason,
    render_page,
)
from controllers.framework.reason import capitalize, format_count
from workers.alerts.evaluation.impact import join_names
from workers.documents.pipeline import ApplicationAtWork
from workers.models import PipelineVersion
from workers.pipeline.declaration.completion import list_completions
from workers.pipeline.declaration.declared import OF_FILE, Declarations

VERSIONS_SHOWN = 30
NEW, AS_SHIPPED = "new", "shipped"  # an application that does not exist yet; a version that the file has
TOO_LONG = f"More than {MAX_LINES:,} lines differ from the running version, too many to show."


@dataclass(frozen=True, kw_only=True)
class DeclarationPage(FormPage):
    """The text of an application.

    shown: the version shown; version: the running version; newest: number of the newest, 0 if there is none.
    """

    TEMPLATE, NAME = "pipeline/pipeline_declaration.html", "pipeline"

    application: str
    is_new: bool
    text: str
    shown: PipelineVersion | None
    as_shipped: bool  # its text is that of the file
    has_shipped: bool
    wrong_line: int | None  # of the rejected text
    difference: TextDifference  # compared with the running version
    version: ApplicationAtWork | None
    is_answered: bool  # otherwise the running version is unknown
    of_file: int
    newest: int
    versions: QuerySet[PipelineVersion]  # the newest first
    patterns: Sequence[str]  # patterns for a trial
    tried_pattern: str  # the pattern that is selected first


def list_running_versions() -> dict[str, ApplicationAtWork]:
    """Return the running version by application; nothing while the control server is unreachable."""
    return read_or({}, Declarations(control()).load_running)


@declare_page("plant.view")
def declaration_page(request: HttpRequest, name: str) -> HttpResponse:
    """Show the text of an application, its versions, and the form for another version.

    The name `new` stands for a new application.
    """
    at_work = read_or(None, Declarations(control()).load_running)
    versions = PipelineVersion.objects.filter(application=name).select_related("owner")
    newest = versions.order_by("-number").first()
    running = (at_work or {}).get(name)
    if at_work is not None and running is None and newest is None and name != NEW:
        raise Http404(f"Application {name} is not declared.")
    asked = request.GET.get("version")
    shipped = read_or(None, lambda: Declarations(control()).load_shipped(name))
    as_shipped = asked == AS_SHIPPED and shipped is not None
    shown = None if as_shipped else newest
    if asked and not as_shipped:
        shown = get_object_or_404(versions, number=parse_row_id(asked) or 0)
    at_work_text = running.text if running else ""
    text = shown.text if shown else (shipped or "") if as_shipped else at_work_text
    rejected = get_rejected_form(request)
    text = rejected.submitted.get("text", text)
    page = DeclarationPage(
        application=name,
        is_new=name == NEW,
        text=text,
        shown=shown,
        as_shipped=as_shipped,
        has_shipped=shipped is not None,
        wrong_line=find_wrong_line(rejected.errors),
        difference=compute_text_difference(at_work_text, text) if running else TextDifference(),
        version=running,
        is_answered=at_work is not None,
        of_file=OF_FILE,
        newest=newest.number if newest else 0,
        versions=versions.order_by("-number")[:VERSIONS_SHOWN],
        patterns=list_completions(text)["patterns"],
        tried_pattern=request.GET.get("pattern", ""),
    )
    return render_page(request, page)


@require_POST
@requires("pipeline.declare")
def preview(request: HttpRequest, name: str) -> HttpResponse:
    """Return what a posted text would change, without changing anything.

    The result is {"sentence", "rows", "line", "difference", "names"}. Posted: text. line: the line of the error, or
    None. names: those that the editor suggests.
    """
    text = request.POST.get("text", "").replace("\r\n", "\n")
    running = list_running_versions().get(name)
    differs = compute_text_difference(running.text, text) if running else None
    line = None
    try:
        wanted = pipelines.parse_application_for(actor_of(request), text)
        count = format_count(len(wanted.graph.operators), "operator")
        what = f"reads {join_names(wanted.queues)} and has {count}"
        how = "No version is running." if differs is None else TOO_LONG if differs.too_long else "No differences."
        if differs is not None and differs.count and not differs.too_long:
            verb = "differs" if differs.count == 1 else "differ"
            how = f"{format_count(differs.count, 'line')} {verb} from the running version."
        said = f"The declaration is valid: {wanted.name} {what}. {how}"
    except BadInput as error:
        said, line = f"{capitalize(error.field)}: {error.message}", find_line_number(error.message)
    lines = differs.lines if differs else ()
    shown = [{"sign": text_line.sign, "text": text_line.text} for text_line in lines]
    names = list_completions(text)
    return JsonResponse({"sentence": said, "rows": [], "line": line, "difference": shown, "names": names})


@declare_action("pipeline.declare", declaration_page)
def declare(request: HttpRequest, name: str) -> ActionResult:
    """Declare a new version, which runs from now on. Posted: text, version (the newest when shown), reason."""
    reason = read_reason(request)
    text = request.POST.get("text", "").replace("\r\n", "\n")
    declared = pipelines.parse_application_for(actor_of(request), text).name
    if name not in (NEW, declared):
        raise BadInput(
            "text", (f"must name the application {name}, not {declared}. Declare {declared} as a new application.")
        )
    if name == NEW and declared in list_running_versions():
        raise BadInput("text", (f"names the application {declared}, which already exists. Open its declaration."))
    since = parse_row_id(request.POST.get("version", "")) if "version" in request.POST else None
    version = pipelines.declare(actor_of(request), text, reason, control(), since)
    return ActionResult(
        f"Version {version.number} of {version.application} takes effect within seconds.",
        reverse("pipeline-declaration", args=[version.application]),
    )
