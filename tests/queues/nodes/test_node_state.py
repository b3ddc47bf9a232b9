"""States from utilisation: smoothing, thresholds, hysteresis."""

from hypothesis import given
from hypothesis import strategies as st

from queues.nodes.node_state import BUSY, IDLE, NORMAL, TOOBUSY, NodeState, StateThresholds, smooth, step

SHARE = st.floats(0, 3)


def run(values: list[float], thresholds: StateThresholds = StateThresholds(alpha=1.0)) -> list[str]:  # noqa: B008
    state, seen = NodeState(), []
    for value in values:
        state = step(state, value, True, thresholds)
        seen.append(state.state)
    return seen


def test_smoothing_is_the_thesis_formula():
    assert smooth(1.0, 0.0, 0.5) == 0.5
    assert smooth(0.4, None, 0.5) == 0.4


def test_a_state_begins_at_its_threshold_and_ends_well_below_it():
    assert run([0.69, 0.7, 0.5, 0.48, 0.9, 0.64, 0.62, 0.48]) == [
        NORMAL, BUSY, BUSY, NORMAL, TOOBUSY, TOOBUSY, BUSY, NORMAL,
    ]  # fmt: skip


def test_the_thesis_example_50_up_and_35_down():
    assert run([0.51, 0.36, 0.34], StateThresholds(busy=0.5, toobusy=0.9, alpha=1.0)) == [BUSY, BUSY, NORMAL]


def test_a_node_without_points_is_idle_and_starts_afresh_when_it_gets_some():
    busy = NodeState(TOOBUSY, 0.95)
    idle = step(busy, 0.8, False, StateThresholds(alpha=1.0))
    assert idle == NodeState(IDLE, 0.8)
    assert step(idle, 0.5, True, StateThresholds(alpha=1.0)).state == NORMAL


@given(st.lists(SHARE, min_size=1, max_size=40), st.floats(0.05, 1))
def test_the_smoothed_value_stays_between_the_least_and_the_greatest_measurement(values, alpha):
    state = NodeState()
    for value in values:
        state = step(state, value, True, StateThresholds(alpha=alpha))
    assert min(values) - 1e-9 <= state.utilisation <= max(values) + 1e-9


@given(st.lists(st.floats(0.5, 0.69), min_size=1, max_size=30))
def test_balancing_inside_the_buffer_never_changes_the_state(values):
    assert set(run([0.75, *values])) == {BUSY}
    assert set(run(values)) == {NORMAL}
