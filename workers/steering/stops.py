"""Pauses, drains, and the levels of remedy ladders that are in force, as a snapshot has them.

A loop whose target is stopped would measure nothing useful: workers that start and find a paused queue, a pool that is
empty because it drains. It holds until the target resumes, and says so.

The observer imports this module, so it imports no law but the ladder.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from controllers.shedding.ladder import LAW as LADDER
from controllers.shedding.ladder import LEVELS, allows
from queues import pausing
from workers.documents.loops import LoopStatus, OverrideStatus
from workers.documents.queues import PauseStatus
from workers.documents.snapshot import Snapshot
from workers.models import Loop

DRAINING = "work"  # the name of an override on a worker host: it takes no new work
SHED = LEVELS.index("shed") + 1


def format_time(at: datetime, since: datetime) -> str:
    """Return a time in UTC, with its day if that is not the day of `since`: 14:30:00 UTC."""
    utc = at.astimezone(UTC)
    day = "" if utc.date() == since.astimezone(UTC).date() else f"{utc:%Y-%m-%d} "
    return f"{day}{utc:%H:%M:%S} UTC"


def list_pauses(queue: str, overrides: Iterable[OverrideStatus]) -> list[PauseStatus]:
    """Return the pauses of a queue, intake first."""
    rows = [row for row in overrides if row.queue == queue and row.name in pausing.PARTS]
    return [_build_pause_status(row) for row in sorted(rows, key=lambda row: pausing.PARTS.index(row.name))]


def drain_of(host: str, overrides: Iterable[OverrideStatus]) -> PauseStatus | None:
    """Return the drain of a worker host; None if it takes work."""
    rows = [row for row in overrides if row.host == host and row.name == DRAINING]
    return _build_pause_status(rows[-1]) if rows else None


def _build_pause_status(row: OverrideStatus) -> PauseStatus:
    return PauseStatus(
        part=row.name, override=row.id, since=row.created_at, until=row.expires_at, by=row.owner, reason=row.reason
    )


def explain_no_slots(snapshot: Snapshot) -> str:
    """Return why the jobs queues have no slot, while there is none, as the end of a sentence."""
    reports = any(row.role == "jobs" for row in snapshot.hosts.values())
    return explain_all_drained(snapshot) or f"no worker host of role jobs {'has a slot' if reports else 'is reporting'}"


def explain_all_drained(snapshot: Snapshot) -> str:
    """Return which worker hosts of role jobs are drained, if all are, as the end of a sentence; else "".

    After its drain has ended, a host stays drained for a second until it follows.
    """
    hosts = {name: row for name, row in snapshot.hosts.items() if row.role == "jobs"}
    if not all(row.draining or row.drained for row in hosts.values()):
        return ""
    by = {name: f" ({format_who_and_why(row.draining)})" if row.draining else "" for name, row in hosts.items()}
    return ", ".join(f"host {name} is drained{words}" for name, words in by.items())


def format_who_and_why(stop: PauseStatus) -> str:
    """Return who stopped it, and the reason, for use in parentheses within a sentence."""
    return f"{stop.by}: {stop.reason.rstrip('.')}"


def is_emptied(node: str, snapshot: Snapshot) -> bool:
    """Return whether a node is drained, and had no events of any queue at its last report."""
    row = snapshot.nodes.get(node)
    left = [queue.containers[node] for queue in snapshot.queues.values() if node in queue.containers]
    holds = any(container.points or container.waiting_events or container.dead_letters for container in left)
    return row is not None and row.drained and not holds


def find_pause(queue: str, part: str, snapshot: Snapshot) -> PauseStatus | None:
    """Return the pause of one part of a queue."""
    row = snapshot.queues.get(queue)
    return next((pause for pause in row.pauses if pause.part == part), None) if row else None


def explain_hold(target: Mapping[str, str], snapshot: Snapshot) -> str:
    """Return why a loop with this target has to hold, as the end of a sentence; "" if it need not.

    A loop of a whole queue decides on its arrivals, and a loop of one container on its consumption. An application that
    may read another of its queues has work.
    """
    host = snapshot.hosts.get(target.get("host", ""))
    if host and host.draining:
        return f"worker host {target['host']} is drained {_format_end(host.draining)}"
    queue = target.get("queue", "")
    for part in pausing.PARTS:
        pause = find_pause(queue, part, snapshot)
        if pause is not None and (part == pausing.CONSUMPTION or "node" not in target):
            return f"{part} of {queue} is paused {_format_end(pause)}"
    row = snapshot.pipeline.applications.get(target.get("application", ""))
    if row and row.outbox_full:
        return f"its complex events wait for {', '.join(sorted(row.outbox))}"
    queues = row.queues if row else []
    pauses = [find_pause(name, pausing.CONSUMPTION, snapshot) for name in queues]
    if not queues or None in pauses:
        return ""
    return f"consumption of {', '.join(queues)} is paused {_format_end(pauses[0])}"


def _format_end(pause: PauseStatus | None) -> str:
    if pause is None or pause.until is None:
        return "without expiry"
    until = datetime.fromtimestamp(pause.until, UTC)
    return f"until {format_time(until, datetime.fromtimestamp(pause.since or pause.until, UTC))}"


def pause_in_words(queue: str, pause: PauseStatus) -> str:
    """Return one pause as a sentence."""
    return f"{pause.part.capitalize()} of {queue} is paused {_format_end(pause)} ({format_who_and_why(pause)})."


def find_active_level(queue: str, snapshot: Snapshot) -> int | None:
    """Return the highest level that the ladder, or a person in its place, has enabled and that is in force.

    Return None while the level is not known, since the ladder's last tick had no valid measurement. Without an acting
    ladder, no level is enabled.
    """
    loop = _find_ladder(queue, snapshot)
    if loop is None or not loop.was_decided_in(*Loop.ACTING):
        return 0
    rung = loop.terms.get(str(LADDER.actuator))
    return None if rung is None else int(rung)


def compute_closed_share(queue: str, snapshot: Snapshot) -> float:
    """Return the share of the time that producers over HTTP are to wait.

    It is all of the time if a person throttles manually.
    """
    loop = _find_ladder(queue, snapshot)
    if loop is None or not allows(find_active_level(queue, snapshot) or 0, "throttle"):
        return 0.0
    return 1.0 if loop.mode == Loop.Mode.MANUAL else float(loop.terms.get("closed_share") or 0.0)


def may_shed(queues: list[str], snapshot: Snapshot) -> bool | None:
    """Return whether the ladder of each of these queues has enabled shedding; None while unknown."""
    levels = [find_active_level(queue, snapshot) for queue in queues]
    if any(level is not None and level < SHED for level in levels):
        return False
    return None if None in levels else True


def _find_ladder(queue: str, snapshot: Snapshot) -> LoopStatus | None:
    return snapshot.loops.get(f"{LADDER.name}/{queue}")
