"""The figures of a window as strips on one time axis: lines, and bands of node states."""

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from console.display.downsampling import downsample
from console.timeline.window import Window, compute_value_ticks
from queues.nodes.node_state import BUSY, OFFLINE, STATES, TOOBUSY
from workers.history.metric_history import step_seconds

POINTS = 480
MAX_NODES = 12
WIDTH, HEIGHT = 1000, 100  # in the plots' own coordinates
NEAR_SHARE = 0.01
CELLS = 360  # of a node's band: the maximum number of ranges, however often it changed
REACH_STEPS = 5
HOLE_STEPS = 12  # number of steps without a row after which the values between are unknown
Column = Sequence[float | None]


@dataclass(frozen=True)
class Series:
    path: str
    label: str
    kind: str = "measured"  # whether it is the second, muted one of two


@dataclass(frozen=True)
class DeclaredStrip:
    """A strip of lines: its series, unit, and number format."""

    name: str
    title: str
    unit: str
    format: str
    series: tuple[Series, ...]


STRIPS = (
    DeclaredStrip(
        "rate",
        "Rate",
        "events/s",
        "rate",
        (Series("totals.in_per_second", "in", "second"), Series("totals.out_per_second", "out")),
    ),
    DeclaredStrip("latency", "Latency", "p95, s", "seconds", (Series("totals.latency_p95_seconds", ""),)),
    DeclaredStrip("backlog", "Backlog", "s", "seconds", (Series("totals.backlog_seconds", ""),)),
)
PATHS = [series.path for strip in STRIPS for series in strip.series]


@dataclass(frozen=True)
class StripLine:
    series: Series
    path: str  # of SVG, in WIDTH by HEIGHT
    last: float | None


@dataclass(frozen=True)
class Strip:
    declared: DeclaredStrip
    lines: list[StripLine]
    ticks: list[tuple[float, float]]  # position from the top (0 to 1), value


@dataclass(frozen=True)
class Band:
    """A range of one state, as shares of the window."""

    begin: float
    end: float
    state: str

    @property
    def width(self) -> float:
        return self.end - self.begin


@dataclass(frozen=True)
class NodeBands:
    name: str
    bands: list[Band]
    now: str | None  # at the time shown; None: unknown

    @property
    def badness(self) -> float:
        """Return the share of the window in problem states, weighted by severity."""
        weights = {BUSY: 1.0, TOOBUSY: 10.0, OFFLINE: 10.0}
        return sum(weights.get(band.state, 0.0) * band.width for band in self.bands)


@dataclass(frozen=True)
class Figures:
    """All figures.

    `times` and `columns` are measured rows, thinned, from which the cursor reads its values; `values` are those at the
    time shown.
    """

    strips: list[Strip]
    nodes: list[NodeBands]
    calm_nodes: int  # number not shown, since others are more important
    times: list[float] = field(default_factory=list)
    columns: dict[str, list[float | None]] = field(default_factory=dict)
    values: dict[str, float | None] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        return not self.times


def format_state_path(node: str) -> str:
    return f"nodes.{node}.state"


def build_figures(window: Window, archived: Mapping[str, Column], nodes: Sequence[str]) -> Figures:
    """Return the figures from columns of `metric_history`. Nodes keep their order; of many, the worst are shown."""
    hole: float = HOLE_STEPS * step_seconds(window.seconds)
    at = [float(at_seconds) for at_seconds in archived["at"] if at_seconds is not None]
    times_of_rows = np.array(at)
    rows = [
        _build_node_bands(
            window, node, list(_iterate_bands(window, times_of_rows, archived[format_state_path(node)], hole))
        )
        for node in nodes
    ]
    worst = sorted(rows, key=lambda row: -row.badness)[:MAX_NODES]
    every = math.ceil(len(at) / POINTS) or 1
    # The rows before and after a gap are kept, so that a line ends where its data did.
    times, columns = downsample(at, {path: archived[path] for path in PATHS}, POINTS)
    hole = max(hole, 4 * window.seconds / POINTS)
    return Figures(
        strips=[_build_strip(window, declared, times, columns, hole) for declared in STRIPS],
        nodes=[row for row in rows if row in worst],
        calm_nodes=len(rows) - len(worst),
        times=at[::every],
        columns={path: list(archived[path][::every]) for path in PATHS},
        values=_get_values_at(window.shown_at.timestamp(), at, archived, reach_seconds(window)),
    )


def reach_seconds(window: Window) -> float:
    """Return the age from which a value is no longer current."""
    return max(REACH_STEPS * step_seconds(window.seconds), 2 * window.seconds / POINTS)


def _build_node_bands(window: Window, name: str, bands: list[Band]) -> NodeBands:
    share = window.share(window.shown_at)
    # The newest row is about a second older than the end of a live window.
    near = [band for band in bands if band.begin <= share <= band.end + NEAR_SHARE]
    return NodeBands(name, bands, near[-1].state if near else None)


def _build_strip(
    window: Window, declared: DeclaredStrip, times: list[float], columns: Mapping[str, Column], hole: float
) -> Strip:
    own = [columns[series.path] for series in declared.series]
    highest = max((value for column in own for value in column if value is not None), default=0.0)
    ticks = compute_value_ticks(highest)
    lines = [
        StripLine(series, _draw_line_path(window, times, column, ticks[-1], hole), find_last_known(column))
        for series, column in zip(declared.series, own, strict=True)
    ]
    return Strip(declared, lines, [(1 - tick / ticks[-1], tick) for tick in ticks])


def _draw_line_path(window: Window, times: Sequence[float], column: Column, top: float, hole: float) -> str:
    """Return lines over known values, interrupted where nothing was measured."""
    begin, seconds, parts, before = window.since.timestamp(), window.seconds, [], None
    for at, value in zip(times, column, strict=True):
        if value is None:
            before = None
            continue
        x, y = WIDTH * (at - begin) / seconds, HEIGHT * (1 - max(value, 0.0) / top)
        joined = before is not None and at - before <= hole
        parts.append(f"{'L' if joined else 'M'}{x:.1f} {y:.1f}")
        before = at
    return "".join(parts)


def _iterate_bands(window: Window, times: NDArray[np.float64], states: Column, hole: float) -> Iterator[Band]:
    """Return ranges of one state: CELLS of the window, each as bad as its worst row, equal neighbors merged.

    A cell without a row has the state before it, unless nothing was known for longer than a gap.
    """
    known = np.array(states, dtype=np.float64)
    places = ((times - window.since.timestamp()) / window.seconds * CELLS).astype(int).clip(0, CELLS - 1)
    cells = np.full(CELLS, np.nan)
    np.fmax.at(cells, places, known)
    last = places[~np.isnan(known)].max(initial=-1)
    begin = 0
    for end in [*_find_range_starts(_fill_gaps(cells[: last + 1], hole / window.seconds * CELLS)), last + 1]:
        state = cells[begin] if begin < end else np.nan
        if not np.isnan(state):
            yield Band(begin / CELLS, end / CELLS, STATES[int(state)])
        begin = end


def _fill_gaps(cells: NDArray[np.float64], most: float) -> NDArray[np.float64]:
    """Fill each unknown cell in place with the last known one, if that is at most so many cells before."""
    known = np.where(np.isnan(cells), -1, np.arange(len(cells)))
    before = np.maximum.accumulate(known) if len(cells) else known
    near = (before >= 0) & (np.arange(len(cells)) - before <= most)
    cells[near] = cells[before[near]]
    return cells


def _find_range_starts(cells: NDArray[np.float64]) -> list[int]:
    """Return the positions of the first cell of every range but the first."""
    one, other = cells[:-1], cells[1:]
    return (np.flatnonzero((one != other) & ~(np.isnan(one) & np.isnan(other))) + 1).tolist()


def find_last_known(column: Column) -> float | None:
    return next((value for value in reversed(column) if value is not None), None)


def _get_values_at(
    seconds: float, times: Sequence[float], found: Mapping[str, Column], reach: float
) -> dict[str, float | None]:
    """Return the value of each series at an instant: of the newest row before it, None if that is too old."""
    place = bisect_right(times, seconds) - 1
    if place < 0 or seconds - times[place] > reach:
        return dict.fromkeys(PATHS)
    return {path: found[path][place] for path in PATHS}
