"""Values that an observer computes from readings over time: ages, rates, trends, and recent latencies."""

from collections import deque

from common.stored_document import replace_fields
from queues.nodes.heartbeat import Membership
from workers.consumer.work_report import Latencies
from workers.coordination.plant_clock import Freshness
from workers.documents.loops import LoopStatus, OverrideStatus
from workers.documents.snapshot import Snapshot
from workers.snapshot.compose import SnapshotInputs, Watch, compose, count_work
from workers.snapshot.node_capacity import CapacityWatch
from workers.snapshot.rates import LEAVING_WINDOW_SECONDS, WINDOW_SECONDS, Rates, ReportTimes, TrendWatch
from workers.snapshot.readings import Readings

LATENCY_WINDOW_SECONDS = 15.0
COUNTED = {
    "inserted_events": WINDOW_SECONDS,
    "removed_events": LEAVING_WINDOW_SECONDS,
    "dead_events": LEAVING_WINDOW_SECONDS,
}
WORKED = ("busy_ms", "events")
DIGITS = 3  # milliseconds, thousandths of an event per second: more digits only make the message longer


class ReadingsWatcher:
    """Composes snapshots from readings, about one per second; it remembers the earlier ones."""

    def __init__(self) -> None:
        self._membership, self._freshness, self._rates = Membership(), Freshness(), Rates()
        self._producer_rates, self._report_times = Rates(), ReportTimes()
        self._sampled: dict[str, int] = {}  # node → the heartbeat whose counters are in the rates
        self._trends: dict[str, TrendWatch] = {}
        self._capacities = CapacityWatch()
        self._histograms: deque[tuple[float, dict[str, Latencies]]] = deque()

    def compose(
        self,
        readings: Readings,
        loops: dict[str, LoopStatus],
        overrides: list[OverrideStatus],
        now: float,
        monotonic_seconds: float,
    ) -> Snapshot:
        """Return the snapshot of these readings and control records."""
        inputs = self._build_inputs(readings, now, monotonic_seconds)
        return self._capacities.add(self._add_trends(compose(inputs, loops, overrides), monotonic_seconds))

    def _add_trends(self, snapshot: Snapshot, at_seconds: float) -> Snapshot:
        """Add the trends of the backlog, of each queue and of all together."""
        queues = {}
        for name, queue in snapshot.queues.items():
            watch = self._trends.setdefault(f"queue/{name}", TrendWatch())
            watch.add(queue.waiting_events, at_seconds)
            queues[name] = replace_fields(queue, trend=watch.trend)
        whole = self._trends.setdefault("plant", TrendWatch())
        whole.add(snapshot.totals.backlog_events, at_seconds)
        change = None if whole.change is None else round(whole.change)
        totals = replace_fields(snapshot.totals, backlog_change_events=change, backlog_trend=whole.trend)
        return replace_fields(snapshot, queues=queues, totals=totals)

    def _build_inputs(self, readings: Readings, now: float, monotonic_seconds: float) -> SnapshotInputs:
        """Return the readings with facts that only a watcher knows: ages, rates, recent latencies."""

        def compute_age(kind: str, name: str, at: float, mark: float) -> float:
            lag = now - at
            age_seconds = self._freshness.compute_age_seconds(f"{kind}/{name}", mark, monotonic_seconds, lag)
            return round(age_seconds, DIGITS)

        sequences = {name: beat.seq for name, beat in readings.heartbeats.items()}
        self._membership = self._membership.record_sequences(sequences, monotonic_seconds)
        watch = Watch(self._membership, monotonic_seconds)
        ages = {("host", name): compute_age("host", name, host.at, host.at) for name, host in readings.hosts.items()}
        for (producer, queue), report in readings.producers.items():
            name = f"{producer}|{queue}"
            ages["producer", name] = compute_age("producer", name, report.at, report.at)
        self._freshness.forget_others("producer", (name for kind, name in ages if kind == "producer"))
        if readings.pipeline:
            at = readings.pipeline.at
            ages["pipeline", ""] = compute_age("pipeline", "", at, at)
        self._histograms.append((monotonic_seconds, dict(readings.latencies)))
        while len(self._histograms) > 2 and self._histograms[1][0] <= monotonic_seconds - LATENCY_WINDOW_SECONDS:
            self._histograms.popleft()
        earlier = self._histograms[0][1]
        recent = {queue: now.subtract(earlier.get(queue, Latencies())) for queue, now in readings.latencies.items()}
        return SnapshotInputs(readings, watch, ages, self._compute_rates(readings, monotonic_seconds), recent)

    def _compute_rates(self, readings: Readings, at_seconds: float) -> dict[str, float | None]:
        """Return rates per second of every cumulative counter, by name.

        A heartbeat that was already sampled is no new sample: otherwise, after a silence of the agent, all events in
        between would count in one second.
        """
        rates = {}
        for node, heartbeat in readings.heartbeats.items():
            is_new = self._sampled.get(node) != heartbeat.seq
            self._sampled[node] = heartbeat.seq
            for queue, counters in heartbeat.containers.items():
                for name, window in COUNTED.items():
                    key = f"{queue}@{node}.{name}"
                    count = count_work(counters, name) if is_new else None
                    rates[key] = self._compute_rate(key, count, at_seconds, window)
        for (queue, node), workers in readings.containers.items():
            for name in WORKED:
                key = f"{queue}@{node}.{name}"
                counted = workers.counts.get(name, 0)
                rates[key] = self._compute_rate(key, counted, at_seconds, LEAVING_WINDOW_SECONDS)
        return {**rates, **self._compute_producer_rates(readings, at_seconds)}

    def _compute_producer_rates(self, readings: Readings, at_seconds: float) -> dict[str, float | None]:
        """Return rates of producers, whose names change; those of producers that are gone are removed."""
        rows = {f"{name}|{queue}.events": row for (name, queue), row in readings.producers.items()}
        self._producer_rates.forget_others(rows)
        self._report_times.forget_others(rows)
        for key, row in rows.items():
            reported = self._report_times.estimate(key, row.at, at_seconds)
            if reported is not None:
                self._producer_rates.add(key, row.events, reported)
        rates = {key: self._producer_rates.get_latest(key) for key in rows}
        return {key: None if rate is None else round(rate, DIGITS) for key, rate in rates.items()}

    def _compute_rate(
        self, counter: str, value: float | None, at_seconds: float, window_seconds: float = WINDOW_SECONDS
    ) -> float | None:
        if value is None:
            rate = self._rates.get_latest(counter)
        else:
            rate = self._rates.add(counter, value, at_seconds, window_seconds)
        return None if rate is None else round(rate, DIGITS)
