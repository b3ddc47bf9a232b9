"""The reason why no new snapshot arrives. The web process asks the supervisor, because a snapshot can't show it."""

from dataclasses import dataclass

from console.accounts.access import Actor
from console.incidents.quick_actions import QuickAction, find_process_fault
from workers.documents.snapshot import SILENT_AFTER_SECONDS, Snapshot

OBSERVER, CONTROL = "observer", "control"


@dataclass(frozen=True)
class Outage:
    """A process whose fault stops all data. since: the newest data (Unix time); restart: for those who may do it."""

    process: str
    state: str
    since: float | None
    restart: QuickAction | None

    @property
    def name(self) -> str:
        return "control server" if self.process == CONTROL else self.process


def find_outage(snapshot: Snapshot | None, is_answered: bool, actor: Actor, now: float) -> Outage | None:
    """Return the outage; None while data arrives, or if no supervisor knows the process.

    is_answered: whether the control server, which has the snapshot, answers.
    """
    since = snapshot.at if snapshot else None
    if is_answered and (since is None or now - since <= SILENT_AFTER_SECONDS):
        return None
    process = OBSERVER if is_answered else CONTROL
    state, restart = find_process_fault(process, actor)
    return Outage(process, state, since, restart) if state else None
