"""A real application under more than it can do: real events, its ladder and shedding loop, what it finds."""

import csv
import gzip
import json
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from controllers import catalog
from controllers.baselines import shedders
from controllers.framework.law import decide_next, start_state
from controllers.shedding.latency_bound import WaitingTimeModel
from controllers.shedding.law import LAW as SHEDDING
from queues.events import block
from queues.nodes.agent import Agent
from queues.publishing.client import Client
from queues.segments.segment import Segment
from tests.waiting import MAX_SECONDS
from tests.workers.pipeline.matching.patterns import match_all, pattern_of
from workers.control.engine import tick_due
from workers.control.kinds import shedding
from workers.documents.pipeline import ApplicationStatus
from workers.documents.snapshot import Snapshot
from workers.models import Loop
from workers.pipeline.matching.matcher import LabeledRows
from workers.pipeline.patterns.graph import compute_key_groups
from workers.pipeline.patterns.shedding import ShedDecisions, Shedder
from workers.snapshot.local import LocalPlant

KINDS = {0: "SUBMIT", 1: "SCHEDULE", 2: "EVICT", 3: "FAIL", 4: "FINISH", 5: "KILL", 6: "LOST"}
WITHIN_SECONDS, MILESTONE = 0.5, 10
SLICE_SECONDS, SECOND_US = 0.25, 1_000_000
# Found event by event, so that a machine of two cores is soon overloaded. Each emits, per job, how it ended;
# only the second operator takes `finished`, of which a sink gets every tenth.
DECLARATION = f"""
name: exact
queues: [telemetry]
sink: alert
lateness_seconds: 1.0
operators:
  - name: jobs
    key: source
    patterns:
      - {{name: finished, pattern: SEQ(SUBMIT; SCHEDULE+; FINISH), within_seconds: {WITHIN_SECONDS}}}
      - {{name: killed, pattern: SEQ(SUBMIT; SCHEDULE+; KILL), within_seconds: {WITHIN_SECONDS}}}
      - {{name: failed, pattern: SEQ(SUBMIT; SCHEDULE+; FAIL), within_seconds: {WITHIN_SECONDS}}}
  - name: ends
    key: key
    patterns:
      - {{name: milestone, pattern: 'SEQ(finished{{{MILESTONE}}})', within_seconds: {WITHIN_SECONDS}}}
"""
ENDS = {"finished": "FINISH", "killed": "KILL", "failed": "FAIL"}
# Two kinds of patterns: `many` gets ten A for each match, and `one` gets only the events that it needs.
SURPLUS_KINDS = {"many": "SEQ(A; B)", "one": "SEQ(C; D)"}
SURPLUS = 10


def rows_to_match(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """What was published, as matchers take it."""
    table = pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
    rows = block.from_columns(table, 0)
    rows = rows.set_column(1, "time", rows.column("time").cast(pa.int64()))
    keys = rows.column("source")
    rows = rows.append_column("match_key", keys)
    return rows.append_column("group", pa.array(compute_key_groups(keys), pa.int32()))


def count_matches(text: str, rows: pa.RecordBatch) -> int:
    """Matches of one look at all of it."""
    return len(match_all(pattern_of(text, within_us=round(WITHIN_SECONDS * SECOND_US)), rows))


def kept_by(table: dict, rows: pa.RecordBatch, patterns: Mapping[str, str]) -> float:
    """The number of matches that stay by a table that is in force all the time, dropping by event."""
    found = 0
    for name, text in patterns.items():
        pattern = replace(pattern_of(text), name=name)
        labeled, decisions = (
            LabeledRows.build(pattern, rows, ()),
            ShedDecisions(Shedder(table), rows, rows["match_key"]),
        )
        dropped = decisions.select_dropped(pattern, labeled.masks, labeled.labels)
        found += count_matches(text, rows.filter(pa.array(~dropped)))
    return found


def lab_table(rates: dict[str, float], event_seconds: float, budget: float, patterns: Mapping[str, str]) -> dict:
    """What the law decides with the lab's parameters and true rates."""
    rows = [
        {"operator": "jobs", "name": name, "expression": text, "emits": name, "seconds": event_seconds}
        for name, text in patterns.items()
    ]
    given = {"arrivals": {"jobs": rates}, "patterns": rows, "sinks": dict.fromkeys(patterns, 1.0)}
    parameters = catalog.read_parameters(SHEDDING, {"utilisation_budget": budget, "spare": "admit"})
    seen = catalog.read_observation(SHEDDING, given)
    return decide_next(SHEDDING, parameters, start_state(SHEDDING, parameters), seen)[1].action["shed"]


def random_table(share: float, patterns: Mapping[str, str]) -> dict:
    """The same share of everything."""
    return dict.fromkeys(patterns, dict.fromkeys("ABCD", share))


class SurplusStream:
    """Keys with ten A and a B, and as many keys with a C and a D, some of each at a time.

    copies: the number of patterns of each kind. More patterns make the operator slower than the replicas.
    """

    TYPES = np.array([*["A"] * SURPLUS, "B", "C", "D"])

    def __init__(self, at_a_time: int = 100, copies: int = 1) -> None:
        self._at_a_time = at_a_time
        self.patterns = {f"{name}{number}": text for name, text in SURPLUS_KINDS.items() for number in range(copies)}

    @property
    def declaration(self) -> str:
        """The application. No event is ever EXTRA: this symbol makes the matcher work event by event."""
        head = DECLARATION.partition("patterns:\n")[0]
        rows = (
            f"      - {{name: {name}, pattern: {text.replace(';', '; EXTRA?;')}, within_seconds: {WITHIN_SECONDS}}}"
            for name, text in self.patterns.items()
        )
        return "\n".join([f"{head}patterns:", *rows])

    def events(self, first: int, count: int, times_us: np.ndarray) -> pa.RecordBatch:
        """`count` events from place `first` on, at these times."""
        places = np.arange(first, first + count)
        rounds, at = np.divmod(places, self._at_a_time * len(self.TYPES))
        step, number = np.divmod(at, self._at_a_time)
        numbers = (rounds * self._at_a_time + number).astype(str)
        names = np.char.add(np.where(step <= SURPLUS, "many-", "one-"), numbers)
        columns = {
            "id": pa.array(places.astype(str)),
            "time": pa.array(times_us, pa.timestamp("us", "UTC")),
            "type": pa.array(self.TYPES[step]),
            "source": pa.array(names),
        }
        return pa.RecordBatch.from_pydict(columns)

    def expected(self, batches: list[pa.RecordBatch]) -> dict[str, int]:
        """Sink → matches if nothing is dropped."""
        rows = rows_to_match(batches)
        return {name: count_matches(text, rows) for name, text in self.patterns.items()}


@dataclass(frozen=True)
class Trace:
    """Events of real jobs in the order they came; more are had by going over them again as other jobs."""

    jobs: np.ndarray
    kinds: np.ndarray

    @classmethod
    def read(cls, path: Path) -> "Trace":
        with gzip.open(path, "rt") as lines:
            rows = [(row["job_id"], KINDS.get(int(row["event_type"]), "UPDATE")) for row in csv.DictReader(lines)]
        jobs, kinds = zip(*rows, strict=True)
        return cls(np.array(jobs), np.array(kinds))

    def events(self, first: int, count: int, times_us: np.ndarray) -> pa.RecordBatch:
        """`count` events from place `first` on, at these times."""
        places = np.arange(first, first + count)
        rounds, at = places // len(self.jobs), places % len(self.jobs)
        jobs = np.char.add(np.char.add(rounds.astype(str), "-"), self.jobs[at])
        columns = {
            "id": pa.array(places.astype(str)),
            "time": pa.array(times_us, pa.timestamp("us", "UTC")),
            "type": pa.array(self.kinds[at]),
            "source": pa.array(jobs),
        }
        return pa.RecordBatch.from_pydict(columns)

    def expected(self, batches: list[pa.RecordBatch]) -> dict[str, int]:
        """Sink → matches if nothing is dropped. SCHEDULE+ matches where one SCHEDULE does."""
        rows = rows_to_match(batches)
        found = {name: count_matches(f"SEQ(SUBMIT; SCHEDULE; {kind})", rows) for name, kind in ENDS.items()}
        return {"killed": found["killed"], "failed": found["failed"], "milestone": found["finished"] // MILESTONE}


@dataclass
class Phase:
    """What was published in a while, at a steady rate. begin_us, end_us: event times."""

    trace: Trace | SurplusStream
    begin_us: int
    first: int
    rate: float
    batches: list[pa.RecordBatch] = field(default_factory=list)

    @property
    def end_us(self) -> int:
        return self.begin_us + round(sum(each.num_rows for each in self.batches) / self.rate * SECOND_US)

    @cached_property
    def expected(self) -> dict[str, int]:
        """Sink → matches of one look at all of it."""
        return self.trace.expected(self.batches)


class Producer(threading.Thread):
    """Publishes at a rate, in event time as on the clock, until it is stopped."""

    def __init__(self, url: str, trace: Trace | SurplusStream, rate: float, first: int) -> None:
        super().__init__(daemon=True)
        self._url, self._trace, self._rate = url, trace, rate
        self._over = threading.Event()
        self.phase = Phase(trace, round(time.time() * SECOND_US), first, rate)
        self.next = first

    def run(self) -> None:
        count = round(self._rate * SLICE_SECONDS)
        with Client(self._url, producer="test") as client:
            while not self._over.is_set():
                done = self.next - self.phase.first
                times_us = self.phase.begin_us + ((done + np.arange(count)) / self._rate * SECOND_US).astype(np.int64)
                rows = self._trace.events(self.next, count, times_us)
                behind = times_us[-1] / SECOND_US - time.time()
                self._over.wait(max(0.0, behind))
                client.publish("telemetry", rows)
                self.phase.batches.append(rows)
                self.next += count

    def finish(self) -> Phase:
        self._over.set()
        self.join(MAX_SECONDS)
        return self.phase


@dataclass
class Overload:
    """The plant around the application: agents, loops, and who watches."""

    control_url: str
    control: object
    nodes: Mapping[str, object]
    trace: Trace | SurplusStream
    bound_seconds: float
    next: int = 0
    baseline: bool = False
    log: list[dict] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.plant = LocalPlant(self.control)
        self.agents = [Agent(name, self.control) for name in self.nodes]
        self._seconds = 0

    def look(self) -> Snapshot:
        """A second of the plant: beats, a snapshot, and what is due of the loops."""
        started = time.monotonic()
        for agent in self.agents:
            agent.beat()
        snapshot = self.plant.observe()
        self._seconds += 1
        now = datetime.now(UTC)
        if self._seconds % 5 == 0:
            tick_due(self.plant, now, self.control, laws=("ladder",))
        if self._seconds % 2 == 0:
            self._shed_at_random(snapshot) if self.baseline else tick_due(
                self.plant, now, self.control, laws=("shedding",)
            )
        self.log.append(self._figures(snapshot))
        time.sleep(max(0.0, 1.0 - (time.monotonic() - started)))
        return snapshot

    def publish(self, rate: float, seconds: float) -> Phase:
        """So long at this rate, the loops at work."""
        producer = Producer(self.control_url, self.trace, rate, self.next)
        producer.start()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.look()
        phase = producer.finish()
        self.next = producer.next
        return phase

    def warm_up(self, rate: float, seconds: float = 90.0) -> None:
        """Until it keeps up: what a Java process does first says nothing."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            phase = self.publish(rate, 4.0)
            if (self.log[-1]["lag"] or seconds) < 8.0:
                return self.drain(phase)
        raise AssertionError(f"it does not keep up with {rate} events/s: {self.log[-1]}")

    def drain(self, phase: Phase, seconds: float = 90.0) -> None:
        """Until all of it is worked and nothing is shed any more; markers move event time on."""
        deadline = time.monotonic() + seconds
        if self.baseline:
            self.plant.steer_pipeline("exact", {"shed": {}})
            self.baseline = False
        with Client(self.control_url, producer="test") as client:
            while time.monotonic() < deadline:
                now = time.time()
                marker = {"id": f"marker-{now}", "time": now, "type": "UPDATE", "source": "none"}
                client.publish("telemetry", [marker])
                row = self.application(self.look())
                worked_us = (now - (row.watermark_lag_seconds or now)) * SECOND_US
                if worked_us > phase.end_us and not row.outbox and not row.controls.shed:
                    return
        raise AssertionError(f"not worked within {seconds} s: {self.log[-1]}")

    @staticmethod
    def application(snapshot: Snapshot) -> ApplicationStatus:
        return snapshot.pipeline.applications["exact"]

    def _figures(self, snapshot: Snapshot) -> dict:
        row, ladder = self.application(snapshot), snapshot.loops.get("ladder/telemetry")
        return {
            "in": row.in_per_second,
            "operator_in": row.operators["jobs"].in_per_second,
            "lag": row.watermark_lag_seconds,
            "p95": row.latency_p95_seconds,
            "shed": row.shed_share,
            "batch": row.batch_seconds,
            "overhead": row.batch_overhead_seconds,
            "utilisation": row.operators["jobs"].utilisation,
            "seconds": {name: each.seconds for name, each in row.patterns.items()},
            "rung": ladder.actuator if ladder else None,
            "recall": {name: each.recall.estimate if each.recall else None for name, each in row.patterns.items()},
            "waiting": row.waiting_events,
            "table": row.controls.shed,
        }

    def _shed_at_random(self, snapshot: Snapshot) -> None:
        """The baseline: as much as our law would spend, drawn from everything alike."""
        loop = Loop.objects.get(name="shedding/exact")
        before = (loop.state or {}).get("sensor")
        seen = shedding.measure_target(loop.target, snapshot, before, time.time())
        Loop.objects.filter(pk=loop.pk).update(state={**(loop.state or {}), "sensor": seen.counters})
        table = self._random_table(seen.observation) if seen.observation["patterns"] else {}
        self.plant.steer_pipeline("exact", {"shed": table, "shed_by": "event", "shed_until_seconds": None})

    def _random_table(self, seen: Mapping) -> shedders.Table:
        rows = {row["name"]: row for row in seen["patterns"] if row["operator"] == "jobs"}
        rates = seen["arrivals"]["jobs"]
        waiting = WaitingTimeModel(1.0, seen["batch_seconds"], seen["elsewhere_seconds"])
        measured = shedders.MeasuredStream(
            rates,
            {name: [kind for kind in row["takes"] if kind in rates] for name, row in rows.items()},
            {name: row["seconds"] for name, row in rows.items()},
            waiting.compute_utilisation_budget(self.bound_seconds, sum(rates.values())),
            {},
        )
        return shedders.shed_randomly(measured)

    def steer_law(self, **parameters: object) -> None:
        law = catalog.get_law("shedding")
        given = {**shedding.KIND.defaults.parameters, "latency_bound_seconds": self.bound_seconds, **parameters}
        catalog.read_parameters(law, given)
        Loop.objects.filter(law="shedding").update(parameters=given, state=None)

    def close(self) -> None:
        for agent in self.agents:
            agent.close()


@dataclass(frozen=True)
class Outcome:
    """What came of a phase: recall at the sinks, and the age of matches when they reached them, by window."""

    found: dict[str, int]
    expected: dict[str, int]
    p95_seconds: list[float]

    @property
    def recall(self) -> float:
        return sum(self.found.values()) / sum(self.expected.values())

    def share_within(self, bound_seconds: float) -> float:
        return sum(each <= bound_seconds for each in self.p95_seconds) / len(self.p95_seconds)


def outcome(phase: Phase, nodes: Mapping[str, object], window_seconds: float = 10.0) -> Outcome:
    """Of what was published to queue alert: the entry's id says when it was there, its time when it was."""
    found: dict[str, int] = dict.fromkeys(phase.expected, 0)
    ages: dict[int, list[float]] = {}
    for at_ms, event in _alerts(nodes):
        time_us = round(event["time"].timestamp() * SECOND_US)
        if not phase.begin_us <= time_us < phase.end_us:
            continue
        found[event["type"]] += 1
        window = (time_us - phase.begin_us) // round(window_seconds * SECOND_US)
        ages.setdefault(window, []).append(at_ms / 1000 - time_us / SECOND_US)
    quantiles = [float(np.quantile(ages[window], 0.95)) for window in sorted(ages)]
    return Outcome(found, phase.expected, quantiles)


def _alerts(nodes: Mapping[str, object]) -> Iterator[tuple[int, dict]]:
    for server in nodes.values():
        for entry_id, block_id, data, _ in Segment(server.client(), "alert").read("0-0", "+"):
            at_ms = int((entry_id.decode() if isinstance(entry_id, bytes) else entry_id).split("-")[0])
            for event in block.decode(block_id, data).batch.to_pylist():
                yield at_ms, event


def told(outcomes: Mapping[str, Outcome], capacity: float) -> str:
    """The figures, as JSON."""
    return json.dumps(
        {
            "capacity_per_second": round(capacity),
            **{
                name: {
                    "recall": round(each.recall, 3),
                    "found": each.found,
                    "expected": each.expected,
                    "p95_seconds": [round(p95, 2) for p95 in each.p95_seconds],
                }
                for name, each in outcomes.items()
            },
        }
    )
