"""The work of one task for an inter-event batch.

It processes some key groups of an operator, from the due rows to the matches, which are written together with the new
state. An event that was stored twice (a block sent again after an unknown outcome) counts once: both copies have the
same time, so they are due in the same batch, which keeps one of equal (time, id). A copy that arrives after the
watermark has passed it is late.
"""

import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import redis

from workers.pipeline.dispatch.result_queue import ResultQueue
from workers.pipeline.events.containers import control_of
from workers.pipeline.events.layout import unify_types
from workers.pipeline.matching.complex_event import build_match_rows, complete_match_rows, convert_to_route_rows
from workers.pipeline.matching.matcher import LabeledRows
from workers.pipeline.matching.retained import Matches, concatenate, order_rows
from workers.pipeline.matching.surplus import SAMPLED_ROWS, SurplusSample, Survivors
from workers.pipeline.patterns import shedding
from workers.pipeline.patterns.graph import KEY_GROUPS, Graph, Operator, list_named_types
from workers.pipeline.patterns.pattern import Pattern
from workers.pipeline.tiers import state
from workers.pipeline.tiers.combining import CombinedOffset
from workers.pipeline.tiers.finished_batch import OperatorCount, PatternCount, add_counts, add_types
from workers.pipeline.tiers.matcher_cache import MATCHER_CACHE
from workers.pipeline.tiers.result_writer import SLICE_GROUPS, WHOLE, get_match_keys

MAX_LATE = 100  # maximum number of late events of a unit that are kept for display


@dataclass(frozen=True)
class Unit:
    """An operator and the key groups of it that one task processes. task: number of the task, from 1."""

    operator: str
    groups: tuple[int, ...]
    task: int = 1


@dataclass(frozen=True)
class Work:
    """One inter-event batch; it travels to the tasks.

    level: of the operators to run now. sinks: type → the queues that its complex events are published to.
    """

    control_url: str
    application: str
    run: str  # of the checkpoint: keeps ids unique across resets
    batch: int
    combined: CombinedOffset
    graph: Graph
    sinks: dict[str, tuple[str, ...]]
    level: int = 0

    def __call__(self, units: Iterable[Unit]) -> list[OperatorCount]:
        """Run the units of a Spark task."""
        control = control_of(self.control_url)
        return [self.process_unit(control, unit) for unit in units]

    def process_unit(self, control: redis.Redis, unit: Unit) -> OperatorCount:
        """Process a unit, unless an earlier attempt has written it."""
        started = time.perf_counter()
        operator = self.graph.get_operator(unit.operator)
        store = state.StateStore(control, self.application)
        count = OperatorCount(operator.name, unit.task)
        # Rows go to every operator of their route, and the first of them reports the late ones.
        reports_late = operator is next(other for other in self.graph.operators if other.key == operator.key)
        due, late = self._split_due_rows(self._read_rows(control, store, operator, unit.groups), reports_late)
        count.events, count.late = due.num_rows, late.num_rows
        if due.num_rows:
            count.early_us = due.column("time")[due.num_rows // 20].as_py()
        groups = {group for rows in (due, late) if rows.num_rows for group in rows.column("group").unique().to_pylist()}
        if (now_us := self.combined.now_us) is not None:
            timers = store.list_due_groups(now_us).get(unit.operator, ())
            groups |= set(timers) & set(unit.groups)
        places = sorted(f"{operator.name}/{group}" for group in groups)
        before = store.load(places, self.batch)
        if places and before is not None:
            limit_bytes = state.place_limit(len(self.graph.operators), KEY_GROUPS)
            memory = state.OperatorMemory.build(before, limit_bytes, groups)
            store.write(self.batch, self._work(operator, unit, places, memory, due, late, count))
        count.seconds = time.perf_counter() - started
        return count

    def _read_rows(
        self, control: redis.Redis, store: state.StateStore, operator: Operator, groups: tuple[int, ...]
    ) -> pa.Table:
        """Return the unit's rows of every blob that may contain some, and of earlier operators' output."""
        results = ResultQueue(control, self.application)
        slices = {WHOLE, *(group // SLICE_GROUPS for group in groups)}
        batches = []
        for result in self.combined.read:
            names = [
                blob.name
                for blob in result.blobs
                if blob.route == operator.key and blob.slice in slices and self.combined.wants(blob.first_us)
            ]
            fresh = result in self.combined.fresh
            batches += [_mark_rows(batch, operator.key, groups, fresh) for batch in results.read(result, names)]
        if self.level:
            measures = self.graph.inner_measures
            emitted = [convert_to_route_rows(rows, operator, measures) for rows in store.read_between(self.batch)]
            batches += [_mark_rows(rows, operator.key, groups, True) for rows in emitted if rows.num_rows]
        tables = [pa.Table.from_batches([batch]) for batch in batches if batch.num_rows]
        if not tables:
            return pa.table({"time": pa.array([], pa.int64())})
        rows = pa.concat_tables(unify_types(tables), promote_options="default")
        # Rows of another version and complex events may lack columns that the patterns read.
        needed = set().union(*(pattern.columns for pattern in operator.patterns))
        for name in sorted(needed - set(rows.column_names)):
            rows = rows.append_column(name, pa.nulls(rows.num_rows))
        return rows

    def _split_due_rows(self, rows: pa.Table, notes_late: bool) -> tuple[pa.Table, pa.Table]:
        """Return the rows that the watermark passes in this batch, in event-time order, and the late rows."""
        if not rows.num_rows:
            return rows, rows
        times_us = rows.column("time").to_numpy()
        passed = times_us <= (self.combined.watermark_us if self.combined.watermark_us is not None else -1)
        before_us = self.combined.previous_watermark_us
        if before_us is None:
            return order_rows(rows, np.flatnonzero(passed)), rows.slice(0, 0)
        old = times_us <= before_us
        due = order_rows(rows, np.flatnonzero(passed & ~old))
        if not notes_late:
            return due, rows.slice(0, 0)
        late = old & rows.column("fresh").to_numpy() & rows.column("first").to_numpy()
        return due, rows.filter(pa.array(late))

    def _work(
        self,
        operator: Operator,
        unit: Unit,
        places: list[str],
        memory: state.OperatorMemory,
        due: pa.Table,
        late: pa.Table,
        count: OperatorCount,
    ) -> state.WrittenState:
        batch = due.combine_chunks().to_batches()[0] if due.num_rows else None
        made = []
        shedder = self.combined.controls.shedder
        decisions = (
            shedding.ShedDecisions(shedder, batch, batch.column("match_key"), shedding.compute_periods(self.graph))
            if batch is not None and shedder.sheds
            else None
        )
        for pattern in operator.patterns:
            matches = self._find_matches(
                operator, unit.groups, pattern, memory, batch, decisions, count.build(pattern.name)
            )
            if shedder.sheds and len(matches):
                keys, counted = shedding.KeyRanks(shedder, matches.keys), count.build(pattern.name)
                control_groups = keys.groups[keys.control & ~matches.suppressed]
                counted.control_matches = add_counts(counted.control_matches, _group_rows(control_groups))
            if len(matches) > matches.suppressed.sum():
                # A batch that is processed again repeats the ids.
                prefix = f"{pattern.name}:{self.run}.{self.batch}:{places[0].rpartition('/')[2]}"
                made.append(build_match_rows(pattern, matches, prefix))
        outputs = self._group_outputs(places, made)
        states = memory.write_places(places)
        for pattern in operator.patterns:
            count.build(pattern.name).forgotten_bytes += memory.forgotten_bytes.get(pattern.signature, 0)
        newest = None
        if late.num_rows:  # the last few: a clock that is behind can produce any number of them
            kept = late.select(["time", "id", "type", "source", "match_key", "value"])
            newest = kept.slice(max(0, late.num_rows - MAX_LATE)).combine_chunks().to_batches()[0]
        return state.WrittenState(states, *outputs, late=newest, late_events=late.num_rows)

    def _find_matches(
        self,
        operator: Operator,
        unit_groups: tuple[int, ...],
        pattern: Pattern,
        memory: state.OperatorMemory,
        due: pa.RecordBatch | None,
        decisions: shedding.ShedDecisions | None,
        count: PatternCount,
    ) -> Matches:
        """Return the matches in the order of completion, including those that event time completes.

        Loading and saving the pattern's state counts as its time too.
        """
        started = time.perf_counter()
        place = self.application, operator.name, unit_groups, pattern.signature, pattern.emits
        kept = MATCHER_CACHE.resume(place, pattern, memory.get_states(pattern.signature), memory.groups)
        matcher = kept.matcher
        labeled = None if due is None else LabeledRows.build(pattern, due, self.graph.inner_types)
        parts = []
        if labeled is not None:
            masks = labeled.masks
            if decisions is not None:
                masks = _apply_shedding(pattern, labeled, decisions, count)
            parts.append(matcher.take(labeled.rows, masks))
            of_use = np.ones(labeled.rows.num_rows, bool) if masks is None else masks != 0
            add_types(
                count.types,
                shedding.limit_types(shedding.count_by_label(labeled.labels, of_use), list_named_types(pattern)),
            )
        if (now_us := self.combined.now_us) is not None:
            parts.append(matcher.advance(now_us))
        matches = concatenate(parts)
        suppressed = int(matches.suppressed.sum())
        count.matches += len(matches) - suppressed
        count.suppressed += suppressed
        memory.keep(pattern.signature, kept.save(memory.groups), matcher.compute_timers())
        MATCHER_CACHE.keep(place, kept)
        count.partnerless += matcher.partnerless
        count.excess += matcher.excess
        count.seconds += time.perf_counter() - started
        if shedding.is_sheddable(pattern):
            count.survivors = self._sample_surplus(pattern, memory, labeled, matches)
        return matches

    def _sample_surplus(
        self, pattern: Pattern, memory: state.OperatorMemory, labeled: LabeledRows | None, matches: Matches
    ) -> Survivors:
        """Return the survivors among the matches of sampled keys: while the pattern is shed, of the control keys."""
        signature, survivors = f"{pattern.signature}{state.SAMPLE}", Survivors()
        sample, shedder = SurplusSample(pattern, memory.get_states(signature)), self.combined.controls.shedder
        if labeled is not None:
            share = 0.0 if shedder.is_shedding(pattern.name) else SAMPLED_ROWS / labeled.rows.num_rows
            sampled = shedding.KeyRanks(shedder, labeled.rows.column("match_key")).select_sample(share)
            survivors = sample.add(labeled, sampled, matches)
        if (now_us := self.combined.now_us) is not None:
            sample.advance(now_us)
        memory.keep(signature, sample.save(), sample.compute_timers())
        return survivors

    def _group_outputs(
        self, places: list[str], made: list[pa.RecordBatch]
    ) -> tuple[dict[str, pa.RecordBatch], dict[str, pa.RecordBatch]]:
        """Return the complex events for other operators, and the match rows for sinks, by name."""
        first = places[0]
        between, outbox = {}, {}
        for place, rows in enumerate(made):
            event_type = rows.column("type")[0].as_py()
            if event_type in self.graph.inner_types:
                between[f"{first}/{place}"] = complete_match_rows(rows)
            for queue in self.sinks.get(event_type, ()):
                outbox[state.format_outbox_name(queue, self.batch, self.run, f"{first}/{place}", rows)] = rows
        return between, outbox


def _mark_rows(rows: pa.RecordBatch, route: str, groups: tuple[int, ...], fresh: bool) -> pa.RecordBatch:
    """Return the rows of the groups with their keys, marked with whether they are read for the first time."""
    if len(groups) < KEY_GROUPS:
        is_group = np.zeros(KEY_GROUPS, bool)
        is_group[list(groups)] = True
        own = is_group[rows.column("group").to_numpy()]
        if not own.all():
            rows = rows.filter(pa.array(own))
    if "match_key" not in rows.schema.names:  # earlier versions wrote it
        rows = rows.append_column("match_key", get_match_keys(rows, route))
    return rows.append_column("fresh", pa.repeat(fresh, rows.num_rows))


def _apply_shedding(
    pattern: Pattern, labeled: LabeledRows, decisions: shedding.ShedDecisions, count: PatternCount
) -> np.ndarray | None:
    """Return the masks without the events that the pattern sheds, and count the shed and the control events.

    Without masks, the events of control keys are counted too.
    """
    named, labels, masks = list_named_types(pattern), labeled.labels, labeled.masks
    if masks is None:
        _count_control_events(labels, decisions.control, named, decisions, count)
        return None
    dropped = decisions.select_dropped(pattern, masks, labels)
    add_types(count.shed, shedding.limit_types(shedding.count_by_label(labels, dropped), named))
    _count_control_events(labels, decisions.control & (masks != 0), named, decisions, count)
    return np.where(dropped, 0, masks)


def _count_control_events(
    labels: pa.DictionaryArray,
    control: np.ndarray,
    named: Collection[str],
    decisions: shedding.ShedDecisions,
    count: PatternCount,
) -> None:
    add_types(count.control_types, shedding.limit_types(shedding.count_by_label(labels, control), named))
    count.control_events = add_counts(count.control_events, _group_rows(decisions.groups[control]))


def _group_rows(groups: np.ndarray) -> list[int]:
    counts: list[int] = np.bincount(groups, minlength=shedding.CONTROL_GROUPS).tolist()
    return counts
