"""A plant as a page shows it: its operators with their tasks, its paths, and the loops that set them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from common.errors import BadInput
from common.stored_document import replace_fields
from console.display.plant_words import ShownReport, report_of
from controllers.framework.reason import format_count, format_names
from controllers.parallelism.inputs import compute_rate_per_second, compute_service_seconds
from controllers.parallelism.measured_topology import MeasuredOperator, MeasuredTopology
from workers.documents.consumer_groups import ConsumerGroup
from workers.documents.loops import LoopStatus
from workers.documents.plants import OrderStatus, PlantHolder, PlantSection, PlantStatus, SensorStatus, SetValue
from workers.documents.snapshot import Snapshot
from workers.models import Loop
from workers.plants.foreign import adapters
from workers.plants.orders import explain_unreached
from workers.plants.registry import LOCAL, explain_unseen
from workers.plants.topology import build_topology

MAX_CHARTED, NAMED = 6, 3


@dataclass(frozen=True)
class ShownPlant:
    """The known facts about a plant. topology: None if it has never been observed."""

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
    queue_names: Sequence[str] = ()  # of its broker
    task_names: Sequence[str] = ()  # that its workers have registered

    @property
    def is_supported(self) -> bool:
        """Return whether this version can attach plants of this kind."""
        return self.kind not in adapters.RETIRED_KINDS

    @property
    def charted(self) -> Sequence["ShownSensor"]:
        """Return the first MAX_CHARTED sensors."""
        return self.sensors[:MAX_CHARTED]


@dataclass(frozen=True)
class ShownSensor:
    """A number that the plant's declaration names."""

    name: str
    status: SensorStatus

    @property
    def lane(self) -> str:
        """Return the title of its chart."""
        title = self.status.title or self.name
        return f"{title}, {self.status.unit}" if self.status.unit else title


@dataclass(frozen=True)
class ShownGroup:
    """A consumer group of the plant's logs."""

    name: str
    status: ConsumerGroup


@dataclass(frozen=True)
class ShownTask:
    """A task of an operator, and what it measured in the window: inputs, executions, outputs, …; None if unknown."""

    name: str
    measures: Mapping[str, float | None]


@dataclass(frozen=True)
class ShownOperator:
    """An operator as measured; unknown values are None. fixed: why its tasks can't be set."""

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
    """An attached plant in a line: its problems, a sentence each."""

    name: str
    shown: ShownPlant
    status: PlantStatus
    wrong: list[str]


def list_attached(snapshot: Snapshot) -> list[AttachedPlant]:
    """Return the attached plants, those with problems first."""
    plants = [
        AttachedPlant(name=name, shown=build_view(snapshot, name), status=row, wrong=_list_problems(name, row))
        for name, row in snapshot.plants.items()
    ]
    return sorted(plants, key=lambda plant: (plant.status.state == "seen", not plant.wrong, plant.name))


def _list_problems(name: str, row: PlantStatus) -> list[str]:
    """Return the current problems. A plant that does not answer comes first, as the others may be out of date."""
    if row.error is not None:
        return [f"{explain_unseen(name, row).rstrip('.')}."]
    missed, queues = len(row.missed_workers), list(row.unserved_queues)
    faults = [f"{unreached}." for unreached in [explain_unreached(row)] if unreached]
    faults += [f"{format_count(missed, 'worker')} stopped responding."] if missed else []
    return faults + ([f"No worker consumes {format_names(queues[:NAMED])}."] if queues else [])


def build_view(snapshot: Snapshot | None, name: str) -> ShownPlant:
    """Build the view from the snapshot; for a stale plant it has the last observation."""
    if snapshot is None:
        return ShownPlant(name, "weir", "unseen", None, "there is no snapshot yet", None, None, None)
    if name == LOCAL:
        held = snapshot.steered_by or PlantHolder()
        topology, error = None, None
        try:
            topology = build_topology(snapshot)
        except BadInput as refused:
            error = str(refused)
        return ShownPlant(name, "weir", "seen", 0.0, error, topology, held.holder, held.until)
    row = snapshot.plants.get(name)
    if row is None:
        return ShownPlant(name, "", "unseen", None, "it has not been observed yet", None, None, None)
    topology = MeasuredTopology.from_document(row.topology) if row.topology else None
    held = row.steered_by or PlantHolder()
    holder = held.holder or (topology.holder if topology else None)
    until = held.until or (topology.held_until if topology else None)
    error = None if row.error is None else explain_unseen(name, row)
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
        list_groups(row.groups),
        [ShownSensor(sensor, status) for sensor, status in row.sensors.items()],
        row.orders,
        explain_unreached(row),
        row.queue_names,
        row.task_names,
    )


def list_set_values(snapshot: Snapshot | None, name: str) -> list[SetValue]:
    """Return what Weir has set at an attached plant, what stays first; also a hold that only the plant itself ends."""
    row = None if snapshot is None else snapshot.plants.get(name)
    if row is None or snapshot is None:
        return []
    values = [
        replace_fields(value, by=row.orders[value.item].by) if not value.by and value.item in row.orders else value
        for value in row.set_values
    ]
    held = row.steered_by
    if held is not None and held.until is not None and row.guard is None and adapters.has_own_controllers(name):
        values.append(
            SetValue(
                item="the plant's own controllers",
                value="held",
                afterwards="active",
                by=held.holder or "",
                since=held.since,
                within_seconds=max(0.0, held.until - (snapshot.at or held.until)),
                restored_by="system",
                is_hold=True,
            )
        )
    return sorted(values, key=lambda value: (not value.stays, value.is_harmless, value.item))


def list_groups(groups: Mapping[str, ConsumerGroup]) -> list[ShownGroup]:
    """Return the groups, the largest lag first; groups of unknown lag last."""
    groups_shown = [ShownGroup(name, status) for name, status in groups.items()]
    return sorted(groups_shown, key=lambda group: (-(group.status.lag_seconds or -1.0), group.name))


def count_settable_tasks(plant: ShownPlant) -> int | None:
    """Return the operators whose tasks can be set."""
    if plant.topology is None:
        return None
    return sum(operator.parallelism for operator in plant.topology.operators.values() if operator.fixed is None)


def list_operators(topology: MeasuredTopology) -> list[ShownOperator]:
    names = dict.fromkeys(name for path in topology.paths.values() for name in path)
    return [_build_operator(topology.operators[name], topology.window_seconds) for name in names]


def _build_operator(operator: MeasuredOperator, window_seconds: float) -> ShownOperator:
    outputs = operator.measure("outputs")
    return ShownOperator(
        name=operator.name,
        kind=operator.kind,
        parallelism=operator.known_parallelism,
        minimum=operator.minimum,
        maximum=operator.maximum,
        fixed=operator.fixed,
        settable=operator.fixed is None,
        in_per_second=compute_rate_per_second(operator, window_seconds),
        out_per_second=None if outputs is None else outputs / window_seconds,
        service_seconds=compute_service_seconds(operator) or operator.measure("service_seconds"),
        utilisation=operator.aggregate("utilisation", "MAX"),
        latency_seconds=operator.measure("latency_seconds"),
        tasks=[
            ShownTask(name, operator.tasks[place] if place < len(operator.tasks) else {})
            for place, name in enumerate(operator.task_names)
        ],
    )


def choose_lanes(operators: Sequence[ShownOperator], paths: Sequence[ShownPath]) -> list[str]:
    """Return the chart lanes: of all operators if tasks can be set, else of what is measured."""
    if any(operator.settable for operator in operators):
        return ["rate", "latency", "tasks"]
    sources = [operator for operator in operators if operator.kind == "source"]
    rate = ["rate"] if any(source.out_per_second is not None for source in sources) else []
    return [*rate, "latency"] if any(path.latency_seconds is not None for path in paths) else rate


def list_paths(topology: MeasuredTopology) -> list[ShownPath]:
    """Return the paths, the slowest first; those of unknown latency last."""
    paths = [
        ShownPath(name, path, topology.compute_path_latency_seconds(path)) for name, path in topology.paths.items()
    ]
    return sorted(paths, key=lambda path: -(path.latency_seconds or -1.0))


def list_loops(snapshot: Snapshot, name: str) -> list[PlantLoop]:
    """Return the loops that set the plant's tasks: an acting loop first, then loops of the whole plant."""
    loops = [
        PlantLoop(loop, row, None if name == LOCAL else report_of(row.id))
        for loop, row in snapshot.loops.items()
        if row.target.get("plant") == name
        or (name == LOCAL and row.law.startswith("parallelism") and "application" in row.target)
    ]
    return sorted(loops, key=lambda row: (row.status.mode not in Loop.ACTING, "operator" in row.status.target))
