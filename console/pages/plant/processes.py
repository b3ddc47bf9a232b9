"""The processes of this plant, for administrators: state, log, and restart."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from common.errors import BadInput
from console.accounts.access import actor_of
from console.actions.queues import processes as actions
from console.connections import supervisor
from console.connections.supervisor import NoSupervisor, ProcessRow
from console.pages.frame.page import ActionResult, FormPage, declare_action, declare_page, render_page


@dataclass(frozen=True, kw_only=True)
class ProcessesPage(FormPage):
    """All processes, and the log of the open one. supervised: whether ./run started this console."""

    TEMPLATE, NAME = "plant/processes.html", "processes"

    supervised: bool
    processes: Sequence[ProcessRow]
    opened: str
    lines: Sequence[str]


@declare_page("process.view")
def processes_page(request: HttpRequest) -> HttpResponse:
    """Show the list; with `log` the last lines of a process."""
    actor, opened = actor_of(request), request.GET.get("log", "")
    rows: list[ProcessRow] = []
    lines: list[str] = []
    errors: dict[str, list[str]] = {}
    try:
        rows = actions.list_processes(actor) if supervisor.is_there() else []
        lines = actions.log_lines(actor, opened) if opened and rows else []
    except NoSupervisor as error:
        errors["supervisor"] = [str(error)]
    except BadInput as error:
        errors[error.field], opened = [error.message], ""
    page = ProcessesPage(supervised=supervisor.is_there(), processes=rows, opened=opened, lines=lines, errors=errors)
    return render_page(request, page, "frame")


@declare_action("process.restart", processes_page)
def restart(request: HttpRequest) -> ActionResult:
    """Restart a process. Posted: process, reason, at_once (1: it is killed, as a suspended process always is)."""
    name, at_once = request.POST.get("process", ""), request.POST.get("at_once") == "1"
    try:
        was = actions.restart(actor_of(request), name, request.POST.get("reason", ""), at_once)
    except NoSupervisor as error:
        raise BadInput("process", str(error)) from None
    return ActionResult(f"The process {name} {_describe_restart(was, at_once)}.", reverse("processes"))


def _describe_restart(was: ProcessRow, at_once: bool) -> str:
    if was.pid is None:
        return "is starting"
    if was.is_suspended:
        return "was suspended; it was killed and is restarting"
    return "was killed and is restarting" if at_once else "is restarting"
