"""`manage.py match`: finds the matches of a pattern in a closed set of events (CONTRACT)."""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Context, Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa

from common import checks
from common.errors import BadInput
from workers.pipeline.matching.matcher import Matcher, compute_masks, compute_previous_places
from workers.pipeline.matching.retained import KEYED, KeyedRows, Matches, build_empty, concatenate
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
from workers.pipeline.patterns.predicate import BoundExpression, Predicate, format_previous_name

KEYS = ("pattern", "define", "measures", "contiguity", "consume", "within_seconds", "key", "events")
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
    """
    checks.refuse_unknown(document, KEYS, "", message="is unknown; known names: {known}")
    within = document.get("within_seconds")
    within_seconds = MAX_SECONDS if within is None else WITHIN.validate(within, "within_seconds")
    pattern = _parse_pattern(document)
    events = _parse_events(document.get("events"))
    if not events:
        return _format_answer(
            document, build_empty()
        )  # without events, the columns have no type to check a condition against
    times, within_ticks = _convert_to_ticks([event["time"] for event in events], within_seconds)
    pattern = replace(pattern, within_us=within_ticks)
    rows = _build_rows(pattern, events, times)
    attributes = _build_attribute_columns(pattern, events)
    before = _build_previous_values(pattern, attributes, rows)
    masks = compute_masks(pattern, pa.RecordBatch.from_pydict(attributes), before, in_seconds=True)
    matcher = Matcher(pattern, refuses_excess=True)
    return _format_answer(
        document, concatenate([matcher.take(rows, masks, {**attributes, **before}), matcher.finish()])
    )


def _format_answer(document: Mapping[str, Any], matches: Matches) -> dict[str, Any]:
    answer: dict[str, Any] = {"matches": matches.get_event_ids()}
    if document.get("measures") is not None:
        answer["measures"] = list(matches.measures) or [{} for _ in answer["matches"]]
    return answer


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


def _build_previous_values(
    pattern: Pattern, attributes: dict[str, pa.Array], rows: pa.RecordBatch
) -> dict[str, pa.Array]:
    """Return what the predicates read of the previous event."""
    if not pattern.reads_previous:
        return {}
    places = compute_previous_places(KeyedRows.build(rows.column("match_key"), rows.column("time").to_numpy()))
    taken = pa.array(places, mask=places < 0)
    return {format_previous_name(name): attributes[name].take(taken) for name in sorted(pattern.previous)}


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
