"""Template words: numbers with units, ages, state glyphs, values that the browser keeps live.

What is written here the browser writes again each second: `static/js/values/format.js` is the twin of
`formatted`, with the same names and the same precision, so that no number changes its shape when the page
comes alive.
"""

import json
import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

from django import template
from django.templatetags.static import static
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from console.display.dumbbell import Dumbbell
from console.display.severity_states import SEVERITY_STATES
from console.input.form_values import iso, time_of
from controllers.patterns.expression import Expression, render
from queues import checks
from queues.errors import BadInput
from queues.nodes.node_state import BUSY, IDLE, NORMAL, OFFLINE, TOOBUSY
from queues.stored_document import StoredDocument, value_at
from workers.alerts.conditions.loop_words import loop_words
from workers.control.kinds.registry import display_of
from workers.control.ledger.runs import TickRun, lateness_of
from workers.models import LedgerEntry
from workers.plants.registry import LOCAL
from workers.snapshot.states.evaluate import states_of
from workers.steering.scope import Scope

register = template.Library()
register.filter("iso", iso)

UNKNOWN = "—"
NOT_KNOWN = "Not known yet"
MINUS = "\u2212"
STATE_WORDS = {
    IDLE: "Idle",
    NORMAL: "Normal",
    BUSY: "Busy",
    TOOBUSY: "Too busy",
    OFFLINE: "Offline",
}
VERDICT_WORDS = {
    "checking": "Checking",
    "effective": "Effective",
    "ineffective": "No effect",
    "harmful": "Harmful",
    "no action": "No action",
}
ISO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?([+-]\d\d:\d\d|Z)\Z")
TIME_FORMATS = {"clock": "%H:%M:%S", "minute": "%H:%M", "day": "%a %-d %b", "date": "%a %-d %b, %H:%M:%S"}
MOST_DECIMALS = 6
_AGE_STEPS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))


def _fixed(value: float, digits: int) -> str:
    """Rounded as the browser rounds: by the shortest decimal that names the number, halves to even."""
    return f"{Decimal(repr(value)):,.{digits}f}"


def _significant(value: float, least: int) -> str:
    """Three significant digits, but each digit before the point and at least so many after it; at most six
    after it: less is nobody's money, and what sums of floats are off by.
    """
    amount = Decimal(repr(round(float(value), MOST_DECIMALS) or 0.0))
    text = f"{amount:,.{min(max(2 - amount.adjusted(), least), MOST_DECIMALS)}f}"
    whole, _, decimals = text.partition(".")
    kept = decimals.rstrip("0").ljust(least, "0")
    return f"{whole}.{kept}" if kept else whole


def _decimals(limit: float) -> Callable[[float], str]:
    """One decimal below the limit, none from there on."""
    return lambda value: _fixed(value, 1 if abs(value) < limit else 0)


def _age(value: float) -> str:
    """Seconds as the largest whole unit: 0.4 s, 14 s, 4 min, 2 h, 3 d."""
    for seconds, unit in _AGE_STEPS:
        if value >= seconds:
            return f"{_fixed(value / seconds, 0)} {unit}"
    return f"{_decimals(10)(value)} s"


def _countdown(value: float) -> str:
    """Seconds as m:ss, or h:mm:ss from one hour on; never below zero."""
    seconds = max(0, math.floor(value + 0.5))
    hours, minutes, rest = seconds // 3600, seconds // 60 % 60, seconds % 60
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


FORMATS: dict[str, Callable[[float], str]] = {
    "integer": lambda value: _fixed(value, 0),
    "rate": _decimals(100),
    "seconds": _decimals(100),
    "milliseconds": lambda value: _fixed(value * 1000, 1),
    "percent": lambda value: _decimals(10)(value * 100),
    "percent1": lambda value: _fixed(value * 100, 1),
    "share": lambda value: _fixed(value * 100, 2),
    "mebibytes": lambda value: _fixed(value / 2**20, 1),
    "fraction": lambda value: _fixed(value, 2),
    "number": lambda value: f"{value:,.4g}" if abs(value) < 1000 else _fixed(value, 0),
    "age": _age,
    "countdown": _countdown,
    "clock": lambda value: datetime.fromtimestamp(value, UTC).strftime("%H:%M:%S"),
}


def known(value: Any) -> bool:
    """Whether a value is a finite number."""
    return checks.is_number(value)


@register.filter
def formatted(value: Any, name: str = "number") -> str:
    """A value as text in one of `FORMATS`; what is unknown is a dash, what is text stays text."""
    if value is None or value == "":
        return UNKNOWN
    return FORMATS[name](value) if known(value) else typed(value)


@register.filter
def money(value: Any, price: Any) -> str:
    """An amount of money, in the currency of the prices; without a price it says so, and is never 0."""
    if price is None:
        return "no price set"
    return UNKNOWN if value is None else _significant(value, 2)


@register.filter
def hours(value: Any) -> str:
    """An amount of hours, which may be a second's."""
    return UNKNOWN if value is None else _significant(value, 0)


@register.filter
def from_microseconds(value: Any) -> Any:
    """Seconds, of a number of µs."""
    return value / 1_000_000 if known(value) else None


@register.filter
def as_pattern(expression: Expression) -> str:
    """A pattern as one writes it."""
    return render(expression.root)


@register.filter
def at(mapping: Any, key: Any) -> Any:
    """The value under a key, None where there is no mapping or document, or no such key."""
    if isinstance(mapping, StoredDocument):
        return value_at(mapping, str(key))
    return mapping.get(str(key)) if isinstance(mapping, dict) else None


@register.filter
def words(name: Any) -> str:
    """A snake_case name as words: upper_limit → upper limit."""
    return str(name).replace("_", " ")


@register.filter
def hand_place(of: str) -> str:
    """What a hand is on: queue/alert → queue alert."""
    return of.replace("/", " ", 1)


@register.filter
def hand_url(of: str) -> str:
    """The page where a hand was set, and where it ends."""
    kind, _, name = of.partition("/")
    if kind in ("queue", "node"):
        return reverse(kind, args=[name])
    if kind == "plant" and name != LOCAL:
        return reverse("plant", args=[name])
    return reverse("pipeline")


@register.filter
def typed(value: Any) -> str:
    """A value as a person types it: 1000, not 1,000 and not 1000.0; nothing where there is none. Read again
    it is the same number: a form that is sent as it was opened changes nothing.
    """
    if value is None:
        return ""
    if checks.FLAG.accepts(value):
        return str(value).lower()
    return str(value).removesuffix(".0") if known(value) else str(value)


@register.filter
def field_time(text: str) -> str:
    """A time of an address as a field for a time takes it: in UTC, without saying so. What is none stays."""
    try:
        return time_of(text, "at").astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds")
    except BadInput:
        return text


@register.filter
def each(text: str) -> list[str]:
    """The words of a text, to go through them."""
    return text.split()


@register.filter
def signed(value: Any) -> str:
    """A change with its sign, a true minus where it falls."""
    return f"{'+' if value > 0 else MINUS}{abs(value):,}"


@register.filter
def css_share(value: Any) -> str:
    """A share as a length of style sheets and SVG, at most the whole: 0.75 → 75.00%."""
    return f"{100 * min(max(value, 0.0), 1.0):.2f}%"


@register.filter
def hundredfold(value: float) -> str:
    """A share as a coordinate from 0 to 100."""
    return f"{100 * value:.1f}"


@register.filter
def brief(value: float) -> str:
    """A round number as an axis writes it: 0.5, 20, 40k, 1.5M."""
    for size, unit in ((1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'k' else size):g}{unit}"
    return f"{value:,.4g}" if abs(value) < 1_000 else f"{value:,.0f}"


@register.filter
def did(entry: LedgerEntry) -> str:
    """A decision's action in a few words: its kind's where it has some, else its values."""
    return display_of(entry.loop.law).brief(entry.action) or compact(entry.action)


@register.filter
def loop_title(name: str) -> str:
    """What a loop is called: its law and its target, so that no two are alike."""
    words = loop_words(str(name))
    return words[:1].upper() + words[1:]


@register.filter
def ticks_of(run: TickRun, asked: str = "") -> str:
    """The address of the ledger that lists each tick of a run. asked: the query that chose them."""
    span = urlencode({"each": 1, "from": iso(run.since), "to": iso(run.end)})
    return f"{reverse('ledger')}?{asked}{'&' if asked else ''}{span}"


@register.filter
def lateness(entry: LedgerEntry) -> float:
    """By how many seconds a tick came late; 0: it did not."""
    return lateness_of(entry)


@register.filter
def scope(override: Any) -> str:
    """What an override is on, in words."""
    return str(Scope.of(override))


@register.filter
def as_json(value: Any) -> str:
    """A document as indented JSON, keys in their order."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


@register.filter
def compact(value: Any) -> str:
    """An action or a value in one line: {"start": 3} → start 3; numbers without noise."""
    if isinstance(value, dict):
        return ", ".join(f"{words(key)} {compact(part)}" for key, part in value.items()) or UNKNOWN
    if isinstance(value, (list, tuple)):
        return ", ".join(compact(part) for part in value) or UNKNOWN
    if isinstance(value, str) and ISO_TIME.match(value):
        return f"{datetime.fromisoformat(value).astimezone(UTC):%-d %b %H:%M:%S} UTC"
    return formatted(value)


@register.filter
def state_word(state: Any) -> str:
    return STATE_WORDS.get(str(state), "Unknown")


@register.simple_tag
def place(*path: Any) -> tuple[Any, ...]:
    """A place in the snapshot that several live values lie below: {% place "nodes" name as here %}."""
    return _keys(path)


def _keys(path: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(key for part in path for key in (part if isinstance(part, tuple) else (part,)))


def _resolved(document: Any, path: tuple[Any, ...]) -> Any:
    """The value at a path of keys, None where it ends early."""
    for key in path:
        document = at(document, key)
    return document


@register.simple_tag
def live(snapshot: Any, *path: Any, format: str = "number", unit: str = "") -> SafeString:
    """A value of the snapshot that the browser keeps up to date, its unit small and muted beside it."""
    path = _keys(path)
    value = _resolved(snapshot, path)
    number = format_html(
        '<span{} data-bind="{}" data-format="{}">{}</span>',
        "" if format == "text" else SafeString(' class="n"'),  # a number never breaks, a sentence may
        ".".join(map(str, path)),
        format,
        formatted(value, format),
    )
    return format_html('{}<span class="unit"> {}</span>', number, unit) if unit else number


@register.simple_tag
def number(value: Any, format: str = "number", unit: str = "") -> SafeString:
    """A value that stands still, written like a live one."""
    text = format_html('<span class="n">{}</span>', formatted(value, format))
    return format_html('{}<span class="unit"> {}</span>', text, unit) if unit else text


@register.simple_tag
def state(snapshot: Any, *path: Any) -> SafeString:
    """Glyph and word of what has a state: a node, or the plant's health. A stale one is hatched."""
    row = _resolved(snapshot, path)
    name, stale = at(row, "state"), at(row, "stale")
    return format_html(
        '<span class="state" data-bind="{}" data-format="state" data-state="{}"{}>'
        '<i class="glyph" aria-hidden="true"></i><span class="word">{}</span></span>',
        ".".join(map(str, path)),
        name or "",
        SafeString(" data-stale") if stale else "",
        state_word(name) + (", stale" if stale else ""),
    )


@register.simple_tag
def judged(snapshot: Any, kind: str, name: Any) -> SafeString:
    """Glyph and word of a subject's evaluated state; what is wrong with it stands in its title."""
    key = f"{kind}/{name}"
    row = at(states_of(snapshot), key) if snapshot else None
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
def bar(snapshot: Any, *path: Any, busy: Any = None, toobusy: Any = None) -> SafeString:
    """A share as a bar against its thresholds; its number stands beside it, so readers skip it."""
    value = _resolved(snapshot, path)
    marks = format_html_join(
        "", '<i style="--at: {}"></i>', ((mark,) for mark in (busy, toobusy) if known(mark))
    )
    return format_html(
        '<span class="bar" aria-hidden="true" data-bind="{}" data-format="bar" data-busy="{}"'
        ' data-toobusy="{}" data-level="{}" style="--share: {}">{}</span>',
        ".".join(map(str, path)),
        busy if known(busy) else "",
        toobusy if known(toobusy) else "",
        _level(value, busy, toobusy),
        min(value, 1.0) if known(value) else 0,
        marks,
    )


def _level(value: Any, busy: Any, toobusy: Any) -> str:
    """Which threshold a share has passed, for its colour."""
    if known(value) and known(toobusy) and value >= toobusy:
        return TOOBUSY
    return BUSY if known(value) and known(busy) and value >= busy else ""


@register.simple_tag
def flags(node: Any) -> str:
    """What a node is besides its state: drained, cordoned."""
    return ", ".join(name for name in ("drained", "cordoned") if at(node, name))


@register.simple_tag
def split(containers: Any, nodes: Any, queue: str) -> SafeString:
    """A queue's points as one bar, a part per node in the nodes' order; the matrix beside has the numbers."""
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


# Signs of states as they are drawn on an axis, around 0, 0; those not named are a filled circle.
_SIGNS = {
    BUSY: SafeString('<path class="sign" d="M0-5 5.5 5H-5.5Z"/>'),
    TOOBUSY: SafeString('<rect class="sign" x="-5" y="-5" width="10" height="10"/>'),
    IDLE: SafeString('<circle class="sign hollow" r="4"/>'),
    OFFLINE: SafeString('<circle class="sign hollow" r="4.5"/>'),
}
_DOT = SafeString('<circle class="sign" r="4.5"/>')


@register.simple_tag
def dumbbell(row: Dumbbell) -> SafeString:
    """Utilisation now (the state's sign) and after (a dot) on an axis from 0 to 100 % of capacity, against
    the node's thresholds. The numbers stand beside it, so readers skip it.
    """
    marks = [mark for mark in (row.busy, row.toobusy) if known(mark)]
    lines = format_html_join(
        "", '<line class="limit" x1="{0}" x2="{0}" y1="0" y2="100%"/>', ((css_share(mark),) for mark in marks)
    )
    link = SafeString("")
    if row.draws_line:
        link = format_html(
            '<line class="link" x1="{}" x2="{}" y1="50%" y2="50%"/>'
            '<circle class="after" cx="{}" cy="50%" r="5.5"/>',
            css_share(row.now),
            css_share(row.after),
            css_share(row.after),
        )
    sign = SafeString("")
    if known(row.now):
        sign = format_html(
            '<svg class="now{}" data-state="{}" x="{}" y="50%" overflow="visible">{}</svg>',
            " same" if row.same else "",
            row.state or "",
            css_share(row.now),
            _SIGNS.get(row.state or "", _DOT),
        )
    return format_html('<svg class="dumbbell" aria-hidden="true">{}{}{}</svg>', lines, link, sign)


@register.simple_tag
def spark(path: str, label: str) -> SafeString:
    """The last 15 minutes of a snapshot value as a small line, drawn by the browser."""
    return format_html('<svg class="spark" data-spark="{}" role="img" aria-label="{}"></svg>', path, label)


@register.simple_tag
def verdict(value: Any) -> SafeString:
    """Glyph and word of a decision's verdict: filled, hollow, red, dashed, or a bar for no action."""
    return format_html(
        '<span class="verdict" data-verdict="{}"><svg class="glyph" viewBox="0 0 10 10" aria-hidden="true">'
        '<path class="triangle" d="M5 1 9.2 9H.8Z"/><path class="line" d="M0 5.5H10"/></svg>{}</span>',
        value,
        VERDICT_WORDS.get(str(value), str(value)),
    )


@register.simple_tag
def severity(value: Any, bare: bool = False) -> SafeString:
    """Glyph and word of an alert's severity."""
    return format_html(
        '<span class="state{}" data-state="{}"><i class="glyph" aria-hidden="true"></i>'
        '<span class="word">{}</span></span>',
        " bare" if bare else "",
        SEVERITY_STATES.get(str(value), ""),
        str(value).capitalize(),
    )


@register.simple_tag
def timestamp(value: Any, format: str = "clock") -> SafeString:
    """A time: UTC as written (or the zone of an export), the reader's own zone once alive, UTC on hover."""
    if value is None or value == "":
        return SafeString(UNKNOWN)
    if known(value):
        value = datetime.fromtimestamp(value, UTC)
    elif isinstance(value, str):
        value = datetime.fromisoformat(value)
    utc = value.astimezone(UTC)
    return format_html(
        '<time datetime="{}" data-time="{}" title="{} UTC">{}</time>',
        utc.isoformat(),
        format,
        f"{utc:%Y-%m-%d %H:%M:%S}",
        value.astimezone(timezone.get_current_timezone()).strftime(TIME_FORMATS[format]),
    )


@register.simple_tag
def until(value: Any) -> SafeString:
    """The time left until an instant, counted down by the browser."""
    if value is None:
        return SafeString(UNKNOWN)
    value = datetime.fromisoformat(value) if isinstance(value, str) else value
    seconds = value if known(value) else value.timestamp()
    left = seconds - datetime.now(UTC).timestamp()
    return format_html('<span class="n" data-until="{}">{}</span>', f"{seconds:.3f}", _countdown(left))


@register.simple_tag
def since(value: Any) -> SafeString:
    """The time that has passed since an instant, counted on by the browser."""
    if value is None:
        return SafeString(UNKNOWN)
    seconds = value if known(value) else value.timestamp()
    passed = math.floor(max(0.0, datetime.now(UTC).timestamp() - seconds))
    return format_html('<span class="n" data-since="{}">{}</span>', f"{seconds:.3f}", _age(passed))


@register.simple_tag
def count(item: Any) -> SafeString:
    """How much on a page calls for somebody, beside its name in the rail, kept up to date."""
    if item.count is None:
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
    """A sign of the sprite; it never stands without words, so it is hidden to readers."""
    return format_html(
        '<svg class="icon" aria-hidden="true"><use href="{}#{}"></use></svg>',
        static("icons/sprite.svg"),
        name,
    )
