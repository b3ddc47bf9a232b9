"""The law proposes: a pure function of declared parameters, its own state and one observation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from controllers.framework.decision import Decision, Json
from controllers.framework.parameter import Parameter, clipped

Values = Mapping[str, Any]


class Law(Protocol):
    """What every control law is. It knows no clock, no store and no plant, and changes none of its arguments.

    `state` is a JSON object, so a law survives any restart: feeding it back continues exactly where it
    stopped.
    """

    @property
    def name(self) -> str:
        """The name in the contract's table."""
        ...

    @property
    def parameters(self) -> Sequence[Parameter]:
        """What can be set, with default, range, unit and help."""
        ...

    @property
    def observation(self) -> Sequence[Parameter]:
        """What one observation holds."""
        ...

    @property
    def state(self) -> Sequence[Parameter]:
        """What is remembered from one observation to the next; as an observation is, it is checked by this
        when it comes from outside, and no number that is put out exceeds its range (`continued`)."""
        ...

    @property
    def actuator(self) -> str | None:
        """The key of an action that is one number the guard may clamp; None when it is not one number."""
        ...

    @property
    def guard_defaults(self) -> Values:
        """The guard's settings that suit this law better than the general defaults."""
        ...

    def check(self, parameters: Values) -> None:
        """Raise `BadInput` when parameters, each in its range, contradict each other."""
        ...

    def check_observation(self, parameters: Values, observation: Values, where: str) -> None:
        """Raise `BadInput` when an observation, each value in its range, contradicts itself or the
        parameters."""
        ...

    def check_state(self, parameters: Values, state: Values, where: str) -> None:
        """Raise `BadInput` when a state, each value in its range, contradicts itself or the parameters."""
        ...

    def initial_state(self, parameters: Values) -> Json:
        """The state before the first observation."""
        ...

    def decide(self, parameters: Values, state: Json, observation: Values) -> tuple[Json, Decision]:
        """The next state and the decision. All arguments have been checked against the declarations."""
        ...


@runtime_checkable
class Resuming(Protocol):
    """A law that forgets part of its memory after a pause: what it last saw is not of the tick before, and
    what it last set has lapsed."""

    def resumed(self, parameters: Values, state: Json) -> Json:
        """The state from which it decides again after a hold, or when it begins or ceases to act."""
        ...


@runtime_checkable
class Supposing(Protocol):
    """A law whose next state supposes that what it proposes is done."""

    def corrected(self, parameters: Values, before: Json, after: Json, action: Values | None) -> Json:
        """The next state where `action` is done instead: another value, or nothing (None). before: the state
        from which it decided; after: the one that supposes its proposal."""
        ...


@runtime_checkable
class Lasting(Protocol):
    """A law whose actuator stays as it was set: where nothing is done, that is its value, not nothing."""

    @property
    def lasting(self) -> bool:
        """True."""
        ...


@runtime_checkable
class Permanent(Protocol):
    """A law that observes the value of its actuator where that stays: others may have set it, too."""

    def in_force(self, parameters: Values, observation: Values) -> float | None:
        """The value that stays until another is set; None: what is set does not stay, or it is not known."""
        ...


@runtime_checkable
class Lapsing(Protocol):
    """A law whose lasting value ends as soon as its loop does not act: on hold, in advise."""

    @property
    def lapsed(self) -> float:
        """The value then, and before there was any."""
        ...


@runtime_checkable
class Counting(Protocol):
    """A law whose actuator counts: workers, processes; by hand only whole numbers are set."""

    @property
    def counts(self) -> bool:
        """True."""
        ...


@dataclass(frozen=True)
class Remedy:
    """What a law is among the remedies for overload.

    level: of the ladder, the one that its loops are. lasts: what it sets stays as it is, so that only a
    verdict says whether its last decision did anything; else each decision counts anew.
    """

    level: str
    lasts: bool = True


@runtime_checkable
class Remedial(Protocol):
    """A law whose loops the remedy ladder waits for before it engages its next level."""

    @property
    def remedy(self) -> Remedy:
        """Which level they are."""
        ...


@runtime_checkable
class Ranked(Protocol):
    """A law that sets what others set too: of the loops of one target that may act only one does."""

    @property
    def rank(self) -> int:
        """The least acts; the greatest is who acts by default."""
        ...


def remedy_of(law: Law | None) -> Remedy | None:
    """None of a law that is no remedy, or is gone."""
    return law.remedy if isinstance(law, Remedial) else None


def observed_in_force(law: Law, parameters: Values, observation: Values) -> float | None:
    """What is in force by the observation; None of a law that does not observe it."""
    return law.in_force(parameters, observation) if isinstance(law, Permanent) else None


def continued(law: Law, parameters: Values, state: Json, observation: Values) -> tuple[Json, Decision]:
    """`Law.decide`, with a next state that is one of this law: a counter stops at the greatest it may be."""
    after, decision = law.decide(parameters, state, observation)
    return clipped(law.state, after), decision


def corrected(law: Law, parameters: Values, before: Json, after: Json, action: Values | None) -> Json:
    """The next state of a law where `action` is done instead of what it proposed; most laws decide on what
    they observe, and suppose nothing."""
    if not isinstance(law, Supposing):
        return after
    return clipped(law.state, law.corrected(parameters, before, after, action))


def resumed(law: Law, parameters: Values, state: Json) -> Json:
    """The state after a hold, or another mode; most laws decide on the observation of now, and need forget
    nothing."""
    return law.resumed(parameters, state) if isinstance(law, Resuming) else state
