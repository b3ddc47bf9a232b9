"""The plant on this machine or cluster: Redis nodes, Celery workers, the Spark pipeline."""

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import redis

from common.stored_document import ReportReader, decode_readable_document, replace_fields
from queues import keys
from queues.control.replies import expect_bytes
from queues.nodes.heartbeat import Membership
from queues.topology import KnownTopology
from workers.consumer.work_report import Latencies
from workers.coordination.plant_clock import Freshness
from workers.documents.loops import LoopStatus
from workers.documents.pipeline import PipelineStatus
from workers.documents.plants import LoadForecast, PlantStatus
from workers.documents.snapshot import NOTHING_SEEN, ExpectedBands, Snapshot
from workers.documents.states import SubjectState
from workers.history.forecasts import PLANT, BandWatch, LoadForecasts, LoadSource
from workers.pipeline.declaration.declared import Orders
from workers.plants.foreign.adapters import get_convergence_timeout
from workers.plants.foreign.watch import PlantWatch
from workers.plants.holding import find_holder
from workers.plants.orders import OrderWatch
from workers.plants.registry import LOCAL
from workers.plants.steered import SteeredPlant
from workers.snapshot.compose import SnapshotInputs, Watch, compose, count_work
from workers.snapshot.control_record import control_record
from workers.snapshot.evaluate import evaluate_states
from workers.snapshot.health import add_action_summary, evaluate_health, list_manual_changes
from workers.snapshot.judgement import Limits
from workers.snapshot.observer import ConsoleProbe
from workers.snapshot.parts import PartsRecord
from workers.snapshot.rates import LEAVING_WINDOW_SECONDS, WINDOW_SECONDS, Rates, ReportTimes, TrendWatch
from workers.snapshot.readings import Readings, read

logger = logging.getLogger(__name__)
LATENCY_WINDOW_SECONDS = 15.0
COUNTED = {
    "inserted_events": WINDOW_SECONDS,
    "removed_events": LEAVING_WINDOW_SECONDS,
    "dead_events": LEAVING_WINDOW_SECONDS,
}
WORKED = ("busy_ms", "events")
DIGITS = 3  # a millisecond, a thousandth of an event per second: more digits only make the message longer


class LocalPlant(SteeredPlant):
    """An observer of the control server; one instance per watching process, called about once a second.

    `clock` gives wall time (for display), `monotonic` the time for ages and rates.
    """

    def __init__(
        self,
        control: redis.Redis,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        name: str = LOCAL,
        others: PlantWatch | None = None,
        forecasts: LoadForecasts | None = None,
        bands: BandWatch | None = None,
        console: ConsoleProbe | None = None,
        plant_time: Callable[[], float] | None = None,
    ) -> None:
        """Initialize the observer.

        others: the registered plants, where this watcher observes them, too; forecasts: of the load offered to
        applications and plants, bands: expected ranges of rates, where this watcher computes them;
        console: the probe of the console, where it has one; plant_time: the clock of workers' signs of life, else
        `clock`.
        """
        super().__init__(control, clock)
        self._monotonic, self._name, self._others = monotonic, name, others
        self._plant_time = plant_time or clock
        self._load_forecasts, self._bands, self._console = forecasts, bands, console
        self._orders = OrderWatch(patience=get_convergence_timeout, before=lambda: self._load_previous().plants)
        self._known, self._reader = KnownTopology(), ReportReader(logger)
        self._membership, self._freshness, self._rates = Membership(), Freshness(), Rates()
        self._producer_rates, self._report_times = Rates(), ReportTimes()
        self._sampled: dict[str, int] = {}  # node → the heartbeat whose counters are in the rates
        self._trends: dict[str, TrendWatch] = {}
        self._group_trends: dict[tuple[str, str], TrendWatch] = {}  # plant, group: of those seen last
        self._states: Mapping[str, SubjectState] | None = None
        self._loops: Mapping[str, LoopStatus] | None = None
        self._histograms: deque[tuple[float, dict[str, Latencies]]] = deque()
        self._parts: PartsRecord | None = None
        self._seq = 0

    def observe(self) -> Snapshot:
        """Observe the plant now. Raises `redis.RedisError` when the control server is away."""
        now, plant_now = self._clock(), self._plant_time()
        readings = read(self._control, plant_now, self._known, self._reader)
        monotonic_seconds = self._monotonic()
        inputs = self._build_inputs(readings, now, monotonic_seconds)
        before = self._load_previous().loops if self._loops is None else self._loops
        record = control_record(datetime.fromtimestamp(now, UTC), before)
        self._loops = record.loops
        self._seq += 1
        composed = self._add_trends(compose(inputs, record.loops, record.overrides), monotonic_seconds)
        if self._parts is None:
            stored = expect_bytes(self._control).get(keys.SNAPSHOT)
            self._parts = PartsRecord(decode_readable_document(Snapshot, stored))
        composed = replace_fields(composed, parts=self._parts.step(composed, now))
        plants = self._build_plant_statuses(now, monotonic_seconds)
        snapshot = replace_fields(
            composed,
            seq=self._seq,
            at=now,
            ahead_seconds=round(now - plant_now, 3),
            plant=self._name,
            plans=record.plans,
            runs=record.runs,
            alerts=record.alerts,
            deeds=record.recent_actions,
            steered_by=find_holder(self._control, self._name),
            plants=plants,
            forecasts=self._compute_forecasts(composed.pipeline, plants, now),
            bands=self._bands.collect_rows(list(composed.queues), now) if self._bands else ExpectedBands(),
        )
        manual_changes = list_manual_changes(snapshot, record.caps, Orders(self._control).read())
        return self._add_states(replace_fields(snapshot, hands=manual_changes), record.limits, readings)

    def _add_states(self, snapshot: Snapshot, limits: Limits, readings: Readings) -> Snapshot:
        """With the states of its subjects, and what follows from them."""
        before = self._load_previous().states if self._states is None else self._states
        unreadable = readings.unreadable_hosts
        self._states = evaluate_states(snapshot, before, limits, readings.hosts, unreadable)
        snapshot = replace_fields(snapshot, states=self._states)
        snapshot = replace_fields(snapshot, health=evaluate_health(snapshot))
        return replace_fields(snapshot, health=add_action_summary(snapshot))

    def _load_previous(self) -> Snapshot:
        """Load the previously published snapshot: a new watcher knows no other past."""
        return decode_readable_document(Snapshot, self._control.get(keys.SNAPSHOT)) or NOTHING_SEEN

    def _add_trends(self, snapshot: Snapshot, at_seconds: float) -> Snapshot:
        """Add facts that only a watcher knows: trends of the backlog and whether the console answers.

        The trends are of each queue and of all together.
        """
        queues = {}
        for name, queue in snapshot.queues.items():
            watch = self._trends.setdefault(f"queue/{name}", TrendWatch())
            watch.add(queue.waiting_events, at_seconds)
            queues[name] = replace_fields(queue, trend=watch.trend)
        whole = self._trends.setdefault("plant", TrendWatch())
        whole.add(snapshot.totals.backlog_events, at_seconds)
        change = None if whole.change is None else round(whole.change)
        totals = replace_fields(
            snapshot.totals,
            backlog_change_events=change,
            backlog_trend=whole.trend,
            console_available=self._console.compute_availability() if self._console else None,
        )
        return replace_fields(snapshot, queues=queues, totals=totals)

    def _build_plant_statuses(self, now: float, at_seconds: float) -> dict[str, PlantStatus]:
        """Return the registered plants.

        They include their holders here, the outcomes of their orders, and the trends of their groups' lags.
        """
        rows = self._orders.step(self._others.collect_rows(), now) if self._others else {}
        statuses, trends = {}, {}
        for name, row in rows.items():
            groups = {}
            for group, status in row.groups.items():
                watch = trends[name, group] = self._group_trends.get((name, group)) or TrendWatch()
                watch.add(status.lag_events, at_seconds)
                groups[group] = replace_fields(status, trend=watch.trend)
            statuses[name] = replace_fields(row, steered_by=find_holder(self._control, name), groups=groups)
        self._group_trends = trends
        return statuses

    def _compute_forecasts(
        self, pipeline: PipelineStatus, plants: Mapping[str, PlantStatus], now: float
    ) -> dict[str, LoadForecast]:
        """Return load forecasts for running applications and for plants with adjustable tasks."""
        if self._load_forecasts is None:
            return {}
        here = {name: LoadSource(tuple(row.queues)) for name, row in pipeline.applications.items()}
        there = {PLANT + name: LoadSource(plant=name) for name, row in plants.items() if row.tasks}
        return self._load_forecasts.collect_rows({**here, **there}, now)

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
