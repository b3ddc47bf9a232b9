"""The status of an application; `published` writes it. Unknown is null.

Rates are over the last WINDOW_SECONDS: `in_per_second` processed by the replicas, `kept_per_second` after the rules,
`alerts_per_second` complex events; per rule `in` and `out` per second. Per pattern, `matches` and `quiet` are
cumulative across restarts; `seconds` is the matcher's time for one event. Per replica and operator, `utilisation` is
the share of the window in which it (or each of its tasks) worked; `work` has the measurements of each task
(`task_measures`), `parallelism` the number of tasks under sufficient load, and `tasks` how many worked last.
`offered_per_second` and `shed_per_second` count what patterns could use, once for each of them; `shed_share` is their
ratio. Per pattern, `partnerless_per_second` counts events that were not searched (`matching.partners`). Per operator,
`overhead_seconds` is its time for one event besides that of its patterns. For the application, `batch_overhead_seconds`
is the time of a batch besides its operators, `batch_overhead_cv2` how much that varies (variance over mean²), and
`latency_p95_seconds` the time from an event's own time to the end of the batch that has processed it.

A replica's `response_seconds` follows from the events that are in it (`measures.estimate_response`): finished responses
alone would be late by a response time. It is null without batches and without a piece that is older than the window,
and during the process's first batch, which waits for Spark to warm up and delays those after it.
`response_error_seconds` is the standard error of the mean of finished responses.

`state` is starting (until something is processed after a start), running, stalled (events wait and nothing moves:
`stall_reason` says why), stopping, stopped (by a person) or failed; `error` is what ended the previous run, until
something is processed again. `restarts` says how often it was restarted, since when it fails, and when the next try is.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import sqrt
from statistics import stdev
from typing import Any, Protocol

from common.stored_document import decode_readable_document, replace_fields
from controllers.parallelism.measured_topology import COUNTS
from controllers.patterns.expression import render
from queues.nodes.heartbeat import Heartbeat
from workers.documents import pipeline
from workers.pipeline.declaration.declaration import Application
from workers.pipeline.declaration.replicas import MAIN
from workers.pipeline.dispatch.assignment import Assignment
from workers.pipeline.dispatch.cursor import Cursor
from workers.pipeline.dispatch.result_queue import Room
from workers.pipeline.patterns.graph import Operator, list_named_types
from workers.pipeline.patterns.pattern import Pattern
from workers.pipeline.patterns.shedding import find_chain_starts, is_sheddable, limit_types
from workers.pipeline.rules.arrow_rules import find_spark_reason
from workers.pipeline.status.dropped_matches import DroppedMatchWarnings
from workers.pipeline.status.measures import (
    RETAINED_SECONDS,
    BatchOverheads,
    EventAges,
    OutstandingPiece,
    Totals,
    WorkSample,
    compute_measures,
    estimate_response,
)
from workers.pipeline.status.progress import ProgressInputs, ProgressRecord
from workers.pipeline.status.shed_record import ShedRecord
from workers.pipeline.tiers.finished_batch import InterEventBatch, OperatorCount, PatternCount, ReplicaBatch

WINDOW_SECONDS = 10.0


@dataclass(frozen=True)
class _Window:
    """The work that finished in the last WINDOW_SECONDS, or since the start. now: monotonic seconds."""

    now: float
    seconds: float
    batches: list[InterEventBatch]
    replicas: dict[str, list[ReplicaBatch]]

    def compute_rate(self, values: Iterable[float]) -> float:
        return round(sum(values) / self.seconds, 2)

    def compute_rates_by_type(self, types: Mapping[str, int]) -> dict[str, float]:
        return {event_type: self.compute_rate([number]) for event_type, number in sorted(types.items())}


@dataclass(frozen=True)
class ApplicationLoad:
    """The load of an application, which determines whether it needs Spark.

    admitted_events: total number. busy_share: share of the last WINDOW_SECONDS in which its batches were executed, more
    than 1 if they overlap. tasks: the greatest number of tasks that is set for an operator.
    """

    admitted_events: int
    busy_share: float
    tasks: int = 1


class MeasuredRoom(Protocol):
    """The part of the result queue that the status shows."""

    def measure_room(self) -> Room: ...


class ListedDispatches(Protocol):
    """The part of the dispatches that the status shows."""

    def list_after(self, replica: str, tick: int, count: int | None = None) -> list[Assignment]: ...


class StatusBoard:
    """Collects what happens and writes the status.

    Used by the driver's main thread, the dispatcher's thread, and those that process batches.
    """

    def __init__(
        self,
        results: MeasuredRoom,
        dispatches: ListedDispatches,
        application: Application,
        before: pipeline.ApplicationStatus | None,
        notify: Callable[[], None],
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """before: the last status of an earlier process. notify: called when there is news."""
        self._application = application
        self._spark_reason = find_spark_reason(application.rules, application.layout, application.engine)
        self._clock, self._monotonic = clock, monotonic
        self._totals = Totals.load(before)
        self._shed = ShedRecord(self._totals.shed, find_chain_starts(application.graph))
        self._ages, self._overheads = EventAges(), BatchOverheads()
        self._notify, self._dropped = notify, DroppedMatchWarnings()
        self._results, self._dispatches = results, dispatches
        self._replicas: dict[str, deque[ReplicaBatch]] = {name: deque() for name in application.replicas}
        self._first_at: dict[str, float] = {}
        self.same_cores, self.role = False, MAIN
        self.place, self.place_reason = pipeline.ON_SPARK, ""
        self._batches: deque[InterEventBatch] = deque()
        self._started = monotonic()
        self._progress = ProgressRecord(self._started)
        self._lock = threading.Lock()
        self._cursor: Cursor | None = None
        self._monitored: Mapping[str, pipeline.MonitoredStatus] = {}
        self._state, self._error = "starting", before.error if before else None
        self._restarts = before.restarts if before else pipeline.RestartStatus()
        self._has_run = before is not None
        self.outbox: Mapping[str, int] = {}  # queue → complex events that it has not accepted yet
        self.outbox_full = False

    def enter_state(self, state: str, error: str | None = None, pause_seconds: float | None = None) -> None:
        """Set the state to starting, running, stopping, stopped or failed, and write it at once.

        Running keeps the previous error until something is processed. pause_seconds: time until a failed application is
        tried again automatically.
        """
        with self._lock:
            if state == "running":
                self._progress.begin(self._monotonic())
                self._restarts = replace_fields(
                    self._restarts, count=self._restarts.count + self._has_run, next_try_at=None
                )
                self._has_run = True
            if state == "failed":
                now = self._clock()
                self._restarts = replace_fields(
                    self._restarts,
                    tries=self._restarts.tries + 1,
                    failed_at=self._restarts.failed_at or now,
                    next_try_at=None if pause_seconds is None else now + pause_seconds,
                    last_error=error,
                    last_error_at=now,
                )
            self._state, self._error = state, self._error if state == "running" else error
        self._notify()

    def continue_in_another_place(self) -> None:
        """Record that the running application continues in another place, which is no restart."""
        with self._lock:
            self._progress.begin(self._monotonic())
        self._notify()

    @property
    def stuck_seconds(self) -> float:
        """Return how long a worker that has all it needs has finished nothing, as of the last document."""
        return self._progress.inputs.stuck_seconds

    def record_dispatch(self, cursor: Cursor, events: int, stall_reason: str | None, skipped: tuple[str, ...]) -> None:
        """Record that the dispatcher has checked. stall_reason, skipped: see `Dispatcher`."""
        with self._lock:
            self._cursor = cursor
            self._totals.admitted_events += events
            self._progress.record_dispatch(self._monotonic(), events, stall_reason, skipped)

    def record_monitored(self, shown: Mapping[str, pipeline.MonitoredStatus]) -> None:
        """Record what the monitor measures: criterion → its quantile and number of events."""
        with self._lock:
            self._monitored = shown

    def record_replica_batch(self, name: str, batch: ReplicaBatch) -> None:
        with self._lock:
            self._replicas.setdefault(name, deque()).append(batch)
            self._first_at.setdefault(name, batch.at)
            self._shed.record_replica(batch.at, batch.shed)
            self._progress.record_replica(name, batch)
            self._error = None  # something was processed: earlier failures are over
            if self._restarts.tries:
                self._restarts = replace_fields(self._restarts, tries=0, failed_at=None, next_try_at=None)

    def record_inter_event_batch(self, batch: InterEventBatch) -> None:
        self._dropped.warn(batch.operators)
        ended_at = self._clock() - (self._monotonic() - batch.at)  # reports arrive up to 1 s later
        with self._lock:
            self._batches.append(batch)
            self._totals.add(batch)
            self._progress.record_combiner(batch)
            sheds = batch.combined.controls.shedder.sheds
            self._shed.record_operators(batch.at, batch.operators.values(), sheds)
            if batch.operators:
                self._overheads.add(batch.at, batch.overhead_seconds)
            if (late := batch.compute_p95_age(ended_at)) is not None:
                self._ages.add(batch.at, *late)
        self._notify()

    def measure_load(self) -> ApplicationLoad:
        """Return the current load."""
        with self._lock:
            window = self._open_window()
            replicas = [batch.seconds for batches in window.replicas.values() for batch in batches]
            busy_share = sum([*replicas, *(batch.seconds for batch in window.batches)]) / window.seconds
            tasks = self._cursor.controls.tasks if self._cursor else {}
            return ApplicationLoad(self._totals.admitted_events, busy_share, max(tasks.values(), default=1))

    def document(self, heartbeats: Mapping[bytes, bytes]) -> pipeline.ApplicationStatus:
        application, graph = self._application, self._application.graph
        room = self._results.measure_room()
        assigned = {
            name: self._dispatches.list_after(name, room.published.get(name, 0)) for name in application.replicas
        }
        waiting = count_waiting_events(heartbeats, application.queues)
        with self._lock:
            window = self._open_window()
            behind = self._clock() - window.now
            outstanding = {
                name: [OutstandingPiece(piece.at_seconds - behind, piece.events) for piece in pieces]
                for name, pieces in assigned.items()
            }
            # With a full outbox nothing is to be dispatched: the destination queue is what makes no progress.
            oldest_at = {name: pieces[0].at for name, pieces in outstanding.items() if pieces}
            state, stall_reason = self._judge_state(window.now, oldest_at, 0 if self.outbox_full else waiting)
            newest = self._batches[-1] if self._batches else None
            controls = self._cursor.controls if self._cursor else application.controls
            capacity, shares = controls.result_bytes, controls.compute_shares(application.replicas)
            finished = [batch for batches in window.replicas.values() for batch in batches]
            pause_seconds = _compute_batch_pause(window.batches)
            watermark_us = newest.combined.watermark_us if newest else None
            shed = sum(sum(self._shed.get_recent_counts(pattern.name).values()) for pattern in graph.patterns)
            offered = shed + sum(
                sum(count.types.values())
                for batch in window.batches
                for operator in batch.operators.values()
                for count in operator.patterns.values()
            )
            return pipeline.ApplicationStatus(
                state=state,
                hindrance=stall_reason,
                error=self._error,
                restarts=self._restarts,
                queues=list(application.queues),
                sinks={event_type: list(queues) for event_type, queues in sorted(application.sinks.items())},
                batch=newest.batch if newest else None,
                in_per_second=window.compute_rate(batch.events for batch in finished),
                kept_per_second=window.compute_rate(batch.retained for batch in finished),
                alerts_per_second=window.compute_rate(batch.alerts for batch in window.batches),
                rules=[
                    pipeline.RuleStatus(
                        name=rule.name,
                        in_per_second=window.compute_rate(batch.rules[place]["in"] for batch in finished),
                        out_per_second=window.compute_rate(batch.rules[place]["out"] for batch in finished),
                    )
                    for place, rule in enumerate(application.rules)
                ],
                rule_engine=pipeline.IN_SPARK if self._spark_reason else pipeline.IN_ARROW,
                spark_reason=self._spark_reason,
                place=self.place,
                place_reason=self.place_reason,
                batch_seconds=newest.seconds if newest else None,
                batch_overhead_seconds=_compute_batch_overhead(window.batches, pause_seconds),
                batch_overhead_cv2=self._overheads.cv2(pause_seconds),
                latency_p95_seconds=self._ages.quantile(0.95),
                watermark_lag_seconds=None if watermark_us is None else round(self._clock() - watermark_us / 1e6, 3),
                waiting_events=waiting,
                patterns={
                    pattern.name: self._build_pattern_status(operator.name, pattern, window)
                    for operator in graph.operators
                    for pattern in operator.patterns
                },
                offered_per_second=window.compute_rate([offered]),
                shed_per_second=window.compute_rate([shed]),
                shed_share=_compute_share(shed, offered),
                shed_events=sum(sum(types.values()) for types in self._shed.totals.values()),
                late_events=self._totals.late_events,
                outbox=dict(self.outbox),
                outbox_full=self.outbox_full,
                complex_events=sum(self._totals.matches.values()),
                same_cores=self.same_cores,
                skipped_nodes=list(self._progress.skipped),
                controls=controls,
                admitted_events=self._totals.admitted_events,
                in_flight_events=room.in_flight_events,
                result_queue=pipeline.ResultQueueStatus(
                    capacity_bytes=capacity,
                    used_bytes=room.used_bytes,
                    free_bytes=max(0, capacity - room.used_bytes),
                    bytes_per_event=round(room.bytes_per_event, 1),
                ),
                replicas={
                    name: self._build_replica_status(name, window, shares.get(name, 0.0), outstanding.get(name, []))
                    for name in self._replicas
                },
                combiner=pipeline.CombinerStatus(
                    waits_for=newest.combined.waits_for if newest else None,
                    held_results=len(newest.combined.compute_remaining()) if newest else None,
                    in_per_second=_compute_combiner_rate(window),
                    rows_per_second=window.compute_rate(batch.combined.due_rows for batch in window.batches),
                    wait_seconds=_compute_combiner_wait(window.batches, self._clock() - window.now),
                ),
                operators={
                    operator.name: self._build_operator(operator, window, controls.count_tasks(operator.name))
                    for operator in graph.operators
                },
                monitored=dict(self._monitored),
                edges=[pipeline.EdgeStatus(**vars(edge)) for edge in graph.edges],
            )

    def _open_window(self) -> _Window:
        """Forget old batches, and return the recent ones.

        The last batch is shown until there is a newer batch. Variances use the batches of RETAINED_SECONDS.
        """
        now = self._monotonic()
        since = now - WINDOW_SECONDS
        kept: list[deque[Any]] = [*self._replicas.values(), self._batches]
        for records in kept:
            while len(records) > 1 and records[1].at < now - RETAINED_SECONDS:
                records.popleft()
        self._ages.forget(since)
        self._overheads.forget(now)
        self._shed.forget(now, WINDOW_SECONDS)
        return _Window(
            now,
            min(WINDOW_SECONDS, max(now - self._started, 1.0)),
            [batch for batch in self._batches if batch.at >= since],
            {name: [batch for batch in batches if batch.at >= since] for name, batches in self._replicas.items()},
        )

    def _judge_state(self, now: float, oldest_at: dict[str, float], waiting: int | None) -> tuple[str, str | None]:
        """Return the current state, and why nothing moves."""
        if self._state != "running":
            self._progress.inputs = ProgressInputs()
            return self._state, None
        return self._progress.judge(now, oldest_at, waiting, self.role)

    def _build_replica_status(
        self, name: str, window: _Window, share: float, outstanding: list[OutstandingPiece]
    ) -> pipeline.ReplicaStatus:
        recent, newest = window.replicas[name], next(reversed(self._replicas[name]), None)
        responses = [batch.response_seconds for batch in recent]
        is_known = bool(recent) or (bool(outstanding) and outstanding[0].at < window.now - WINDOW_SECONDS)
        is_warm = is_known and self._first_at.get(name, window.now) < window.now - WINDOW_SECONDS
        response = estimate_response(list(self._replicas[name]), outstanding, window.now) if is_warm else None
        samples = _SplitSamples()
        ages = [max(0.0, batch.response_seconds - batch.seconds) for batch in self._replicas[name]]
        for batch, elapsed in _add_spacing(self._replicas[name], ages):
            sample = WorkSample(elapsed, batch.events, batch.events, batch.retained, batch.seconds)
            samples.add(sample, batch.at >= window.now - WINDOW_SECONDS)
        return pipeline.ReplicaStatus(
            share=round(share, 4),
            in_per_second=window.compute_rate(batch.events for batch in recent),
            kept_per_second=window.compute_rate(batch.retained for batch in recent),
            utilisation=round(min(1.0, sum(batch.seconds for batch in recent) / window.seconds), 4),
            batch_seconds=newest.seconds if newest else None,
            response_seconds=None if response is None else round(response, 4),
            response_error_seconds=round(stdev(responses) / sqrt(len(responses)), 4) if len(responses) > 1 else None,
            work=samples.compute_measures(window.seconds),
        )

    def _build_operator(self, operator: Operator, window: _Window, parallelism: int) -> pipeline.OperatorStatus:
        name, graph = operator.name, self._application.graph
        recent = [batch for batch in window.batches if name in batch.operators]
        events = sum(batch.operators[name].events for batch in recent)
        seconds = sum(batch.operators[name].seconds for batch in recent)
        tasks = recent[-1].count_tasks(name) if recent else None
        counts = [count for batch in recent for count in batch.operators[name].patterns.values()]
        given = sum(sum(count.types.values()) for count in counts)
        shed = sum(sum(self._shed.get_recent_counts(pattern.name).values()) for pattern in operator.patterns)
        matching = sum(count.seconds for count in counts)
        return pipeline.OperatorStatus(
            key=operator.key,
            level=next(n for n, level in enumerate(graph.levels) if operator in level),
            reads_source=graph.reads_source(operator),
            in_per_second=window.compute_rate([events]),
            out_per_second=window.compute_rate(batch.operators[name].matches for batch in recent),
            tasks=tasks,
            parallelism=parallelism,
            utilisation=round(min(1.0, seconds / (tasks or 1) / window.seconds), 4),
            seconds=seconds / events if events else None,
            overhead_seconds=max(0.0, seconds - matching) / events if events else None,
            shed_share=_compute_share(shed, shed + given),
            late_per_second=window.compute_rate(batch.operators[name].late for batch in recent),
            patterns=[pattern.name for pattern in operator.patterns],
            work=self._measure_tasks(operator, window, parallelism),
        )

    def _measure_tasks(self, operator: Operator, window: _Window, parallelism: int) -> list[pipeline.Measures]:
        """Return what each task did. A task that was just removed by a lower parallelism is still shown."""
        samples = {task: _SplitSamples() for task in range(1, parallelism + 1)}
        behind_seconds = self._clock() - window.now
        ages = [max([0.0, *(wait for _, wait in batch.list_waits(behind_seconds))]) for batch in self._batches]
        for batch, elapsed in _add_spacing(self._batches, ages):
            counts = {count.task: count for count in batch.worked if count.operator == operator.name}
            shared = 0.0
            if operator.name in batch.operators:
                inputs = batch.count_inputs(operator, self._application.graph)
                shared = inputs / max(batch.operators[operator.name].events, 1)
            is_recent = batch.at >= window.now - WINDOW_SECONDS
            # A task without work in a batch has received nothing in that time.
            for task in samples.keys() | counts.keys():
                count = counts.get(task, OperatorCount(operator.name, task))
                sample = WorkSample(elapsed, count.events * shared, count.events, count.matches, count.seconds)
                samples.setdefault(task, _SplitSamples()).add(sample, is_recent)
        return [samples[task].compute_measures(window.seconds) for task in sorted(samples)][:parallelism]

    def _build_pattern_status(self, operator: str, pattern: Pattern, window: _Window) -> pipeline.PatternStatus:
        name, given = pattern.name, PatternCount()
        for batch in window.batches:
            if operator in batch.operators and name in batch.operators[operator].patterns:
                given.add(batch.operators[operator].patterns[name])
        named = list_named_types(pattern)
        types, lately = (limit_types(given.types, named), limit_types(self._shed.get_recent_counts(name), named))
        events, shed = sum(types.values()), sum(lately.values())
        return pipeline.PatternStatus(
            operator=operator,
            emits=pattern.emits,
            expression=render(pattern.expression.root),
            sheddable=is_sheddable(pattern),
            matches=self._totals.matches.get(name, 0),
            quiet=self._totals.suppressed.get(name, 0),
            seconds=given.seconds / events if events else None,
            types=window.compute_rates_by_type(types),
            partnerless_per_second=window.compute_rate([given.partnerless]),
            forgotten_bytes_per_second=window.compute_rate([given.forgotten_bytes]),
            out_per_second=window.compute_rate([given.matches]),
            shed_events=self._shed.totals.get(name, {}),
            shed_per_second=window.compute_rates_by_type(lately),
            shed_share=_compute_share(shed, shed + events),
            spared=pipeline.ControlKeys(  # empty while nothing is shed
                types=window.compute_rates_by_type(limit_types(given.control_types)),
                out_per_second=window.compute_rate(given.control_matches),
            ),
            surplus=pipeline.SurplusEstimate(
                matches_per_second=window.compute_rate([given.survivors.matches]),
                matches_per_window=round(given.survivors.crowd / max(1, given.survivors.matches), 2),
                kept_per_second={
                    label: [window.compute_rate([kept]) for kept in counts]
                    for label, counts in sorted(given.survivors.kept.items())
                    if label in types or label in lately
                },
            ),
            weight=pattern.weight,
            recall=self._shed.recall(name),
        )


def _compute_batch_pause(recent: list[InterEventBatch]) -> float:
    """Return the seconds between two batches when Spark waits for nothing: the shortest recent pause."""
    between = [after.at - after.seconds - before.at for before, after in pairwise(recent)]
    return max(0.0, min(between, default=0.0))


def _compute_batch_overhead(recent: list[InterEventBatch], pause_seconds: float) -> float | None:
    """Return the time of a batch besides its operators, including Spark's time between two batches."""
    overheads = [batch.overhead_seconds for batch in recent if batch.operators]
    return round(sum(overheads) / len(overheads) + pause_seconds, 4) if overheads else None


def _compute_share(part: float, whole: float) -> float:
    return round(part / whole, 4) if whole else 0.0


@dataclass
class _SplitSamples:
    """The batches of a task in the window, and earlier batches."""

    recent: list[WorkSample] = field(default_factory=list)
    earlier: list[WorkSample] = field(default_factory=list)

    def add(self, sample: WorkSample, is_recent: bool) -> None:
        (self.recent if is_recent else self.earlier).append(sample)

    def compute_measures(self, window_seconds: float) -> pipeline.Measures:
        """Return the measures. Counts are those of a whole window, also in the first seconds of a process."""
        measures, scale = compute_measures(self.recent, window_seconds, self.earlier), WINDOW_SECONDS / window_seconds
        return measures | {name: scale * count for name in COUNTS if (count := measures[name]) is not None}


def _add_spacing(records: Iterable[Any], ages_seconds: Iterable[float]) -> Iterator[tuple[Any, float | None]]:
    """Return the batches, each with the seconds before its start in which its events arrived; None for the first.

    They arrived since the start of the previous batch. After a longer time without batches, they are recent, unless
    their age (at the start) shows that they waited.
    """
    for (before, batch), age in zip(pairwise((None, *records)), ages_seconds, strict=True):
        elapsed = max(0.0, batch.at - batch.seconds - before.at + before.seconds) if before else None
        yield batch, None if elapsed is None else min(elapsed, max(WINDOW_SECONDS, age))


def _compute_combiner_rate(window: _Window) -> float | None:
    """Return the admitted events per second whose results were read, by the mean size of an event in the window."""
    finished = [batch for batches in window.replicas.values() for batch in batches]
    events, size_bytes = sum(batch.events for batch in finished), sum(batch.size_bytes for batch in finished)
    read_bytes = sum(result.size_bytes for batch in window.batches for result in batch.combined.fresh)
    return window.compute_rate([read_bytes * events / size_bytes]) if size_bytes else None


def _compute_combiner_wait(recent: list[InterEventBatch], behind_seconds: float) -> float | None:
    """Return the mean time from a replica's result to the first batch that reads it."""
    waits = [pair for batch in recent for pair in batch.list_waits(behind_seconds)]
    rows = sum(count for count, _ in waits)
    return round(sum(count * wait for count, wait in waits) / rows, 4) if rows else None


def count_waiting_events(heartbeats: Mapping[bytes, bytes], queues: tuple[str, ...]) -> int | None:
    """Return the events waiting in the application's containers, by the nodes' last heartbeats.

    Return None without containers, and if a heartbeat can't be read.
    """
    lengths: list[int] = []
    for text in heartbeats.values():
        if (heartbeat := decode_readable_document(Heartbeat, text)) is None:
            return None
        for queue in queues:
            if (counters := heartbeat.containers.get(queue)) is not None:
                lengths.append(counters.inserted_events - counters.removed_events)
    return sum(lengths) if lengths else None
