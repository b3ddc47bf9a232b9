"""The processes that ./run supervises, for administrators."""

from dataclasses import asdict

from django.http import Http404, HttpRequest

from console.actions.queues import processes
from console.api.answer.router import Router
from console.api.answer.schema import convert
from console.api.request.authentication import actor_for
from console.api.request.bodies import Reason
from console.api.request.refusals import RefusedError
from console.api.schemas.operating import ProcessList, ProcessLog, ProcessStatus
from console.connections.supervisor import NoSupervisor

router = Router(tags=["plant"])


class RestartRequest(Reason):
    """at_once: it is killed, and does not finish its work."""

    at_once: bool = False


@router.get("/processes", response=ProcessList, summary="List processes of this plant")
def list_processes(request: HttpRequest) -> ProcessList:
    """Return the processes, stopped ones first; none if ./run did not start this console, as in Compose."""
    actor = actor_for(request, "process.view")
    try:
        return {
            "supervised": True,
            "processes": [convert(ProcessStatus, asdict(row)) for row in processes.list_processes(actor)],
        }
    except NoSupervisor:
        return {"supervised": False, "processes": []}


@router.get("/processes/{process}/log", response=ProcessLog, summary="Get the last lines of a process's log")
def get_process_log(request: HttpRequest, process: str) -> ProcessLog:
    """Return the log without secrets."""
    actor = actor_for(request, "process.view")
    try:
        return {"process": process, "lines": processes.log_lines(actor, process)}
    except NoSupervisor as error:
        raise Http404(str(error)) from None


@router.post("/processes/{process}/restart", response=ProcessStatus, summary="Restart a process")
def restart_process(request: HttpRequest, process: str, body: RestartRequest) -> ProcessStatus:
    """Restart a process after it finishes its work, or at once; return the previous process."""
    actor = actor_for(request, "process.restart")
    try:
        return convert(ProcessStatus, asdict(processes.restart(actor, process, body.reason, body.at_once)))
    except NoSupervisor as error:
        raise RefusedError(409, "supervisor", str(error)) from None
