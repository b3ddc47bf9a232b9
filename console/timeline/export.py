"""A window as a table: its figures row by row, or what happened in it, in pages of any length."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import redis

from common.errors import BadInput
from console.actions import marks
from console.actions.exports import ROWS
from console.timeline.happenings import compute_end, list_alerts_during, list_overrides_during, list_windows_during
from console.timeline.strips import PATHS, format_state_path
from console.timeline.window import Window
from queues.models import Node
from queues.nodes.node_state import STATES
from workers.history import metric_history
from workers.models import LedgerEntry
from workers.steering.scope import Scope
from workers.windows.scope import format_scope

SLICE_ROWS = 7_200
EVENT_HEADER = ("time", "until", "kind", "subject", "what", "effect", "by", "why")
Rows = Sequence[Sequence[Any]]


def build_table(what: str, window: Window, control: redis.Redis, data: Path) -> tuple[list[str], Iterator[Rows]]:
    """Return (header, pages of rows). Raises `BadInput` that names `what`."""
    if what == "figures":
        nodes = list(Node.objects.order_by("name").values_list("name", flat=True))
        series = [*PATHS, *map(format_state_path, nodes)]
        return ["time", *series], _iterate_figures(window, control, data, series)
    if what == "events":
        return list(EVENT_HEADER), _split_into_pages(_iterate_events(window))
    raise BadInput("what", f"must be figures or events, not {what[:40]!r}.")


def _iterate_figures(window: Window, control: redis.Redis, data: Path, series: list[str]) -> Iterator[Rows]:
    """Yield a row a second, or two rows an interval of a long range; read slice by slice."""
    begin, end = window.since.timestamp(), window.until.timestamp()
    step = metric_history.step_seconds(window.seconds)
    while begin < end:
        # Where an interval starts: one that spans two slices would appear in both.
        stop = min((begin + SLICE_ROWS * step) // step * step, end)
        history_columns = metric_history.read_columns(control, data, begin, stop, series, range_seconds=window.seconds)
        columns = [_write_column(name, history_columns[name]) for name in series]
        rows = zip(map(_convert_to_datetime, history_columns["at"]), *columns, strict=True)
        # The end of a slice is the start of the next, which would include the interval before it.
        within = [begin <= (at or 0.0) < stop or at == stop == end for at in history_columns["at"]]
        yield [row for row, is_within in zip(rows, within, strict=True) if is_within]
        begin = stop


def _write_column(name: str, column: Sequence[float | None]) -> Sequence[Any]:
    if not name.endswith(".state"):
        return column
    return [None if place is None else STATES[int(place)] for place in column]


def _convert_to_datetime(seconds: float | None) -> datetime:
    return datetime.fromtimestamp(seconds or 0.0, UTC)


def _split_into_pages(rows: Iterator[Sequence[Any]]) -> Iterator[Rows]:
    while page := [row for _, row in zip(range(ROWS), rows, strict=False)]:
        yield page


def _iterate_events(window: Window) -> Iterator[Sequence[Any]]:
    """Yield marks, alerts, overrides, and each decision that acted; kind after kind, the oldest first."""
    for mark in marks.list_between(window.since, window.until):
        yield mark.at, mark.until, mark.kind, "", mark.title, "", mark.author, mark.text
    alerts = list_alerts_during(window).iterator(ROWS)
    for alert in alerts:
        fired, resolved = alert.fired_at, alert.resolved_at
        yield fired, resolved, "alert", alert.rule_name, alert.title, alert.severity, "", alert.sentence
    for override in list_overrides_during(window).iterator(ROWS):
        what, who = f"{override.name} {override.value}", override.owner.get_username()
        yield (
            override.created_at,
            compute_end(override),
            "override",
            str(Scope.build(override)),
            what,
            "",
            who,
            override.reason,
        )
    for row in list_windows_during(window):
        planned = row.window
        what, owner = f"{planned.kind} {planned.name}", planned.owner.get_username()
        yield row.valid_since, row.ends_at, "window", format_scope(planned.scope), what, "", owner, planned.reason
    acted = LedgerEntry.objects.filter(at__gte=window.since, at__lte=window.until, action__isnull=False)
    fields = ("at", "loop__name", "action", "verdict", "mode", "reason")
    for at, loop, action, verdict, mode, reason in acted.order_by("at").values_list(*fields).iterator(ROWS):
        yield at, None, "decision", loop, action, verdict, mode, reason
