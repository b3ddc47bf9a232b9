"""Template filters that convert a value to a text, an address, or a part of itself."""

import json
from collections.abc import Callable
from datetime import UTC
from typing import Any
from urllib.parse import urlencode

from django import template
from django.urls import reverse
from django.utils.html import format_html

from common.errors import BadInput
from common.stored_document import StoredDocument, find_value
from console.display import formats, states
from console.display.formats import format_compactly, is_finite_number
from console.help.glossary import load_definitions
from console.input.form_values import format_iso_time, parse_time
from controllers.patterns.expression import Expression, render
from workers.alerts.conditions.condition import describe_loop
from workers.control.kinds.registry import find_display
from workers.control.ledger.runs import TickRun, compute_entry_lateness
from workers.models import LedgerEntry, Override
from workers.plants.registry import LOCAL
from workers.steering.scope import Scope

register = template.Library()
FILTERS: dict[str, Callable[..., Any]] = {
    "iso": format_iso_time,
    "value": formats.format_value,
    "input": formats.format_for_input,
    "words": formats.format_as_words,
    "compact": formats.format_compactly,
    "money": formats.format_money,
    "hours": formats.format_hours,
    "signed": formats.format_signed,
    "css_share": formats.format_css_share,
    "coordinate": formats.format_coordinate,
    "brief": formats.format_brief_number,
    "health_word": states.get_health_word,
    "state_word": states.get_state_word,
}
for name, function in FILTERS.items():
    register.filter(name, function)


@register.filter
def from_microseconds(value: object) -> float | None:
    """Return seconds for a number of µs."""
    return value / 1_000_000 if is_finite_number(value) else None


@register.filter
def as_pattern(expression: Expression) -> str:
    """Return a pattern in its notation."""
    return render(expression.root)


@register.filter
def at(mapping: object, key: object) -> Any:
    """Return the value of a key, None if there is no mapping or document, or no such key."""
    if isinstance(mapping, StoredDocument):
        return find_value(mapping, str(key))
    return mapping.get(str(key)) if isinstance(mapping, dict) else None


@register.filter
def hand_place(of: str) -> str:
    """Return the subject of a manual change in words: queue/alert → queue alert."""
    return of.replace("/", " ", 1)


@register.filter
def hand_url(of: str) -> str:
    """Return the page where a manual change was made, and where it can be ended."""
    kind, _, name = of.partition("/")
    if kind in ("queue", "node"):
        return reverse(kind, args=[name])
    if kind == "plant" and name != LOCAL:
        return reverse("plant", args=[name])
    return reverse("pipeline")


@register.filter
def field_time(text: str) -> str:
    """Return a time of an address for a time field: in UTC, without a zone. Invalid text is unchanged."""
    try:
        return parse_time(text, "at").astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds")
    except BadInput:
        return text


@register.filter
def each(text: str) -> list[str]:
    """Return the words of a text as a list."""
    return text.split()


@register.filter
def did(entry: LedgerEntry) -> str:
    """Return a decision's action in a few words: those of its kind if it has some, else its values."""
    return find_display(entry.loop.law, entry.loop.target).brief(entry.action) or format_compactly(entry.action)


@register.filter
def loop_title(name: str) -> str:
    """Return the title of a loop: its law and its target, which is unique."""
    words = describe_loop(str(name))
    return words[:1].upper() + words[1:]


@register.filter
def ticks_of(run: TickRun, asked: str = "") -> str:
    """Return the address of the ledger that lists each tick of a run. asked: the query that selected them."""
    span = urlencode({"each": 1, "from": format_iso_time(run.since), "to": format_iso_time(run.end)})
    return f"{reverse('ledger')}?{asked}{'&' if asked else ''}{span}"


@register.filter
def lateness(entry: LedgerEntry) -> float:
    """Return by how many seconds a tick was late; 0: on time."""
    return compute_entry_lateness(entry)


@register.filter
def scope(override: Override) -> str:
    """Return the scope of an override in words."""
    return str(Scope.build(override))


@register.filter
def as_json(value: object) -> str:
    """Return a document as indented JSON, with its keys in order."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


@register.filter
def term(label: str) -> str:
    """Return the label with the definition of its glossary term as a tooltip."""
    definition = load_definitions().get(label.lower()) or load_definitions()[label.lower().removesuffix("s")]
    return format_html('<abbr class="term" title="{}">{}</abbr>', definition, label)
