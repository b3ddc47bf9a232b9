"""The plant on this machine or cluster: Redis nodes, Celery workers, the Spark pipeline."""

import logging
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import redis

from common.stored_document import ReportReader, decode_readable_document, replace_fields
from queues import keys
from queues.control.replies import expect_bytes
from queues.topology import KnownTopology
from workers.documents.loops import LoopStatus, ManualChange
from workers.documents.parts import ProcessEvent
from workers.documents.plants import PlantStatus
from workers.documents.snapshot import NOTHING_SEEN, Snapshot
from workers.documents.states import SubjectState
from workers.history.forecasts import Forecasts, ForecastSubjects, ForecastWatch
from workers.pipeline.declaration.declared import Declarations, Orders
from workers.plants.foreign.adapters import get_convergence_timeout
from workers.plants.foreign.interventions import list_active
from workers.plants.foreign.watch import PlantWatch
from workers.plants.holding import find_holder
from workers.plants.orders import OrderWatch
from workers.plants.registry import LOCAL
from workers.plants.restored import follow_restored
from workers.plants.steered import SteeredPlant
from workers.snapshot.control_record import ControlRecord, control_record
from workers.snapshot.destinations import add_retry_plans
from workers.snapshot.evaluate import evaluate_states
from workers.snapshot.headline import Headline
from workers.snapshot.health import add_action_summary, evaluate_health
from workers.snapshot.judgement import Limits
from workers.snapshot.manual_changes import ManualRecords, list_manual_changes
from workers.snapshot.observer import ConsoleProbe
from workers.snapshot.parts import PartsRecord
from workers.snapshot.problem_memory import ProblemMemory
from workers.snapshot.queue_memory import QueueMemory
from workers.snapshot.rates import TrendWatch
from workers.snapshot.readings import Readings, read
from workers.snapshot.readings_watcher import ReadingsWatcher
from workers.snapshot.recovery import find_solving_action
from workers.snapshot.starvation import Starvation
from workers.steering import plant_settings

logger = logging.getLogger(__name__)


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
        forecasts: ForecastWatch | None = None,
        console: ConsoleProbe | None = None,
        plant_time: Callable[[], float] | None = None,
        processes: Callable[[float], list[ProcessEvent]] | None = None,
    ) -> None:
        """Initialize the observer.

        others: the registered plants, where this watcher observes them, too; forecasts: of rates, where this watcher
        computes them; console: the probe of the console, where it has one; plant_time: the clock of workers' signs of
        life, else `clock`; processes: restarted and suspended processes at a time, where this watcher can know them.
        """
        super().__init__(control, clock)
        self._monotonic, self._name, self._others = monotonic, name, others
        self._plant_time = plant_time or clock
        self._forecasts, self._console = forecasts, console
        self._orders = OrderWatch(patience=get_convergence_timeout, before=lambda: self._load_previous().plants)
        self._known, self._reader, self._watcher = KnownTopology(), ReportReader(logger), ReadingsWatcher()
        self._group_trends: dict[tuple[str, str], TrendWatch] = {}  # plant, group: of those seen last
        self._states: Mapping[str, SubjectState] | None = None
        self._loops: Mapping[str, LoopStatus] | None = None
        self._parts: PartsRecord | None = None
        self._starvation, self._headline = Starvation(), Headline()
        self._memory: QueueMemory | None = None
        self._problems: ProblemMemory | None = None
        self._processes = processes
        self._service_seconds: dict[str, float] = {}
        self._seq = 0

    def observe(self) -> Snapshot:
        """Observe the plant now. Raises `redis.RedisError` when the control server is away."""
        now, plant_now = self._clock(), self._plant_time()
        readings = read(self._control, plant_now, self._known, self._reader)
        monotonic_seconds = self._monotonic()
        before = self._load_previous().loops if self._loops is None else self._loops
        record = control_record(datetime.fromtimestamp(now, UTC), before)
        self._loops = record.loops
        self._seq += 1
        composed = self._watcher.compose(readings, record.loops, record.overrides, now, monotonic_seconds)
        if self._parts is None:
            stored = expect_bytes(self._control).get(keys.SNAPSHOT)
            self._parts = PartsRecord(decode_readable_document(Snapshot, stored))
        composed = replace_fields(composed, parts=self._parts.step(composed, now))
        composed = add_retry_plans(composed, record.retry_plans, self._control)
        plants = self._build_plant_statuses(now, monotonic_seconds)
        forecasts = self._collect_forecasts(composed, plants, now)
        snapshot = replace_fields(
            composed,
            seq=self._seq,
            at=now,
            ahead_seconds=round(now - plant_now, 3),
            plant=self._name,
            totals=replace_fields(
                composed.totals, console_available=self._console.compute_availability() if self._console else None
            ),
            plans=record.plans,
            runs=record.runs,
            alerts=record.alerts,
            opening=record.opening,
            windows=record.windows,
            deeds=record.recent_actions,
            processes=self._processes(now) if self._processes else [],
            rejected=self._load_rejected(),
            crowd=self._starvation.follow(composed, monotonic_seconds),
            steered_by=find_holder(self._control, self._name),
            plants=plants,
            forecasts=dict(forecasts.loads),
            bands=forecasts.bands,
        )
        snapshot = replace_fields(snapshot, hands=self._list_manual_changes(snapshot, record))
        return self._add_states(snapshot, record.limits, readings, monotonic_seconds)

    def _list_manual_changes(self, snapshot: Snapshot, record: ControlRecord) -> list[ManualChange]:
        # A paused queue has no busy worker that is measured: its last measured time counts.
        self._service_seconds |= {
            name: queue.service_seconds for name, queue in snapshot.queues.items() if queue.service_seconds
        }
        records = ManualRecords(
            caps=record.caps,
            orders=Orders(self._control).read(),
            silences=record.silences,
            snoozed=record.snoozed,
            interventions={name: list_active(self._control, name) for name in snapshot.plants},
            service_seconds=self._service_seconds,
        )
        reminder_seconds = 3_600 * plant_settings.get_setting_value("override.reminder_hours")
        return list_manual_changes(snapshot, records, reminder_seconds)

    def _load_rejected(self) -> dict[str, str]:
        """Return the applications whose newest declaration can't run, with the reasons."""
        running = Declarations(self._control).load_running()
        return {name: row.refused for name, row in running.items() if row.refused}

    def _add_states(self, snapshot: Snapshot, limits: Limits, readings: Readings, monotonic_seconds: float) -> Snapshot:
        """With the states of its subjects, and what follows from them."""
        before = self._load_previous().states if self._states is None else self._states
        if self._memory is None or self._problems is None:
            previous = self._load_previous()
            self._memory, self._problems = QueueMemory(previous), ProblemMemory(previous, find_solving_action)
        snapshot = self._memory.add(snapshot, readings.topology.queues, monotonic_seconds)
        unreadable = readings.unreadable_hosts
        states = evaluate_states(snapshot, before, limits, readings.hosts, unreadable)
        if (catching_up := self._memory.begin_catching_up(snapshot, before, states)) is not None:
            snapshot = catching_up
            states = evaluate_states(snapshot, before, limits, readings.hosts, unreadable)
        self._states = states
        snapshot = self._problems.add(replace_fields(snapshot, states=states))
        snapshot = replace_fields(snapshot, health=evaluate_health(snapshot, self._headline, monotonic_seconds))
        return replace_fields(snapshot, health=add_action_summary(snapshot))

    def _load_previous(self) -> Snapshot:
        """Load the previously published snapshot: a new watcher knows no other past."""
        return decode_readable_document(Snapshot, self._control.get(keys.SNAPSHOT)) or NOTHING_SEEN

    def _build_plant_statuses(self, now: float, at_seconds: float) -> dict[str, PlantStatus]:
        """Return the registered plants.

        They include their holders here, the outcomes of their orders, and the trends of their groups' lags.
        """
        rows = self._orders.step(self._others.collect_rows(), now) if self._others else {}
        for name, restored in self._others.take_restored().items() if self._others else ():
            follow_restored(self._control, name, restored, now)
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

    def _collect_forecasts(self, composed: Snapshot, plants: Mapping[str, PlantStatus], now: float) -> Forecasts:
        """Return the forecasts of queues, running applications, and plants with adjustable tasks."""
        if self._forecasts is None:
            return Forecasts()
        applications = {name: row.queues for name, row in composed.pipeline.applications.items()}
        adjustable = [name for name, row in plants.items() if row.tasks]
        return self._forecasts.collect(ForecastSubjects(list(composed.queues), applications, adjustable), now)
