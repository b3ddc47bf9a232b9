"""Processes of this host that the supervisor has just restarted, and those that don't work, for the snapshot.

They are read from the supervisor's log and from /proc, so that a supervisor that doesn't respond delays no snapshot.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from console.connections.supervisor import DRILL, is_gone, is_suspended
from console.timeline.restarts import PLANT, list_newest_runs, list_restarts
from workers.documents.parts import ProcessEvent

SHOWN = timedelta(minutes=1)
ORDERED = ("", "exit status 0", "terminated by SIGTERM", "terminated by SIGINT")  # such a process was told to end


class ProcessWatch:
    """The processes under ./run. data: the plant's folder."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._since: dict[tuple[str, str], float] = {}

    def list_events(self, now: float) -> list[ProcessEvent]:
        """Return the events of the last minute, and the processes that are suspended or down now."""
        return [*self._list_restarts(now), *self._list_troubled(now)]

    def _list_restarts(self, now: float) -> list[ProcessEvent]:
        until = datetime.fromtimestamp(now, UTC)
        newest = {
            restart.name: restart
            for restart in list_restarts(self._data, until - SHOWN, until)
            if restart.name != PLANT and restart.how not in ORDERED
        }
        return [
            ProcessEvent(
                name=name,
                kind="restarted",
                at=restart.at.timestamp(),
                how=restart.how.removeprefix("terminated by "),
                down_seconds=restart.down_seconds,
            )
            for name, restart in sorted(newest.items())
        ]

    def _list_troubled(self, now: float) -> list[ProcessEvent]:
        """Return suspended processes, and those whose last run has ended and that do not run again yet."""
        troubled = {}
        for name, pid in sorted(list_newest_runs(self._data).items()):
            if is_suspended(pid):
                troubled[name] = "suspended"
            elif name != DRILL and is_gone(pid):
                troubled[name] = "down"
        self._since = {(name, kind): self._since.get((name, kind), now) for name, kind in troubled.items()}
        return [ProcessEvent(name=name, kind=kind, at=at) for (name, kind), at in self._since.items()]
