"""Declaration of a kind of loop: a law with all that connects it to the plant.

Each module of `workers.control.kinds` declares one as `KIND`, in three parts: the loop itself (`LoopKind`), its
presentation (`Display`), and what its tuning needs (`LoopTuning`). The engine, the snapshot, and the pages read their
facts about a law from there.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import redis

from controllers.flow.prediction import Prediction
from controllers.framework.law import Law
from controllers.framework.reason import format_count
from controllers.framework.sensed import Counters, Measurement
from controllers.parallelism.advice_value import AdvisedOperator
from queues import fairness
from queues.topology import Topology
from workers.documents.hosts import ReportedHost
from workers.documents.loops import LoopStatus
from workers.documents.snapshot import NOTHING_SEEN, Snapshot
from workers.models import LedgerEntry, Loop
from workers.pipeline.declaration.declared import Declarations
from workers.plants.foreign.adapters import get_kind, list_steerable_adapters
from workers.plants.foreign.kind import AdapterKind
from workers.plants.plant import Plant
from workers.pool.orders import read_host_reports

# the interval at which a loop with nothing to decide writes an entry
REST_SECONDS = 20.0

MEBIBYTES = 2.0**-20  # scale of a chart lane whose measured values are bytes
NOUNS = {"shares": "replica", "tasks": "operator"}  # an action's value by name → what its items belong to
MAX_NAMED = 3  # parts of an action that a row names
Document = Mapping[str, Any]
Floats = npt.NDArray[np.float64]
Seconds = npt.NDArray[np.bool_]
Observed = tuple[float, Document]  # time (s since 1970) and observation
# target, snapshot, the sensor's counters at the last observation, now (1970, s)
Sensor = Callable[[Document, Snapshot, Counters | None, float], Measurement]
# target, snapshot; None where the target is missing
Readings = Callable[[Document, Snapshot], dict[str, Any] | None]
Actuator = Callable[[LedgerEntry, Loop, Plant], None]
# the loop, the mode in force, its sensor's observation → the part of the observation that depends on the mode
Recall = Callable[[Loop, str, Document], dict[str, Any]]
Proposer = Callable[[LedgerEntry, Snapshot, datetime], Any]


class PlantInventory:
    """The existing things that loops can be created for. Each part is read once, when a kind first requests it."""

    def __init__(self, topology: Topology, control: redis.Redis, snapshot: Snapshot | None = None) -> None:
        self.topology = topology
        self.snapshot = snapshot or NOTHING_SEEN
        self._control = control

    @cached_property
    def applications(self) -> Sequence[str]:
        """Return the names of the running pipeline applications."""
        return list(Declarations(self._control).load_running())

    @cached_property
    def hosts(self) -> Mapping[str, ReportedHost]:
        """Return the worker hosts that report, with their reports."""
        return read_host_reports(self._control)

    @cached_property
    def fair_queues(self) -> Sequence[str]:
        """Return the names of the fair jobs queues."""
        jobs = [name for name, spec in self.topology.queues.items() if spec.kind == "jobs"]
        return fairness.list_fair_queues(self._control, jobs)

    @cached_property
    def plants(self) -> Mapping[str, AdapterKind]:
        """Return the registered plants with anything adjustable, by name."""
        return {plant.name: get_kind(plant.kind) for plant in list_steerable_adapters()}


@dataclass(frozen=True)
class LoopStart:
    """The initial values of one target's loop, in addition to the defaults of its kind.

    Later changes are made by people, except for the target and the parameters in `follows`, which follow the plant and
    are kept as given here. interval_seconds: the time between its ticks, at least that of its kind.
    """

    target: Document
    mode: str | None = None
    parameters: Document = field(default_factory=dict)
    guard: Document = field(default_factory=dict)
    follows: Document = field(default_factory=dict)
    interval_seconds: float | None = None


@dataclass(frozen=True)
class Targets:
    """The loops that are required, by name. gone: why a loop that is not among them is retired."""

    loops: Mapping[str, LoopStart]
    gone: str


def total(action: Document) -> float:
    """Return the sum of all numbers in the action."""
    return sum(_compute_amount(value) for value in action.values())


def compute_amounts(observation: Document, action: Document) -> dict[str, float]:
    """Return the size of the action's parts by name; nothing where it has none."""
    return {name: _compute_amount(value) for name, value in action.items()}


def compute_tasks_in_force(observation: Document, action: Document) -> dict[str, float]:
    """Return the tasks of each operator after the action; operators that it does not change keep theirs."""
    now = {name: row["tasks"] for name, row in observation.get("operators", {}).items()}
    return {**now, **action.get("tasks", {})}


def describe_tasks(action: Document) -> str:
    """Return the tasks of each operator, without the name of its application: "tasks: score 2, match 3"."""
    rows = [f"{name.rpartition('/')[2]} {tasks}" for name, tasks in action.get("tasks", {}).items()]
    return f"tasks: {_list_first(rows)}" if rows else ""


def describe_shares(action: Document) -> str:
    """Return the share of each replica in percent."""
    rows = [f"{name} {100 * share:.1f} %" for name, share in action.get("shares", {}).items()]
    return f"shares: {_list_first(rows)}" if rows else ""


def _list_first(rows: Sequence[str]) -> str:
    more = len(rows) - MAX_NAMED
    return ", ".join(rows[:MAX_NAMED]) + (f", and {more} more" if more > 0 else "")


def _compute_amount(value: object) -> float:
    if isinstance(value, Mapping):
        return total(value)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def were_set(action: Document) -> str:
    """Describe the action's values in the past tense: "set admit 412.3"."""
    values = ", ".join(f"{name.replace('_', ' ')} {_format_value(name, value)}" for name, value in action.items())
    return f"set {values}"


def _format_value(name: str, value: object) -> str:
    if isinstance(value, Mapping):
        return f"of {format_count(len(value), NOUNS.get(name, 'item'))}"
    if not isinstance(value, int | float):
        return str(value)
    return f"{value:.4g}" if abs(value) < 1_000 else f"{value:,.0f}"


@dataclass(frozen=True)
class ChartSeries:
    """A line of a chart: its path in the snapshot, and its name.

    kind: measured, second, step, wanted, reference, limit, or entity (static/js/charts/lanes.js). value: of a constant,
    before scaling. breach: the side of a limit, above or below, on which values are tinted.
    """

    path: str
    label: str
    kind: str = "measured"
    value: float | None = None
    breach: str = ""


@dataclass(frozen=True)
class ChartLane:
    """Lines on one axis.

    title: name and unit; scale: factor of the values; whole: they are whole numbers; stacked: areas on each other.
    """

    title: str
    series: Sequence[ChartSeries]
    scale: float = 1.0
    whole: bool = False
    stacked: bool = False


@dataclass(frozen=True)
class Lanes:
    """Texts of a loop's chart: titles with their units.

    scale: converts the measured value to the title's unit. done: a word for the actuator's value. bounded: the setpoint
    is a limit that the measured value should not exceed.
    """

    measured: str
    actuator: str
    done: str
    scale: float = 1.0
    has_reference: bool = True
    bounded: bool = False

    def build_chart(self, loop: str) -> list[ChartLane]:
        """Return the lanes of a loop's chart: what it measures, and what it sets."""
        measured = [ChartSeries(f"loops.{loop}.measured", "measured")]
        if self.has_reference:
            kind, label = ("limit", "limit") if self.bounded else ("reference", "target")
            breach = "above" if self.bounded else ""
            measured.append(ChartSeries(f"loops.{loop}.setpoint", label, kind, breach=breach))
        actuator = [ChartSeries(f"loops.{loop}.actuator", self.done, "step")]
        return [ChartLane(self.measured, measured, self.scale), ChartLane(self.actuator, actuator)]

    @property
    def unit(self) -> str:
        """Return the unit of the measured value."""
        return self.measured.rpartition(", ")[2] if ", " in self.measured else ""

    @property
    def format(self) -> str:
        """Return the name of the format of a measured value in that unit (`console.display.formats`)."""
        return {100.0: "percent", MEBIBYTES: "mebibytes"}.get(self.scale, "number")


@dataclass(frozen=True)
class Display:
    """The presentation of a kind's loops: in the snapshot, on pages, and to external autoscalers.

    measured: where a ledger entry has the measured value, "observation.NAME" or "terms.NAME"; "": nowhere.
    setpoints: parameters; the first that exists is the setpoint.
    terms: the terms of a decision that a page shows each second.
    lasting: for a law whose value stays in force, the name under which it is observed, said by each decision, or else
    set; "" where no action means 0.
    is_news: False where the actuator is set at each tick, so that setting it is not notable.
    amount: the size of an action as one number.
    desired: from an entry's observation and action ({} for none), the desired values as numbers.
    past: an action in the past tense. brief: an action in a few words; "" shows its values instead.
    changes: what its actions change, for a count of them: "changed the limit 6 times". summed: the number of an action
    that is added up instead, with its verb and noun.
    title: the law's name in a sentence; "": its name, in words. joint: separator of the parts of a target.
    about: what the law does, in a few words, in contrast to others that set the same.
    of_each: the things that have one loop each.
    purpose: the purpose of its loops, as a sentence. formula: what it computes, with the parameters' names.
    main: the parameters that people change most, five at most. topics: the others, by titles; parameters in no topic
    have a topic of their own.
    engaged: from a loop's row in the snapshot with a nonzero actuator, what it has in force, in words.
    activity: from a loop's row in the snapshot, what it tests now, in words; "" for nothing.
    elsewhere: how its loops at attached plants are displayed; None: like all.
    chart: from a loop's target and its effective parameters, the lanes of its chart; None: those of `lanes`.
    """

    lanes: Lanes
    title: str = ""
    joint: str = " "
    measured: str = ""
    setpoints: tuple[str, ...] = ()
    terms: tuple[str, ...] = ()
    lasting: str = ""
    is_news: bool = True
    amount: Callable[[Document], float] = total
    desired: Callable[[Document, Document], Mapping[str, float]] = compute_amounts
    past: Callable[[Document], str] = were_set
    brief: Callable[[Document], str] = lambda action: ""
    changes: str = "a value"
    summed: tuple[str, str, str] | None = None
    about: str = ""
    of_each: str = ""
    purpose: str = ""
    formula: str = ""
    main: tuple[str, ...] = ()
    topics: tuple[tuple[str, tuple[str, ...]], ...] = ()
    engaged: Callable[[LoopStatus], str] | None = None
    activity: Callable[[LoopStatus], str] | None = None
    elsewhere: "Display | None" = None
    chart: Callable[[Mapping[str, str], Mapping[str, Any]], list[ChartLane]] | None = None

    def build_chart(self, loop: Loop, parameters: Mapping[str, Any]) -> list[ChartLane]:
        """Return the lanes of a loop's chart with its effective parameters."""
        return self.chart(loop.target, parameters) if self.chart else self.lanes.build_chart(loop.name)

    def compute_size(self, action: Document | None) -> float:
        """Return `amount` of an action; 0 for none."""
        return float(self.amount(action)) if action else 0.0

    def adds_capacity(self, observation: Document, action: Document | None) -> bool:
        """Return whether an action raises a lasting value, or does more than nothing."""
        if action and self.lasting:
            return sum(self.desired(observation, action).values()) > sum(self.desired(observation, {}).values())
        return self.compute_size(action) > 0


class WorkedLoad(Protocol):
    """The result of a load: runs of workers, and seconds in which the oldest event waited too long."""

    @property
    def runs(self) -> float: ...
    @property
    def late_seconds(self) -> float: ...


@dataclass(frozen=True)
class LoadReplay:
    """A loop's recorded load processed by its baselines (`workers.control.costs`).

    load: from observations in order of time, the arrivals of each second; empty where they have none. worked: the
    result for the law (under its name) or a baseline, with the seconds without decisions, if any. baselines:
    descriptions by name. reads: fields that an observation must have; older versions recorded fewer.
    """

    reads: frozenset[str]
    load: Callable[[Sequence[Observed]], Floats]
    worked: Callable[[Any, Floats, str, Seconds | None], WorkedLoad]
    baselines: Mapping[str, str]


@dataclass(frozen=True)
class PromisedResponse:
    """The settling response of a law with these parameters on its model.

    It has the title of the chart and the response, None while no model is set.
    """

    title: str
    of: Callable[[Any], Prediction | None]  # from the law's parameters


@dataclass(frozen=True)
class AdviceMeasure:
    """The measurement of the value of a loop's advice (`workers.control.advice`).

    unit: the unit of the actuator; a level has no price. of: from an entry's observation, its action ({} for none), and
    its terms, the operators with their units and the advised units; {} where they are not known. is_bounded: the loop
    sets one number, so an approved range becomes the guard's minimum and maximum.
    """

    unit: Literal["worker", "task", "node", "level"]
    of: Callable[[Document, Document, Document], Mapping[str, AdvisedOperator]]
    is_bounded: bool = False


@dataclass(frozen=True)
class LoopTuning:
    """The means to choose parameters of a kind's loops, for people and jobs. Loops at attached plants have no model.

    replay: how its baselines process the recorded load (`workers.control.costs`); None: they do not.
    promise: the response of parameters that are not in force yet; None where the law has no model.
    advice: how the value of advice is measured; None: its loops act from the start, or the value can't be measured.
    scenario: the lab scenario in which the law is compared with its baselines; None where there is none.
    unit_hours: worker-hours of one unit of the actuator (per hour, where it stays); None while that is unknown, or for
    an actuator without a price.
    """

    replay: LoadReplay | None = None
    promise: PromisedResponse | None = None
    advice: AdviceMeasure | None = None
    scenario: str | None = None
    unit_hours: Callable[[Document, Snapshot, Any], float | None] | None = None


@dataclass(frozen=True)
class LoopDefaults:
    """The initial mode, parameters, and guard of a kind's loops."""

    mode: str = Loop.Mode.AUTO
    parameters: Document = field(default_factory=dict)
    guard: Document = field(default_factory=dict)


@dataclass(frozen=True)
class LoopKind:
    """A law bound to what it observes, what it sets, and the targets that have a loop.

    readings: values by which the effect of an action is judged; `cumulative` names those that only increase. keeper:
    for an actuator that expires, called at each tick that sets nothing. proposer: proposes a loop's advice to a person;
    None where advice is only recorded. Raises WeirError. recall: the part of an observation that depends on the mode in
    force; a snapshot may be older than the mode. at_rest: whether there is nothing to decide at a target; None: there
    may always be something. followed: parameters that a `LoopStart` keeps equal to a value of the plant, and that
    value; people cannot set them permanently. seeded: whether its loops exist as soon as there is a topology; others
    are created with their targets. separable: whether loops at different containers may tick in different processes
    (`workers.control.parallel_ticks`): within a tick, no loop of the kind reads or changes values of another loop.
    """

    law: Law
    sensor: Sensor
    readings: Readings
    actuator: Actuator
    targets: Callable[[PlantInventory], Targets]
    interval_seconds: int
    display: Display
    tuning: LoopTuning = LoopTuning()
    defaults: LoopDefaults = LoopDefaults()
    keeper: Actuator | None = None
    proposer: Proposer | None = None
    recall: Recall | None = None
    at_rest: Callable[[Document, Snapshot], bool] | None = None
    cumulative: tuple[str, ...] = ()
    followed: Mapping[str, str] = field(default_factory=dict)
    seeded: bool = False
    separable: bool = False

    @property
    def name(self) -> str:
        """Return the law's name."""
        return self.law.name

    def begin(self, start: LoopStart) -> dict[str, Any]:
        """Return the fields of a new loop."""
        return {
            "law": self.name,
            "target": dict(start.target),
            "mode": start.mode or self.defaults.mode,
            "interval_seconds": float(start.interval_seconds or self.interval_seconds),
            "parameters": {**self.defaults.parameters, **start.parameters, **start.follows},
            "guard": {**self.defaults.guard, **start.guard},
        }
