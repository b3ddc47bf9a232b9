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
    r"^(?P<at>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),\d{3} \w+ (?:"
    r"(?P<whole>supervisord started)"
    r"|spawned: '(?P<spawned>[^']+)' with pid"
    r"|exited: (?P<exited>\S+) \((?P<how>[^;)]+))"
)
PLANT = "Weir"


@dataclass(frozen=True)
class Restart:
    """A restart of a process; how: in which way the previous run ended, "" if unknown."""

    name: str
    at: datetime
    how: str = ""


def has_log(data: Path) -> bool:
    """Return whether restarts are known here."""
    return (data / "logs" / LOG).exists()


def list_restarts(data: Path, since: datetime, until: datetime) -> list[Restart]:
    """Return the restarts, the oldest first.

    Processes that start with the supervisor are one: Weir itself.
    """
    starts: list[Restart] = []
    for name in (OLDER_LOG, LOG):
        path = data / "logs" / name
        try:
            changed_ns = path.stat().st_mtime_ns
        except OSError:
            continue
        starts += _read(path, changed_ns)
    return [drop_start for drop_start in _drop_starts(starts) if since <= drop_start.at <= until]


@lru_cache(maxsize=4)
def _read(path: Path, changed_ns: int) -> tuple[Restart, ...]:
    """Return all starts in a log, read once while the file is unchanged."""
    starts: list[Restart] = []
    ended: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        match = LINE.match(line)
        if match is None:
            continue
        at = datetime.strptime(match["at"], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
        if match["whole"]:
            starts.append(Restart(PLANT, at))
        elif name := match["spawned"]:
            starts.append(Restart(name, at, ended.pop(name, "")))
        else:
            ended[match["exited"]] = match["how"]
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
