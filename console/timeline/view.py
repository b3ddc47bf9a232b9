"""The complete timeline of a window, for the page and its export."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import redis

from console.timeline import happenings
from console.timeline.axis import AxisTick, time_ticks
from console.timeline.bars import Bar, height
from console.timeline.happenings import NewestBars, TimelineLane
from console.timeline.restarts import has_log
from console.timeline.strips import PATHS, Figures, figures_of, reach_seconds, state_path
from console.timeline.window import Window
from queues.models import Node
from queues.stored_document import BadDocument
from workers.documents.snapshot import Snapshot
from workers.history import metric_history
from workers.history.snapshot_archive import snapshot_at
from workers.models import LedgerEntry

ZONE_COOKIE = "weir-zone"
UTC_NAME = "UTC"


@dataclass(frozen=True)
class BarLane:
    """A lane of bars, in one row or several. count: of all, including those without room."""

    name: str
    title: str
    bars: list[Bar]
    count: int

    @property
    def rows(self) -> int:
        return height(bar.row for bar in self.bars)

    @property
    def phone_rows(self) -> int:
        return height(bar.phone_row for bar in self.bars)


@dataclass(frozen=True)
class Timeline:
    """The strips of a window."""

    window: Window
    ticks: list[AxisTick]
    figures: Figures
    bars: list[BarLane]
    lanes: list[TimelineLane]

    @property
    def cursor(self) -> float:
        """Return the position of the time shown."""
        return self.window.share(self.window.shown_at)

    @property
    def scrub(self) -> dict[str, Any]:
        """Return the scrubber's data for the browser: times in seconds, and the columns it reads from."""
        return {
            "since": self.window.since.timestamp(),
            "until": self.window.until.timestamp(),
            "times": [round(at, 1) for at in self.figures.times],
            "columns": self.figures.columns,
            "reach": reach_seconds(self.window),
        }


@dataclass(frozen=True)
class PlantAt:
    """The plant at the time shown: its snapshot (None: missing or unreadable), and its last actions."""

    window: Window
    snapshot: Snapshot | None
    decision: LedgerEntry | None


def timeline_of(window: Window, control: redis.Redis, data: Path, zone: ZoneInfo) -> Timeline:
    """Build the timeline. Raises `redis.RedisError` if the control server is unreachable."""
    nodes = list(Node.objects.order_by("name").values_list("name", flat=True))
    series = [*PATHS, *map(state_path, nodes)]
    since, until = window.since.timestamp(), window.until.timestamp()
    figures = figures_of(window, metric_history.columns(control, data, since, until, series), nodes)
    bars = [
        _lane("marks", "Deploys and notes", happenings.marks_of(window)),
        _lane("alerts", "Alerts", happenings.alerts_of(window)),
        _lane("overrides", "Overrides", happenings.overrides_of(window)),
    ]
    if has_log(data):
        bars.insert(1, _lane("restarts", "Restarts", happenings.restarts_of(window, data)))
    return Timeline(window, time_ticks(window, zone), figures, bars, happenings.lanes_of(window))


def _lane(name: str, title: str, found: NewestBars) -> BarLane:
    return BarLane(name, title, found.bars, found.count)


def plant_at(window: Window, data: Path, newest: Snapshot | None) -> PlantAt:
    """Return the plant at the time shown; a live window without its own instant shows now."""
    if window.live and window.at is None:
        snapshot = newest
    else:
        snapshot = _load_kept(data, window.shown_at.timestamp())
    return PlantAt(window, snapshot, happenings.last_decision(window.shown_at))


def _load_kept(data: Path, at_seconds: float) -> Snapshot | None:
    try:
        return snapshot_at(data, at_seconds)
    except (BadDocument, OSError):  # a damaged instant hides nothing else of the window
        return None


def zone_of(cookies: Any) -> ZoneInfo:
    """Return the reader's zone as the browser sent it; UTC until then."""
    name = cookies.get(ZONE_COOKIE, UTC_NAME)
    return ZoneInfo(name if name in available_timezones() else UTC_NAME)
