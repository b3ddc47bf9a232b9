"""The interface of laws: pure functions of declared parameters, their own state, and one observation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from common.parameter import Parameter, clip_values
from controllers.framework.decision import Decision, Json

Values = Mapping[str, Any]


class Law(Protocol):
    """The interface of every control law.

    It knows no clock, store, or plant, and changes none of its arguments.

    `state` is a JSON object, so a law survives any restart: feeding it back continues exactly where it stopped.
    """

    @property
    def name(self) -> str:
        """Return the law's name in the contract."""
        ...

    @property
    def parameters(self) -> Sequence[Parameter]:
        """Return what can be set, with default, range, unit, and help."""
        ...

    @property
    def observation(self) -> Sequence[Parameter]:
        """Return the fields of one observation."""
        ...

    @property
    def state(self) -> Sequence[Parameter]:
        """Return what is remembered between observations.

        Like an observation, a state from outside is checked against this, and no number in it exceeds its range
        (`continued`).
        """
        ...

    @property
    def actuator(self) -> str | None:
        """Return the key of an action that is one number the guard may clamp, or None."""
        ...

    @property
    def guard_defaults(self) -> Values:
        """Return guard settings that suit this law better than the general defaults."""
        ...

    def check(self, parameters: Values) -> None:
        """Raise `BadInput` if parameters, each in its range, contradict each other."""
        ...

    def check_observation(self, parameters: Values, observation: Values, where: str) -> None:
        """Raise `BadInput` if an observation, each value in its range, contradicts itself or the parameters."""
        ...

    def check_state(self, parameters: Values, state: Values, where: str) -> None:
        """Raise `BadInput` if a state, each value in its range, contradicts itself or the parameters."""
        ...

    def build_initial_state(self, parameters: Values) -> Json:
        """Return the state before the first observation."""
        ...

    def decide(self, parameters: Values, state: Json, observation: Values) -> tuple[Json, Decision]:
        """Return the next state and the decision. All arguments were checked against the declarations."""
        ...


@runtime_checkable
class BumplessTransfer(Protocol):
    """A law that forgets part of its memory after a pause.

    After a pause, its last observation is not that of the previous tick, and what it set has expired.
    """

    def resume_state(self, parameters: Values, state: Json) -> Json:
        """Return the state from which the law decides again after a hold, or when it starts or stops acting."""
        ...


@runtime_checkable
class AntiWindup(Protocol):
    """A law whose next state assumes that its proposal is applied."""

    def correct_state(self, parameters: Values, before: Json, after: Json, action: Values | None) -> Json:
        """Return the next state if `action` is applied instead: another value, or nothing (None).

        `before` is the state from which the law decided; `after` is the one that assumes its proposal.
        """
        ...


@runtime_checkable
class Latching(Protocol):
    """A law whose actuator latches: without an action it keeps its value."""

    @property
    def lasting(self) -> bool:
        """Return True."""
        ...


@runtime_checkable
class LatchedValue(Protocol):
    """A law that observes the latched value of its actuator, which others may have set."""

    def read_value_in_force(self, parameters: Values, observation: Values) -> float | None:
        """Return the value that stays until another is set; None: it does not stay, or is unknown."""
        ...


@runtime_checkable
class Expiring(Protocol):
    """A law whose latched value ends as soon as its loop does not act: on hold or in advise mode."""

    @property
    def lapsed(self) -> float:
        """Return the value after that, and before the first action."""
        ...


@runtime_checkable
class Counting(Protocol):
    """A law whose actuator counts (workers, processes); manual values are whole numbers."""

    @property
    def counts(self) -> bool:
        """Return True."""
        ...


@dataclass(frozen=True)
class Remedy:
    """A law's place among the remedies for overload.

    `level` is the level of the ladder that its loops form. `lasts`: its setting is latched, so only a verdict tells
    whether its last decision had an effect; otherwise each decision counts separately.
    """

    level: str
    lasts: bool = True


@runtime_checkable
class RemedyLaw(Protocol):
    """A law whose loops the remedy ladder waits for before it engages the next level."""

    @property
    def remedy(self) -> Remedy:
        """Return the level of the loops."""
        ...


@runtime_checkable
class Ranked(Protocol):
    """A law that sets what other laws set too: of the loops on one target only one acts."""

    @property
    def rank(self) -> int:
        """Return the rank: the lowest acts; the highest acts by default."""
        ...


def find_remedy(law: Law | None) -> Remedy | None:
    """Return the remedy, or None for a law that is no remedy or no longer exists."""
    return law.remedy if isinstance(law, RemedyLaw) else None


def observe_value_in_force(law: Law, parameters: Values, observation: Values) -> float | None:
    """Return the observed value in force, or None if the law does not observe it."""
    return law.read_value_in_force(parameters, observation) if isinstance(law, LatchedValue) else None


def decide_next(law: Law, parameters: Values, state: Json, observation: Values) -> tuple[Json, Decision]:
    """Call `Law.decide` and keep the next state within the law's declaration: a counter stops at its maximum."""
    after, decision = law.decide(parameters, state, observation)
    return clip_values(law.state, after), decision


def correct_state(law: Law, parameters: Values, before: Json, after: Json, action: Values | None) -> Json:
    """Return the next state if `action` is applied instead of the proposal.

    Most laws decide on what they observe and assume nothing.
    """
    if not isinstance(law, AntiWindup):
        return after
    return clip_values(law.state, law.correct_state(parameters, before, after, action))


def resume_state(law: Law, parameters: Values, state: Json) -> Json:
    """Return the state after a hold or a change of mode; most laws have nothing to forget."""
    return law.resume_state(parameters, state) if isinstance(law, BumplessTransfer) else state
