"""The processes of the plant that ./run supervises: seen, and started again, by administrators."""

from console.accounts.access import Actor, demand
from console.audit import audit_log
from console.connections import supervisor
from console.connections.supervisor import ProcessRow
from workers.steering.overrides import read_reason


def processes(actor: Actor) -> list[ProcessRow]:
    """What runs. Raises NoSupervisor where nobody supervises."""
    demand(actor, "process.view")
    return supervisor.processes()


def log_lines(actor: Actor, name: str) -> list[str]:
    """The last lines of a process's log. Raises BadInput, NoSupervisor."""
    demand(actor, "process.view")
    return supervisor.log_lines(name)


def restart(actor: Actor, name: str, reason: str, at_once: bool = False) -> ProcessRow:
    """Have a process end, and begin anew; at_once: without finishing what it is at. Answers what it was.
    Raises BadInput naming process or reason, NoSupervisor.
    """
    demand(actor, "process.restart")
    why = read_reason(reason)
    process = supervisor.process(name)
    before = {"state": process.word, "pid": process.pid}
    after = {"at_once": at_once}
    with audit_log.attempt(actor, "process.restart", name, reason=why, before=before, after=after):
        supervisor.restart(name, at_once)
    return process
