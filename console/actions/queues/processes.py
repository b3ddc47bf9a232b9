"""The processes of the plant that ./run supervises: listed and restarted by administrators."""

from console.accounts.access import Actor, require_permission
from console.audit import audit_log
from console.connections import supervisor
from console.connections.supervisor import ProcessRow
from workers.steering.overrides import read_reason


def list_processes(actor: Actor) -> list[ProcessRow]:
    """Return the processes. Raises `NoSupervisor` if there is no supervisor."""
    require_permission(actor, "process.view")
    return supervisor.list_processes()


def log_lines(actor: Actor, name: str) -> list[str]:
    """Return the last lines of a process's log. Raises BadInput, NoSupervisor."""
    require_permission(actor, "process.view")
    return supervisor.log_lines(name)


def restart(actor: Actor, name: str, reason: str, at_once: bool = False) -> ProcessRow:
    """Restart a process; at_once: without finishing its work. Returns the previous process.

    Raises `BadInput` that names process or reason, `NoSupervisor`.
    """
    require_permission(actor, "process.restart")
    why = read_reason(reason)
    process = supervisor.get_process(name)
    before = {"state": process.word, "pid": process.pid}
    after = {"at_once": at_once or process.is_suspended}
    with audit_log.record_attempt(actor, "process.restart", name, reason=why, before=before, after=after):
        supervisor.restart(name, at_once)
    return process
