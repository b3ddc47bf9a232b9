"""The base of laws: pure functions of declared parameters, their own state, and one observation.

A law's parameters, observation, and state are Structs whose fields are declared with `common.parameter.value`. Forms,
stored loops, and the ledger have them as JSON objects: the functions below read those and return them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic

import msgspec
from typing_extensions import TypeVar

from common.parameter import Parameter, build, clip_values, list_parameters
from common.stored_document import convert_to_plain
from controllers.framework.decision import Decision, Json

Values = Mapping[str, Any]
P = TypeVar("P", bound=msgspec.Struct, default=Any)
O = TypeVar("O", bound=msgspec.Struct, default=Any)  # noqa: E741
S = TypeVar("S", bound=msgspec.Struct, default=Any)


class NoState(msgspec.Struct, frozen=True):
    """The state of a law that remembers nothing."""


@dataclass(frozen=True)
class Remedy:
    """A law's place among the remedies for overload.

    `level` is the level of the ladder that its loops form; the ladder waits for them before it engages the next level.
    `lasts`: its setting is latched, so only a verdict tells whether its last decision had an effect; otherwise each
    decision counts separately.
    """

    level: str
    lasts: bool = True


class Law(Generic[P, O, S]):
    """The base class of every control law. A simple law defines its attributes and `decide`.

    It knows no clock, store, or plant, and changes none of its arguments. All arguments were checked against the
    declarations. A law survives any restart: feeding its state back continues exactly where it stopped.

    actuator: the key of an action that is one number the guard may clamp, or None.
    guard_defaults: guard settings that suit this law better than the general defaults.
    counts: the actuator counts (workers, processes); manual values are whole numbers.
    lasting: the actuator latches: without an action it keeps its value.
    lapsed: the value of a latched actuator after its loop stopped acting (on hold or in advise mode), and before the
    first action; None: the value stays.
    rank: of the loops on one target whose laws have a rank, the lowest acts; the highest acts by default.
    """

    name: str
    Parameters: type[P]
    Observation: type[O]
    State: type[S] = NoState  # type: ignore[assignment]
    parameters: Sequence[Parameter]
    observation: Sequence[Parameter]
    state: Sequence[Parameter]
    actuator: str | None = None
    guard_defaults: Values = {}
    remedy: Remedy | None = None
    rank: int | None = None
    counts = False
    lasting = False
    lapsed: float | None = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in ("Parameters", "Observation", "State"):
            if (struct := getattr(cls, name, None)) is not None:
                setattr(cls, name.lower(), list_parameters(struct))

    def decide(self, parameters: P, state: S, observation: O) -> tuple[S, Decision]:
        """Return the next state, which assumes that the decision is applied, and the decision."""
        raise NotImplementedError

    def check(self, parameters: P) -> None:
        """Raise `BadInput` if parameters, each in its range, contradict each other."""

    def check_observation(self, parameters: P, observation: O, where: str) -> None:
        """Raise `BadInput` if an observation, each value in its range, contradicts itself or the parameters."""

    def check_state(self, parameters: P, state: S, where: str) -> None:
        """Raise `BadInput` if a state, each value in its range, contradicts itself or the parameters."""

    def start(self, parameters: P) -> S:
        """Return the state before the first observation."""
        return self.State()

    def resume(self, state: S) -> S:
        """Return the state from which the law decides again after a hold, or when it starts or stops acting.

        Then its last observation is not that of the previous tick, and what it set has expired (bumpless transfer).
        """
        return state

    def correct(self, parameters: P, before: S, after: S, action: Values | None) -> S:
        """Return the next state if `action` is applied instead: another value, or nothing (None); anti-windup.

        `before` is the state from which the law decided; `after` is the one that assumes its proposal.
        """
        return after

    def read_value_in_force(self, parameters: P, observation: O) -> float | None:
        """Return the observed value that stays until another is set; None: it does not stay, or is unknown."""
        return None


def assumes_applied(law: Law) -> bool:
    """Return whether the law's next state assumes that its proposal is applied."""
    return type(law).correct is not Law.correct


def write_state(law: Law, state: msgspec.Struct) -> dict[str, Json]:
    """Return the state as JSON, within the law's declaration: a counter stops at its maximum."""
    return clip_values(law.state, convert_to_plain(state))


def check_parameters(law: Law, parameters: Values) -> None:
    """Call `Law.check` with values that were read."""
    law.check(build(law.Parameters, parameters))


def start_state(law: Law, parameters: Values) -> Json:
    """Return the state before the first observation as JSON."""
    return write_state(law, law.start(build(law.Parameters, parameters)))


def decide_next(law: Law, parameters: Values, state: Json, observation: Values) -> tuple[Json, Decision]:
    """Call `Law.decide` with JSON objects, and return the next state as one."""
    given = build(law.Parameters, parameters), build(law.State, state), build(law.Observation, observation)
    after, decision = law.decide(*given)
    return write_state(law, after), decision


def resume_state(law: Law, state: Json) -> Json:
    """Return the state after a hold or a change of mode as JSON."""
    return write_state(law, law.resume(build(law.State, state)))
