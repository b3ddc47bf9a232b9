"""A kind of loop: a law with all that binds it to the plant.

Each module of `workers.control.kinds` declares one as `KIND`. The engine, the schedule, the snapshot and the
pages take what they need to know of a law from there.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from controllers.flow.prediction import Prediction
from controllers.framework.law import Law, Values
from controllers.framework.sensed import Counters, Sensed
from workers.control.parts import actions
from workers.control.parts.present import Present
from workers.control.parts.rehearsal import LoadReplay, Rehearsal
from workers.documents.loops import LoopStatus
from workers.documents.snapshot import Snapshot
from workers.models import LedgerEntry, Loop
from workers.plants.plant import Plant

# A loop with nothing to decide writes one entry in so long.
REST_SECONDS = 20.0

MEBIBYTES = 2.0**-20  # scale of a lane whose measured values are bytes
Document = Mapping[str, Any]
# target, snapshot, what the sensor counted at the observation before, now (1970, s)
Sensor = Callable[[Document, Snapshot, Counters | None, float], Sensed]
# target, snapshot; None where the target is not there
Readings = Callable[[Document, Snapshot], dict[str, Any] | None]
Actuator = Callable[[LedgerEntry, Loop, Plant], None]
Keeper = Callable[[LedgerEntry, Loop, Plant], None]
# the loop, what its sensor has observed → what of earlier proposals the law is to know too
Recall = Callable[[Loop, Document], dict[str, Any]]
Proposer = Callable[[LedgerEntry, Snapshot, datetime], Any]


@dataclass(frozen=True)
class Lanes:
    """The words of a loop's chart: titles with their units; `scale` turns what is measured into the title's
    unit. done: what the actuator's value is, in a word."""

    measured: str
    actuator: str
    done: str
    scale: float = 1.0
    has_reference: bool = True

    @property
    def unit(self) -> str:
        """The unit of what is measured."""
        return self.measured.rpartition(", ")[2] if ", " in self.measured else ""

    @property
    def format(self) -> str:
        """The name of the format of a measured value, in that unit (`console.display.formats`)."""
        return {100.0: "percent", MEBIBYTES: "mebibytes"}.get(self.scale, "number")


@dataclass(frozen=True)
class Display:
    """How the loops of a kind are shown, in the snapshot and on pages.

    measured: where a ledger entry has what was measured, "observation.NAME" or "terms.NAME"; "": nowhere.
    setpoints: parameters; the first that is there is the setpoint.
    terms: of a decision's, those that a page follows each second.
    lasting: of a law that sets a value which stays, the name under which it is observed, said by each
    decision, or else set; "" where nothing done is 0.
    is_news: False where the actuator is set at each tick, whatever happens: that it was is no news.
    amount: how much an action does, as one number.
    past: an action in the past tense. brief: an action in a few words; "" leaves its values to speak.
    title: what the law is called in a sentence; "": its name, in words. joint: between the parts of a target.
    about: what the law does, in a few words, beside those that set the same.
    of_each: what there is one loop for each of.
    purpose: what its loops are for, as a sentence. formula: what it computes, in its parameters' names.
    main: the parameters that people turn most, five at most. topics: the others, by titles; what is in none
    stands under one of its own.
    engaged: of a loop's row in the snapshot whose actuator is not 0, what it has in force, in words.
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

    def size(self, action: Document | None) -> float:
        """`amount` of an action; 0 for none."""
        return float(self.amount(action)) if action else 0.0


@dataclass(frozen=True)
class PromisedResponse:
    """How a law with these parameters would come to rest on its model: the title of the chart, and the
    response, None while no model is set.
    """

    title: str
    of: Callable[[Values], Prediction | None]


@dataclass(frozen=True)
class LoopStart:
    """How the loop of one target begins, beside what all of its kind begin with.

    Afterwards people have the say, but of the target and of what `follows` the plant: those parameters are
    kept as they are here. interval_seconds: between its ticks, no less than between those of its kind.
    """

    target: Document
    mode: str | None = None
    parameters: Document = field(default_factory=dict)
    guard: Document = field(default_factory=dict)
    follows: Document = field(default_factory=dict)
    interval_seconds: float | None = None


@dataclass(frozen=True)
class Targets:
    """The loops that there are to be, by name; `gone`: why one that is not among them is retired."""

    loops: Mapping[str, LoopStart]
    gone: str


@dataclass(frozen=True)
class LoopKind:
    """A law bound to what it observes, what it sets, and the targets that have a loop.

    readings: what the effect of an action is judged by; `cumulative` names those of them that only rise.
    keeper: of an actuator that lapses, called at each tick that sets nothing.
    proposer: puts a loop's advice before a person; None where advice is only recorded. Raises WeirError.
    of_mode: what a law observes of the mode in force; a snapshot may be of before it was set.
    recall: of a loop that advises, what became of what it has proposed, as a part of its observation.
    mode, parameters, guard: what its loops begin with. followed: parameters that a `LoopStart` has follow the
    plant, and what each follows; nobody sets them for good.
    promise: of parameters that are not in force yet; None where the law has no model.
    seeded: whether a topology alone has loops of it; others come with what they steer.
    scenario: of the lab, the one in which the law is tried against its rivals; None where there is none.
    desired: of an entry's observation and action ({} for none), what is to be in force, as numbers.
    rehearsal: how its loops are tuned on their record (`workers.control.tuning`); None: not from a record.
    replay: how its recorded load is worked by its rivals (`workers.control.costs`); None: none is replayed.
    unit_hours: worker-hours of one unit of the actuator (in an hour, where it stays); None while that is not
    known, or for an actuator that has no price.
    at_rest: whether there is nothing to decide at a target; None: there always may be.
    elsewhere: how its loops at plants of others are shown; None: as all.
    """

    law: Law
    sensor: Sensor
    readings: Readings
    actuator: Actuator
    targets: Callable[[Present], Targets]
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
    desired: Callable[[Document, Document], Mapping[str, float]] = actions.amounts
    rehearsal: Rehearsal | None = None
    replay: LoadReplay | None = None
    unit_hours: Callable[[Document, Snapshot, Values], float | None] | None = None
    at_rest: Callable[[Mapping[str, Any], Snapshot], bool] | None = None
    elsewhere: Display | None = None

    @property
    def name(self) -> str:
        """The law's."""
        return self.law.name

    @property
    def rest_seconds(self) -> float:
        """How long a loop may go without an entry, beyond its interval."""
        return 0.0 if self.at_rest is None else REST_SECONDS

    def display_of(self, target: Document) -> Display:
        """How a loop on this target is shown."""
        return self.elsewhere if self.elsewhere is not None and "plant" in target else self.display

    def rehearsal_of(self, target: Document) -> Rehearsal | None:
        """How a loop on this target is tuned; None at a plant of others, which no model here is of."""
        return None if "plant" in target else self.rehearsal

    def replay_of(self, target: Document) -> LoadReplay | None:
        """How its recorded load is worked by its rivals; None there, likewise."""
        return None if "plant" in target else self.replay

    def begin(self, start: LoopStart) -> dict[str, Any]:
        """The fields of a new loop."""
        return {
            "law": self.name,
            "target": dict(start.target),
            "mode": start.mode or self.mode,
            "interval_seconds": float(start.interval_seconds or self.interval_seconds),
            "parameters": {**self.parameters, **start.parameters, **start.follows},
            "guard": {**self.guard, **start.guard},
        }
