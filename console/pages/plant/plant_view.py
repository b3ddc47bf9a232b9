"""A plant as a page shows it: its operators with their tasks, its paths, and the loops that set them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from console.display.first_report import ShownReport, report_of
from controllers.framework.reason import counted, listed
from controllers.parallelism.inputs import rate_per_second, service_seconds
from controllers.parallelism.measured_topology import MeasuredOperator, MeasuredTopology
from queues.errors import BadInput
from workers.documents.consumer_groups import ConsumerGroup
from workers.documents.loops import LoopStatus
from workers.documents.plants import OrderStatus, PlantHolder, PlantSection, PlantStatus, SensorStatus
from workers.documents.snapshot import Snapshot
from workers.models import Loop
from workers.plants.orders import why_unreached
from workers.plants.registry import LOCAL, why_unseen
from workers.plants.topology import topology_of

MOST_CHARTED, NAMED = 6, 3


@dataclass(frozen=True)
class ShownPlant:
    """What is known of a plant. topology: None while it has never been seen."""

    name: str
    kind: str
    state: str
    age_seconds: float | None
    error: str | None
    topology: MeasuredTopology | None
    holder: str | None
    held_until: float | None
    sections: Sequence[PlantSection] = ()
    groups: Sequence["ShownGroup"] = ()
    sensors: Sequence["ShownSensor"] = ()
    orders: Mapping[str, OrderStatus] = field(default_factory=dict)
    unreached: str | None = None  # why its loops hold

    @property
    def charted(self) -> Sequence["ShownSensor"]:
        """The first MOST_CHARTED sensors."""
        return self.sensors[:MOST_CHARTED]


@dataclass(frozen=True)
class ShownSensor:
    """A number that the plant's declaration names."""

    name: str
    status: SensorStatus

    @property
    def lane(self) -> str:
        """The title of its chart."""
        title = self.status.title or self.name
        return f"{title}, {self.status.unit}" if self.status.unit else title


@dataclass(frozen=True)
class ShownGroup:
    """A group of consumers of the plant's logs."""

    name: str
    status: ConsumerGroup


@dataclass(frozen=True, kw_only=True)
class ShownTask:
    """What one task of an operator did in the window: events that came, were worked and given on."""

    name: str
    utilisation: float | None
    inputs: float | None
    executions: float | None
    outputs: float | None
    service_seconds: float | None


@dataclass(frozen=True)
class ShownOperator:
    """An operator as it was measured; what is not known is None. fixed: why its tasks can't be set."""

    name: str
    kind: str
    parallelism: int | None
    minimum: int
    maximum: int
    fixed: str | None
    settable: bool
    in_per_second: float | None
    out_per_second: float | None
    service_seconds: float | None
    utilisation: float | None
    latency_seconds: float | None
    tasks: list[ShownTask]


@dataclass(frozen=True)
class ShownPath:
    """Operators in the order in which events pass them."""

    name: str
    operators: Sequence[str]
    latency_seconds: float | None


@dataclass(frozen=True)
class PlantLoop:
    """A loop that sets the tasks of a plant."""

    name: str
    status: LoopStatus
    report: ShownReport | None = None


@dataclass(frozen=True, kw_only=True)
class AttachedPlant:
    """A plant of others in a line: what is wrong with it, a sentence each."""

    name: str
    shown: ShownPlant
    status: PlantStatus
    wrong: list[str]


def attached_of(snapshot: Snapshot) -> list[AttachedPlant]:
    """Those with which something is wrong first."""
    found = [
        AttachedPlant(name=name, shown=shown(snapshot, name), status=row, wrong=_wrong(name, row))
        for name, row in snapshot.plants.items()
    ]
    return sorted(found, key=lambda each: (each.status.state == "seen", not each.wrong, each.name))


def _wrong(name: str, row: PlantStatus) -> list[str]:
    """What is wrong now: whether it answers first, as the rest is of when it did."""
    if row.error is not None:
        return [f"{why_unseen(name, row).rstrip('.')}."]
    missed, queues = len(row.missed_workers), list(row.unserved_queues)
    found = [f"{unreached}." for unreached in [why_unreached(row)] if unreached]
    found += [f"{counted(missed, 'worker')} stopped answering."] if missed else []
    return found + ([f"Nobody takes from {listed(queues[:NAMED])}."] if queues else [])


def shown(snapshot: Snapshot | None, name: str) -> ShownPlant:
    """The plant as the snapshot has it; what was last seen of it where it is stale."""
    if snapshot is None:
        return ShownPlant(name, "weir", "unseen", None, "there is no snapshot yet", None, None, None)
    if name == LOCAL:
        held = snapshot.steered_by or PlantHolder()
        topology, error = _local(snapshot)
        return ShownPlant(name, "weir", "seen", 0.0, error, topology, held.holder, held.until)
    row = snapshot.plants.get(name)
    if row is None:
        return ShownPlant(name, "", "unseen", None, "it has not been observed yet", None, None, None)
    topology = MeasuredTopology.from_document(row.topology) if row.topology else None
    held = row.steered_by or PlantHolder()
    holder = held.holder or (topology.holder if topology else None)
    until = held.until or (topology.held_until if topology else None)
    error = None if row.error is None else why_unseen(name, row)
    state, age = row.state, row.age_seconds
    return ShownPlant(
        name,
        row.kind,
        state,
        age,
        error,
        topology,
        holder,
        until,
        row.sections,
        groups_of(row.groups),
        [ShownSensor(each, status) for each, status in row.sensors.items()],
        row.orders,
        why_unreached(row),
    )


def groups_of(groups: Mapping[str, ConsumerGroup]) -> list[ShownGroup]:
    """The one that is furthest behind first; those of which no lag is known last."""
    found = [ShownGroup(name, status) for name, status in groups.items()]
    return sorted(found, key=lambda each: (-(each.status.lag_seconds or -1.0), each.name))


def _local(snapshot: Snapshot) -> tuple[MeasuredTopology | None, str | None]:
    try:
        return topology_of(snapshot), None
    except BadInput as error:
        return None, str(error)


def settable_tasks(plant: ShownPlant) -> int | None:
    """Those that can be set."""
    if plant.topology is None:
        return None
    return sum(each.parallelism for each in plant.topology.operators.values() if each.fixed is None)


def operators_of(topology: MeasuredTopology) -> list[ShownOperator]:
    names = dict.fromkeys(name for path in topology.paths.values() for name in path)
    return [_operator(topology.operators[name], topology.window_seconds) for name in names]


def _operator(operator: MeasuredOperator, window_seconds: float) -> ShownOperator:
    outputs = operator.measure("outputs")
    return ShownOperator(
        name=operator.name,
        kind=operator.kind,
        parallelism=operator.known_parallelism,
        minimum=operator.minimum,
        maximum=operator.maximum,
        fixed=operator.fixed,
        settable=operator.fixed is None,
        in_per_second=rate_per_second(operator, window_seconds),
        out_per_second=None if outputs is None else outputs / window_seconds,
        service_seconds=service_seconds(operator) or operator.measure("service_seconds"),
        utilisation=operator.aggregate("utilisation", "MAX"),
        latency_seconds=operator.measure("latency_seconds"),
        tasks=[
            _task(name, operator.tasks[place] if place < len(operator.tasks) else {})
            for place, name in enumerate(operator.task_names)
        ],
    )


def _task(name: str, measures: Mapping[str, float | None]) -> ShownTask:
    return ShownTask(
        name=name,
        utilisation=measures.get("utilisation"),
        inputs=measures.get("inputs"),
        executions=measures.get("executions"),
        outputs=measures.get("outputs"),
        service_seconds=measures.get("service_seconds"),
    )


def lanes_of(operators: Sequence[ShownOperator], paths: Sequence[ShownPath]) -> list[str]:
    """Of the plant's course: all where tasks can be set, else what is measured."""
    if any(each.settable for each in operators):
        return ["rate", "latency", "tasks"]
    sources = [each for each in operators if each.kind == "source"]
    rate = ["rate"] if any(each.out_per_second is not None for each in sources) else []
    return [*rate, "latency"] if any(each.latency_seconds is not None for each in paths) else rate


def paths_of(topology: MeasuredTopology) -> list[ShownPath]:
    """The slowest first; those whose latency isn't known last."""
    found = [
        ShownPath(name, path, topology.path_latency_seconds(path)) for name, path in topology.paths.items()
    ]
    return sorted(found, key=lambda each: -(each.latency_seconds or -1.0))


def loops_of(snapshot: Snapshot, name: str) -> list[PlantLoop]:
    """The loops that set its tasks; one that acts first, then those of all of it."""
    found = [
        PlantLoop(loop, row, None if name == LOCAL else report_of(row.id))
        for loop, row in snapshot.loops.items()
        if row.target.get("plant") == name
        or (name == LOCAL and row.law.startswith("parallelism") and "application" in row.target)
    ]
    return sorted(
        found, key=lambda row: (row.status.mode not in Loop.ACTING, "operator" in row.status.target)
    )
