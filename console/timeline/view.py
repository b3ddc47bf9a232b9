"""The complete timeline of a window, for the page and its export."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import redis
from django.contrib.staticfiles import finders

from common.stored_document import BadDocument
from console.timeline import happenings
from console.timeline.happenings import Bar, NewestBars, TimelineLane, count_rows
from console.timeline.restarts import has_log
from console.timeline.strips import PATHS, Figures, build_figures, format_state_path, reach_seconds
from console.timeline.window import AxisTick, Window, compute_time_ticks
from queues.models import Node
from workers.documents.snapshot import Snapshot
from workers.history import metric_history
from workers.history.snapshot_archive import snapshot_at
from workers.models import LedgerEntry
from workers.windows.occurrences import WindowOccurrence, list_all_between, list_current_windows

ZONE_COOKIE = "weir-zone"
UTC_NAME = "UTC"
MAX_UPCOMING = 3


@dataclass(frozen=True)
class BarLane:
    """A lane of bars, in one row or several. count: of all, including those without room.

    upcoming: planned windows that begin soon, shown after the end of the lane, a row each.
    """

    name: str
    title: str
    bars: list[Bar]
    count: int
    upcoming: Sequence[WindowOccurrence] = ()

    @property
    def rows(self) -> int:
        return max(count_rows(bar.row for bar in self.bars), len(self.upcoming))

    @property
    def phone_rows(self) -> int:
        return max(count_rows(bar.phone_row for bar in self.bars), len(self.upcoming))


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
class PlantMoment:
    """The plant at the time shown: its snapshot (None: missing or unreadable), and its last actions."""

    window: Window
    snapshot: Snapshot | None
    decision: LedgerEntry | None


def build_timeline(window: Window, control: redis.Redis, data: Path, zone: ZoneInfo) -> Timeline:
    """Build the timeline. Raises `redis.RedisError` if the control server is unreachable."""
    nodes = list(Node.objects.order_by("name").values_list("name", flat=True))
    series = [*PATHS, *map(format_state_path, nodes)]
    since, until = window.since.timestamp(), window.until.timestamp()
    figures = build_figures(window, metric_history.read_columns(control, data, since, until, series), nodes)
    bars = [
        _build_lane("marks", "Deploys and notes", happenings.build_mark_bars(window)),
        _build_lane("alerts", "Alerts", happenings.build_alert_bars(window)),
        _build_lane("overrides", "Overrides", happenings.build_override_bars(window)),
        _build_lane("windows", "Planned windows", happenings.build_window_bars(window), _list_upcoming(window)),
    ]
    if has_log(data):
        bars.insert(1, _build_lane("restarts", "Restarts", happenings.build_restart_bars(window, data)))
    return Timeline(window, compute_time_ticks(window, zone), figures, bars, happenings.build_law_lanes(window))


def _build_lane(name: str, title: str, found: NewestBars, upcoming: Sequence[WindowOccurrence] = ()) -> BarLane:
    return BarLane(name, title, found.bars, found.count, upcoming)


def _list_upcoming(window: Window) -> list[WindowOccurrence]:
    """Return the next planned windows of a live timeline, as far ahead as it looks back."""
    if not window.live:
        return []
    now, until = window.until, window.until + (window.until - window.since)
    rows = list_all_between(list_current_windows(now), now, until)
    coming = [row for row in rows if now < row.starts_at <= until]
    return sorted(coming, key=lambda row: row.starts_at)[:MAX_UPCOMING]


def load_plant_at(window: Window, data: Path, newest: Snapshot | None) -> PlantMoment:
    """Return the plant at the time shown; a live window without its own instant shows now."""
    if window.live and window.at is None:
        snapshot = newest
    else:
        snapshot = _load_kept(data, window.shown_at.timestamp())
    return PlantMoment(window, snapshot, happenings.find_last_decision(window.shown_at))


def _load_kept(data: Path, at_seconds: float) -> Snapshot | None:
    try:
        return snapshot_at(data, at_seconds)
    except (BadDocument, OSError):  # a damaged instant hides nothing else of the window
        return None


def read_time_zone(cookies: Mapping[str, str]) -> ZoneInfo:
    """Return the reader's zone as the browser sent it; UTC until then."""
    name = cookies.get(ZONE_COOKIE, UTC_NAME)
    return ZoneInfo(name if name in _list_time_zones() else UTC_NAME)


@cache
def _list_time_zones() -> Set[str]:
    """Return the names of all zones. Python reads 600 files for them."""
    return available_timezones()


SHEETS = ("css/tokens.css", "css/frame.css", "css/components.css", "css/timeline.css")


@cache
def style_sheet() -> str:
    return "\n".join(_read_style_sheet(name) for name in SHEETS)


def _read_style_sheet(name: str) -> str:
    path = finders.find(name)
    if path is None:
        raise FileNotFoundError(f"static/{name} is missing.")
    return Path(path).read_text()
