"""Additional parts of a parallelism loop's page.

They show the tasks of each operator, the latency of each path against its bound, the forecast, who decides what and
why, the cost of tasks, and the gain of its rescales.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import redis

from console.pages.loops.prediction import Plane, PlaneLevel, PlaneTick
from console.timeline.window import compute_value_ticks
from controllers import catalog
from controllers.parallelism import inputs
from controllers.parallelism.measured_topology import MeasuredOperator, MeasuredTopology
from workers.control.kinds.registry import find_display
from workers.control.ledger import ledger
from workers.control.parts.operators import OWNERS, build_topology_inputs, decides_ahead, forecast_of
from workers.documents.plants import LoadForecast
from workers.documents.snapshot import Snapshot
from workers.history import metric_history
from workers.models import LedgerEntry, Loop
from workers.steering import overrides
from workers.steering.scope import list_active_loops

Floats = npt.NDArray[np.float64]
JOINT = OWNERS[-1]  # it acts by default, and its terms cover all operators
PAST_SECONDS = 3_600.0
DRAWN_SECONDS, DRAWN_POINTS = 2_700.0, 90
SHOWN_RESCALES, READ_ENTRIES = 8, 100
WINDOWS_SECONDS = 3 * 3_600.0  # a range of this length has windows of 10 s


@dataclass(frozen=True)
class StoredFigures:
    """The source of the plant's past figures."""

    control: redis.Redis
    data: Path

    def load_series(self, series: Sequence[str], now_seconds: float) -> "PastFigures":
        """Return the series of the last hour; without times while the control server is unreachable.

        Windows of 10 s where they exist, and seconds after them: an hour of seconds takes too long for a page.
        """
        since = now_seconds - PAST_SECONDS
        try:
            columns = metric_history.read_columns(
                self.control, self.data, since, now_seconds, series, range_seconds=WINDOWS_SECONDS, means=True
            )
        except redis.RedisError:
            columns = {name: [] for name in ("at", *series)}
        ages = now_seconds - np.asarray(columns.pop("at"), dtype=float)
        return PastFigures(ages, {name: np.asarray(column, dtype=float) for name, column in columns.items()})


@dataclass(frozen=True)
class PastFigures:
    """Series of the last hour, with the age of each row (s)."""

    ages: Floats
    columns: Mapping[str, Floats]

    def select(self, series: Sequence[str]) -> Floats:
        """Return a row for each of these series."""
        return np.array([self.columns[name] for name in series]).reshape(len(series), len(self.ages))


@dataclass(frozen=True, kw_only=True)
class SteeredOperator:
    """An operator whose tasks can be set.

    short: its name within the application; needed: the tasks that the joint law calculates; most: the maximum that may
    be set; per_second: events offered; is_blocked: more tasks did not help; gain: the achieved share of the expected
    gain of its last rescale.
    """

    name: str
    short: str
    tasks: int
    needed: int | None
    by_hand: int | None
    most: int
    per_second: float | None
    utilisation: float | None
    is_blocked: bool
    gain: float | None


@dataclass(frozen=True, kw_only=True)
class PathLatency:
    """A path, its operators in words.

    Latencies in s: measured now, the law's expectation for the slowest path, and the bound for all. keeps: whether the
    bound is met; None if unknown.
    """

    words: str
    measured: float | None
    expected: float | None
    bound: float | None
    keeps: bool | None


@dataclass(frozen=True, kw_only=True)
class LoopDecider:
    """A loop that could decide, whether it does, what it would set, and why.

    of: the operator, if it controls a single one; about: its kind in a sentence.
    """

    loop: int
    law: str
    of: str | None
    about: str
    mode: str
    steers: bool
    is_this: bool
    reason: str | None


@dataclass(frozen=True)
class TaskChange:
    """An operator's tasks before and after a rescale."""

    operator: str
    before: int | None
    after: int


@dataclass(frozen=True, kw_only=True)
class Rescale:
    """A change that was made or proposed, with its expected and its achieved gain in events/s of capacity.

    None where the ledger judges it by something else.
    """

    entry: LedgerEntry
    changes: list[TaskChange]
    expected: int | None
    gained: int | None


@dataclass(frozen=True, kw_only=True)
class TaskCost:
    """Task-hours, and average number of tasks, of the minutes that were observed."""

    hours: float
    mean: float
    minutes: int


@dataclass(frozen=True, kw_only=True)
class ForecastDrawing:
    """Arrivals and the forecast as lines, its band as an area; now: x of the present. Ticks: minutes."""

    past: str
    mean: str
    band: str
    now: float
    levels: list[PlaneLevel]
    ticks: list[PlaneTick]


@dataclass(frozen=True, kw_only=True)
class ShownForecast:
    """The forecast, or in `refused` why there is none.

    where: its subject in words. past: the length of its data in words; trained_until: the end of its training set, None
    without one. is_used: by the law.
    """

    where: str
    is_used: bool
    refused: str | None
    past: str
    trained_until: str | None
    drawing: ForecastDrawing | None


@dataclass(frozen=True, kw_only=True)
class ShownParallelism:
    """The operators of a loop, as shown. joint: number of the loop of the joint law with its target."""

    operators: list[SteeredOperator]
    paths: list[PathLatency]
    forecast: ShownForecast
    deciders: list[LoopDecider]
    cost: TaskCost | None
    rescales: list[Rescale]
    application: str | None
    joint: int | None
    is_joint: bool
    by_hand: Mapping[str, int]


def build_view(loop: Loop, snapshot: Snapshot, kept: StoredFigures, now: datetime) -> ShownParallelism | None:
    """Build the view; None for a loop of another law."""
    if loop.law not in OWNERS:
        return None
    topology, _ = build_topology_inputs(loop.target, snapshot, now.timestamp())
    joint = next((sibling for sibling in _list_siblings(loop) if sibling.law == JOINT), None)
    newest = ledger.find_last_entry(joint) if joint else None
    terms = dict(newest.terms) if newest else {}
    steered = inputs.list_steered_operators(topology) if topology else []
    # As they are in force, not as the newest decision found them: the form must never offer expired tasks.
    hands = list_manual_tasks(joint, now) if joint else {}
    tasks = _list_task_series(loop.target, steered)
    load = _list_load_series(loop.target, snapshot)
    past = kept.load_series([*tasks, *load], now.timestamp())
    return ShownParallelism(
        operators=[_build_operator(operator, terms, topology, hands) for operator in steered],
        paths=_list_path_latencies(topology, terms, joint, now),
        forecast=_forecast(loop, snapshot, past.ages, past.select(load), now.timestamp()),
        deciders=[*_iterate_deciders(loop)],
        cost=_compute_task_cost(past.ages, past.select(tasks)),
        rescales=[*_iterate_rescales(loop)],
        application=loop.target.get("application"),
        joint=joint.pk if joint else None,
        is_joint=loop.law == JOINT,
        by_hand=hands,
    )


def list_manual_tasks(loop: Loop, now: datetime) -> dict[str, int]:
    """Return the tasks that a person has set and that are in force, by operator."""
    law = catalog.get_law(loop.law)
    effective = overrides.get_effective_parameters(law, loop.parameters, overrides.list_effective(loop, now), now)
    return dict(effective["tasks_of"])


def _list_siblings(loop: Loop) -> list[Loop]:
    """Return all loops of the same application or plant, the joint law's first."""
    key = next(name for name in ("application", "plant") if name in loop.target)
    same = {f"target__{key}": loop.target[key]}
    loops = list_active_loops().filter(law__in=OWNERS, **same).order_by("name")
    return sorted(loops, key=lambda sibling: (sibling.law != JOINT, sibling.name))


def _build_operator(
    operator: MeasuredOperator, terms: Mapping[str, Any], topology: MeasuredTopology | None, hands: Mapping[str, int]
) -> SteeredOperator:
    name = operator.name
    rate = inputs.compute_rate_per_second(operator, topology.window_seconds) if topology else None
    service = inputs.compute_service_seconds(operator)
    load = None if rate is None or service is None else rate * service
    return SteeredOperator(
        name=name,
        short=name.rpartition("/")[2],
        tasks=operator.parallelism,
        needed=(terms.get("tasks_needed") or {}).get(name),
        by_hand=hands.get(name),
        most=operator.maximum,
        per_second=rate,
        utilisation=None if load is None else load / max(1, operator.parallelism),
        is_blocked=name in (terms.get("blocked") or ()),
        gain=(terms.get("gain_shares") or {}).get(name),
    )


def _list_path_latencies(
    topology: MeasuredTopology | None, terms: Mapping[str, Any], joint: Loop | None, now: datetime
) -> list[PathLatency]:
    if topology is None:
        return []
    bound = None
    if joint is not None:
        law = catalog.get_law(joint.law)
        held = overrides.list_effective(joint, now)
        bound = overrides.get_effective_parameters(law, joint.parameters, held, now)["bound_seconds"]
    latencies = [(path, topology.compute_path_latency_seconds(path)) for path in topology.paths.values()]
    return [
        PathLatency(
            words=" → ".join(name.rpartition("/")[2] for name in path),
            measured=measured,
            expected=terms.get("path_seconds"),
            bound=bound,
            keeps=None if measured is None or bound is None else measured <= bound,
        )
        for path, measured in latencies
    ]


def _iterate_deciders(loop: Loop) -> Iterator[LoopDecider]:
    """Return all loops that decide about the same tasks, the joint law's first."""
    now, siblings = datetime.now(UTC), _list_siblings(loop)
    modes = {
        sibling.pk: overrides.get_effective_mode(sibling, overrides.list_for_loop(sibling, now), now)
        for sibling in siblings
    }
    by_rank = sorted(siblings, key=lambda sibling: OWNERS.index(sibling.law))
    owner = next((sibling.pk for sibling in by_rank if modes[sibling.pk] in Loop.ACTING), None)
    for sibling in siblings:
        entry = ledger.find_last_entry(sibling)
        yield LoopDecider(
            loop=sibling.pk,
            law=sibling.law,
            of=sibling.target.get("operator"),
            about=find_display(sibling.law, sibling.target).about,
            mode=modes[sibling.pk],
            steers=sibling.pk == owner,
            is_this=sibling.pk == loop.pk,
            reason=entry.reason if entry else None,
        )


def _iterate_rescales(loop: Loop) -> Iterator[Rescale]:
    """Return the last changes that this loop made or proposed, and their effects."""
    acted = loop.entries.filter(acted=True).order_by("-at", "-id")[:READ_ENTRIES]
    changed = ((entry, changes) for entry in acted if (changes := _list_task_changes(loop, entry)))
    for entry, changes in islice(changed, SHOWN_RESCALES):
        expected, outcome = entry.expected or {}, entry.outcome or {}
        is_capacity = expected.get("metric") == "capacity_per_second"
        gained = outcome.get("gained")
        yield Rescale(
            entry=entry,
            changes=changes,
            expected=round(expected["amount"]) if is_capacity else None,
            gained=round(gained) if is_capacity and gained is not None else None,
        )


def _list_task_changes(loop: Loop, entry: LedgerEntry) -> list[TaskChange]:
    """Return the operators whose tasks were or would have been changed."""
    tasks = (entry.action or {}).get("tasks")
    if isinstance(tasks, Mapping):
        before = entry.terms.get("tasks_before") or {}
    else:
        name = str(loop.target.get("operator", ""))
        tasks, before = {name: tasks}, {name: (entry.observation or {}).get("current")}
    return [
        TaskChange(name.rpartition("/")[2], before.get(name), int(count))
        for name, count in tasks.items()
        if count is not None and before.get(name) != count
    ]


def _list_task_series(target: Mapping[str, Any], operators: Sequence[MeasuredOperator]) -> list[str]:
    if "application" not in target:
        return []
    return [f"pipeline.applications.{row.name.replace('/', '.operators.', 1)}.parallelism" for row in operators]


def _compute_task_cost(ages: Floats, rows: Floats) -> TaskCost | None:
    """Return the task-hours, as far as observed, and the mean number of tasks."""
    known = ~np.isnan(rows).any(axis=0)
    if not len(rows) or not known.any():
        return None
    times, tasks = -ages[known], rows[:, known].sum(axis=0)
    seconds = float(np.ptp(times))
    mean = float(np.average(tasks, weights=np.gradient(times)) if len(times) > 1 else tasks.mean())
    return TaskCost(hours=round(mean * seconds / 3_600, 2), mean=round(mean, 2), minutes=round(seconds / 60))


def _forecast(loop: Loop, snapshot: Snapshot, ages: Floats, load: Floats, now_seconds: float) -> ShownForecast:
    row, drawing = forecast_of(loop.target, snapshot), None
    if row is not None and row.mean_per_second:
        step = DRAWN_SECONDS / DRAWN_POINTS
        number, rates = (ages // step).astype(int), np.nansum(load, axis=0)
        drawn = range(DRAWN_POINTS - 1, -1, -1)
        past = [(-(place + 0.5) * step, float(rates[number == place].mean())) for place in drawn if place in number]
        drawing = _draw_chart(past, row, now_seconds)
    return ShownForecast(
        where="at the plant" if "plant" in loop.target else "at the application's queues",
        is_used=loop.law != JOINT or decides_ahead(loop.target, snapshot),
        refused=row.refused if row else None,
        past=_format_duration(row.days if row else 0.0),
        trained_until=row.trained_until if row else None,
        drawing=drawing,
    )


def _list_load_series(target: Mapping[str, Any], snapshot: Snapshot) -> list[str]:
    if "plant" in target:
        return [f"plants.{target['plant']}.in_per_second"]
    row = snapshot.pipeline.applications.get(target["application"])
    return [f"queues.{name}.in_per_second" for name in (row.queues if row else ())]


def _format_duration(days: float) -> str:
    """Return the length of the past in words."""
    hours = 24 * days
    if hours < 2:
        return f"{60 * hours:.0f} min"
    return f"{hours:.0f} h" if hours < 48 else f"{days:.1f} days"


def _draw_chart(past: list[tuple[float, float]], row: LoadForecast, now_seconds: float) -> ForecastDrawing:
    window, means, deviations = row.window_seconds, row.mean_per_second or [], row.deviation_per_second or []
    begins = row.at - now_seconds
    at = [begins + (place + 0.5) * window for place in range(len(means))]
    high = [mean + deviation for mean, deviation in zip(means, deviations, strict=True)]
    low = [max(0.0, mean - deviation) for mean, deviation in zip(means, deviations, strict=True)]
    levels = compute_value_ticks(max([*high, *(rate for _, rate in past)]))
    plane = Plane(-PAST_SECONDS, at[-1], 0.0, levels[-1])
    ahead = list(zip(at, means, strict=True))
    edge = [*zip(at, high, strict=True), *reversed([*zip(at, low, strict=True)])]
    return ForecastDrawing(
        past=plane.build_svg_path(past) if past else "",
        mean=plane.build_svg_path(ahead),
        band=plane.build_svg_path(edge) + "Z",
        now=plane.x(0.0),
        levels=[PlaneLevel(level, plane.y(level)) for level in levels],
        ticks=[PlaneTick(minutes, plane.x(60.0 * minutes)) for minutes in (-45, -30, -15, 0, 15)],
    )
