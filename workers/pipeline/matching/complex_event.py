"""Complex events: matches as events in columns, with the schema of blocks.

There may be as many matches as events.
"""

import json
from collections.abc import Collection
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from queues.events.block import SCHEMA
from workers.pipeline.matching.retained import EVENT, Matches
from workers.pipeline.patterns.graph import Operator, compute_key_groups, list_named_types
from workers.pipeline.patterns.pattern import Pattern

ATTRIBUTES = ("pattern", "severity", "first_time", "conditions", "events")  # of every complex event, besides measures
# What match rows have in place of the attributes: columns, and an entry of the metadata of the schema.
_EVENTS, _COMPUTED, _HEAD = "events", "computed", b"head"
_IS_ESCAPED = np.zeros(256, bool)  # by byte: whether JSON text must escape this character
_IS_ESCAPED[[*range(0x20), *b'"\\']] = True


def build_complex_events(pattern: Pattern, matches: Matches, ids: str) -> pa.RecordBatch:
    """Return each match that is not suppressed as an event.

    It has the time and value of the last event of the match. Its source is the key, its key is the pattern, and its
    attributes contain its measures and the contributing events. ids: prefix of the event ids.
    """
    return complete_match_rows(build_match_rows(pattern, matches, ids))


def build_match_rows(pattern: Pattern, matches: Matches, ids: str) -> pa.RecordBatch:
    """Return complex events without their attributes, but with all that `complete_match_rows` needs to add them.

    The contributing events take fewer bytes in columns than as JSON.
    """
    events, ends = _select_unsuppressed(matches)
    events = drop_non_finite(events)
    last = events.take(pa.array(ends - 1))
    number = len(ends)
    contributing = pa.StructArray.from_arrays([events.column(name) for name in EVENT.names], fields=list(EVENT))
    offsets = pa.array(np.concatenate(([0], ends)), pa.int32())
    columns = {
        "id": pc.binary_join_element_wise(ids, pa.array(np.arange(number)).cast(pa.string()), ":"),
        "time": last.column("time").cast(SCHEMA.field("time").type),
        "type": pa.repeat(pattern.emits, number),
        "source": last.column("match_key"),
        "key": pa.repeat(pattern.name, number),
        "value": last.column("value"),
        _EVENTS: pa.ListArray.from_arrays(offsets, contributing),
    }
    if not isinstance(computed := _encode_computed(matches), str):
        columns[_COMPUTED] = computed
    rows = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    head = orjson.dumps({"pattern": pattern.name, "severity": pattern.severity})[:-1]
    return rows.replace_schema_metadata({_HEAD: head})


def complete_match_rows(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return complex events with their attributes. Rows of an earlier version have them already."""
    if "attributes" in rows.schema.names:
        return rows
    columns = {name: rows.column(name) for name in SCHEMA.names if name != "attributes"}
    columns["attributes"] = _encode_attributes(rows)
    return pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def convert_to_route_rows(
    emitted: pa.RecordBatch, operator: Operator, measures: Collection[str] = ()
) -> pa.RecordBatch:
    """Return the complex events that an operator reads, as rows of a route with the operator's key.

    measures: names of the measures of all complex events. The measures that the operator reads become columns.
    """
    names = ("id", "type", "source", "key", "value")
    read = set().union(*map(list_named_types, operator.patterns))
    kept = emitted.filter(pc.is_in(emitted.column("type"), pa.array(sorted(read))))
    kept = kept.filter(pc.is_valid(kept.column(operator.key)))
    keys = kept.column(operator.key)
    arrays = [kept.column("time").cast(pa.int64()), *(kept.column(name) for name in names), keys]
    groups, first = pa.array(compute_key_groups(keys), pa.int32()), pa.repeat(True, kept.num_rows)
    rows = pa.RecordBatch.from_arrays([*arrays, groups, first], names=["time", *names, "match_key", "group", "first"])
    read = set().union(*(pattern.columns for pattern in operator.patterns))
    wanted = sorted(read.intersection(measures))
    documents = [orjson.loads(text) for text in kept.column("attributes").to_pylist()] if wanted else []
    for name in wanted:
        rows = rows.append_column(name, _build_measure_column([document.get(name) for document in documents]))
    return rows


def _build_measure_column(values: list[Any]) -> pa.Array:
    """Return the values of a measure: numbers as doubles, as in every column of numbers, or texts, or Booleans."""
    known = [value for value in values if value is not None]
    if not known:
        return pa.nulls(len(values))
    kinds = {str: pa.string(), bool: pa.bool_()}
    kind = kinds.get(type(known[0]), pa.float64())
    is_number = kind == pa.float64()
    return pa.array([float(value) if is_number and value is not None else value for value in values], kind)


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


def _encode_attributes(rows: pa.RecordBatch) -> pa.Array:
    """Return the attributes of complex events as JSON.

    They are {"pattern", "severity", "first_time" (s), the measures, "conditions": explanations of the conditions
    between events, if there are any, "events": [{"time_us", "id", "type", "value", "source"}]}.
    """
    lists = rows.column(_EVENTS)
    offsets = np.asarray(lists.offsets)
    times, ids, types, values, sources = lists.flatten().flatten()
    parts = pc.binary_join_element_wise(
        '{"time_us":',
        times.cast(pa.string()),
        *_quote_ids(ids),
        _quote_repeated(',"type":', types, ',"value":'),
        pc.fill_null(values.cast(pa.string()), "null"),
        _quote_repeated(',"source":', sources, "}"),
        "",
    )
    events = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets - offsets[0]), parts), ",")
    first = pc.divide(times.take(pa.array(offsets[:-1] - offsets[0])).cast(pa.float64()), 1e6).cast(pa.string())
    computed = rows.column(_COMPUTED) if _COMPUTED in rows.schema.names else ","
    head = rows.schema.metadata[_HEAD].decode()
    return pc.binary_join_element_wise(f'{head},"first_time":', first, computed, '"events":[', events, "]}", "")


def _quote_ids(ids: pa.Array) -> tuple[pa.Array | str, ...]:
    """Return the parts that put the IDs of events into their JSON."""
    if ids.null_count or _has_escaped(ids):
        return ',"id":', _quote_texts(ids)
    return ',"id":"', ids, '"'


def _has_escaped(texts: pa.Array) -> bool:
    """Return whether a text has a character that JSON escapes. It reads the bytes of all texts at once."""
    _, offsets, data = texts.buffers()
    if data is None:
        return False
    bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    values = np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]
    return bool(_IS_ESCAPED[values].any())


def _quote_texts(texts: pa.Array) -> pa.Array:
    """Return each text as JSON; null as null."""
    if _has_escaped(texts):
        return pa.array([orjson.dumps(text).decode() for text in texts.to_pylist()])
    return pc.fill_null(pc.binary_join_element_wise('"', texts, '"', ""), "null")


def _quote_repeated(before: str, texts: pa.Array, after: str) -> pa.Array:
    """Quote texts with few distinct values, and put them between constant parts."""
    encoded = texts.dictionary_encode()
    named = pc.binary_join_element_wise(before, _quote_texts(encoded.dictionary), after, "")
    return pc.fill_null(named.take(encoded.indices), f"{before}null{after}")
