"""Restarts of processes, and why their previous run ended: from the log of the supervisor under `./run`.

Elsewhere (Compose, other supervisors) there is no such log, and the timeline has no such lane.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

LOG, OLDER_LOG = "supervisor.log", "supervisor.log.1"
LINE = re.compile(
    r"^(?P<at>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) \w+ (?:"
    r"(?P<whole>supervisord started)"
    r"|spawned: '(?P<spawned>[^']+)' with pid (?P<pid>\d+)"
    r"|exited: (?P<exited>\S+) \((?P<how>[^;)]+))"
)
PLANT = "Weir"


@dataclass(frozen=True)
class Restart:
    """A restart of a process.

    how: in which way the previous run ended, "" if unknown; down_seconds: how long ago that was; pid: of the new run.
    """

    name: str
    at: datetime
    how: str = ""
    down_seconds: float | None = None
    pid: int = 0


def has_log(data: Path) -> bool:
    """Return whether restarts are known here."""
    return (data / "logs" / LOG).exists()


def list_restarts(data: Path, since: datetime, until: datetime) -> list[Restart]:
    """Return the restarts, the oldest first. Processes that start with the supervisor are one: Weir itself."""
    return [drop_start for drop_start in _drop_starts(_list_starts(data)) if since <= drop_start.at <= until]


def list_newest_runs(data: Path) -> dict[str, int]:
    """Return the process ID of the newest run of each process."""
    return {start.name: start.pid for start in _list_starts(data) if start.pid}


def _list_starts(data: Path) -> list[Restart]:
    starts: list[Restart] = []
    for name in (OLDER_LOG, LOG):
        path = data / "logs" / name
        try:
            changed_ns = path.stat().st_mtime_ns
        except OSError:
            continue
        starts += _read(path, changed_ns)
    return starts


@lru_cache(maxsize=4)
def _read(path: Path, changed_ns: int) -> tuple[Restart, ...]:
    """Return all starts in a log, read once while the file is unchanged."""
    starts: list[Restart] = []
    ended: dict[str, tuple[str, datetime]] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        match = LINE.match(line)
        if match is None:
            continue
        at = datetime.strptime(match["at"], "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC)
        if match["whole"]:
            starts.append(Restart(PLANT, at))
        elif name := match["spawned"]:
            how, ended_at = ended.pop(name, ("", None))
            down_seconds = None if ended_at is None else max(0.0, (at - ended_at).total_seconds())
            starts.append(Restart(name, at, how, down_seconds, int(match["pid"])))
        else:
            ended[match["exited"]] = match["how"], at
    return tuple(starts)


def _drop_starts(starts: list[Restart]) -> list[Restart]:
    """Return the starts without the first one of each process after the supervisor's own."""
    seen: set[str] = set()
    kept = []
    for start in starts:
        if start.name == PLANT:
            seen = set()
        if start.name == PLANT or start.name in seen:
            kept.append(start)
        seen.add(start.name)
    return kept
