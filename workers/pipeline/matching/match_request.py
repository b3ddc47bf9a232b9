"""`manage.py match`: finds the matches of a pattern in a closed set of events (CONTRACT)."""

import json
import math
import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from decimal import Context, Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa

from common import checks
from common.errors import BadInput
from workers.pipeline.matching.match_reasons import ExplainedEvent, create_explainer
from workers.pipeline.matching.match_trace import SearchedEvents
from workers.pipeline.matching.matcher import Matcher, build_previous_columns, compute_masks
from workers.pipeline.matching.retained import KEYED, Matches, build_empty, concatenate
from workers.pipeline.patterns import exact_numbers
from workers.pipeline.patterns.pattern import (
    CONSUMPTIONS,
    CONTIGUITIES,
    Pattern,
    check_states,
    parse_definitions,
    parse_expression,
    parse_measures,
    validate_choice,
)
from workers.pipeline.patterns.predicate import BoundExpression, Predicate

KEYS = (
    "pattern",
    "define",
    "measures",
    "contiguity",
    "consume",
    "within_seconds",
    "key",
    "events",
    "explain",
    "expected",
)
NUMBER = pa.float64()  # kept as written: `exact_numbers`
MAX_SECONDS = 1e12  # the microseconds still fit into 64 bits, even as the sum of two
MAX_TICKS = 4 * 10**18  # likewise
EXACT = Context(prec=400)  # values between the smallest double and MAX_SECONDS

TEXT = checks.accept_text()
TIME = checks.Check(
    f"a number of seconds, at most {MAX_SECONDS:.0e}", checks.accept_number(-MAX_SECONDS, MAX_SECONDS).read
)
WITHIN = checks.Check("a number of seconds, 0 or more", checks.accept_number(0, sys.float_info.max).read)


def answer(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return {"matches": [[id, …], …]}, in the order of completion. Raises `BadInput` that names the field.

    For a request with `measures`, the result also contains {"measures": [{name: value}, …]}, one object per match.
    Events are sorted by time; events with equal times stay in the given order. The defaults are `contiguity` relaxed,
    `consume` once, and no key and no window.

    For a request with `explain`, the result also contains {"events": […]}, the explanation of each event. For a request
    with `expected` matches, it contains the `missing` and the `unexpected` matches, and the reasons of the events of
    missing matches.
    """
    checks.refuse_unknown(document, KEYS, "", message="is unknown; known names: {known}")
    within = document.get("within_seconds")
    within_seconds = MAX_SECONDS if within is None else WITHIN.validate(within, "within_seconds")
    pattern = _parse_pattern(document)
    events = _parse_events(document.get("events"))
    expected = parse_expected(document.get("expected"), [event["id"] for event in events])
    explains = checks.FLAG.validate(document.get("explain", False), "explain")
    if not events:  # the columns have no type to check a condition against
        return _build_answer(document, build_empty(), expected, [] if explains or expected is not None else None)
    times, within_ticks = _convert_to_ticks([event["time"] for event in events], within_seconds)
    pattern = replace(pattern, within_us=within_ticks)
    rows = _build_rows(pattern, events, times)
    attributes = _build_attribute_columns(pattern, events)
    columns = {**attributes, **build_previous_columns(pattern, attributes, rows)}
    masks = compute_masks(pattern, pa.RecordBatch.from_pydict(attributes), columns, in_seconds=True)
    matcher = Matcher(pattern, refuses_excess=True)
    matches = concatenate([matcher.take(rows, masks, columns), matcher.finish()])
    explained = None
    if explains or (expected is not None and expected != matches.get_event_ids()):
        searched = SearchedEvents.build(rows, masks, columns, [event["time"] for event in events], within)
        explained = create_explainer(pattern, searched).explain(matches.get_event_ids())
    return _build_answer(document, matches, expected, explained)


def _build_answer(
    document: Mapping[str, Any],
    matches: Matches,
    expected: list[list[str]] | None,
    explained: list[ExplainedEvent] | None,
) -> dict[str, Any]:
    answer: dict[str, Any] = {"matches": matches.get_event_ids()}
    if document.get("measures") is not None:
        answer["measures"] = list(matches.measures) or [{} for _ in answer["matches"]]
    if document.get("explain") and explained is not None:
        answer["events"] = [asdict(event) for event in explained]
    if expected is not None:
        answer |= compare_matches(expected, answer["matches"], explained or [])
    return answer


def compare_matches(
    expected: list[list[str]], found: list[list[str]], explained: Sequence[ExplainedEvent]
) -> dict[str, Any]:
    """Return the `missing` and `unexpected` matches, and why the events of missing matches are in no match.

    The comparison ignores the order, because matches of different keys can complete at the same time.
    """
    wanted, there = Counter(map(tuple, expected)), Counter(map(tuple, found))
    missing = [list(ids) for ids in (wanted - there).elements()]
    reasons = {event.id: list(event.reasons) for event in explained if event.reasons}
    named = [id for ids in missing for id in ids if id in reasons]
    return {
        "missing": missing,
        "unexpected": [list(ids) for ids in (there - wanted).elements()],
        "reasons": {id: reasons[id] for id in named},
    }


def parse_expected(given: object, known: Collection[str]) -> list[list[str]] | None:
    """Return the expected matches; None if the request has none. Raises `BadInput` that names the match.

    known: the IDs of the events.
    """
    if given is None:
        return None
    if not isinstance(given, list):
        raise BadInput("expected", 'must be a list of matches, such as [["e1", "e4"]]')
    there = frozenset(known)
    for place, ids in enumerate(given):
        if not isinstance(ids, list) or not ids or not all(isinstance(id, str) for id in ids):
            raise BadInput(f"expected[{place}]", 'must be a list of IDs of events, such as ["e1", "e4"]')
        for id in ids:
            if id not in there:
                raise BadInput(f"expected[{place}]", f"{id[:40]!r} is not the ID of an event")
    return given


def _parse_pattern(document: Mapping[str, Any]) -> Pattern:
    expression = parse_expression(document.get("pattern"), "pattern")
    key = document.get("key")
    if key is not None and (not isinstance(key, str) or not key):
        raise BadInput("key", f"must be the name of an attribute, or null, not {key!r}")
    pattern = Pattern(
        "match",
        expression,
        parse_definitions(expression, _get_object(document, "define"), "define"),
        key,
        0,  # set once the events are known: `_ticks`
        contiguity=validate_choice(document.get("contiguity", CONTIGUITIES[0]), CONTIGUITIES, "contiguity"),
        consume=validate_choice(document.get("consume", CONSUMPTIONS[0]), CONSUMPTIONS, "consume"),
        measures=parse_measures(expression, _get_object(document, "measures"), "measures"),
    )
    check_states(pattern, "pattern")
    return pattern


def _get_object(document: Mapping[str, Any], name: str) -> object:
    """Return a field of the document; an empty object if it was omitted or null."""
    given = document.get(name)
    return {} if given is None else given


def _parse_events(events: object) -> list[dict[str, Any]]:
    """Return the events sorted by time. Raises `BadInput` that names the event and its attribute."""
    if not isinstance(events, list):
        raise BadInput("events", 'must be a list of events, such as {"id": "e1", "time": 0.0, "type": "A"}')
    seen: dict[str, int] = {}
    for place, event in enumerate(events):
        where = f"events[{place}]"
        if not isinstance(event, dict):
            raise BadInput(
                where, f"must be an object with `id`, `time`, and `type`, not {checks.shorten_for_message(event)}"
            )
        _check_event(event, where)
        first = seen.setdefault(event["id"], place)
        if first != place:
            raise BadInput(f"{where}.id", f"{event['id']!r} is also the ID of events[{first}]; IDs must be unique")
    return sorted(events, key=lambda event: event["time"])


def _check_event(event: dict[str, Any], where: str) -> None:
    TEXT.validate(event.get("id"), f"{where}.id")
    TIME.validate(event.get("time"), f"{where}.time")
    TEXT.validate(event.get("type", ""), f"{where}.type")


def _build_rows(pattern: Pattern, events: list[dict[str, Any]], times: list[int]) -> pa.RecordBatch:
    """Return the events as the matcher takes them: time, id, and key."""
    columns = {
        "time": pa.array(np.array(times, np.int64)),
        "id": pa.array([event["id"] for event in events], pa.string()),
        "match_key": pa.array([_format_key(pattern.key, event) for event in events], pa.string()),
        "group": pa.array(np.zeros(len(events), np.int32)),
    }
    arrays = [columns.get(field.name, pa.nulls(len(events), field.type)) for field in KEYED]
    return pa.RecordBatch.from_arrays(arrays, schema=KEYED)


def _convert_to_ticks(times: Sequence[int | float], within_seconds: int | float) -> tuple[list[int], int]:
    """Return the times since the first of them, and the window, as whole numbers of a unit.

    The unit, 10⁻ⁿ s, represents them as written. If 64 bits can't hold them in such a unit, it is the finest unit that
    fits.
    """
    with localcontext(EXACT):
        written = [Decimal(repr(seconds)) for seconds in times]
        first, last = written[0], written[-1]
        window = min(Decimal(repr(within_seconds)), last - first)  # a longer one closes nothing either
        digits = max(-int(value.as_tuple().exponent) for value in (*written, window))
        while (last - first).scaleb(digits) > MAX_TICKS:
            digits -= 1
        return [round((value - first).scaleb(digits)) for value in written], round(window.scaleb(digits))


def _build_attribute_columns(pattern: Pattern, events: list[dict[str, Any]]) -> dict[str, pa.Array]:
    """Return what the predicates read, one column each; `time` in seconds, as written."""
    columns: dict[str, pa.Array] = {"time": exact_numbers.build_column([event["time"] for event in events])}
    read: dict[str, Predicate | BoundExpression] = {
        f"define.{symbol}": pattern.defines[symbol] for symbol in pattern.symbols
    }
    read |= {f"measures.{name}": measure for name, measure in pattern.measures.items()}
    for field, expression in read.items():
        for name in sorted(expression.all_columns | expression.all_previous):
            if name not in columns:
                columns[name] = _build_column(name, events, field)
    return columns


def _format_key(key: str | None, event: dict[str, Any]) -> str:
    if key is None:
        return ""
    value = event.get(key)
    if value is None or isinstance(value, (list, dict)):
        raise BadInput(
            "key", f"event {event['id']!r} must have a number, string, or Boolean as its key {key!r}, not {value!r}"
        )
    # 5 and 5.0 are one key; two whole numbers that are equal as doubles are two keys.
    whole = isinstance(value, float) and math.isfinite(value) and value.is_integer()
    return json.dumps(int(value) if whole else value)


def _build_column(name: str, events: list[dict[str, Any]], field: str) -> pa.Array:
    values = [event.get(name) for event in events]
    given = [(event["id"], value) for event, value in zip(events, values, strict=True) if value is not None]
    if not given:
        if name == "type":
            return pa.nulls(len(events), pa.string())
        if not any(name in event for event in events):
            raise BadInput(field, f"reads {name!r}, which no event has")
        return pa.nulls(len(events))
    kind = _find_data_type(given[0][1])
    for id_, value in given:
        if _find_data_type(value) != kind or kind is None:
            raise BadInput(
                "events",
                f"{name} of event {id_!r} is {value!r}; {field.partition('.')[2]} reads either numbers or strings, "
                "not both",
            )
    return exact_numbers.build_column(values) if kind == NUMBER else pa.array(values, kind)


def _find_data_type(value: object) -> pa.DataType | None:
    match value:
        case bool():
            return pa.bool_()
        case int() | float():
            return NUMBER
        case str():
            return pa.string()
    return None
