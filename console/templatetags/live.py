"""Template tags for live values, states, bars, times, signs, and the runs of batch tasks."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol, TypeAlias

from django import template
from django.templatetags.static import static
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from console.display.dumbbell import Dumbbell
from console.display.formats import (
    UNKNOWN,
    format_age,
    format_countdown,
    format_css_share,
    format_value,
    is_finite_number,
)
from console.display.script_rules import SEVERITY_STATES, VERDICT_WORDS
from console.display.states import compute_tick_lateness, get_state_word
from console.templatetags.filters import at
from controllers.framework.reason import format_count
from queues.nodes.node_state import BUSY, IDLE, OFFLINE, TOOBUSY
from workers.documents.snapshot import Snapshot
from workers.snapshot.evaluate import get_states

register = template.Library()
NOT_KNOWN = "Unknown"
Moment: TypeAlias = datetime | float | None
"""A time, or the seconds since 1970."""

TIME_FORMATS = {"clock": "%H:%M:%S", "minute": "%H:%M", "day": "%a %-d %b", "date": "%a %-d %b, %H:%M:%S"}


@dataclass(frozen=True)
class RailItem:
    """A page on the rail. counted: the derived value that updates `count`; None: it has no count."""

    name: str
    label: str
    url: str
    count: int | None
    counted: str | None
    counted_words: str | None


@register.simple_tag
def place(*path: object) -> tuple[object, ...]:
    """Return a prefix in the snapshot for several live values: {% place "nodes" name as here %}."""
    return _flatten_keys(path)


def _flatten_keys(path: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(key for part in path for key in (part if isinstance(part, tuple) else (part,)))


def _resolve_path(document: object, path: tuple[object, ...]) -> Any:
    """Return the value at a path of keys, None if it ends early."""
    for key in path:
        document = at(document, key)
    return document


@register.simple_tag
def live(snapshot: object, *path: object, format: str = "number", unit: str = "") -> SafeString:
    """Render a value of the snapshot that the browser updates, its unit small and muted beside it."""
    path = _flatten_keys(path)
    value = _resolve_path(snapshot, path)
    number = format_html(
        '<span{} data-bind="{}" data-format="{}">{}</span>',
        "" if format == "text" else SafeString(' class="n"'),  # a number never breaks, a sentence may
        ".".join(map(str, path)),
        format,
        format_value(value, format),
    )
    return format_html('{}<span class="unit"> {}</span>', number, unit) if unit else number


@register.simple_tag
def tick(snapshot: object, loop: str) -> SafeString:
    """Render when a loop decided last, and how late its next decision is.

    If the next decision is late, the last one may be out of date.
    """
    status = _resolve_path(snapshot, ("loops", loop))
    decided, interval = at(status, "at"), at(status, "interval_seconds") or 0.0
    late = compute_tick_lateness(status, interval, at(snapshot, "at"))
    return format_html(
        '<span class="n{}" data-bind="loops.{}.at" data-format="tick" data-interval="{}">{}{}</span>',
        " late" if late else "",
        loop,
        interval,
        format_value(decided, "clock"),
        f", {format_value(late, 'age')} late" if late else "",
    )


@register.simple_tag
def number(value: object, format: str = "number", unit: str = "") -> SafeString:
    """Render a constant value in the form of a live one."""
    text = format_html('<span class="n">{}</span>', format_value(value, format))
    return format_html('{}<span class="unit"> {}</span>', text, unit) if unit else text


@register.simple_tag
def state(snapshot: object, *path: object) -> SafeString:
    """Render glyph and word of a state: of a node, or the plant's health. A stale one is hatched."""
    row = _resolve_path(snapshot, path)
    name, stale = at(row, "state"), at(row, "stale")
    return format_html(
        '<span class="state" data-bind="{}" data-format="state" data-state="{}"{}>'
        '<i class="glyph" aria-hidden="true"></i><span class="word">{}</span></span>',
        ".".join(map(str, path)),
        name or "",
        SafeString(" data-stale") if stale else "",
        get_state_word(name) + (", stale" if stale else ""),
    )


@register.simple_tag
def judged(snapshot: Snapshot | None, kind: str, name: object) -> SafeString:
    """Render glyph and word of a subject's evaluated state, with its problem in the title."""
    key = f"{kind}/{name}"
    row = at(get_states(snapshot), key) if snapshot else None
    return format_html(
        '<span class="state" data-bind="states.{}" data-format="judged" data-subject="{}" data-state="{}"{}'
        ' title="{}"><i class="glyph" aria-hidden="true"></i><span class="word">{}</span></span>',
        key,
        key,
        at(row, "sign") or "",
        SafeString(" data-stale") if row is None or at(row, "stale") else "",
        at(row, "finding") or "",
        at(row, "word") or NOT_KNOWN,
    )


@register.simple_tag
def finding(snapshot: Snapshot | None, kind: str, name: object) -> SafeString:
    """Render all problems of a subject, and the first steps, for its own page: phones show no titles."""
    row = at(get_states(snapshot), f"{kind}/{name}") if snapshot else None
    said = [
        at(row, "finding"),
        *(at(other_finding, "sentence") for other_finding in at(row, "also") or ()),
        at(row, "step"),
    ]
    text = " ".join(sentence for sentence in said if sentence)
    return format_html(
        '<p class="card notice" data-bind="states.{}/{}" data-format="finding"{}>{}</p>',
        kind,
        name,
        SafeString("" if text else " hidden"),
        text,
    )


@register.simple_tag
def bar(snapshot: object, *path: object, busy: object = None, toobusy: object = None) -> SafeString:
    """Render a share as a bar with its thresholds; its number is beside it, so screen readers skip it."""
    value = _resolve_path(snapshot, path)
    limits = ((TOOBUSY, toobusy), (BUSY, busy))
    known = is_finite_number(value)
    passed = next((name for name, limit in limits if known and is_finite_number(limit) and value >= limit), "")
    marks = format_html_join(
        "", '<i style="--at: {}"></i>', ((mark,) for mark in (busy, toobusy) if is_finite_number(mark))
    )
    return format_html(
        '<span class="bar" aria-hidden="true" data-bind="{}" data-format="bar" data-busy="{}"'
        ' data-toobusy="{}" data-level="{}" style="--share: {}">{}</span>',
        ".".join(map(str, path)),
        busy if is_finite_number(busy) else "",
        toobusy if is_finite_number(toobusy) else "",
        passed,
        min(value, 1.0) if is_finite_number(value) else 0,
        marks,
    )


@register.simple_tag
def flags(node: object) -> str:
    """Render a node's flags besides its state: drained, cordoned."""
    return ", ".join(name for name in ("drained", "cordoned") if at(node, name))


@register.simple_tag
def split(containers: object, nodes: Iterable[str], queue: str) -> SafeString:
    """Render a queue's points as one bar, with a part per node in the nodes' order.

    The matrix beside it has the numbers.
    """
    parts = [(name, at(at(containers, name), "points") or 0) for name in nodes]
    return format_html(
        '<span class="split" aria-hidden="true" data-derived="split" data-queue="{}">{}</span>',
        queue,
        format_html_join(
            "",
            '<i data-node="{}" style="flex-grow: {}" title="{}: {}"></i>',
            ((name, points, name, points) for name, points in parts if points),
        ),
    )


# Signs of states as drawn on an axis, around 0, 0; others are a filled circle.
_SIGNS = {
    BUSY: SafeString('<path class="sign" d="M0-5 5.5 5H-5.5Z"/>'),
    TOOBUSY: SafeString('<rect class="sign" x="-5" y="-5" width="10" height="10"/>'),
    IDLE: SafeString('<circle class="sign hollow" r="4"/>'),
    OFFLINE: SafeString('<circle class="sign hollow" r="4.5"/>'),
}
_DOT = SafeString('<circle class="sign" r="4.5"/>')


@register.simple_tag
def dumbbell(row: Dumbbell) -> SafeString:
    """Render utilization now and after on an axis from 0 to 100 % of capacity.

    The state's sign is now, and the dot is after. The axis has the node's thresholds. The numbers are beside it, so
    screen readers skip it.
    """
    marks = [mark for mark in (row.busy, row.toobusy) if is_finite_number(mark)]
    lines = format_html_join(
        "", '<line class="limit" x1="{0}" x2="{0}" y1="0" y2="100%"/>', ((format_css_share(mark),) for mark in marks)
    )
    link = SafeString("")
    if row.draws_line and row.now is not None and row.after is not None:
        link = format_html(
            '<line class="link" x1="{}" x2="{}" y1="50%" y2="50%"/><circle class="after" cx="{}" cy="50%" r="5.5"/>',
            format_css_share(row.now),
            format_css_share(row.after),
            format_css_share(row.after),
        )
    sign = SafeString("")
    if is_finite_number(row.now):
        sign = format_html(
            '<svg class="now{}" data-state="{}" x="{}" y="50%" overflow="visible">{}</svg>',
            " same" if row.same else "",
            row.state or "",
            format_css_share(row.now),
            _SIGNS.get(row.state or "", _DOT),
        )
    return format_html('<svg class="dumbbell" aria-hidden="true">{}{}{}</svg>', lines, link, sign)


@register.simple_tag
def spark(path: str, label: str) -> SafeString:
    """Render the last 15 minutes of a snapshot value as a small line, drawn by the browser."""
    return format_html('<svg class="spark" data-spark="{}" role="img" aria-label="{}"></svg>', path, label)


@register.simple_tag
def verdict(value: object) -> SafeString:
    """Render glyph and word of a decision's verdict: filled, hollow, red, dashed, or a bar for no action."""
    return format_html(
        '<span class="verdict" data-verdict="{}"><svg class="glyph" viewBox="0 0 10 10" aria-hidden="true">'
        '<path class="triangle" d="M5 1 9.2 9H.8Z"/><path class="line" d="M0 5.5H10"/></svg>{}</span>',
        value,
        VERDICT_WORDS.get(str(value), str(value)),
    )


@register.simple_tag
def severity(value: object, bare: bool = False) -> SafeString:
    """Render glyph and word of an alert's severity."""
    return format_html(
        '<span class="state{}" data-state="{}"><i class="glyph" aria-hidden="true"></i>'
        '<span class="word">{}</span></span>',
        " bare" if bare else "",
        SEVERITY_STATES.get(str(value), ""),
        str(value).capitalize(),
    )


@register.simple_tag
def timestamp(value: Moment | str, format: str = "clock") -> SafeString:
    """Render a time: UTC as written (or the zone of an export), the reader's own zone once live, and UTC on hover."""
    if value is None or value == "":
        return SafeString(UNKNOWN)
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    elif not isinstance(value, datetime):
        value = datetime.fromtimestamp(value, UTC)
    utc = value.astimezone(UTC)
    return format_html(
        '<time datetime="{}" data-time="{}" title="{} UTC">{}</time>',
        utc.isoformat(),
        format,
        f"{utc:%Y-%m-%d %H:%M:%S}",
        value.astimezone(timezone.get_current_timezone()).strftime(TIME_FORMATS[format]),
    )


@register.simple_tag
def until(value: Moment | str) -> SafeString:
    """Render the time left until an instant, counted down by the browser."""
    if value is None:
        return SafeString(UNKNOWN)
    value = datetime.fromisoformat(value) if isinstance(value, str) else value
    seconds = value.timestamp() if isinstance(value, datetime) else value
    left = seconds - datetime.now(UTC).timestamp()
    return format_html('<span class="n" data-until="{}">{}</span>', f"{seconds:.3f}", format_countdown(left))


@register.simple_tag
def since(value: Moment) -> SafeString:
    """Render the time since an instant, counted up by the browser."""
    if value is None:
        return SafeString(UNKNOWN)
    seconds = value.timestamp() if isinstance(value, datetime) else value
    passed = math.floor(max(0.0, datetime.now(UTC).timestamp() - seconds))
    return format_html('<span class="n" data-since="{}">{}</span>', f"{seconds:.3f}", format_age(passed))


@register.simple_tag
def ticking(value: float) -> SafeString:
    """Render the time since an instant as m:ss, counted up by the browser each second."""
    passed = datetime.now(UTC).timestamp() - value
    return format_html('<span class="n" data-ticking="{}">{}</span>', f"{value:.3f}", format_countdown(passed))


@register.filter
def severity_state(value: str) -> str:
    """Return the state whose glyph and color a severity has."""
    return SEVERITY_STATES.get(value, "")


class CountedEntry(Protocol):
    """An entry of the navigation with the number of its items that need attention (a page, or a group of pages)."""

    @property
    def count(self) -> int | None: ...

    @property
    def counted(self) -> str | None: ...

    @property
    def counted_words(self) -> str | None: ...


@register.simple_tag
def count(item: CountedEntry) -> SafeString:
    """Render the number of items that need attention, beside a name in the navigation, kept up to date."""
    if not item.counted:
        return SafeString("")
    return format_html(
        '<span class="count" data-derived="{}" aria-label="{} {}">{}</span>',
        item.counted,
        item.count,
        item.counted_words,
        item.count or "",
    )


@register.simple_tag
def icon(name: str) -> SafeString:
    """Render an icon of the sprite; it always has a text beside it, so it is hidden from screen readers."""
    return format_html(
        '<svg class="icon" aria-hidden="true"><use href="{}#{}"></use></svg>', static("icons/sprite.svg"), name
    )


MIN_SHARE = 0.04  # minimum height, so that each bar is visible


class RunWithLength(Protocol):
    """The data of a run's bar (`console.actions.task_documents.DescribedRun`)."""

    @property
    def run(self) -> int: ...

    @property
    def state(self) -> str: ...

    @property
    def seconds(self) -> float | None: ...


@register.simple_tag
def run_state(state: str) -> SafeString:
    """Return glyph and word of a run's or a chunk's state; only states that need attention are colored."""
    return format_html(
        '<span class="run-state" data-run-state="{}"><i class="glyph" aria-hidden="true"></i>{}</span>',
        state,
        "Canceled" if state == "cancelled" else state.capitalize(),
    )


@register.filter
def lasting(seconds: float | None) -> str:
    """Return a duration in words: 0.8 s, 42 s, 3 min 20 s, 2 h 5 min."""
    if seconds is None:
        return format_value(None)
    if seconds < 60:
        return f"{format_value(seconds, 'seconds' if seconds < 10 else 'integer')} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


@register.simple_tag
def durations(runs: Sequence[RunWithLength], linked: bool = False) -> SafeString:
    """Return bars of the durations of runs, the oldest first; failed and canceled ones are highlighted."""
    ended = [(run, run.seconds) for run in runs if run.seconds is not None]
    if not ended:
        return SafeString("")
    longest = max(seconds for _, seconds in ended) or 1.0
    bars = format_html_join("", "{}", ((_render_bar(run, seconds, longest, linked),) for run, seconds in ended))
    if linked:
        return format_html('<ol class="durations large">{}</ol>', bars)
    label = f"The last {format_count(len(ended), 'run')} took up to {lasting(longest)}"
    return format_html('<span class="durations" role="img" aria-label="{}">{}</span>', label, bars)


def _render_bar(run: RunWithLength, seconds: float, longest: float, linked: bool) -> SafeString:
    share = max(MIN_SHARE, seconds / longest)
    bar = format_html('<i data-run-state="{}" style="--share: {}"></i>', run.state, f"{share:.3f}")
    if not linked:
        return bar
    said = f"Run {run.run}: {run.state}, {lasting(seconds)}"
    url = reverse("run", args=[run.run])
    return format_html('<li><a href="{}" title="{}" aria-label="{}">{}</a></li>', url, said, said, bar)
