"""What the page of a loop of parallelism shows beside that of every loop: the tasks of each operator, the
latency of each path against its bound, the forecast, who decides what and why, what tasks cost, and what
its rescales brought.
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

from console.pages.frame.page import Document
from console.pages.loops.plane import Plane
from console.timeline.axis import value_ticks
from controllers import catalog
from controllers.parallelism import inputs
from controllers.parallelism.measured_topology import MeasuredOperator, MeasuredTopology
from workers.control.kinds.registry import display_of
from workers.control.parts.operators import OWNERS, topology_inputs
from workers.documents.plants import LoadForecast
from workers.documents.snapshot import Snapshot
from workers.history import metric_history
from workers.models import LedgerEntry, Loop
from workers.steering import overrides
from workers.steering.scope import active_loops

Floats = npt.NDArray[np.float64]
JOINT = OWNERS[-1]  # it acts by default, and its terms are those of all operators
PAST_SECONDS, PAST_POINTS = 2_700.0, 90
SHOWN_RESCALES, READ_ENTRIES = 8, 100
COST_SECONDS = 3_600.0


@dataclass(frozen=True)
class StoredFigures:
    """Where the plant's figures of the past lie."""

    control: redis.Redis
    data: Path

    def figures(self, series: Sequence[str], since: float, until: float) -> tuple[Floats, Floats]:
        """Times, and series by times; none while the control server is away."""
        try:
            found = metric_history.columns(self.control, self.data, since, until, series)
        except redis.RedisError:
            return np.zeros(0), np.zeros((len(series), 0))
        rows = [found[each] for each in series]
        return np.asarray(found["at"], dtype=float), np.asarray(rows, dtype=float).reshape(len(series), -1)


@dataclass(frozen=True, kw_only=True)
class ShownParallelism:
    """What is shown of a loop's operators. joint: the number of the loop of the joint law with its target."""

    operators: list[Document]
    paths: list[Document]
    forecast: Document | None
    deciders: list[Document]
    cost: Document | None
    rescales: list[Document]
    application: str | None
    joint: int | None
    is_joint: bool
    by_hand: Mapping[str, int]


def shown(loop: Loop, snapshot: Snapshot, kept: StoredFigures, now: datetime) -> ShownParallelism | None:
    """None for a loop of another law."""
    if loop.law not in OWNERS:
        return None
    topology, _ = topology_inputs(loop.target, snapshot, now.timestamp())
    joint = _joint_of(loop)
    newest = _newest(joint) if joint else None
    terms = dict(newest.terms) if newest else {}
    steered = inputs.steered(topology) if topology else []
    return ShownParallelism(
        operators=[_operator(each, terms, topology) for each in steered],
        paths=_paths(topology, terms, joint, now),
        forecast=_forecast(loop, snapshot, kept, now.timestamp()),
        deciders=[*_deciders(loop)],
        cost=_cost(loop, [each.name for each in steered], kept, now.timestamp()),
        rescales=[*_rescales(loop)],
        application=loop.target.get("application"),
        joint=joint.pk if joint else None,
        is_joint=loop.law == JOINT,
        by_hand=terms.get("by_hand", {}),
    )


def by_hand(loop: Loop, now: datetime) -> dict[str, int]:
    """The tasks a person has set, by operator, as they are in force."""
    law = catalog.law(loop.law)
    effective = overrides.effective_parameters(law, loop.parameters, overrides.on(loop, now), now)
    return dict(effective["tasks_of"])


def _joint_of(loop: Loop) -> Loop | None:
    """The loop of the joint law with the same target."""
    return next((each for each in _siblings(loop) if each.law == JOINT), None)


def _siblings(loop: Loop) -> list[Loop]:
    """All loops of the same application or plant, the joint law's first."""
    key = next(each for each in ("application", "plant") if each in loop.target)
    same = {f"target__{key}": loop.target[key]}
    loops = active_loops().filter(law__in=OWNERS, **same).order_by("name")
    return sorted(loops, key=lambda each: (each.law != JOINT, each.name))


def _newest(loop: Loop) -> LedgerEntry | None:
    return loop.entries.order_by("-at", "-id").first()


def _operator(
    operator: MeasuredOperator, terms: Mapping[str, Any], topology: MeasuredTopology | None
) -> dict[str, Any]:
    name = operator.name
    rate = inputs.rate_per_second(operator, topology.window_seconds) if topology else None
    service = inputs.service_seconds(operator)
    load = None if rate is None or service is None else rate * service
    return {
        "name": name,
        "short": name.rpartition("/")[2],
        "tasks": operator.parallelism,
        "needed": (terms.get("tasks_needed") or {}).get(name),
        "by_hand": (terms.get("by_hand") or {}).get(name),
        "most": operator.maximum,
        "per_second": rate,
        "service_seconds": service,
        "utilisation": None if load is None else load / max(1, operator.parallelism),
        "is_blocked": name in (terms.get("blocked") or ()),
        "gain": (terms.get("gain_shares") or {}).get(name),
    }


def _paths(
    topology: MeasuredTopology | None, terms: Mapping[str, Any], joint: Loop | None, now: datetime
) -> list[dict[str, Any]]:
    """Each path: measured now, what the law expects of the slowest, and the bound of both."""
    if topology is None:
        return []
    bound = None
    if joint is not None:
        law = catalog.law(joint.law)
        held = overrides.on(joint, now)
        bound = overrides.effective_parameters(law, joint.parameters, held, now)["bound_seconds"]
    rows = []
    for path in topology.paths.values():
        measured = topology.path_latency_seconds(path)
        rows.append(
            {
                "words": " → ".join(name.rpartition("/")[2] for name in path),
                "measured": measured,
                "expected": terms.get("path_seconds"),
                "bound": bound,
                "keeps": None if measured is None or bound is None else measured <= bound,
            }
        )
    return rows


def _deciders(loop: Loop) -> Iterator[dict[str, Any]]:
    """Who could decide, who does, what each would set, and why."""
    now, found = datetime.now(UTC), _siblings(loop)
    modes = {each.pk: overrides.value_of("mode", overrides.on(each, now), now) or each.mode for each in found}
    by_rank = sorted(found, key=lambda each: OWNERS.index(each.law))
    owner = next((each.pk for each in by_rank if modes[each.pk] in Loop.ACTING), None)
    for each in found:
        entry = _newest(each)
        yield {
            "loop": each.pk,
            "law": each.law,
            "of": each.target.get("operator"),
            "about": display_of(each.law).about,
            "mode": modes[each.pk],
            "steers": each.pk == owner,
            "is_this": each.pk == loop.pk,
            "reason": entry.reason if entry else None,
        }


def _rescales(loop: Loop) -> Iterator[dict[str, Any]]:
    """The last changes that this loop made or would have made, and what came of them."""
    acted = loop.entries.filter(acted=True).order_by("-at", "-id")[:READ_ENTRIES]
    changed = ((entry, changes) for entry in acted if (changes := _changes(loop, entry)))
    for entry, changes in islice(changed, SHOWN_RESCALES):
        expected, outcome = entry.expected or {}, entry.outcome or {}
        is_capacity = expected.get("metric") == "capacity_per_second"
        gained = outcome.get("gained")
        yield {
            "entry": entry,
            "changes": changes,
            "expected": round(expected["amount"]) if is_capacity else None,
            "gained": round(gained) if is_capacity and gained is not None else None,
        }


def _changes(loop: Loop, entry: LedgerEntry) -> list[dict[str, Any]]:
    """Operators that got, or would have got, other tasks."""
    tasks = (entry.action or {}).get("tasks")
    if isinstance(tasks, Mapping):
        before = entry.terms.get("tasks_before") or {}
    else:
        name = str(loop.target.get("operator", ""))
        tasks, before = {name: tasks}, {name: (entry.observation or {}).get("current")}
    return [
        {"name": name.rpartition("/")[2], "from": before.get(name), "to": int(count)}
        for name, count in tasks.items()
        if count is not None and before.get(name) != count
    ]


def _cost(loop: Loop, names: Sequence[str], kept: StoredFigures, now_seconds: float) -> dict[str, Any] | None:
    """Task-hours of the last hour, as far as it was watched, and the mean."""
    if "application" not in loop.target or not names:
        return None
    series = [f"pipeline.applications.{name.replace('/', '.operators.', 1)}.parallelism" for name in names]
    at, rows = kept.figures(series, now_seconds - COST_SECONDS, now_seconds)
    known = ~np.isnan(rows).any(axis=0)
    if not known.any():
        return None
    mean, seconds = float(rows[:, known].sum(axis=0).mean()), float(np.ptp(at[known]))
    return {
        "hours": round(mean * seconds / 3_600, 2),
        "mean": round(mean, 2),
        "minutes": round(seconds / 60),
    }


def _forecast(
    loop: Loop, snapshot: Snapshot, kept: StoredFigures, now_seconds: float
) -> dict[str, Any] | None:
    """What came, and the forecast with its band, on one plane; or why nothing is."""
    application = loop.target.get("application")
    if application is None:
        return None
    row = snapshot.forecasts.get(application)
    said = {
        "refused": row.refused if row else None,
        "past": _length(row.days if row else 0.0),
        "trained_until": row.trained_until if row else None,
    }
    if row is None or not row.mean_per_second:
        return {**said, "drawing": None}
    found = snapshot.pipeline.applications.get(application)
    past = _past(found.queues if found else (), kept, now_seconds)
    return {**said, "drawing": _drawing(past, row, now_seconds)}


def _length(days: float) -> str:
    """Of a past, in words."""
    hours = 24 * days
    if hours < 2:
        return f"{60 * hours:.0f} min"
    return f"{hours:.0f} h" if hours < 48 else f"{days:.1f} days"


def _past(queues: Sequence[str], kept: StoredFigures, now_seconds: float) -> list[tuple[float, float]]:
    """Seconds from now, and what came there on average: at most PAST_POINTS of them."""
    series = [f"queues.{name}.in_per_second" for name in queues]
    times, rows = kept.figures(series, now_seconds - PAST_SECONDS, now_seconds)
    at, rates = times - now_seconds, np.nansum(rows, axis=0)
    step = PAST_SECONDS / PAST_POINTS
    number = (-at // step).astype(int)
    return [
        (-(each + 0.5) * step, float(rates[number == each].mean()))
        for each in np.unique(number)[::-1].tolist()
    ]


def _drawing(past: list[tuple[float, float]], row: LoadForecast, now_seconds: float) -> dict[str, Any]:
    window, means, deviations = row.window_seconds, row.mean_per_second or [], row.deviation_per_second or []
    begins = row.at - now_seconds
    at = [begins + (place + 0.5) * window for place in range(len(means))]
    high = [mean + deviation for mean, deviation in zip(means, deviations, strict=True)]
    low = [max(0.0, mean - deviation) for mean, deviation in zip(means, deviations, strict=True)]
    levels = value_ticks(max([*high, *(rate for _, rate in past)]))
    plane = Plane(-PAST_SECONDS, at[-1], 0.0, levels[-1])
    ahead = list(zip(at, means, strict=True))
    edge = [*zip(at, high, strict=True), *reversed([*zip(at, low, strict=True)])]
    return {
        "past": plane.path(past) if past else "",
        "mean": plane.path(ahead),
        "band": plane.path(edge) + "Z",
        "now": plane.x(0.0),
        "levels": [{"y": plane.y(level), "value": level} for level in levels],
        "times": [{"x": plane.x(60.0 * minutes), "minutes": minutes} for minutes in (-45, -30, -15, 0, 15)],
    }
