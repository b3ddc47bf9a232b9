"""Signs and ranges with labels, in a lane: arranged without overlaps."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlencode

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Count, F, Func, IntegerField, Max, Q, QuerySet, Sum
from django.db.models.functions import Coalesce
from django.db.models.sql.compiler import SQLCompiler
from django.urls import reverse

from console.actions import marks
from console.display.formats import format_as_words, format_compactly
from console.display.script_rules import SEVERITY_STATES
from console.input.form_values import format_iso_time
from console.models import Mark
from console.timeline.restarts import PLANT, Restart, list_restarts
from console.timeline.window import Window
from controllers.framework.reason import format_count
from queues.nodes.node_state import BUSY
from workers.alerts.lifecycle.models import Alert
from workers.models import LedgerEntry, Loop, Override
from workers.steering.scope import Scope, is_circuit_hold, is_drain, is_pause
from workers.windows.models import PlannedWindow
from workers.windows.occurrences import WindowOccurrence, list_all_between

LABEL_SHARE, CHARACTER_SHARE = 0.036, 0.0102  # width of a sign and of a character, on a plot 620 px wide
PHONE_STRETCH = 1.9  # on a plot narrower by this factor the same words take that much more of it
BOXES = ("override", "window")  # kinds whose bars are boxes with the label inside, or behind
MAX_ROWS, MAX_PHONE_ROWS = 4, 6


@dataclass(frozen=True)
class Bar:
    """A mark, an override, or an alert. `begin` and `end` are shares of the window."""

    begin: float
    end: float
    kind: str
    label: str
    title: str
    at: datetime
    until: datetime | None
    url: str = ""
    state: str = ""
    row: int = 0
    phone_row: int = 0
    space: float = 1.0  # share of the plot that its label may take before it would touch the next one
    phone_space: float = 1.0

    @property
    def width(self) -> float:
        return self.end - self.begin

    @property
    def inside(self) -> bool:
        """Return whether the label fits in the bar."""
        return self.width >= self.measure_room()

    @property
    def before(self) -> bool:
        """Return whether the label is before the bar, since the plot ends after it."""
        room = self.measure_room()
        return not self.inside and self.label_begin + room > 1.0 and self.begin >= room

    @property
    def label_begin(self) -> float:
        """Return the start of the label: that of its bar, or the end of a box that is too small for it."""
        return self.end if self.kind in BOXES and not self.inside else self.begin

    def measure_room(self, stretch: float = 1.0) -> float:
        """Return the width of its sign and label."""
        return stretch * (LABEL_SHARE + CHARACTER_SHARE * len(self.label))

    def compute_extent(self, stretch: float = 1.0) -> tuple[float, float]:
        """Return the range of the bar and its label."""
        if self.before:
            return self.begin - self.measure_room(stretch), self.end
        return self.begin, max(self.end, self.label_begin + self.measure_room(stretch))


def arrange_in_rows(bars: Iterable[Bar]) -> list[Bar]:
    """Return the bars in rows, for a wide screen and for a phone."""
    bars = list(bars)
    rows = _assign_rows(bars, 1.0, MAX_ROWS)
    phone_rows = _assign_rows(bars, PHONE_STRETCH, MAX_PHONE_ROWS)
    spaces, phone_spaces = (
        _compute_label_widths(bars, rows, 1.0),
        _compute_label_widths(bars, phone_rows, PHONE_STRETCH),
    )
    placed = zip(bars, rows, phone_rows, spaces, phone_spaces, strict=True)
    return [
        replace(bar, row=row, phone_row=phone_row, space=space, phone_space=phone_space)
        for bar, row, phone_row, space, phone_space in placed
    ]


def _assign_rows(bars: Sequence[Bar], stretch: float, most: int) -> list[int]:
    """Return rows without overlaps; bars that don't fit share the last."""
    ends: list[float] = []
    rows = []
    for bar in bars:
        begin, end = bar.compute_extent(stretch)
        free = next((row for row, taken in enumerate(ends) if taken <= begin), len(ends))
        row = min(free, most - 1)
        if row == len(ends):
            ends.append(end)
        ends[row] = max(ends[row], end) if free >= most else end
        rows.append(row)
    return rows


def _compute_label_widths(bars: Sequence[Bar], rows: Sequence[int], stretch: float) -> list[float]:
    """Return the maximum width of each label.

    Plots and characters differ in width, so the page truncates a label there, whatever was estimated.
    """
    spaces = [0.0] * len(bars)
    for row in set(rows):
        places = sorted((place for place in range(len(bars)) if rows[place] == row), key=lambda p: bars[p].begin)
        before: int | None = None
        for place in [*places, None]:
            edge = _compute_label_edge(bars, before, place, stretch)
            if before is not None and not bars[before].before:
                spaces[before] = max(0.0, edge - bars[before].label_begin)
            if place is not None and bars[place].before:
                spaces[place] = max(0.0, bars[place].begin - edge)
            before = place
    return spaces


def _compute_label_edge(bars: Sequence[Bar], left: int | None, right: int | None, stretch: float) -> float:
    """Return where the label of one bar must have ended, and that of the next may start."""
    if right is None:
        return 1.0
    own = bars[right].begin - (bars[right].measure_room(stretch) if bars[right].before else 0.0)
    if left is None or not bars[right].before:
        return max(0.0, own)
    # In a shared row the left bar may end after the start of the right one.
    return min(bars[right].begin, max(bars[left].end, own))


def count_rows(rows: Iterable[int]) -> int:
    """Return the number of rows of a lane: one if it is empty."""
    return max(rows, default=0) + 1


BUCKETS = 72  # triangles closer than this to each other are merged
ACTED = ("harmful", "ineffective", "checking", "effective")  # the first that occurs represents all
MAX_BARS = 200


@dataclass(frozen=True)
class Triangle:
    """Actions of a law's loops at one position of the axis: one decision, or several that are too close."""

    share: float
    verdict: str
    count: int
    url: str
    title: str


@dataclass(frozen=True)
class TimelineLane:
    law: str
    triangles: list[Triangle]
    decisions: int


Sql: TypeAlias = tuple[str, list[str | int] | tuple[str | int, ...] | tuple[()]]
"""A part of a statement, and its values."""


class Epoch(Func):
    """An instant in the database as whole seconds since 1970, so that the database counts by position."""

    output_field = IntegerField()

    def as_sqlite(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any) -> Sql:
        # Each pair of signs is halved twice on its way: here, and where Django inserts the values.
        template = "CAST(strftime('%%%%s', %(expressions)s) AS INTEGER)"
        return self.as_sql(compiler, connection, template=template, **context)

    def as_postgresql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any) -> Sql:
        template = "CAST(FLOOR(EXTRACT(EPOCH FROM %(expressions)s)) AS BIGINT)"
        return self.as_sql(compiler, connection, template=template, **context)


def build_law_lanes(window: Window, loops: Collection[int] | None = None) -> list[TimelineLane]:
    """Return a lane per law that acted (of these loops; None: of all), in the order of their names."""
    width = max(1, round(window.seconds / BUCKETS))
    counted = (
        (LedgerEntry.objects.all() if loops is None else LedgerEntry.objects.filter(loop__in=loops))
        .filter(verdict__in=ACTED, at__gte=window.since, at__lte=window.until)
        .annotate(place=Epoch("at") / width, law=F("loop__law"))
        .values("law", "place", "verdict")
        .annotate(count=Count("id"), newest=Max("id"), newest_at=Max("at"))
        .order_by("law", "place")
    )
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in counted:
        groups.setdefault((row["law"], row["place"]), []).append(row)
    single = [rows[0]["newest"] for rows in groups.values() if len(rows) == 1 and rows[0]["count"] == 1]
    reasons = dict(LedgerEntry.objects.filter(pk__in=single).values_list("pk", "reason"))
    lanes: dict[str, list[Triangle]] = {}
    for (law, place), rows in groups.items():
        lanes.setdefault(law, []).append(_build_triangle(window, law, place * width, width, rows, reasons))
    return [TimelineLane(law, bars, sum(bar.count for bar in bars)) for law, bars in lanes.items()]


def list_controlling_loops(queue: str = "", node: str = "") -> list[int]:
    """Return the loops that control a queue or a node, and those that control the whole plant.

    Without a queue or a node, return all loops.
    """
    wanted = {key: name for key, name in (("queue", queue), ("node", node)) if name}
    rows = Loop.objects.values_list("pk", "target")
    return [number for number, target in rows if not wanted or _steers(target, wanted)]


def _steers(target: Mapping[str, Any], wanted: Mapping[str, str]) -> bool:
    """Return whether the target is wanted, or is the whole plant (which has no part)."""
    parts = target.keys() - {"retired_at"}
    matches = all(target.get(key, name) == name for key, name in wanted.items())
    return not parts or (matches and bool(parts & wanted.keys()))


def _build_triangle(
    window: Window, law: str, begin: int, width: int, rows: Sequence[dict[str, Any]], reasons: dict[int, str]
) -> Triangle:
    worst = min((row["verdict"] for row in rows), key=ACTED.index)
    count = sum(row["count"] for row in rows)
    share = min(max(window.share(max(row["newest_at"] for row in rows)), 0.0), 1.0)
    if count == 1:
        number = rows[0]["newest"]
        return Triangle(share, worst, 1, reverse("entry", args=[number]), reasons.get(number, ""))
    ends = [datetime.fromtimestamp(edge, UTC) for edge in (begin, begin + width)]
    asked = {"law": law, "acted": 1, "from": format_iso_time(ends[0]), "to": format_iso_time(ends[1])}
    told = ", ".join(f"{row['count']} {row['verdict']}" for row in rows)
    return Triangle(
        share, worst, count, f"{reverse('ledger')}?{urlencode(asked)}", f"{format_count(count, 'decision')}: {told}"
    )


@dataclass(frozen=True)
class LimitedTimeRange:
    """Decisions of a loop that its guard limited in the same way, merged where a chart shows them as one."""

    at: float  # Unix time of the newest
    limited_by: str
    count: int
    url: str
    title: str


def list_guard_events(window: Window, loop: int) -> list[LimitedTimeRange]:
    """Return what a loop's guard limited, delayed, or held in a window, the oldest first."""
    width = max(1, round(window.seconds / BUCKETS))
    counted = (
        LedgerEntry.objects.filter(loop=loop, at__gte=window.since, at__lte=window.until)
        .exclude(limited_by=None)
        .annotate(place=Epoch("at") / width)
        .values("place", "limited_by")
        .annotate(count=Sum(F("folded_ticks") + 1), newest_at=Max("at"))
        .order_by("place", "limited_by")
    )
    return [_list_limited(loop, row, width) for row in counted]


def _list_limited(loop: int, row: dict[str, Any], width: int) -> LimitedTimeRange:
    limit, count = row["limited_by"], row["count"]
    begin, end = (datetime.fromtimestamp(row["place"] * width + more, UTC) for more in (0, width))
    asked = {"loop": loop, "limited_by": limit, "from": format_iso_time(begin), "to": format_iso_time(end)}
    title = f"Guard: {format_as_words(limit).removeprefix('guard ')}, {count} decision{'' if count == 1 else 's'}"
    url = f"{reverse('ledger')}?{urlencode(asked)}"
    return LimitedTimeRange(row["newest_at"].timestamp(), limit, count, url, title)


@dataclass(frozen=True)
class NewestBars:
    """The MAX_BARS of a kind that extend furthest towards the window's end, by their start.

    count: of all.
    """

    bars: list[Bar]
    count: int


def _build_newest_bars(found: QuerySet[Any], end: str, show: Callable[[Any], Bar]) -> NewestBars:
    """Return the newest. end: the field of their end; without a value they are still in progress."""
    rows = list(found.order_by(F(end).desc(nulls_first=True), "-pk")[:MAX_BARS])
    count = len(rows) if len(rows) < MAX_BARS else found.count()
    return NewestBars(arrange_in_rows(sorted(map(show, rows), key=lambda bar: bar.at)), count)


def build_mark_bars(window: Window) -> NewestBars:
    marks_shown = marks.list_between(window.since, window.until).annotate(end=Coalesce("until", "at"))
    return _build_newest_bars(marks_shown, "end", lambda mark: _mark(window, mark))


def _mark(window: Window, mark: Mark) -> Bar:
    begin, end = window.clip(mark.at, mark.until or mark.at)
    title = f"{mark.title}, by {mark.author}{'. ' + mark.text if mark.text else ''}"
    return Bar(begin, end, mark.kind, mark.title, title, mark.at, mark.until)


def build_restart_bars(window: Window, data: Path) -> NewestBars:
    """Return processes that restarted."""
    starts = list_restarts(data, window.since, window.until)
    return NewestBars(arrange_in_rows([_restart(window, start) for start in starts[-MAX_BARS:]]), len(starts))


def _restart(window: Window, restart: Restart) -> Bar:
    share = window.share(restart.at)
    label = "Weir started" if restart.name == PLANT else restart.name
    how = f" (previous run: {restart.how})" if restart.how else ""
    title = label if restart.name == PLANT else f"{restart.name} restarted{how}"
    return Bar(share, share, "restart", label, title, restart.at, None)


def build_window_bars(window: Window) -> NewestBars:
    """Return the occurrences of planned windows in the window, the newest MAX_BARS."""
    rows = list_windows_during(window)
    bars = [_build_window_bar(window, row) for row in rows[-MAX_BARS:]]
    return NewestBars(arrange_in_rows(bars), len(rows))


def list_windows_during(window: Window) -> list[WindowOccurrence]:
    """Return the occurrences that touch the window, the earliest first."""
    planned = PlannedWindow.objects.filter(created_at__lte=window.until).select_related("owner")
    planned = planned.exclude(last_end__lt=window.since).exclude(ended_at__lt=window.since)
    return sorted(list_all_between(planned, window.since, window.until), key=lambda row: row.valid_since)


def _build_window_bar(window: Window, row: WindowOccurrence) -> Bar:
    begin, end = window.clip(row.valid_since, min(row.ends_at, window.until))
    planned = row.window
    title = f"{planned.get_kind_display()} {planned.name}, until {row.ends_at:%Y-%m-%d %H:%M} UTC"
    url = reverse("window", args=[planned.successor_id or planned.pk])
    return Bar(begin, end, "window", planned.name, title, row.valid_since, row.ends_at, url)


def build_override_bars(window: Window) -> NewestBars:
    """Return overrides that were in force in the window, for their actual duration."""
    return _build_newest_bars(
        list_overrides_during(window), "ended_at", lambda override: _build_override_bar(window, override)
    )


def list_overrides_during(window: Window) -> QuerySet[Override]:
    """Return those that were in force at some instant of the window; without an end they still are."""
    lasted = Q(expires_at=None) | Q(expires_at__gte=window.since)
    touches = Q(ended_at=None) | Q(ended_at__gte=window.since)
    overrides = Override.objects.filter(lasted, touches, created_at__lte=window.until)
    return overrides.select_related("loop", "node", "owner").order_by("created_at")


def compute_end(override: Override) -> datetime | None:
    """Return when it ended or expires; None: never."""
    return min((end for end in (override.ended_at, override.expires_at) if end), default=None)


def _build_override_bar(window: Window, override: Override) -> Bar:
    ends = compute_end(override)
    begin, end = window.clip(override.created_at, min(ends or window.until, window.until))
    scope, name = format_as_words(Scope.build(override)), format_as_words(override.name)
    label = f"{scope}: {name} {format_compactly(override.value)}"
    title = f"{label}, {override.owner.get_username()}: {override.reason}"
    return Bar(begin, end, "override", label, title, override.created_at, ends, _build_override_url(override))


def _build_override_url(override: Override) -> str:
    if override.loop:
        return reverse("loop", args=[override.loop.pk])
    if is_pause(override) or is_circuit_hold(override):
        return reverse("queue", args=[override.queue])
    if is_drain(override):
        return reverse("worker-host", args=[override.host])
    node = override.node if not override.law and not override.queue else None
    return reverse("manual-changes") if node is None else reverse("node", args=[node.name])


def build_alert_bars(window: Window) -> NewestBars:
    """Return alerts that fired and were open in the window. Explained alerts are part of the explaining alert."""
    alerts = list_alerts_during(window).filter(under=None)
    return _build_newest_bars(alerts, "resolved_at", lambda alert: _build_alert_bar(window, alert))


def list_alerts_during(window: Window) -> QuerySet[Alert]:
    open_then = Q(resolved_at=None) | Q(resolved_at__gte=window.since)
    return Alert.objects.filter(open_then, fired_at__lte=window.until).order_by("fired_at")


def _build_alert_bar(window: Window, alert: Alert) -> Bar:
    assert alert.fired_at is not None  # only those that have fired are shown
    begin, end = window.clip(alert.fired_at, min(alert.resolved_at or window.until, window.until))
    state = SEVERITY_STATES.get(alert.severity, BUSY)
    title, url = f"{alert.title}. {alert.sentence}".strip(), reverse("alert", args=[alert.pk])
    return Bar(begin, end, "alert", alert.title, title, alert.fired_at, alert.resolved_at, url, state)


def find_last_decision(shown_at: datetime, reach: timedelta = timedelta(days=1)) -> LedgerEntry | None:
    """Return the last actions of loops before an instant."""
    acted = LedgerEntry.objects.filter(verdict__in=ACTED, at__lte=shown_at, at__gte=shown_at - reach)
    return acted.select_related("loop").order_by("-at").first()
