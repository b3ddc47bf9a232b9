"""The figures that an expression of an objective may name, of each kind of subject, now; None where unknown.

They are those of the plant's history (`workers.history.metrics`), and besides:

| figure | of | |
|---|---|---|
| `offered_per_second` | all | events/s that patterns could use, once for each of them |
| `shed_per_second` | all | of these, what was shed |
| `dead_per_second` | queue | events/s that became dead letters |
| `throttled_share` | queue | share of the time that producers over HTTP are asked to wait |
| `late_per_second` | application | events/s that came after their window had passed |

A pipeline that does not report has no figures: what it last said is not how it is.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from controllers.shedding import ladder
from workers.documents.pipeline import ApplicationStatus
from workers.documents.queues import QueueStatus
from workers.documents.snapshot import Snapshot
from workers.history import metrics
from workers.models import Loop

Figures = Mapping[str, float | None]
SHEDDING = ("offered_per_second", "shed_per_second")
NAMES: Mapping[str, tuple[str, ...]] = {
    "plant": (*metrics.TOTALS, *SHEDDING),
    "queue": (*metrics.PER_KIND["queues"], *SHEDDING, "dead_per_second", "throttled_share"),
    "application": (*metrics.APPLICATION, *SHEDDING, "late_per_second"),
}
SILENT = ("offline", None)


def subjects(kind: str, subject: str, snapshot: Snapshot) -> dict[str, Figures]:
    """Name → figures, of the one subject or of each of its kind; none where it is not there."""
    if kind == "plant":
        return {"": _plant(snapshot)}
    rows: Mapping[str, Any] = snapshot.queues if kind == "queue" else snapshot.pipeline.applications
    read: Callable[[str, Any, Snapshot], Figures] = _queue if kind == "queue" else _application
    return {name: read(name, row, snapshot) for name, row in rows.items() if subject in ("", name)}


def _plant(snapshot: Snapshot) -> Figures:
    totals = {name: getattr(snapshot.totals, name) for name in metrics.TOTALS}
    return {**totals, **_shedding(snapshot.pipeline.applications.values(), snapshot)}


def _queue(name: str, row: QueueStatus, snapshot: Snapshot) -> Figures:
    readers = [each for each in snapshot.pipeline.applications.values() if name in each.queues]
    dead = [each.dead_per_second for each in row.containers.values() if each.dead_per_second is not None]
    return {
        **{each: getattr(row, each) for each in metrics.PER_KIND["queues"]},
        **_shedding(readers, snapshot),
        "dead_per_second": sum(dead) if dead else None,
        "throttled_share": _throttled_share(name, snapshot),
    }


def _application(name: str, row: ApplicationStatus, snapshot: Snapshot) -> Figures:
    if snapshot.pipeline.state in SILENT:
        return dict.fromkeys(NAMES["application"])
    return {
        **{each: getattr(row, each) for each in metrics.APPLICATION},
        **_shedding([row], snapshot),
        "late_per_second": sum(each.late_per_second for each in row.operators.values()),
    }


def _shedding(rows: Iterable[ApplicationStatus], snapshot: Snapshot) -> Figures:
    """Of these applications together; of none, nothing is offered and nothing shed."""
    found = list(rows)
    if found and snapshot.pipeline.state in SILENT:
        return dict.fromkeys(SHEDDING)
    return {name: sum(getattr(each, name) or 0.0 for each in found) for name in SHEDDING}


def _throttled_share(queue: str, snapshot: Snapshot) -> float | None:
    """Of a ladder that acts by itself, what it last decided; a hand that throttles closes all the time."""
    loop = snapshot.loops.get(f"{ladder.LAW.name}/{queue}")
    if loop is None or loop.mode not in Loop.ACTING or not ladder.allows(int(loop.actuator or 0), "throttle"):
        return 0.0
    return float(loop.terms.get("closed_share") or 0.0) if loop.mode == Loop.Mode.AUTO else 1.0
