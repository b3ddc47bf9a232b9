"""A trial of a declared pattern with a few events: what matches, and why the other events don't.

The trial processes the events as the pipeline does: attributes become columns, the rules apply, earlier patterns emit
complex events, and the matcher searches. A trial reads and changes nothing else. It sheds no events, no event is late,
and criteria have their declared values.
"""

import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from common import checks
from common.documents import read_json
from common.errors import BadInput
from queues.events.block import SCHEMA
from queues.events.columns import Columns, Mapper, convert_rows_to_batch
from queues.events.lines import EventLines
from workers.pipeline.declaration.declaration import Application
from workers.pipeline.events.layout import CARRIED, TIMESTAMP, extract, unify_types
from workers.pipeline.matching.complex_event import build_complex_events, convert_to_route_rows, drop_non_finite
from workers.pipeline.matching.match_reasons import ExplainedEvent, create_explainer
from workers.pipeline.matching.match_trace import SearchedEvents
from workers.pipeline.matching.matcher import Matcher, build_condition_columns, build_previous_columns, compute_masks
from workers.pipeline.matching.retained import Matches, concatenate, order_rows
from workers.pipeline.matching.search_limit import NO_LIMIT, SearchLimit
from workers.pipeline.patterns.graph import Operator, compute_key_groups
from workers.pipeline.patterns.pattern import Pattern
from workers.pipeline.rules.arrow_rules import ArrowRules
from workers.pipeline.rules.arrow_values import EventColumns, NotInArrowError

_PLACE = "place in the trial"  # column with the place of an event; no rule can name it


@dataclass(frozen=True)
class TriedEvent(ExplainedEvent):
    """An event of a trial, in event-time order. time: seconds since 1970."""

    time: float
    type: str | None
    key: str | None


@dataclass(frozen=True)
class TriedMatch:
    """A match of a trial. conditions: its conditions between events, with values. suppressed: it isn't emitted."""

    events: tuple[str, ...]
    measures: dict[str, Any]
    conditions: tuple[str, ...]
    suppressed: bool


@dataclass(frozen=True)
class PatternTrial:
    """The result of a trial. notes: differences from the pipeline, as sentences."""

    pattern: str
    matches: tuple[TriedMatch, ...]
    events: tuple[TriedEvent, ...]
    notes: tuple[str, ...] = ()


def try_pattern(
    application: Application, name: str, events: pa.RecordBatch, limit: SearchLimit = NO_LIMIT
) -> PatternTrial:
    """Search events for a pattern of an application. Raises `BadInput` that names the field.

    events: with the schema of blocks. limit: of all searches together.
    """
    operator = next(
        (each for each in application.graph.operators if name in {pattern.name for pattern in each.patterns}), None
    )
    if operator is None:
        known = ", ".join(pattern.name for pattern in application.patterns)
        raise BadInput("pattern", f"{name[:40]!r} is not a pattern of {application.name}; choose one of {known}")
    return _Trial(application, _name_events(events), limit).run(operator, name)


def convert_events(events: object, now_us: int) -> pa.RecordBatch:
    """Convert a list of JSON objects to events, as publishing does: unknown fields become attributes.

    now_us: time of an event without a time. Raises `BadInput` that names the event and its field.
    """
    if not isinstance(events, list):
        raise BadInput("events", 'must be a list of events, such as {"id": "e1", "time": 0, "type": "payment"}')
    mapper, rows = Mapper(Columns()), []
    for place, event in enumerate(events):
        if not isinstance(event, dict):
            raise BadInput(f"events[{place}]", f"must be an object, not {checks.shorten_for_message(event)}")
        try:
            rows.append(mapper.convert_row(event, now_us))
        except BadInput as error:
            raise BadInput(f"events[{place}].{error.field}", error.message) from None
    return convert_rows_to_batch(rows)


def read_events(text: str, now_us: int) -> pa.RecordBatch:
    """Read events as JSON lines, as CSV, or as a JSON list.

    now_us: time of an event without a time. Raises `BadInput` that names the line, or the event and its field.
    """
    if text.lstrip()[:1] == "[":
        return convert_events(read_json(text, "events"), now_us)
    batches = list(EventLines(io.BytesIO(text.encode()), strict=True, clock=lambda: now_us / 1e6))
    return pa.concat_batches(batches) if batches else convert_rows_to_batch([])


def _name_events(events: pa.RecordBatch) -> pa.RecordBatch:
    """Return the events with IDs. The ID of an event without one contains its place, such as `event-1`."""
    places = pa.array([f"event-{place}" for place in range(1, events.num_rows + 1)], pa.string())
    return events.set_column(0, SCHEMA.field(0), pc.coalesce(events.column("id"), places))


class _Trial:
    """One trial: its events, and the reasons why some of them don't reach the pattern."""

    def __init__(self, application: Application, events: pa.RecordBatch, limit: SearchLimit) -> None:
        self._application, self._graph, self._limit = application, application.graph, limit
        self._events = events
        self._excluded: dict[int, str] = {}  # place → reason
        self._notes: list[str] = []
        self._rows = self._apply_rules(self._read_columns())
        self._emitted: dict[str, list[pa.RecordBatch]] = {}

    def run(self, operator: Operator, name: str) -> PatternTrial:
        pattern = next(pattern for pattern in operator.patterns if pattern.name == name)
        rows = self._select_rows(operator)
        self._explain_left_out(operator, rows)
        matches, explained = self._search(pattern, rows)
        bounds = zip(matches.starts.tolist(), matches.ends.tolist(), strict=True)
        ids = matches.events.column("id").to_pylist()
        tried = [
            TriedMatch(
                tuple(ids[start:end]),
                matches.measures[place] if matches.measures else {},
                tuple(matches.explanations[place]) if matches.explanations else (),
                bool(matches.suppressed[place]),
            )
            for place, (start, end) in enumerate(bounds)
        ]
        return PatternTrial(name, tuple(tried), self._list_events(rows, explained), tuple(self._notes))

    def _read_columns(self) -> pa.RecordBatch:
        """Return the events in the layout of the application, without those with faulty attributes."""
        own = {name: self._events.column(name) for name in SCHEMA.names}
        count, layout = self._events.num_rows, self._application.layout
        values, faults = extract(own["attributes"], layout.attributes) if layout.attributes else ([], None)
        origins = {"queue": pa.repeat(self._application.queues[0], count), "published": own["time"].cast(TIMESTAMP)}
        columns = [own.get(name, origins.get(name, pa.nulls(count, pa.string()))) for name in layout.columns]
        rows = layout.add_criteria(
            pa.RecordBatch.from_arrays([*columns, *values], schema=layout.schema), self._application.controls.criteria
        )
        rows = rows.append_column(_PLACE, pa.array(np.arange(count)))
        if faults is None:
            return rows
        for place, fault in enumerate(faults.to_pylist()):
            if fault is not None:
                self._excluded[place] = f"It becomes a dead letter: {fault}."
        return rows.filter(pc.is_null(faults))

    def _apply_rules(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the events that pass the rules. If Arrow can't evaluate a rule, all events pass."""
        names = (*sorted({"time", *CARRIED, *self._graph.columns}), _PLACE)
        try:
            rules = ArrowRules(self._application.rules, self._application.layout, names)
        except NotInArrowError as reason:
            self._notes.append(f"The rules weren't applied, because {reason}, which only Spark evaluates.")
            return self._add_missing(rows, names)
        before = EventColumns({name: rows.column(name) for name in rows.schema.names}, rows.num_rows)
        for rule, after in rules.iterate_steps(before):
            gone = set(before.columns[_PLACE].to_pylist()) - set(after.columns[_PLACE].to_pylist())
            self._excluded |= dict.fromkeys(gone, f'Rule "{rule}" drops it.')
            before = after
        return pa.RecordBatch.from_arrays([before.columns[name] for name in names], names=list(names))

    def _add_missing(self, rows: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
        """Return the rows with these columns. Columns that rules would compute have no values."""
        own = set(rows.schema.names)
        missing = [name for name in names if name not in own]
        if missing:
            self._notes.append(f"These columns have no values: {', '.join(missing)}.")
        columns = [rows.column(name) if name in own else pa.nulls(rows.num_rows) for name in names]
        return pa.RecordBatch.from_arrays(columns, names=list(names))

    def _select_rows(self, operator: Operator) -> pa.RecordBatch:
        """Return the rows that an operator searches, with the complex events that it reads, in event-time order."""
        rows = drop_non_finite(self._rows)
        rows = rows.set_column(rows.schema.get_field_index("time"), "time", rows.column("time").cast(pa.int64()))
        keys = rows.column(operator.key).cast(pa.string())
        rows = rows.append_column("match_key", keys).filter(pc.is_valid(keys))
        groups = compute_key_groups(rows.column("match_key"))
        rows = rows.append_column("group", pa.array(groups, pa.int32()))
        sources = dict.fromkeys(edge.source for edge in self._graph.edges if edge.target == operator.name)
        batches = [rows]
        for source in sources:
            emitted = self._emit(self._graph.get_operator(source))
            batches += [convert_to_route_rows(batch, operator, self._graph.inner_measures) for batch in emitted]
        tables = [pa.Table.from_batches([batch]) for batch in batches if batch.num_rows] or [
            pa.Table.from_batches([rows])
        ]
        table = pa.concat_tables(unify_types(tables), promote_options="default")
        needed = set().union(*(pattern.columns for pattern in operator.patterns))
        for name in sorted(needed - set(table.column_names)):
            table = table.append_column(name, pa.nulls(table.num_rows))
        ordered = order_rows(table).combine_chunks()
        return ordered.to_batches()[0] if ordered.num_rows else rows.slice(0, 0)

    def _emit(self, operator: Operator) -> list[pa.RecordBatch]:
        """Return the complex events of an operator."""
        if operator.name not in self._emitted:
            rows = self._select_rows(operator)
            found = [(pattern, self._search(pattern, rows)[0]) for pattern in operator.patterns]
            self._emitted[operator.name] = [
                build_complex_events(pattern, matches, pattern.name)
                for pattern, matches in found
                if len(matches) > matches.suppressed.sum()
            ]
        return self._emitted[operator.name]

    def _search(self, pattern: Pattern, rows: pa.RecordBatch) -> tuple[Matches, list[ExplainedEvent]]:
        """Return the matches, and an explanation of each row."""
        own = {name: rows.column(name) for name in rows.schema.names}
        columns = build_condition_columns(pattern, rows, build_previous_columns(pattern, own, rows))
        masks = compute_masks(pattern, pa.RecordBatch.from_pydict(own), columns, in_seconds=True)
        named = _set_unique_ids(rows)
        seconds = [time_us / 1e6 for time_us in rows.column("time").to_pylist()]
        searched = SearchedEvents.build(named, masks, columns, seconds, pattern.within_us / 1e6)
        explainer = create_explainer(pattern, searched, self._limit)
        matcher = Matcher(pattern, refuses_excess=True, limit=self._limit)
        matches = concatenate([matcher.take(named, masks, columns), matcher.finish()])
        return matches, explainer.explain(matches.get_event_ids())

    def _explain_left_out(self, operator: Operator, rows: pa.RecordBatch) -> None:
        """Add the reasons of events that pass the rules but that the operator doesn't search."""
        passed = set(self._rows.column(_PLACE).to_pylist())
        searched = set(rows.column(_PLACE).to_pylist())
        keys = dict(
            zip(self._rows.column(_PLACE).to_pylist(), self._rows.column(operator.key).to_pylist(), strict=True)
        )
        for place in passed - searched:
            is_keyless = keys[place] is None
            reason = f"It has no {operator.key}, which is the key of the pattern."
            copy = "It is a duplicate: the pipeline counts events with the same ID and time once."
            self._excluded[place] = reason if is_keyless else copy

    def _list_events(self, rows: pa.RecordBatch, explained: list[ExplainedEvent]) -> tuple[TriedEvent, ...]:
        """Return the searched events and the excluded events, in event-time order."""
        columns = [rows.column(name).to_pylist() for name in ("time", "type", "match_key")]
        tried = [
            TriedEvent(event.id, event.match, event.symbol, event.reasons, time_us / 1e6, type, key)
            for event, time_us, type, key in zip(explained, *columns, strict=True)
        ]
        for place, reason in self._excluded.items():
            id, time, type = (self._events.column(name)[place].as_py() for name in ("id", "time", "type"))
            tried.append(TriedEvent(id, None, None, (reason,), time.timestamp(), type, None))
        return tuple(sorted(tried, key=lambda event: event.time))


def _set_unique_ids(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with unique IDs. A repeated ID gets a number."""
    ids = rows.column("id").to_pylist()
    seen: Counter[str] = Counter()
    names = []
    for id in ids:
        seen[id] += 1
        names.append(id if seen[id] == 1 else f"{id} ({seen[id]})")
    return rows.set_column(rows.schema.get_field_index("id"), "id", pa.array(names, pa.string()))
