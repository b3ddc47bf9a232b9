"""The fairness law: the weight of the ordinary keys follows their number."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.fairness.law import LAW, MAX_WEIGHT, ORDINARY_WEIGHT, FairnessObservation, FairnessParameters
from controllers.framework.decision import Decision

KEYS = st.floats(0, 1e6)


def decide(keys: list[float | None], applied: float, **parameters: Any) -> tuple[float, Decision]:
    """Apply each decision; return the last weight and decision."""
    given_parameters, state, decision = FairnessParameters(**parameters), LAW.start(FairnessParameters()), None
    for active in keys:
        state, decision = LAW.decide(given_parameters, state, FairnessObservation(active_keys=active, applied=applied))
        if decision.action is not None:
            applied = decision.action[ORDINARY_WEIGHT]
    assert decision is not None
    return applied, decision


def test_the_weight_is_the_number_of_keys():
    assert decide([50.0], 1_000.0)[0] == 50.0


def test_a_single_wrong_estimate_changes_little():
    assert decide([100.0] * 5 + [150.0], 100.0)[0] == 100.0


def test_a_lasting_change_is_followed():
    weight, _ = decide([100.0] * 5 + [400.0] * 40, 100.0)
    assert weight == pytest.approx(400.0, rel=0.2)


def test_an_unknown_number_of_keys_changes_nothing():
    weight, decision = decide([None], 70.0)
    assert weight == 70.0
    assert decision.reason == "No action: the number of keys is unknown."


@given(
    st.lists(KEYS, min_size=1, max_size=30), st.floats(0.0, 1.0), st.floats(1.0, 100.0), st.floats(100.0, MAX_WEIGHT)
)
def test_the_weight_stays_in_its_range_so_that_no_lane_starves(keys, deadband, minimum, maximum):
    weight, _ = decide(keys, 1_000.0, deadband=deadband, minimum=minimum, maximum=maximum)
    assert weight == 1_000.0 or minimum - 0.1 <= weight <= maximum + 0.1


@given(KEYS, st.integers(1, 20))
def test_a_constant_number_of_keys_gives_each_key_an_equal_share(keys, decisions):
    weight, _ = decide([keys] * decisions, 1_000.0, deadband=0.0)
    assert weight == pytest.approx(min(max(keys, 1.0), MAX_WEIGHT), abs=0.06)
