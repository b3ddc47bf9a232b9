"""The predicted response of a loop with current and with other values, ready to be drawn.

Laws without a model allow no prediction. For these, the last minutes are decided again with the other values: the
recorded observations don't respond to the changed actions, and the sentence says so.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from common.errors import BadInput
from common.parameter import build
from controllers.flow.prediction import Prediction
from workers.control import what_if
from workers.control.kinds.registry import find_display, get_kind
from workers.models import Loop


@dataclass(frozen=True)
class PlaneLevel:
    """A value that is labeled beside a plane, at y."""

    value: float
    y: float


@dataclass(frozen=True)
class PlaneTick:
    """A label below a plane, at x."""

    value: float | str
    x: float


@dataclass(frozen=True)
class Plane:
    """The value ranges of a plane."""

    left: float
    right: float
    low: float
    high: float

    def x(self, value: float) -> float:
        return 100 * (value - self.left) / (self.right - self.left)

    def y(self, value: float) -> float:
        """Return y measured downwards, as on screens."""
        return 100 * (self.high - value) / (self.high - self.low)

    def build_svg_path(self, points: Iterable[tuple[float, float]]) -> str:
        """Return a line through points as an SVG path."""
        return "M" + "L".join(f"{self.x(x):.2f} {self.y(y):.2f}" for x, y in points)


MIN_SAMPLES, MAX_SAMPLES = 10, 240
ROOM = 1.5  # number of settling times that are shown
MARKS = 5
EDGE = 1.2


@dataclass(frozen=True)
class PredictionRow:
    """A figure of the predicted response: current and new.

    limit: its limit in words; format: a name of `console.display.formats.FORMATS`.
    """

    name: str
    unit: str
    limit: str
    format: str
    now: float | None
    would: float | None


@dataclass(frozen=True)
class PlottedPole:
    """A pole, y downwards. kind: is, or would."""

    kind: str
    x: float
    y: float


@dataclass(frozen=True)
class ResponseLine:
    """A response as an SVG path. kind: is, or would."""

    kind: str
    path: str


@dataclass(frozen=True, kw_only=True)
class ResponseDrawing:
    """Responses on a plane that settle at the height `rest`; the ticks are seconds."""

    lines: list[ResponseLine]
    levels: list[PlaneLevel]
    rest: float
    ticks: list[PlaneTick]


@dataclass(frozen=True, kw_only=True)
class ShownPrediction:
    """The current and the new response: as a sentence, rows, poles, and lines on a plane."""

    title: str
    sentence: str
    grave: bool
    rows: list[PredictionRow]
    poles: list[PlottedPole]
    compared: bool
    plane: ResponseDrawing | None


def build_prediction(
    law: str, now: Mapping[str, Any], would: Mapping[str, Any] | None = None, refusal: str = ""
) -> ShownPrediction | None:
    """Build the prediction; None for a law without one. `would`: the requested parameters; `refusal`: why none."""
    kind = get_kind(law)
    promise, struct = kind.tuning.promise, kind.law.Parameters
    if promise is None:
        return None
    present = promise.of(build(struct, now))
    wanted = None if would is None or dict(would) == dict(now) else promise.of(build(struct, would))
    interval_seconds = float(now["interval_seconds"])
    sentence, grave = _describe_prediction(present, wanted, interval_seconds, refusal)
    plane = _build_plane([gains for gains in (present, wanted) if gains is not None and gains.stable])
    return ShownPrediction(
        title=promise.title,
        sentence=sentence,
        grave=grave,
        rows=_build_rows(present, wanted, interval_seconds),
        poles=_build_plotted_poles(present, "is") + _build_plotted_poles(wanted, "would"),
        compared=wanted is not None,
        plane=_draw_plane(plane, present, wanted, interval_seconds) if plane else None,
    )


def _describe_prediction(
    present: Prediction | None, wanted: Prediction | None, interval_seconds: float, refusal: str
) -> tuple[str, bool]:
    if refusal:
        return f"No prediction: {refusal}", True
    if wanted is not None and not wanted.stable:
        return (
            (
                f"Unstable in the model: the largest pole would be {wanted.spectral_radius:.3f}. "
                "The change will be rejected."
            ),
            True,
        )
    asked = present if wanted is None else wanted
    if asked is None:
        return "No model is set. Identify one with `manage.py design identify`, then set a and b.", False
    if not asked.stable:
        return f"Unstable in the model: the largest pole is {asked.spectral_radius:.3f}.", True
    return _describe_step_response(present, wanted, asked, interval_seconds), False


def _describe_step_response(
    present: Prediction | None, wanted: Prediction | None, asked: Prediction, interval_seconds: float
) -> str:
    seconds = _compute_settling_seconds(asked, interval_seconds)
    words = "Does not settle in the range shown" if seconds is None else f"Settles in {seconds:g} s"
    before = None if present is None or wanted is None else _compute_settling_seconds(present, interval_seconds)
    if before is not None and seconds is not None:
        words = f"Settles in {seconds:g} s instead of {before:g} s"
    return f"{words} and overshoots by {100 * (asked.overshoot or 0):.0f} %."


def _compute_settling_seconds(of: Prediction, interval_seconds: float) -> float | None:
    return None if of.settling_samples is None else of.settling_samples * interval_seconds


def _build_rows(present: Prediction | None, wanted: Prediction | None, interval_seconds: float) -> list[PredictionRow]:
    def build_row(prediction: Prediction | None) -> tuple[float | None, ...]:
        if prediction is None:
            return (None,) * 4
        overshoot = None if prediction.overshoot is None else 100 * prediction.overshoot
        return (
            prediction.spectral_radius,
            prediction.gain_margin,
            overshoot,
            _compute_settling_seconds(prediction, interval_seconds),
        )

    names = (
        ("Largest pole", "", "below 1", "fraction"),
        ("Gain margin", "times", "2 is sufficient", "fraction"),
        ("Overshoot", "%", "", "integer"),
        ("Settling", "s", "", "number"),
    )
    pairs = zip(names, build_row(present), build_row(wanted), strict=True)
    return [PredictionRow(*named, now, would) for named, now, would in pairs]


def _build_plotted_poles(of: Prediction | None, kind: str) -> list[PlottedPole]:
    """Return poles on the plane of the unit circle, y downwards."""
    poles = () if of is None else of.poles
    return [PlottedPole(kind, _clip_coordinate(pole.real), _clip_coordinate(-pole.imag)) for pole in poles]


def _clip_coordinate(part: float) -> float:
    """Clip a coordinate: poles far outside are shown at the edge."""
    return round(min(max(part, -EDGE), EDGE), 3) + 0.0  # no minus sign before a zero


def _build_plane(stable: list[Prediction]) -> Plane | None:
    if not stable:
        return None
    longest = max(pole.settling_samples or MAX_SAMPLES for pole in stable)
    samples = min(MAX_SAMPLES, max(MIN_SAMPLES, round(ROOM * longest)))
    values = [value for pole in stable for value in pole.response[:samples]]
    return Plane(0, samples - 1, min(0.0, *values) * 1.1, max(1.1, *values))


def _draw_plane(
    plane: Plane, present: Prediction | None, wanted: Prediction | None, interval_seconds: float
) -> ResponseDrawing:
    lines = [
        (kind, prediction)
        for kind, prediction in (("is", present), ("would", wanted))
        if prediction and prediction.stable
    ]
    samples = int(plane.right) + 1
    seconds = plane.right * interval_seconds
    return ResponseDrawing(
        lines=[
            ResponseLine(kind, plane.build_svg_path(enumerate(prediction.response[:samples])))
            for kind, prediction in lines
        ],
        levels=[PlaneLevel(value, round(plane.y(value), 2)) for value in (0.0, 0.5, 1.0)],
        rest=round(plane.y(lines[0][1].rests_at), 2),
        ticks=[PlaneTick(f"{seconds * part / (MARKS - 1):.3g}", 100 * part / (MARKS - 1)) for part in range(MARKS)],
    )


MINUTES = 15
BUDGET_SECONDS = 2.0
OPEN_LOOP = "The plant's response can't be predicted: this law has no plant model."


@dataclass(frozen=True)
class EffectRow:
    """A figure of the decisions: as made, and as they would have been."""

    name: str
    did: float
    would: float


@dataclass(frozen=True, kw_only=True)
class ShownEffect:
    """An effect as a sentence and as figures; grave: the change will be rejected."""

    sentence: str
    grave: bool
    rows: list[EffectRow]


def build_effect(loop: Loop, changed: Mapping[str, Any], now: datetime, refusal: str = "") -> ShownEffect:
    """Build the effect of changed values.

    changed: parameters and `guard.NAME` that differ from those in force; refusal: why there are none.
    """
    if refusal:
        return ShownEffect(sentence=f"No prediction: {refusal}", grave=True, rows=[])
    if not changed:
        sentence = f"Change a value to replay the decisions of the last {MINUTES} minutes with it."
        return ShownEffect(sentence=sentence, grave=False, rows=[])
    since = now - timedelta(minutes=MINUTES)
    try:
        rerun = what_if.rerun(loop, changed, since, now, time.monotonic, BUDGET_SECONDS)
    except BadInput as error:
        return ShownEffect(sentence=f"The change will be rejected: {error.message}", grave=True, rows=[])
    return ShownEffect(sentence=_describe_effect(rerun), grave=False, rows=_build_effect_rows(loop, rerun))


def _describe_effect(found: what_if.Rerun) -> str:
    if not found.steps:
        return f"No prediction: no decisions in the last {MINUTES} minutes."
    differing, count = len(found.differing), len(found.steps)
    if not differing:
        return f"None of the last {count:,} decisions would differ. {OPEN_LOOP}"
    return f"{differing:,} of the last {count:,} decisions would differ. {OPEN_LOOP}"


def _build_effect_rows(loop: Loop, found: what_if.Rerun) -> list[EffectRow]:
    if not found.steps:
        return []
    done = find_display(loop.law, loop.target).lanes.done
    return [
        EffectRow("Actions", found.did.actions, found.would.actions),
        EffectRow(f"Total {done}", found.did.total, found.would.total),
        EffectRow("Actuator movement", found.did.movement, found.would.movement),
    ]
