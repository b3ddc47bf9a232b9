"""The shipped run of the scenario `shedding`: the ladder and the table of an overloaded operator.

O2 starts a batch when the previous batch has ended, with all events that have arrived and the table in force for so
many rows, as the combiner does. A batch takes `OVERHEAD_SECONDS` and the time of its work. Batches without a pause
between them are reported as one batch of up to `MAX_EVENTS`, with this fixed time. All events have one key. O3 and O4
take no time. A person has set the ladder to auto, because no other loop could help.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from controllers.shedding.ladder import LAW as LADDER
from controllers.shedding.law import LAW
from controllers.simulation import shedding
from controllers.simulation.scenario import Floats, ScenarioOutcome
from controllers.simulation.shed_stream import TAKES, SequenceMatcher, SetMatcher, Stream
from queues.points import TOTAL
from queues.topology import NodeSpec, QueueSpec, Topology
from workers.documents.pipeline import KEPT_SHARES
from workers.models import Loop
from workers.pipeline.dispatch.result_queue import Blob, Result
from workers.pipeline.matching.surplus import Survivors
from workers.pipeline.patterns.shedding import ROTATION_WINDOWS, DecisionPeriod, Shedder, rank_texts
from workers.pipeline.tiers.finished_batch import OperatorCount, PatternCount
from workers.twin.catalog import ShippedRun
from workers.twin.simulated_plant import SimulatedPlant
from workers.twin.twin import Twin

QUEUE, NODE, APPLICATION, REPLICA = "telemetry", "n1", "example", "iap1"
OVERHEAD_SECONDS, MAX_EVENTS = 0.003, 50
DECLARATION = """
name: example
queues: [telemetry]
sink: alert
lateness_seconds: 0
operators:
  - name: o2
    key: source
    patterns:
      - {{name: p21, pattern: SEQ(T0; T0; T1), within_seconds: {window}, emits: Q21}}
      - {{name: p22, pattern: 'AND(T1, T2, T3)', within_seconds: {window}, emits: Q22}}
  - name: o3
    key: source
    patterns: [{{name: p3, pattern: 'AND(Q11, Q21)', within_seconds: {window}, emits: S1}}]
  - name: o4
    key: source
    patterns: [{{name: p4, pattern: 'AND(Q12, Q22)', within_seconds: {window}, emits: S2}}]
"""
JOINS = {"p3": ("o3", "Q11", "P21", "Q21"), "p4": ("o4", "Q12", "P22", "Q22")}


def run(settings: Mapping[str, Any], seed: int, trace: Floats | None) -> ScenarioOutcome:
    stream = shedding.build_stream(settings, seed, trace)
    left, service, matches = simulate(stream, settings)
    return shedding.summarize(settings, seed, trace, left, service, matches)


def simulate(stream: Stream, settings: Mapping[str, Any]) -> tuple[Floats, Floats, dict[str, Floats]]:
    """Return when each event leaves O2, the work on it, and the times of the matches of O2's patterns."""
    plant = build_plant(settings["window_seconds"])
    application, container, began = plant.applications[APPLICATION], plant.container(QUEUE, NODE), plant.clock()
    bound = {"latency_bound_seconds": settings["latency_bound_seconds"]}
    twin = Twin(plant, [LADDER.name, LAW.name], {LADDER.name: Loop.Mode.AUTO}, {LAW.name: bound})
    operator = _Operator(stream, settings["window_seconds"])
    left, free_at, done = np.full(len(stream.times), np.inf), 0.0, 0
    unreported, events = dict[str, OperatorCount](), 0
    for second in range(int(stream.seconds)):
        first, last = np.searchsorted(stream.times, (second, second + 1))
        container.insert(float(last - first), plant.clock())
        while done < last and (start := max(free_at, float(stream.times[done]))) < second + 1:
            end = int(np.searchsorted(stream.times, start, "right"))
            controls = plant.get_controls(APPLICATION).freeze(began + start).limit_batch(end - done)
            counts = {count.operator: count for count in operator.process(done, end, controls.shedder, began)}
            free_at = start + OVERHEAD_SECONDS + counts["o2"].seconds
            left[done:end] = free_at
            for name, count in counts.items():
                unreported.setdefault(name, OperatorCount(name)).add(count)
            events, done = events + end - done, end
            waits = done < len(stream.times) and stream.times[done] <= free_at
            if not waits or events >= MAX_EVENTS or free_at >= second + 1:
                plant.clock.now = began + free_at
                container.remove(float(events))
                application.dispatch(events, controls)
                application.finish_replica_batch(REPLICA, events, 1e-6, 1e-6)
                seconds = OVERHEAD_SECONDS + unreported["o2"].seconds
                offset = _build_offset(stream.times[done - events : done], began)
                application.finish_batch(seconds, tuple(unreported.values()), controls=controls, **offset)
                unreported, events = {}, 0
        plant.clock.now = began + second
        twin.pass_time()
    left[done:] = np.maximum(free_at, stream.times[done:])  # the run ends while they wait
    return left, operator.service, {name: np.asarray(times) for name, times in operator.matches.items()}


def _build_offset(times: Floats, began: float) -> dict[str, Any]:
    """Return the fields of the `CombinedOffset` of a batch with these events."""
    first_us, last_us = (round((began + time) * 1e6) for time in (float(times[0]), float(times[-1])))
    blob = Blob("rows", "source", -1, first_us, last_us, len(times), 0)
    return {
        "fresh": (Result(REPLICA, 0, first_us - 1, (blob,)),),
        "watermark_us": last_us,
        "previous_watermark_us": first_us - 1,
    }


class _Operator:
    """The simulated operator O2 and the joins of O3 and O4."""

    def __init__(self, stream: Stream, window_seconds: float) -> None:
        self._stream, self._window = stream, window_seconds
        self._types, self._times = stream.types.tolist(), stream.times.tolist()
        self._matchers: dict[str, SequenceMatcher | SetMatcher] = {
            "P21": SequenceMatcher(window_seconds),
            "P22": SetMatcher((1, 2, 3), window_seconds),
        }
        self._joins = {name: SetMatcher((0, 1), window_seconds) for name in JOINS}
        self.service = np.zeros(len(self._times))
        self.matches: dict[str, list[float]] = {name: [] for name in TAKES}
        self._recent: dict[str, deque[float]] = {name: deque() for name in (*TAKES, *JOINS)}
        self._joined, self._came = dict.fromkeys(TAKES, 0), dict.fromkeys(JOINS, 0)

    def process(self, first: int, last: int, shedder: Shedder, began: float) -> tuple[OperatorCount, ...]:
        """Process a batch of events, and return the counts of all operators. began: when the stream began."""
        counts = {name: self._match(name, first, last, shedder) for name in TAKES}
        operator = OperatorCount("o2", early_us=round((began + self._times[first]) * 1e6))
        for name, count in counts.items():
            operator.patterns[name.lower()] = count
            operator.events += sum(count.types.values())
            operator.seconds += count.seconds
        return (operator, *(self._join(name, self._times[last - 1]) for name in JOINS))

    def _match(self, name: str, first: int, last: int, shedder: Shedder) -> PatternCount:
        shares, by_key = shedder.shares.get(name.lower(), {}), shedder.find_key_share(name.lower())
        keeps_key = by_key == 0 or self._rank_key(self._times[first]) >= by_key
        work, chance, count = self._stream.work[name], self._stream.chance[name], PatternCount()
        for event in range(first, last):
            if (kind := self._types[event]) not in TAKES[name]:
                continue
            label, now = f"T{kind}", self._times[event]
            dropped = (shares.get(label, 0.0) - by_key) / max(1e-9, 1 - by_key)
            if not keeps_key or chance[event] < dropped:
                count.shed[label] = count.shed.get(label, 0) + 1
                continue
            count.types[label] = count.types.get(label, 0) + 1
            count.seconds += float(work[event])
            self.service[event] += work[event]
            if self._matchers[name].take(kind, now):
                self.matches[name].append(now)
                self._count_match(name, now, count)
        _keep_every_event(count)
        return count

    def _count_match(self, name: str, now: float, count: PatternCount) -> None:
        recent = self._recent[name]
        while recent and recent[0] < now - self._window:
            recent.popleft()
        recent.append(now)
        count.matches += 1
        count.survivors.add(Survivors(1, len(recent), {}))

    def _rank_key(self, now: float) -> float:
        period = DecisionPeriod(max(1, round(ROTATION_WINDOWS * self._window * 1e6)))
        salt = period.salt(int(now * 1e6) // period.lasts_us)
        return float(rank_texts(pa.array(["all"]), salt)[0])

    def _join(self, name: str, now: float) -> OperatorCount:
        operator, outside, pattern, emitted = JOINS[name]
        inside = self.matches[pattern][self._joined[pattern] :]
        self._joined[pattern] += len(inside)
        times, begin = self._stream.outside[outside], self._came[name]
        self._came[name] = int(np.searchsorted(times, now, "right"))
        came = times[begin : self._came[name]].tolist()
        types = {outside: len(came), emitted: len(inside)}
        count = PatternCount({kind: events for kind, events in types.items() if events}, seconds=1e-9)
        for at, kind in sorted([*((at, 0) for at in came), *((at, 1) for at in inside)]):
            if self._joins[name].take(kind, at):
                self._count_match(name, at, count)
        _keep_every_event(count)
        events = len(came) + len(inside)
        return OperatorCount(operator, events=events, seconds=count.seconds, patterns={name: count})


def _keep_every_event(count: PatternCount) -> None:
    """Count every event as needed, because the sample of a plant with one key is empty while events are shed."""
    survivors = count.survivors
    kept = {label: [share * survivors.matches for share in KEPT_SHARES] for label in count.types}
    count.survivors = Survivors(survivors.matches, survivors.crowd, kept)


def build_plant(window_seconds: float) -> SimulatedPlant:
    """Return a plant with the application of the paper's example."""
    queue = QueueSpec(QUEUE, "pipeline", {NODE: TOTAL}, minimum_containers=1)
    plant = SimulatedPlant(Topology(1, {NODE: NodeSpec(NODE, "")}, {QUEUE: queue}))
    plant.add_application(DECLARATION.format(window=window_seconds))
    return plant


SHIPPED = ShippedRun(shedding.SCENARIO, run, "global")
