"""The explorations of a concurrency loop, from its ledger: the curve, the knee, what if, and earlier cycles."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import Any

from common.errors import BadInput
from common.parameter import Parameter, build
from console.input.form_values import parse_number
from console.pages.loops.prediction import Plane, PlaneLevel, PlaneTick
from console.timeline.window import compute_value_ticks
from controllers import catalog
from controllers.concurrency.explorer import compute_target_threads
from controllers.concurrency.law import LAW
from controllers.concurrency.parameters import ConcurrencyParameters
from controllers.concurrency.throughput_curve import (
    Curve,
    Point,
    PredictedThroughput,
    Saturation,
    estimate_saturation,
    fit_curve_to_points,
    predict_throughput,
)
from controllers.framework.law import check_parameters
from controllers.framework.reason import cause_of
from workers.control.ledger import ledger
from workers.models import LedgerEntry, Loop

READ_STEPS, READ_LOOKS = 150, 20
SHOWN_CYCLES = 8
CHECKED_SAMPLES = 16  # minimum number of samples for a check to be significant
DRAWN = 64  # points of a line
ROOM, HEADROOM = 1.25, 1.05
ASKED = Parameter("threads", "processes", "Number of processes in the pool.", None, 1, 1_000, "integer")
WHAT_IF = (0.5, 0.75, 1.25, 1.5, 2.0)  # of the current number


@dataclass(frozen=True)
class MeasuredThreads:
    """A decision that measured a number of threads."""

    at: datetime
    entry: int
    epoch: int
    phase: str
    threads: int
    per_second: float
    samples: int
    acted: bool
    reason: str
    asked_threads: int  # for the next section
    steady_per_second: float | None

    @property
    def point(self) -> Point:
        return Point(self.threads, self.per_second)


@dataclass(frozen=True)
class Numbers:
    """The numbers of threads that the page compares.

    They are the number in the pool now, the number where the law would rest on the curve, the number where it would
    rest with other parameters, and the requested number.
    """

    threads: int | None
    rest: int | None
    would: int | None
    asked: int | None

    def drop_unknown(self) -> list[int]:
        return [number for number in (self.threads, self.rest, self.would, self.asked) if number]


@dataclass(frozen=True, kw_only=True)
class ThroughputRow(PredictedThroughput):
    """The expected throughput of a number of threads.

    change_percent: compared with now. The flags say whether it is the number in the pool now, the law's resting point,
    its resting point with other parameters, or the requested number.
    """

    change_percent: int
    now: bool
    rest: bool
    would: bool
    asked: bool


@dataclass(frozen=True, kw_only=True)
class CurveDot:
    """A measurement on the plane."""

    x: float
    y: float
    threads: int
    per_second: float
    now: bool


@dataclass(frozen=True, kw_only=True)
class CurveMark:
    """A number of threads on the plane. kind: rest, or would."""

    kind: str
    threads: int
    x: float


@dataclass(frozen=True, kw_only=True)
class CurveDrawing:
    """Threads to the right, completions per second upwards, both from 0. line: the curve as an SVG path."""

    points: list[CurveDot]
    line: str | None
    marks: list[CurveMark]
    levels: list[PlaneLevel]
    ticks: list[PlaneTick]


@dataclass(frozen=True, kw_only=True)
class ExplorationCycle:
    """An exploration from its start to its resting point.

    It has the decision (entry) that started it, when and why, its steps, their range of threads, and its resting point
    (None if it has not come to rest).
    """

    epoch: int
    entry: int
    at: datetime
    why: str
    steps: int
    seconds: float | None
    least: int
    most: int
    threads: int | None
    per_second: float | None


@dataclass(frozen=True)
class PresentState:
    """The phase and the number of threads at the last tick; None if unknown."""

    phase: str | None
    threads: int | None


@dataclass(frozen=True, kw_only=True)
class ShownExploration:
    """The known facts about a loop's processes. refusal: why the request can't be answered, else ""."""

    numbers: Numbers
    sentence: str
    points: list[Point]
    bottleneck: Saturation | None
    predictions: list[ThroughputRow]
    drawing: CurveDrawing | None
    cycles: list[ExplorationCycle]
    refusal: str = ""


def build_exploration(
    loop: Loop, parameters: Mapping[str, Any], asked: int | None = None, would: Mapping[str, Any] | None = None
) -> ShownExploration | None:
    """Build the exploration of a concurrency loop; None for a loop of another law.

    `asked` is a number of threads, `would` are other parameters. Raises `BadInput` if `would` contradict each other.
    """
    if loop.law != LAW.name:
        return None
    if would is not None:
        check_parameters(catalog.get_law(loop.law), would)
    seen = list_measured(loop)
    points, now = select_newest_points(seen), load_present_state(loop)
    curve = fit_curve_to_points(points)
    rests = None if curve is None else compute_target_threads(build(ConcurrencyParameters, parameters), curve)
    changed = None if would is None else build(ConcurrencyParameters, would)
    would_rest = None if curve is None or changed is None else compute_target_threads(changed, curve)
    numbers = Numbers(now.threads, rests, would_rest if would_rest != rests else None, asked)
    rows = [] if curve is None else _predictions(curve, numbers)
    return ShownExploration(
        numbers=numbers,
        sentence=_describe_exploration(now.phase, numbers, seen, rows),
        points=points,
        bottleneck=None if curve is None else estimate_saturation(curve),
        predictions=rows,
        drawing=_draw_curve(points, curve, numbers),
        cycles=group_into_cycles(seen)[:SHOWN_CYCLES],
    )


def read_asked(text: str) -> int | None:
    """Parse a typed number of threads; return None for an empty text. Raises `BadInput`."""
    if not text.strip():
        return None
    try:
        return int(ASKED.check(parse_number(text, ASKED.name), "asked"))
    except BadInput as error:
        raise BadInput("the number", error.message) from None


def _describe_exploration(
    phase: str | None, numbers: Numbers, seen: Sequence[MeasuredThreads], rows: Sequence[ThroughputRow]
) -> str:
    if not seen:
        return "No measurements yet. Measuring requires enough events to keep all processes busy."
    here = f"{numbers.threads} process{'' if numbers.threads == 1 else 'es'}"
    if phase not in (None, "steady"):
        return f"Exploring with {here}."
    if not rows:
        return f"Measured with {here} only. An exploration measures the gain from more processes."
    now = next(row for row in rows if row.now)
    return f"Steady with {here}: {100 * now.utilisation:.0f} % of the bottleneck's capacity."


def load_present_state(loop: Loop) -> PresentState:
    law = (loop.state or {}).get("law") or {}
    machine, trial = law.get("machine") or {}, law.get("trial") or {}
    entry = ledger.find_last_entry(loop)
    last: Mapping[str, Any] = (entry.observation if entry else None) or {}
    phase = "trial" if trial.get("threads") else machine.get("phase")
    return PresentState(phase, last.get("threads") or machine.get("threads"))


def list_measured(loop: Loop) -> list[MeasuredThreads]:
    """Return the latest decisions that measured something, the newest first. They are steps, and checks when steady."""
    newest = loop.entries.order_by("-at", "-id")
    steps = newest.filter(action__isnull=False)[:READ_STEPS]
    looks = newest.filter(action__isnull=True, limited_by=None)[:READ_LOOKS]
    entries = sorted((*steps, *looks), key=lambda entry: (entry.at, entry.pk), reverse=True)
    return [seen for entry in entries if (seen := _build_point(entry)) is not None]


def _build_point(entry: LedgerEntry) -> MeasuredThreads | None:
    terms = entry.terms
    threads, per_second = terms.get("measured_threads"), terms.get("throughput_per_second")
    if threads is None or per_second is None or (entry.action is None and terms["samples"] < CHECKED_SAMPLES):
        return None
    return MeasuredThreads(
        entry.at,
        entry.pk,
        terms.get("epoch", 0),
        terms["phase"],
        threads,
        per_second,
        terms["samples"],
        entry.applied,
        entry.reason,
        terms["threads"],
        terms.get("steady_per_second"),
    )


def select_newest_points(seen: Iterable[MeasuredThreads]) -> list[Point]:
    """Return the last measurement of each number of threads, from the newest exploration and the rest before it."""
    rows = list(seen)
    newest = max((row.epoch for row in rows), default=0)
    # The decision that starts an exploration measured the rest before it, so it is the last one of that rest.
    rows = [row for row in rows if row.epoch == newest]
    if len({row.threads for row in rows}) < 3:
        rows = [seen_point for seen_point in seen if seen_point.epoch >= newest - 1]
    points: dict[int, Point] = {}
    for row in rows:
        points.setdefault(row.threads, row.point)
    return sorted(points.values(), key=lambda point: point.threads)


def group_into_cycles(seen: Iterable[MeasuredThreads]) -> list[ExplorationCycle]:
    """Return the explorations, the newest first, without those that were only advised."""
    by_epoch: dict[int, list[MeasuredThreads]] = {}
    for point in seen:
        by_epoch.setdefault(point.epoch, []).append(point)
    explored = {epoch: rows for epoch, rows in by_epoch.items() if any(row.acted for row in rows)}
    return [_cycle(rows[::-1]) for _, rows in sorted(explored.items(), reverse=True)]


def _cycle(rows: list[MeasuredThreads]) -> ExplorationCycle:
    """Build a cycle from its decisions, the oldest first."""
    steps = [row for row in rows if row.acted]
    rests = [row for row in rows if row.phase == "steady"]
    sizes = [row.threads for row in rows]
    rested = rests[-1] if rests else None
    return ExplorationCycle(
        epoch=rows[0].epoch,
        entry=rows[0].entry,
        at=rows[0].at,
        why=cause_of(rows[0].reason),
        steps=len(steps),
        seconds=(rests[0].at - rows[0].at).total_seconds() if rests else None,
        least=min(sizes),
        most=max(sizes),
        threads=rested.asked_threads if rested else None,
        per_second=rested.steady_per_second if rested else None,
    )


def _predictions(curve: Curve, numbers: Numbers) -> list[ThroughputRow]:
    present = max(1, numbers.threads or numbers.rest or 1)
    around = {max(1, ceil(present * share - 1e-9)) for share in WHAT_IF}
    now = predict_throughput(curve, present)
    wanted = sorted({*around, *numbers.drop_unknown(), present})
    return [_build_row(predict_throughput(curve, number), now, numbers) for number in wanted]


def _build_row(predicted: PredictedThroughput, now: PredictedThroughput, numbers: Numbers) -> ThroughputRow:
    return ThroughputRow(
        **vars(predicted),
        change_percent=round(100 * (predicted.per_second / now.per_second - 1)),
        now=predicted.threads == now.threads,
        rest=predicted.threads == numbers.rest,
        would=predicted.threads == numbers.would,
        asked=predicted.threads == numbers.asked,
    )


def _draw_curve(points: list[Point], curve: Curve | None, numbers: Numbers) -> CurveDrawing | None:
    if not points:
        return None
    widest = max([point.threads for point in points] + numbers.drop_unknown())
    levels = compute_value_ticks(max(point.per_second for point in points) * HEADROOM)
    plane = Plane(0.0, ceil(widest * ROOM), 0.0, levels[-1])
    marks = (("rest", numbers.rest), ("would", numbers.would))
    return CurveDrawing(
        points=[
            (
                CurveDot(
                    x=plane.x(point.threads),
                    y=plane.y(point.per_second),
                    threads=point.threads,
                    per_second=point.per_second,
                    now=point.threads == numbers.threads,
                )
            )
            for point in points
        ],
        line=None if curve is None else plane.build_svg_path(_compute_curve_points(curve, plane.right)),
        marks=[CurveMark(kind=kind, threads=n, x=plane.x(n)) for kind, n in marks if n],
        levels=[PlaneLevel(value, plane.y(value)) for value in levels],
        ticks=[
            PlaneTick(value, plane.x(value))
            for value in (sorted({round(value) for value in compute_value_ticks(plane.right) if value <= plane.right}))
        ],
    )


def _compute_curve_points(curve: Curve, right: float) -> list[tuple[float, float]]:
    numbers = [right * at / DRAWN for at in range(1, DRAWN + 1)]
    return [(0.0, 0.0), *((number, min(curve.evaluate(number), 1e12)) for number in numbers)]
