"""A simulated plant with the interface and the documents of a real plant, on virtual time.

A scenario moves events and reports finished batches. From that, the plant makes the reports that agents, worker hosts,
producers, and the pipeline send each second, and the code of the real observer turns them into a snapshot with
ages, rates, and windows. Orders (workers, pool sizes, controls, throttling) wait here until the scenario applies them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from common.errors import BadInput
from common.stored_document import replace_fields
from controllers.parallelism.measured_topology import MeasuredTopology
from queues.nodes import node_state
from queues.nodes.heartbeat import ContainerCounters, Heartbeat, UtilizationByPart
from queues.nodes.node_state import NodeState, StateThresholds
from queues.topology import NodeSpec, Topology
from workers.consumer.work_report import Latencies
from workers.control.parts.kind import PlantInventory
from workers.documents.hosts import PoolWork, ReportedHost
from workers.documents.loops import LoopStatus
from workers.documents.pipeline import PipelineReport
from workers.documents.plants import LoadForecast
from workers.documents.queues import EventSample, ReportedProducer
from workers.documents.snapshot import NOTHING_SEEN, Snapshot
from workers.models import LedgerEntry
from workers.pipeline.declaration.controls import Controls
from workers.plants.topology import build_topology, place_of
from workers.pool.orders import MAX_THREADS, ORDER_SECONDS
from workers.snapshot.observer import OBSERVE_AT_SECONDS
from workers.snapshot.readings import Readings
from workers.snapshot.readings_watcher import ReadingsWatcher
from workers.twin.simulated_application import SimulatedApplication
from workers.twin.simulated_container import SimulatedContainer
from workers.twin.simulated_plans import SimulatedPlans

STARTS_AT = datetime(2026, 1, 5, tzinfo=UTC)  # a Monday
MAX_SMOOTHED_BEATS = 16  # afterwards the smoothed utilization has reached the raw one


class VirtualClock:
    """A clock that a simulation advances: seconds since 1970."""

    def __init__(self) -> None:
        self.now = STARTS_AT.timestamp()

    def __call__(self) -> float:
        return self.now


@dataclass
class SimulatedNode:
    """A node. silent: it sends no heartbeats. cpu, memory: shares of its capacity that are used.

    real_per_second: if it differs from the declared capacity, the events/s that use its whole CPU.
    """

    silent: bool = False
    cpu: float = 0.0
    memory: float = 0.0
    real_per_second: float | None = None
    state: NodeState = field(default_factory=NodeState)
    heartbeat: Heartbeat | None = None
    inserted_events: float = 0.0  # at the last heartbeat


@dataclass
class SimulatedHost:
    """A worker host. If an ordered size is not renewed, the pool returns to its initial size.

    alive: number of its processes, which end after their work; None: the ordered size, at once.
    """

    started_with: int
    role: str = "jobs"
    slots: int = 0
    alive: int | None = None
    busy: int = 0
    at_work: float | None = None
    done: PoolWork | None = None
    ordered: int | None = None
    ordered_until: float = 0.0

    def __post_init__(self) -> None:
        self.slots = self.slots or self.started_with

    def report(self, now: float) -> ReportedHost:
        """Apply the order in force, and report."""
        self.slots = self.ordered if self.ordered is not None and now < self.ordered_until else self.started_with
        return ReportedHost(
            role=self.role,
            slots=self.slots if self.alive is None else self.alive,
            busy=self.busy,
            at_work=self.at_work,
            pid=1,
            resizable=True,
            started_with=self.started_with,
            trouble="",
            done=self.done,
            at=now,
        )


class SimulatedInventory(PlantInventory):
    """The targets that loops can be created for."""

    def __init__(self, plant: "SimulatedPlant") -> None:
        self.topology, self.snapshot = plant.topology, plant.observe()
        self.applications = list(plant.applications)
        self.hosts = {name: host.report(plant.clock()) for name, host in plant.hosts.items()}
        self.fair_queues = list(plant.ordinary_weights)
        self.plants = {}


class SimulatedPlant:
    """The simulated plant. `clock` is virtual, and the plant changes only when a method is called."""

    def __init__(self, topology: Topology, hosts: Mapping[str, int] | None = None) -> None:
        """Set up an idle plant. hosts: the number of processes that each worker host starts with."""
        self.topology, self.clock = topology, VirtualClock()
        self.nodes = {name: SimulatedNode() for name in topology.nodes}
        self.hosts = {name: SimulatedHost(slots) for name, slots in (hosts or {}).items()}
        self.applications: dict[str, SimulatedApplication] = {}
        self.published: dict[tuple[str, str], float] = {}  # (producer, queue) → its events so far
        self.latencies: dict[str, Latencies] = {}  # by queue, cumulative
        self.ordinary_weights: dict[str, float] = {}  # of fair queues
        self.active_keys: dict[str, int] = {}  # of queues, as every producer estimates it
        self.plans = SimulatedPlans()
        self.forecasts: dict[str, LoadForecast] = {}
        self.controls: dict[str, dict[str, object]] = {}  # application → controls in force
        self.cores: int | None = None  # of Spark; None: not reported
        self._containers: dict[tuple[str, str], SimulatedContainer] = {}
        self.requested: set[str] = set()  # loops that must decide at once
        self._throttled: dict[str, tuple[float, float]] = {}  # queue → when its throttling begins and ends
        self._watcher, self._snapshot = ReadingsWatcher(), NOTHING_SEEN
        self._beaten_at: float | None = None
        self._seq = 0

    def add_application(self, declaration: str) -> SimulatedApplication:
        """Start an application from its declaration (YAML)."""
        application = SimulatedApplication(declaration, self.clock)
        self.applications[application.declared.name] = application
        return application

    def container(self, queue: str, node: str) -> SimulatedContainer:
        """Return a queue's container on a node, and create it if necessary."""
        return self._containers.setdefault((queue, node), SimulatedContainer())

    def get_controls(self, application: str) -> Controls:
        """Return an application's controls in force."""
        return self.applications[application].declared.controls.apply_changes(self.controls.get(application, {}))

    def compute_throttled_share(self, queue: str, seconds: float = 1.0) -> float:
        """Return the share of this time, from now on, in which a queue's producers wait."""
        now, (began, end) = self.clock(), self._throttled.get(queue, (0.0, 0.0))
        return max(0.0, min(end, now + seconds) - max(began, now)) / seconds

    def beat(self) -> None:
        """Advance the open plans, and let every node send its heartbeat. Call this each second."""
        now, seconds = self.clock(), 1.0 if self._beaten_at is None else self.clock() - self._beaten_at
        self._beaten_at, self._seq = now, self._seq + 1
        self.topology = self.plans.advance(self.topology, self.container, seconds, now)
        for name, spec in self.topology.nodes.items():
            if not self.nodes[name].silent:
                self._send_heartbeat(self.nodes[name], spec, now, seconds)

    def _send_heartbeat(self, node: SimulatedNode, spec: NodeSpec, now: float, seconds: float) -> None:
        held = {queue: row for (queue, name), row in self._containers.items() if name == spec.name}
        inserted, points = sum(row.inserted_events for row in held.values()), self.topology.has_points(spec.name)
        events = max(0.0, inserted - node.inserted_events) / seconds / spec.capacity.events_per_second
        if node.real_per_second is not None:
            node.cpu = events * spec.capacity.events_per_second / node.real_per_second
            for row in held.values():
                row.update_server_time_share(seconds, node.real_per_second)
        parts, node.inserted_events = UtilizationByPart(node.cpu, node.memory, round(events, 6)), inserted
        raw = max(parts.cpu, parts.memory, parts.events)
        thresholds = StateThresholds(spec.busy, spec.toobusy)
        for _ in range(min(MAX_SMOOTHED_BEATS, max(1, round(seconds)))):
            node.state = node_state.step(node.state, raw, points, thresholds)
        counters: dict[str, ContainerCounters] = {queue: row.build_counters(now) for queue, row in held.items()}
        empty = {queue: ContainerCounters() for queue in self.topology.on_node(spec.name) if queue not in counters}
        node.heartbeat = Heartbeat(
            seq=self._seq,
            node=spec.name,
            at=now,
            state=node.state.state,
            utilisation=node.state.utilisation,
            raw=raw,
            parts=parts,
            containers={**empty, **counters},
        )

    def publish(self, loops: dict[str, LoopStatus]) -> Snapshot:
        """Compose the current snapshot from the reports, as the observer does, and return it."""
        now = self.clock()
        heartbeats = {name: node.heartbeat for name, node in self.nodes.items() if node.heartbeat is not None}
        applications = {name: row.build_status(heartbeats) for name, row in self.applications.items()}
        reported_at = now - OBSERVE_AT_SECONDS
        readings = Readings(
            topology=self.topology,
            heartbeats=heartbeats,
            producers={
                (producer, queue): ReportedProducer(
                    at=reported_at,
                    events=round(events),
                    sample=EventSample(keys=self.active_keys[queue]) if queue in self.active_keys else None,
                )
                for (producer, queue), events in self.published.items()
            },
            hosts={name: host.report(reported_at) for name, host in self.hosts.items()},
            pipeline=(
                PipelineReport(at=reported_at, state="running", cores=self.cores, applications=applications)
                if applications
                else None
            ),
            containers={pair: row.build_workers() for pair, row in self._containers.items()},
            latencies=self.latencies,
            ordinary_weights=self.ordinary_weights,
        )
        composed = self._watcher.compose(readings, loops, [], now, now)
        plans = [plan.build_status() for plan in self.plans.open]
        about = {"seq": self._seq, "at": now, "ahead_seconds": 0.0, "plant": "twin"}
        self._snapshot = replace_fields(composed, **about, plans=plans, forecasts=self.forecasts)
        return self._snapshot

    def observe(self) -> Snapshot:
        """Return the newest snapshot."""
        return self._snapshot

    def start_workers(self, queue: str, node: str, count: int, ids: Sequence[str], ahead: int = 0) -> list[str]:
        """Submit workers, which the scenario starts."""
        if node not in self.topology.queue(queue).points:
            raise BadInput("node", f"{node} has no container of {queue}.")
        if count != len(ids):
            raise BadInput("count", f"must equal the number of IDs ({len(ids)}), not {count}.")
        self.container(queue, node).submit(ids)
        return list(ids)

    def resize_pool(self, host: str, threads: int) -> None:
        """Order a pool size, which takes effect at the host's next report."""
        if not 1 <= threads <= MAX_THREADS:
            raise BadInput("threads", f"must be a whole number from 1 to {MAX_THREADS}, not {threads}.")
        if host not in self.hosts:
            raise BadInput("host", f"{host} is not reporting.")
        self.hosts[host].ordered, self.hosts[host].ordered_until = threads, self.clock() + ORDER_SECONDS

    def keep_pool(self, host: str) -> None:
        """Extend the order in force."""
        row = self.hosts.get(host)
        if row is not None and self.clock() < row.ordered_until:
            row.ordered_until = self.clock() + ORDER_SECONDS

    def steer_pipeline(self, application: str, changes: Mapping[str, object]) -> None:
        """Change controls; the scenario reads them with `get_controls`."""
        wanted = {**self.controls.get(application, {}), **changes}
        Controls().apply_changes(wanted)
        self.controls[application] = wanted

    def request_decisions(self, loops: Collection[str]) -> None:
        """Request decisions; the twin makes the loops due."""
        self.requested.update(loops)

    def throttle_queue(self, queue: str, seconds: float) -> None:
        """Throttle a queue's producers; the scenario reads `compute_throttled_share`."""
        self._throttled[queue] = self.clock(), self.clock() + seconds

    def set_ordinary_weight(self, queue: str, weight: float) -> None:
        """Store the weight."""
        self.ordinary_weights[queue] = weight

    def move_points(self, entry: LedgerEntry) -> None:
        """Start the decision's plan, which moves points from the next heartbeat on."""
        self.plans.begin(entry, self.observe(), self.topology)

    def get_topology(self) -> MeasuredTopology:
        """Return the operators of the newest snapshot."""
        return build_topology(self.observe())

    def hold(self, seconds: float) -> None:
        """Do nothing: the plant has no controllers of its own."""

    def release(self) -> None:
        """Do nothing: nothing is held."""

    def set_parallelism(self, tasks: Mapping[str, int]) -> None:
        """Set the tasks of operators, from the next batch on."""
        wanted: dict[str, dict[str, int]] = {}
        for name, count in self.get_topology().check_tasks(tasks).items():
            application, operator = place_of(name)
            wanted.setdefault(application, dict(self.get_controls(application).tasks))[operator] = count
        for application, counts in wanted.items():
            self.steer_pipeline(application, {"tasks": counts})
