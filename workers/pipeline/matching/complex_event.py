"""Complex events: matches as events in columns, with the schema of blocks.

There may be as many matches as events.
"""

import json

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from queues.events.block import SCHEMA
from workers.pipeline.matching.retained import Matches
from workers.pipeline.patterns.pattern import Pattern

ATTRIBUTES = ("pattern", "severity", "first_time", "conditions", "events")  # of every complex event, besides measures
_ESCAPED = r'["\\\x00-\x1f]'  # characters that JSON text must escape


def build_complex_events(pattern: Pattern, matches: Matches, ids: str) -> pa.RecordBatch:
    """Return each match that is not suppressed as an event.

    It has the time and value of the last event of the match. Its source is the key, its key is the pattern, and its
    attributes contain its measures and the contributing events. ids: prefix of the event ids.
    """
    events, ends = _select_unsuppressed(matches)
    events = drop_non_finite(events)
    last = events.take(pa.array(ends - 1))
    number = len(ends)
    columns = {
        "id": pc.binary_join_element_wise(ids, pa.array(np.arange(number)).cast(pa.string()), ":"),
        "time": last.column("time").cast(SCHEMA.field("time").type),
        "type": pa.repeat(pattern.emits, number),
        "source": last.column("match_key"),
        "key": pa.repeat(pattern.name, number),
        "value": last.column("value"),
        "attributes": _encode_attributes(pattern, events, ends, _encode_computed(matches)),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def drop_non_finite(events: pa.RecordBatch) -> pa.RecordBatch:
    """Replace infinite values and NaN, which a rule may compute, by null: JSON can't represent them."""
    at = events.schema.get_field_index("value")
    if at < 0 or not pa.types.is_floating(events.schema.field(at).type):
        return events
    values = events.column(at)
    is_finite = pc.is_finite(values)
    if pc.all(is_finite).as_py() is not False:
        return events
    known = pc.if_else(is_finite, values, pa.scalar(None, values.type))
    return events.set_column(at, events.schema.field(at), known)


def _select_unsuppressed(matches: Matches) -> tuple[pa.RecordBatch, np.ndarray]:
    """Return the events of the matches that are not suppressed, and where each match's events end."""
    if not matches.suppressed.any():
        return matches.events, matches.ends
    lengths = matches.ends - matches.starts
    kept = np.repeat(~matches.suppressed, lengths)
    return matches.events.filter(pa.array(kept)), np.cumsum(lengths[~matches.suppressed])


def _encode_computed(matches: Matches) -> pa.Array | str:
    """Return the measures and explanations of each match that is not suppressed, as a part of its JSON."""
    number = len(matches)
    measures = matches.measures or ({},) * number
    explanations: tuple[list[str], ...] = matches.explanations or ([],) * number
    if not any(explanations) and not matches.measures:
        return ","
    parts = zip(measures, explanations, matches.suppressed.tolist(), strict=True)
    documents = [
        {**own, **({"conditions": texts} if texts else {})} for own, texts, suppressed in parts if not suppressed
    ]
    return pa.array(
        [f",{json.dumps(own, ensure_ascii=False)[1:-1]}," if own else "," for own in documents], pa.string()
    )


def _encode_attributes(
    pattern: Pattern, events: pa.RecordBatch, ends: np.ndarray, computed: pa.Array | str
) -> pa.Array:
    """Return the attributes of complex events as JSON.

    They are {"pattern", "severity", "first_time" (s), the measures, "conditions": explanations of the conditions
    between events, if there are any, "events": [{"time_us", "id", "type", "value", "source"}]}.
    """
    times = events.column("time")
    parts = pc.binary_join_element_wise(
        '{"time_us":',
        times.cast(pa.string()),
        ',"id":',
        _quote_texts(events.column("id")),
        _quote_repeated(',"type":', events.column("type"), ',"value":'),
        pc.fill_null(events.column("value").cast(pa.string()), "null"),
        _quote_repeated(',"source":', events.column("source"), "}"),
        "",
    )
    starts = np.concatenate(([0], ends[:-1])) if len(ends) else ends
    offsets = pa.array(np.concatenate(([0], ends)), pa.int32())
    told = pc.binary_join(pa.ListArray.from_arrays(offsets, parts), ",")
    first = pc.divide(times.take(pa.array(starts)).cast(pa.float64()), 1e6).cast(pa.string())
    head = orjson.dumps({"pattern": pattern.name, "severity": pattern.severity}).decode()[:-1]
    return pc.binary_join_element_wise(f'{head},"first_time":', first, computed, '"events":[', told, "]}", "")


def _quote_texts(texts: pa.Array) -> pa.Array:
    """Return each text as JSON; null as null."""
    if pc.any(pc.match_substring_regex(texts, _ESCAPED)).as_py():
        return pa.array([orjson.dumps(text).decode() for text in texts.to_pylist()])
    return pc.fill_null(pc.binary_join_element_wise('"', texts, '"', ""), "null")


def _quote_repeated(before: str, texts: pa.Array, after: str) -> pa.Array:
    """Quote texts with few distinct values, and put them between constant parts."""
    encoded = texts.dictionary_encode()
    named = pc.binary_join_element_wise(before, _quote_texts(encoded.dictionary), after, "")
    return pc.fill_null(named.take(encoded.indices), f"{before}null{after}")
