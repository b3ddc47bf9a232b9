"""The figures that an objective's expression may name, for each kind of subject, now; None if unknown.

They are those of the plant's history (`workers.history.metrics`), and:

| figure | subject | |
|---|---|---|
| `offered_per_second` | all | events/s that patterns could use, once for each pattern |
| `shed_per_second` | all | of these, what was shed |
| `dead_per_second` | queue | events/s that became dead letters |
| `throttled_share` | queue | share of the time that producers over HTTP are asked to wait |
| `late_per_second` | application | events/s that arrived after their window had passed |

Shed and late events are counted exactly: by how much their counter has grown since the previous snapshot, regardless of
the 10-second rate. A new application, or one whose counter fell, has its rate.

A pipeline that does not report has no figures: its last report is outdated. But `latency_p95_seconds` is known while
anything waits: while nothing is handled it is at least the wait of the oldest event, so that an outage doesn't count as
good time. If nothing waits either, it is unknown.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from common.stored_document import list_recorded
from workers.documents.pipeline import UNHEARD, ApplicationStatus
from workers.documents.queues import QueueStatus
from workers.documents.snapshot import NOTHING_SEEN, PlantTotals, Snapshot
from workers.steering.scope import compute_closed_share

Figures = Mapping[str, float | None]
SHEDDING = ("offered_per_second", "shed_per_second")
APPLICATION = (
    "in_per_second",
    "kept_per_second",
    "latency_p95_seconds",
    "watermark_lag_seconds",
    "waiting_events",
    "batch_seconds",
    "shed_share",
)
NAMES: Mapping[str, tuple[str, ...]] = {
    "plant": (*list_recorded(PlantTotals), *SHEDDING),
    "queue": (*list_recorded(QueueStatus), *SHEDDING, "dead_per_second", "throttled_share"),
    "application": (*APPLICATION, *SHEDDING, "late_per_second"),
}


@dataclass(frozen=True)
class PlantFigures:
    """The figures of all subjects in a snapshot.

    `before`: the snapshot counted before it; `seconds`: the counted seconds between the two. Each kind is
    computed when it is first requested, and once.
    """

    snapshot: Snapshot
    before: Snapshot = NOTHING_SEEN
    seconds: float = 1.0

    def compute_figures(self, kind: str, subject: str) -> Mapping[str, Figures]:
        """Return name → figures, of the one subject or of each of its kind; empty if it doesn't exist."""
        figures: Mapping[str, Figures] = getattr(self, f"_{kind}s")
        if kind == "plant" or not subject:
            return figures
        return {subject: figures[subject]} if subject in figures else {}

    @cached_property
    def _plants(self) -> Mapping[str, Figures]:
        totals = {name: getattr(self.snapshot.totals, name) for name in list_recorded(PlantTotals)}
        latency = _compute_latency(totals["latency_p95_seconds"], self.snapshot.queues.values())
        shedding = self._sum_shedding(self.snapshot.pipeline.applications)
        return {"": {**totals, "latency_p95_seconds": latency, **shedding}}

    @cached_property
    def _queues(self) -> Mapping[str, Figures]:
        return {name: self._queue(name, row) for name, row in self.snapshot.queues.items()}

    @cached_property
    def _applications(self) -> Mapping[str, Figures]:
        rows = self.snapshot.pipeline.applications
        return {name: self._compute_application_figures(name, row) for name, row in rows.items()}

    @property
    def _is_silent(self) -> bool:
        return self.snapshot.pipeline.state in UNHEARD

    def _queue(self, name: str, row: QueueStatus) -> Figures:
        applications = self.snapshot.pipeline.applications
        readers = [reader for reader, each in applications.items() if name in each.queues]
        dead = [
            container.dead_per_second for container in row.containers.values() if container.dead_per_second is not None
        ]
        return {
            **{queue: getattr(row, queue) for queue in list_recorded(QueueStatus)},
            "latency_p95_seconds": _compute_latency(row.latency_p95_seconds, [row]),
            **self._sum_shedding(readers),
            "dead_per_second": sum(dead) if dead else None,
            "throttled_share": compute_closed_share(name, self.snapshot),
        }

    def _compute_application_figures(self, name: str, row: ApplicationStatus) -> Figures:
        read = [self.snapshot.queues[queue] for queue in row.queues if queue in self.snapshot.queues]
        if self._is_silent:
            return {**dict.fromkeys(NAMES["application"]), "latency_p95_seconds": _compute_latency(None, read)}
        late = sum(operator.late_per_second for operator in row.operators.values())
        return {
            **{each: getattr(row, each) for each in APPLICATION},
            "latency_p95_seconds": _compute_latency(row.latency_p95_seconds, read),
            **self._sum_shedding([name]),
            "late_per_second": self._compute_counter_rate(name, "late_events", late),
        }

    def _sum_shedding(self, names: Iterable[str]) -> Figures:
        """Return the figures of these applications together.

        Without any application, nothing is offered and nothing is shed.
        """
        rows = {name: self.snapshot.pipeline.applications[name] for name in names}
        if rows and self._is_silent:
            return dict.fromkeys(SHEDDING)
        offered = sum(row.offered_per_second or 0.0 for row in rows.values())
        shed = sum(
            self._compute_counter_rate(name, "shed_events", row.shed_per_second or 0.0) for name, row in rows.items()
        )
        return dict(zip(SHEDDING, (offered, shed), strict=True))

    def _compute_counter_rate(self, application: str, counter: str, rate_per_second: float) -> float:
        """Return by how much a counter has grown, per counted second; the rate if that is not known."""
        rows = [when.pipeline.applications.get(application) for when in (self.before, self.snapshot)]
        before, now = (None if row is None else int(getattr(row, counter)) for row in rows)
        if before is None or now is None or now < before or self.seconds <= 0:
            return rate_per_second
        return (now - before) / self.seconds


def _compute_latency(handled_seconds: float | None, queues: Iterable[QueueStatus]) -> float | None:
    """Return the latency of handled events.

    If none are handled, return the wait of the oldest event of these queues.
    """
    if handled_seconds is not None:
        return handled_seconds
    return max((row.wait_seconds for row in queues if row.wait_seconds), default=None)
