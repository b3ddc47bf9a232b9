"""Declaration of a kind of loop: a law with all that connects it to the plant.

Each module of `workers.control.kinds` declares one as `KIND`. The engine, the schedule, the snapshot, and the pages
read their facts about a law from there.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from controllers.flow.prediction import Prediction
from controllers.framework.law import Law, Values
from controllers.framework.sensed import Counters, Measurement
from workers.control.parts import actions
from workers.control.parts.present import PlantInventory
from workers.control.parts.rehearsal import LoadReplay, TuningModel
from workers.documents.loops import LoopStatus
from workers.documents.snapshot import Snapshot
from workers.models import LedgerEntry, Loop
from workers.plants.plant import Plant

# the interval at which a loop with nothing to decide writes an entry
REST_SECONDS = 20.0

MEBIBYTES = 2.0**-20  # scale of a chart lane whose measured values are bytes
Document = Mapping[str, Any]
# target, snapshot, the sensor's counters at the last observation, now (1970, s)
Sensor = Callable[[Document, Snapshot, Counters | None, float], Measurement]
# target, snapshot; None where the target is missing
Readings = Callable[[Document, Snapshot], dict[str, Any] | None]
Actuator = Callable[[LedgerEntry, Loop, Plant], None]
Keeper = Callable[[LedgerEntry, Loop, Plant], None]
# the loop and its sensor's observation → the outcome of earlier proposals for the law
Recall = Callable[[Loop, Document], dict[str, Any]]
Proposer = Callable[[LedgerEntry, Snapshot, datetime], Any]


@dataclass(frozen=True)
class Lanes:
    """Texts of a loop's chart: titles with their units.

    scale: converts the measured value to the title's unit. done: a word for the actuator's value.
    """

    measured: str
    actuator: str
    done: str
    scale: float = 1.0
    has_reference: bool = True

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
    """How the loops of a kind are displayed, in the snapshot and on pages.

    measured: where a ledger entry has the measured value, "observation.NAME" or "terms.NAME"; "": nowhere.
    setpoints: parameters; the first that exists is the setpoint.
    terms: the terms of a decision that a page shows each second.
    lasting: for a law whose value stays in force, the name under which it is observed, said by each decision, or else
    set; "" where no action means 0.
    is_news: False where the actuator is set at each tick, so that setting it is not notable.
    amount: the size of an action as one number.
    past: an action in the past tense. brief: an action in a few words; "" shows its values instead.
    title: the law's name in a sentence; "": its name, in words. joint: separator of the parts of a target.
    about: what the law does, in a few words, in contrast to others that set the same.
    of_each: the things that have one loop each.
    purpose: the purpose of its loops, as a sentence. formula: what it computes, with the parameters' names.
    main: the parameters that people change most, five at most. topics: the others, by titles; parameters in no topic
    have a topic of their own.
    engaged: from a loop's row in the snapshot with a nonzero actuator, what it has in force, in words.
    """

    lanes: Lanes
    title: str = ""
    joint: str = " "
    measured: str = ""
    setpoints: tuple[str, ...] = ()
    terms: tuple[str, ...] = ()
    lasting: str = ""
    is_news: bool = True
    amount: Callable[[Document], float] = actions.total
    past: Callable[[Document], str] = actions.were_set
    brief: Callable[[Document], str] = actions.describe_nothing
    about: str = ""
    of_each: str = ""
    purpose: str = ""
    formula: str = ""
    main: tuple[str, ...] = ()
    topics: tuple[tuple[str, tuple[str, ...]], ...] = ()
    engaged: Callable[[LoopStatus], str] | None = None

    def compute_size(self, action: Document | None) -> float:
        """Return `amount` of an action; 0 for none."""
        return float(self.amount(action)) if action else 0.0


@dataclass(frozen=True)
class PromisedResponse:
    """The settling response of a law with these parameters on its model.

    It has the title of the chart and the response, None while no model is set.
    """

    title: str
    of: Callable[[Values], Prediction | None]


@dataclass(frozen=True)
class LoopStart:
    """How the loop of one target starts, in addition to the defaults of its kind.

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


@dataclass(frozen=True)
class LoopKind:
    """A law bound to what it observes, what it sets, and the targets that have a loop.

    readings: values by which the effect of an action is judged; `cumulative` names those that only increase.
    keeper: for an actuator that expires, called at each tick that sets nothing.
    proposer: proposes a loop's advice to a person; None where advice is only recorded. Raises WeirError.
    of_mode: the part of a law's observation about the mode in force; a snapshot may be older than the mode.
    recall: for a loop that advises, the outcome of its proposals, as a part of its observation.
    mode, parameters, guard: the initial values of its loops. followed: parameters that a `LoopStart` keeps equal to a
    value of the plant, and that value; people cannot set them permanently.
    promise: the response of parameters that are not in force yet; None where the law has no model.
    seeded: whether its loops exist as soon as there is a topology; others are created with their targets.
    scenario: the lab scenario in which the law is compared with its baselines; None where there is none.
    desired: from an entry's observation and action ({} for none), the desired values as numbers.
    rehearsal: how its loops are tuned on their record (`workers.control.tuning`); None: they are not.
    replay: how its baselines process the recorded load (`workers.control.costs`); None: they do not.
    unit_hours: worker-hours of one unit of the actuator (per hour, where it stays); None while that is unknown, or for
    an actuator without a price.
    at_rest: whether there is nothing to decide at a target; None: there may always be something.
    elsewhere: how its loops at attached plants are displayed; None: like all.
    """

    law: Law
    sensor: Sensor
    readings: Readings
    actuator: Actuator
    targets: Callable[[PlantInventory], Targets]
    interval_seconds: int
    display: Display
    keeper: Keeper | None = None
    proposer: Proposer | None = None
    of_mode: Callable[[str], dict[str, Any]] | None = None
    recall: Recall | None = None
    mode: str = Loop.Mode.AUTO
    parameters: Document = field(default_factory=dict)
    guard: Document = field(default_factory=dict)
    followed: Mapping[str, str] = field(default_factory=dict)
    cumulative: tuple[str, ...] = ()
    promise: PromisedResponse | None = None
    seeded: bool = False
    scenario: str | None = None
    desired: Callable[[Document, Document], Mapping[str, float]] = actions.compute_amounts
    rehearsal: TuningModel | None = None
    replay: LoadReplay | None = None
    unit_hours: Callable[[Document, Snapshot, Values], float | None] | None = None
    at_rest: Callable[[Mapping[str, Any], Snapshot], bool] | None = None
    elsewhere: Display | None = None

    @property
    def name(self) -> str:
        """Return the law's name."""
        return self.law.name

    @property
    def rest_seconds(self) -> float:
        """Return how long a loop may go without an entry, beyond its interval."""
        return 0.0 if self.at_rest is None else REST_SECONDS

    def get_display(self, target: Document) -> Display:
        """Return how a loop on this target is displayed."""
        return self.elsewhere if self.elsewhere is not None and "plant" in target else self.display

    def get_rehearsal(self, target: Document) -> TuningModel | None:
        """Return how a loop on this target is tuned; None at an attached plant, which has no model."""
        return None if "plant" in target else self.rehearsal

    def replay_of(self, target: Document) -> LoadReplay | None:
        """Return how baselines process its load; None at an attached plant, which has no model."""
        return None if "plant" in target else self.replay

    def begin(self, start: LoopStart) -> dict[str, Any]:
        """Return the fields of a new loop."""
        return {
            "law": self.name,
            "target": dict(start.target),
            "mode": start.mode or self.mode,
            "interval_seconds": float(start.interval_seconds or self.interval_seconds),
            "parameters": {**self.parameters, **start.parameters, **start.follows},
            "guard": {**self.guard, **start.guard},
        }
