"""What happened in a window, as lanes of signs: actions of loops, overrides, marks, and alerts."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from django.db.models import Count, F, Func, IntegerField, Max, Q, QuerySet, Sum
from django.db.models.functions import Coalesce
from django.urls import reverse

from console.actions.timeline import marks
from console.display.formats import format_as_words, format_compactly
from console.display.severity_states import SEVERITY_STATES
from console.input.form_values import format_iso_time
from console.models import Mark
from console.timeline.bars import Bar, arrange_in_rows
from console.timeline.restarts import PLANT, Restart, list_restarts
from console.timeline.window import Window
from controllers.framework.reason import format_count
from queues.nodes.node_state import BUSY
from workers.alerts.lifecycle.models import Alert
from workers.models import LedgerEntry, Loop, Override
from workers.steering.scope import Scope, is_drain, is_pause

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


class Epoch(Func):
    """An instant in the database as whole seconds since 1970, so that the database counts by position."""

    output_field = IntegerField()

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        # Each pair of signs is halved twice on its way: here, and where Django inserts the values.
        template = "CAST(strftime('%%%%s', %(expressions)s) AS INTEGER)"
        return self.as_sql(compiler, connection, template=template, **context)

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        template = "CAST(FLOOR(EXTRACT(EPOCH FROM %(expressions)s)) AS BIGINT)"
        return self.as_sql(compiler, connection, template=template, **context)


def build_law_lanes(window: Window, loops: Collection[int] | None = None) -> list[TimelineLane]:
    """Return a lane per law that acted (of these loops; None: of all), in the order of their names."""
    width = max(1, round(window.seconds / BUCKETS))
    counted = (
        _group_loops(loops)
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


def _group_loops(loops: Collection[int] | None) -> QuerySet[LedgerEntry]:
    return LedgerEntry.objects.all() if loops is None else LedgerEntry.objects.filter(loop__in=loops)


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
    if is_pause(override):
        return reverse("queue", args=[override.queue])
    if is_drain(override):
        return reverse("worker-host", args=[override.host])
    node = override.node if not override.law and not override.queue else None
    return reverse("overrides") if node is None else reverse("node", args=[node.name])


def build_alert_bars(window: Window) -> NewestBars:
    """Return alerts that fired and were open in the window.

    Explained alerts are part of the explaining alert.
    """
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
