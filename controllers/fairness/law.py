"""The fairness law: the weight of a queue's ordinary keys follows their number.

Each heavy key has the weight 1, and all ordinary keys together have one weight w. With n ordinary keys, every key has
an equal share if w = n: with a larger w, a heavy key gets less than an ordinary one, and with a smaller w more.
Producers estimate n from samples, so the law smooths the estimate, and ignores small differences:

    m(k) = m(k-1) + smoothing · (n(k) - m(k-1))
    w    = m(k), within minimum and maximum, if it differs from the weight in force by more than deadband · w
"""

from typing import Annotated

import msgspec

from common.parameter import check_range, value
from controllers.framework.decision import Decision
from controllers.framework.law import Law
from controllers.framework.reason import format_no_action, format_number, format_reason

ORDINARY_WEIGHT = "ordinary_weight"
MAX_KEYS = 1e9
MAX_WEIGHT = 10_000.0  # of a queue: `queues.fairness`


class FairnessParameters(msgspec.Struct, frozen=True, kw_only=True):
    smoothing: Annotated[
        float, value("share", "Share of the newest estimate in the smoothed number of keys.", 0.001, 1.0)
    ] = 0.2
    deadband: Annotated[
        float, value("share of the weight", "Maximum difference from the weight in force that is ignored.", 0.0, 1.0)
    ] = 0.2
    minimum: Annotated[float, value("shares of one key", "Minimum weight of the ordinary keys.", 1.0, MAX_WEIGHT)] = 1.0
    maximum: Annotated[float, value("shares of one key", "Maximum weight of the ordinary keys.", 1.0, MAX_WEIGHT)] = (
        MAX_WEIGHT
    )


class FairnessObservation(msgspec.Struct, frozen=True, kw_only=True):
    active_keys: Annotated[
        float | None, value("keys", "Number of keys, as producers estimate it; null: unknown.", 0.0, MAX_KEYS)
    ] = None
    applied: Annotated[float | None, value("shares of one key", "Weight in force; null: unknown.", 0.0, MAX_WEIGHT)] = (
        None
    )


class FairnessState(msgspec.Struct, frozen=True, kw_only=True):
    keys: Annotated[float | None, value("keys", "Smoothed number of keys; null: none yet.", 0.0, MAX_KEYS)] = None


class FairnessLaw(Law[FairnessParameters, FairnessObservation, FairnessState]):
    """Sets the weight of the ordinary keys; see the module for the formula."""

    name = "fairness"
    Parameters, Observation, State = FairnessParameters, FairnessObservation, FairnessState
    actuator = ORDINARY_WEIGHT
    lasting = True
    guard_defaults = {"minimum": 1.0, "maximum": MAX_WEIGHT, "stale_seconds": 10.0}

    def check(self, parameters: FairnessParameters) -> None:
        check_range(parameters.minimum, parameters.maximum)

    def read_value_in_force(self, parameters: FairnessParameters, observation: FairnessObservation) -> float | None:
        return observation.applied

    def decide(
        self, parameters: FairnessParameters, state: FairnessState, observation: FairnessObservation
    ) -> tuple[FairnessState, Decision]:
        """Return the weight of the ordinary keys; no action without an estimate, or near the weight in force."""
        if observation.active_keys is None:
            return state, Decision(None, format_no_action("the number of keys is unknown"))
        before = observation.active_keys if state.keys is None else state.keys
        keys = before + parameters.smoothing * (observation.active_keys - before)
        state = FairnessState(keys=keys)
        weight = round(min(max(keys, parameters.minimum), parameters.maximum), 1)
        terms = {"keys": round(keys, 1), "wanted": weight}
        cause = f"about {format_number(round(keys))} active keys"
        applied = observation.applied
        if applied is not None and abs(weight - applied) <= parameters.deadband * applied:
            return state, Decision(None, format_no_action(f"weight {format_number(applied)} fits {cause}"), terms)
        reason = format_reason(f"Set weight {format_number(weight)}", cause)
        return state, Decision({ORDINARY_WEIGHT: weight}, reason, terms, raw=weight)


LAW = FairnessLaw()
