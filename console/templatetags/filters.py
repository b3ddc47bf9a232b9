"""Template filters that convert a value to a text, an address, or a part of itself."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django import template
from django.urls import reverse
from django.utils.html import format_html, format_html_join

from common.errors import BadInput
from common.stored_document import StoredDocument, find_value
from console.display import formats, states
from console.display.formats import is_finite_number
from console.display.loops import FoldedDecisions, describe_action, fold_decisions
from console.help.glossary import load_definitions
from console.input.form_values import format_iso_time, parse_time
from controllers.patterns.expression import Expression, render
from workers.alerts.conditions.condition import describe_loop
from workers.control.ledger.runs import TickRun, compute_entry_lateness
from workers.models import LedgerEntry, Override
from workers.steering.scope import Scope

register = template.Library()
EVERY_TICK = "ticks=all"  # of the ledger's query
FILTERS: dict[str, Callable[..., Any]] = {
    "iso": format_iso_time,
    "value": formats.format_value,
    "input": formats.format_for_input,
    "words": formats.format_as_words,
    "compact": formats.format_compactly,
    "money": formats.format_money,
    "hours": formats.format_hours,
    "minutes": formats.format_minutes,
    "signed": formats.format_signed,
    "css_share": formats.format_css_share,
    "coordinate": formats.format_coordinate,
    "brief": formats.format_brief_number,
    "did": describe_action,
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
def instant(seconds: float) -> str:
    """Return a Unix time in ISO 8601, for scripts."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()


@register.filter
def field_time(text: str) -> str:
    """Return a time of an address for a time field: in UTC, without a zone. Invalid text is unchanged."""
    try:
        return parse_time(text, "at").astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds")
    except BadInput:
        return text


@register.filter
def each(text: str) -> list[str]:
    return text.split()


@register.filter
def loop_title(name: str) -> str:
    """Return the title of a loop: its law and its target, which is unique."""
    words = describe_loop(str(name))
    return words[:1].upper() + words[1:]


@register.filter
def folded(rows: Iterable[LedgerEntry | TickRun], asked: str = "") -> list[LedgerEntry | FoldedDecisions | TickRun]:
    """Return decisions with equal decisions folded, unless the query requests every tick."""
    return list(rows) if EVERY_TICK in asked.split("&") else fold_decisions(rows)


@register.filter
def decisions_of(line: FoldedDecisions) -> str:
    """Return the address of the ledger that lists each decision of a folded line."""
    loops, newest = line.loops, line.newest
    whose = {"loop": loops[0].pk} if len(loops) == 1 else {"law": newest.loop.law}
    end = line.until.replace(microsecond=0) + timedelta(seconds=1)
    span = {"from": format_iso_time(line.since), "to": format_iso_time(end)}
    return f"{reverse('ledger')}?{urlencode({**whose, 'acted': 1, 'verdict': newest.verdict, **span})}&{EVERY_TICK}"


@register.filter
def law_title(law: str) -> str:
    return loop_title(law)


UNITS = re.compile(r"(\d) (?=(?:ms|s|min|h|d|%|MiB|GiB)(?!\w))")


@register.filter
def named(text: str, names: Sequence[str]) -> str:
    """Return a sentence with the names of subjects on a tint, so that *slow* does not read as a word.

    A number and its unit stay together. The script `static/js/values/names.js` does the same.
    """
    text = UNITS.sub("\\1\u00a0", text)
    if not names:
        return text
    pattern = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    parts = re.split(rf"(?<![\w-])({pattern})(?![\w-])", text)
    return format_html_join(
        "", "{}", ((format_html("<mark>{}</mark>", part) if place % 2 else part,) for place, part in enumerate(parts))
    )


@register.filter
def ticks_of(run: TickRun, asked: str = "") -> str:
    """Return the address of the ledger that lists each tick of a run. asked: the query that selected them."""
    span = urlencode({"from": format_iso_time(run.since), "to": format_iso_time(run.end)})
    return f"{reverse('ledger')}?{asked}{'&' if asked else ''}{EVERY_TICK}&{span}"


@register.filter
def lateness(entry: LedgerEntry) -> float:
    """Return by how many seconds a tick was late; 0: on time."""
    return compute_entry_lateness(entry)


@register.filter
def scope(override: Override) -> str:
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
