"""The figures of a window as strips on one time axis: lines, and bands of node states."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from console.api.downsampling import downsample
from console.timeline.axis import value_ticks
from console.timeline.window import Window
from workers import metrics
from workers.metric_history import step_seconds

POINTS = 480
MOST_NODES = 12
WIDTH, HEIGHT = 1000, 100  # of the plots' own coordinates
NEAR_SHARE = 0.01
HOLE_STEPS = 12  # so many steps without a row, and nothing is known of what was between
Column = Sequence[float | None]


@dataclass(frozen=True)
class Series:
    path: str
    label: str
    kind: str = "measured"  # or second: the muted one of two


@dataclass(frozen=True)
class Declared:
    """A strip of lines: what it shows, in which unit, and how its values are written."""

    name: str
    title: str
    unit: str
    format: str
    series: tuple[Series, ...]


STRIPS = (
    Declared(
        "rate",
        "Rate",
        "events/s",
        "rate",
        (Series("totals.in_per_second", "in", "second"), Series("totals.out_per_second", "out")),
    ),
    Declared("latency", "Latency", "p95, s", "seconds", (Series("totals.latency_p95_seconds", ""),)),
    Declared("backlog", "Backlog", "s", "seconds", (Series("totals.backlog_seconds", ""),)),
)
PATHS = [series.path for strip in STRIPS for series in strip.series]


@dataclass(frozen=True)
class Line:
    series: Series
    path: str  # of SVG, in WIDTH by HEIGHT
    last: float | None


@dataclass(frozen=True)
class Strip:
    declared: Declared
    lines: list[Line]
    ticks: list[tuple[float, float]]  # place from the top (0 to 1), value


@dataclass(frozen=True)
class Band:
    """A stretch of one state, as shares of the window."""

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
    now: str | None  # at the moment looked at; None: unknown

    @property
    def badness(self) -> float:
        """Share of the window in a state that is worth a look, the worse the more."""
        weights = {"BUSY": 1.0, "TOOBUSY": 10.0, "OFFLINE": 10.0}
        return sum(weights.get(band.state, 0.0) * band.width for band in self.bands)


@dataclass(frozen=True)
class Figures:
    """All of it. `times` and `columns` are what the scrubber reads its values from."""

    strips: list[Strip]
    nodes: list[NodeBands]
    calm_nodes: int  # how many are not shown, since others need the look more
    times: list[float] = field(default_factory=list)
    columns: dict[str, list[float | None]] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        return not self.times


def state_path(node: str) -> str:
    return f"nodes.{node}.state"


def figures_of(window: Window, found: Mapping[str, Column], nodes: Sequence[str]) -> Figures:
    """From columns as `metric_history` gives them. Nodes keep their order; of many, the worst are shown."""
    hole = HOLE_STEPS * step_seconds(window.seconds)
    at = [float(each) for each in found["at"] if each is not None]
    rows = [_node(window, node, list(_bands(window, at, found[state_path(node)], hole))) for node in nodes]
    worst = sorted(rows, key=lambda row: -row.badness)[:MOST_NODES]
    # The moments before and after a hole are kept, so that a line ends where its data did.
    times, columns = downsample(at, {path: found[path] for path in PATHS}, POINTS)
    hole = max(hole, 4 * window.seconds / POINTS)
    return Figures(
        strips=[_strip(window, declared, times, columns, hole) for declared in STRIPS],
        nodes=[row for row in rows if row in worst],
        calm_nodes=len(rows) - len(worst),
        times=times,
        columns=columns,
    )


def _node(window: Window, name: str, bands: list[Band]) -> NodeBands:
    share = window.share(window.moment)
    # The newest row is a second or so older than the end of a live window.
    near = [band for band in bands if band.begin <= share <= band.end + NEAR_SHARE]
    return NodeBands(name, bands, near[-1].state if near else None)


def _strip(
    window: Window, declared: Declared, times: list[float], columns: Mapping[str, Column], hole: float
) -> Strip:
    own = [columns[series.path] for series in declared.series]
    highest = max((value for column in own for value in column if value is not None), default=0.0)
    ticks = value_ticks(highest)
    lines = [
        Line(series, _path(window, times, column, ticks[-1], hole), last_known(column))
        for series, column in zip(declared.series, own, strict=True)
    ]
    return Strip(declared, lines, [(1 - tick / ticks[-1], tick) for tick in ticks])


def _path(window: Window, times: Sequence[float], column: Column, top: float, hole: float) -> str:
    """Lines over what is known; a pen that is lifted where nothing was measured."""
    begin, parts, before = window.since.timestamp(), [], None
    for at, value in zip(times, column, strict=True):
        if value is None:
            before = None
            continue
        x, y = WIDTH * (at - begin) / window.seconds, HEIGHT * (1 - max(value, 0.0) / top)
        joined = before is not None and at - before <= hole
        parts.append(f"{'L' if joined else 'M'}{x:.1f} {y:.1f}")
        before = at
    return "".join(parts)


def _bands(window: Window, times: Sequence[float], states: Column, hole: float) -> Iterator[Band]:
    """Stretches of one state; each lasts until the next row, but no longer than a hole."""
    begin, runs = window.since.timestamp(), list(_runs(times, states))
    for index, (start, end, state) in enumerate(runs):
        until = min(runs[index + 1][0], end + hole) if index + 1 < len(runs) else end
        first, last = ((each - begin) / window.seconds for each in (start, until))
        if state is not None and last > first:
            yield Band(max(first, 0.0), min(last, 1.0), metrics.STATES[int(state)])


def _runs(times: Sequence[float], states: Column) -> Iterator[tuple[float, float, float | None]]:
    """(first, last, state) of equal neighbours."""
    if not times:
        return
    changes = [place for place, (one, other) in enumerate(pairwise(states), 1) if one != other]
    for start, end in pairwise([0, *changes, len(times)]):
        yield times[start], times[end - 1], states[start]


def last_known(column: Column) -> float | None:
    return next((value for value in reversed(column) if value is not None), None)


def values_at(figures: Figures, seconds: float, reach: float) -> dict[str, Any]:
    """The value of each series at a moment: of the newest row before it, None when that is too long ago."""
    place = next((p for p in range(len(figures.times) - 1, -1, -1) if figures.times[p] <= seconds), None)
    if place is None or seconds - figures.times[place] > reach:
        return dict.fromkeys(figures.columns)
    return {path: column[place] for path, column in figures.columns.items()}
