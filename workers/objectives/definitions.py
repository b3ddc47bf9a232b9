"""Objectives as people define them: read, checked, kept. Errors name their field; nothing changed then."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

import pyarrow as pa
from django.contrib.auth.models import User
from django.db import transaction

from common import checks
from common.errors import BadInput
from common.stored_document import list_recorded
from workers.documents.pipeline import UNHEARD, ApplicationStatus
from workers.documents.queues import QueueStatus
from workers.documents.snapshot import NOTHING_SEEN, PlantTotals, Snapshot
from workers.objectives.models import Objective
from workers.pipeline.patterns.predicate import Predicate, Quantity, parse, parse_quantity
from workers.steering.scope import compute_closed_share

Figures = Mapping[str, float | None]
APPLICATION = (
    "in_per_second",
    "kept_per_second",
    "latency_p95_seconds",
    "watermark_lag_seconds",
    "waiting_events",
    "batch_seconds",
    "shed_share",
)
SHEDDING = ("offered_per_second", "shed_per_second")
NAMES: Mapping[str, tuple[str, ...]] = {
    "plant": (*list_recorded(PlantTotals), *SHEDDING),
    "queue": (*list_recorded(QueueStatus), *SHEDDING, "dead_per_second", "throttled_share"),
    "application": (*APPLICATION, *SHEDDING, "late_per_second"),
}
SECONDS, EVENTS = "s", "events"
Rates = tuple[float, float] | None  # (bad, counted) per second; None while unknown
MAX_OBJECTIVES = 50
MIN_TARGET, MAX_TARGET = 0.5, 0.99999
MIN_DAYS, MAX_DAYS = 3, 90
# What is counted: a change of one of these restarts the count, since minutes of another promise don't apply to it.
COUNTED = ("kind", "subject", "condition", "lost", "of")
FIELDS = (*COUNTED, "target", "window_days", "pays_for")


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
        readers = [reader for reader, application in applications.items() if name in application.queues]
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
            **{field: getattr(row, field) for field in APPLICATION},
            "latency_p95_seconds": _compute_latency(row.latency_p95_seconds, read),
            **self._sum_shedding([name]),
            "late_per_second": self._compute_counter_rate(name, "late_events", late),
        }

    def _sum_shedding(self, names: Iterable[str]) -> Figures:
        """Return the figures of these applications together; without any, nothing is offered and nothing is shed."""
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
    """Return the latency of handled events; if none are handled, the wait of the oldest event of these queues."""
    if handled_seconds is not None:
        return handled_seconds
    return max((row.wait_seconds for row in queues if row.wait_seconds), default=None)


@dataclass(frozen=True)
class Measure:
    """A measure of an objective.

    `condition`: true in a good second; None if `lost` says what is bad. `of`: what counts, per second; None:
    the second itself.
    """

    condition: Predicate | None
    lost: Quantity | None
    of: Quantity | None

    @property
    def unit(self) -> str:
        """Return what is counted: seconds, unless a figure says how much there is of something else."""
        return EVENTS if self.of is not None and self.of.columns else SECONDS

    @property
    def names(self) -> frozenset[str]:
        """Return the figures that it reads."""
        read = (self.condition, self.lost, self.of)
        return frozenset[str]().union(*(expression.columns for expression in read if expression is not None))

    def compute_rates(self, subjects: Sequence[Figures]) -> list[Rates]:
        """Return the rates of each subject; all at once, since there may be many."""
        count = len(subjects)
        columns = {name: pa.array([figures[name] for figures in subjects], pa.float64()) for name in self.names}
        totals = [1.0] * count if self.of is None else self.of.collect_values(columns, count).to_pylist()
        if self.lost is not None:
            pairs_of_rates = zip(self.lost.collect_values(columns, count).to_pylist(), totals, strict=True)
            return [_drop_unknown(bad, total) for bad, total in pairs_of_rates]
        assert self.condition is not None
        good = self.condition.compute_truth(columns, count).to_pylist()
        pairs = zip(good, totals, strict=True)
        return [_drop_unknown(None if kept is None else 0.0 if kept else total, total) for kept, total in pairs]


def _drop_unknown(bad: float | None, total: float | None) -> Rates:
    """Return None for a share of nothing, which is no number and counts as unknown."""
    if bad is None or total is None or not (math.isfinite(bad) and math.isfinite(total)) or total < 0:
        return None
    return max(bad, 0.0), total


def measure(kind: str, condition: str, lost: str, of: str) -> Measure:
    """Build a measure. Raises `BadInput` naming condition, lost, or of."""
    if bool(condition.strip()) == bool(lost.strip()):
        raise BadInput("condition", "must be set if `lost` is empty, and must be empty if `lost` is set.")
    if lost.strip() and not of.strip():
        raise BadInput("of", 'is missing: set the total that `lost` is a part of, such as offered_per_second, or "1".')
    measured = Measure(
        parse(condition, "condition") if condition.strip() else None,
        parse_quantity(lost, "lost") if lost.strip() else None,
        parse_quantity(of, "of") if of.strip() else None,
    )
    for field in ("condition", "lost", "of"):
        _check_names(kind, getattr(measured, field), field)
    if measured.of is not None and not measured.of.columns and not measured.of.collect_values({}, 1)[0].as_py() > 0:
        raise BadInput("of", "must be a total: a metric, or a number above 0, such as 1.")
    return measured


def _check_names(kind: str, expression: Predicate | Quantity | None, field: str) -> None:
    if expression is None:
        return
    if isinstance(expression, Predicate) and expression.previous:
        raise BadInput(field, "can't use prev(): each second is judged separately.")
    if unknown := sorted(expression.columns - set(NAMES[kind])):
        known = ", ".join(NAMES[kind])
        hint = checks.suggest(unknown[0], NAMES[kind])
        raise BadInput(field, f"{unknown[0][:40]!r} is not a metric of the {kind}{hint}. The metrics are {known}.")
    try:
        columns: Mapping[str, pa.Array] = {name: pa.array([1.0]) for name in NAMES[kind]}
        _ = (
            expression.compute_truth(columns, 1)
            if isinstance(expression, Predicate)
            else expression.collect_values(columns, 1)
        )
    except (pa.ArrowException, ArithmeticError, ValueError, TypeError):
        raise BadInput(
            field, "can't be calculated: metrics are numbers, and can be compared only with numbers."
        ) from None


def document(objective: Objective) -> dict[str, Any]:
    """Return the objective as `define` reads it."""
    fields = {name: getattr(objective, name) for name in FIELDS}
    return {"name": objective.name, "revision": objective.revision, **fields}


def measure_of(objective: Objective) -> Measure:
    """Return the objective's measure. Raises `BadInput` if another version wrote what this one can't read."""
    return measure(objective.kind, objective.condition, objective.lost, objective.of)


@transaction.atomic
def define(
    name: Any, fields: Mapping[str, Any], by: User | None, now: datetime, revision: int | None = None
) -> Objective:
    """Create an objective, or change the one of that name; omitted fields stay, or have their defaults.

    `revision`: the revision that was edited; None overwrites. Raises `BadInput`.
    """
    checks.accept_name().validate(name, "name", end=".")
    objective = Objective.objects.select_for_update().filter(name=name).first()
    if objective is None and Objective.objects.count() >= MAX_OBJECTIVES:
        raise BadInput("name", f"can't be added: the limit is {MAX_OBJECTIVES} objectives. Remove an objective first.")
    if objective is not None and revision is not None and objective.revision != revision:
        raise BadInput("revision", "is outdated: another user has changed the objective. Reload it.")
    before = None if objective is None else document(objective)
    row = objective or Objective(name=name)
    for field, value in validate_fields(fields, before).items():
        setattr(row, field, value)
    row.revision = 1 if objective is None else objective.revision + 1
    row.changed_by, row.changed_at = by, now
    row.save()
    if before is not None and any(before[counted_field] != getattr(row, counted_field) for counted_field in COUNTED):
        row.minutes.all().delete()
    return row


def is_another(before: Objective, now: Objective) -> bool:
    """Return whether an objective counts something else than before."""
    return any(getattr(before, field) != getattr(now, field) for field in COUNTED)


def validate_fields(fields: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return all fields of an objective, the given ones in place of those before. Raises `BadInput`."""
    checks.refuse_unknown(fields, FIELDS, "", message="is unknown. The fields are {known}.")
    given = {"kind": "plant", "window_days": 30, **(before or {}), **fields}
    kind = _validate_choice(Objective.Kind.values, given["kind"], "kind")
    texts = {name: _validate_text(given.get(name, ""), name) for name in ("subject", "condition", "lost", "of")}
    if kind == Objective.Kind.PLANT and texts["subject"]:
        raise BadInput("subject", "must be empty for the kind plant. Choose the kind queue or application.")
    read_measure = measure(kind, texts["condition"], texts["lost"], texts["of"])
    value = given["window_days"]
    if not checks.is_number(value, MIN_DAYS, MAX_DAYS) or not float(value).is_integer():
        raise BadInput("window_days", f"must be a whole number of days from {MIN_DAYS} to {MAX_DAYS}.")
    return {
        "kind": kind,
        **texts,
        "target": _validate_target(given.get("target")),
        "window_days": int(value),
        "pays_for": _pays_for(given.get("pays_for", ""), kind, read_measure),
    }


def _validate_choice(known: list[str], value: object, field: str) -> str:
    return str(checks.accept_choice(known, f"one of {', '.join(filter(None, known))}").validate(value, field, end="."))


def _validate_text(value: object, field: str) -> str:
    if not isinstance(value, str):
        raise BadInput(field, "must be text.")
    return value.strip()


def _validate_target(value: object) -> float:
    if not checks.is_number(value, MIN_TARGET, MAX_TARGET):
        raise BadInput("target", f"must be a share from {MIN_TARGET} to {MAX_TARGET}, such as 0.999.")
    return float(value)


def _pays_for(value: object, kind: str, found: Measure) -> str:
    """Check that what a loop spends is counted in the loop's unit: shed events, seconds of waiting."""
    pays = _validate_choice(Objective.PaysFor.values, value, "pays_for") if value else ""
    names = found.lost.columns if found.lost is not None else frozenset()
    if pays == Objective.PaysFor.SHEDDING and ("shed_per_second" not in names or found.unit != EVENTS):
        raise BadInput("pays_for", "can be shed only if `lost` uses shed_per_second and `of` uses a rate of events.")
    if pays == Objective.PaysFor.THROTTLING and (
        "throttled_share" not in names or found.unit == EVENTS or kind != Objective.Kind.QUEUE
    ):
        raise BadInput(
            "pays_for", 'can be throttle only if `kind` is queue, `lost` uses throttled_share, and `of` is "1".'
        )
    return pays


def remove(objective: Objective) -> None:
    """Remove an objective with all that was counted for it."""
    objective.delete()
