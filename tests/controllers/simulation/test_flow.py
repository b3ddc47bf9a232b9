"""The lab's flow: a hog, a plant that changes, a starvation; our law beside its baselines."""

import numpy as np
import pytest
from msgspec.structs import replace

from controllers.flow.admission import Flow, FlowObservation
from controllers.simulation import flow

SCENARIO = flow.SCENARIO
OURS = ("i-p", "pi", "adaptive")


def run(law, seed=1, trace=None, **settings):
    return SCENARIO.run(law, SCENARIO.read_settings(settings), seed, trace)


@pytest.mark.sweep(6)
@pytest.mark.parametrize("law", OURS)
@pytest.mark.parametrize("hog", [1, 2])
@pytest.mark.parametrize(("delay", "least_mb"), [(0, 330), (1, 260)])
def test_through_a_hog_the_free_space_is_back_soon_and_nothing_is_dropped(law, hog, delay, least_mb):
    metrics = run(law, hog=hog, delay=delay).metrics
    assert 0 < metrics["settling_samples"] <= 12
    assert metrics["drops"] == 0
    assert metrics["minimum_free_mb"] >= least_mb
    assert metrics["served_share"] > 0.99


@pytest.mark.sweep(10)
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("delay", [0, 1])
def test_when_events_grow_adaptive_gains_keep_within_a_tenth_of_the_error_of_fixed_ones(delay, seed):
    fixed, adaptive = (run(law, seed, delay=delay, gain_factor=3.5).metrics for law in ("i-p", "adaptive"))
    assert adaptive["rms"] <= 0.1 * fixed["rms"]
    assert adaptive["drops"] == 0 < fixed["drops"]


def test_a_new_setpoint_overshoots_as_the_errata_say():
    assert run("pi", noise=0).metrics["overshoot"] == pytest.approx(0.893, abs=0.001)
    assert run("i-p", noise=0).metrics["overshoot"] == pytest.approx(0.169, abs=0.001)


class Believing(flow.ShippedFlow):
    """The law that is not told what was really admitted."""

    def admit(self, free_kb, setpoint_kb, applied):
        parameters = replace(self.parameters, setpoint=setpoint_kb, maximum=1e9)
        self.state, decision = Flow().decide(parameters, self.state, FlowObservation(measured=free_kb))
        return decision.action["admit"]


@pytest.mark.parametrize("delay", [0, 1])
def test_after_a_starvation_nothing_is_dropped_since_the_law_counts_from_what_was_admitted(delay):
    settings = SCENARIO.read_settings({"starvation": 100, "delay": delay, "noise": 0})
    assert run("i-p", starvation=100, delay=delay, noise=0).metrics["drops"] == 0
    *_, dropped = flow.simulate(Believing("i-p", "fixed", delay), flow.build_course(settings, 1, None), delay)
    flooded = dropped[flow.STARVED_FROM :] > 0
    assert flooded.sum() > 20


def test_the_rivals_do_not_regulate_the_free_space():
    ours, spark, free = (run(law).metrics for law in ("i-p", "spark-pid", "uncontrolled"))
    assert spark["rms"] > 10 * ours["rms"] and spark["settling_samples"] is None
    assert free["drops"] > 10_000 and free["minimum_free_mb"] == 0


@pytest.mark.parametrize("law", SCENARIO.laws)
def test_no_event_is_made_or_lost_unaccounted(law):
    outcome = run(law, gain_factor=3.5, starvation=50)
    series = outcome.series
    assert all(np.all(np.isfinite(values)) and len(values) == flow.SAMPLES for values in series.values())
    assert series["free_mb"].min() >= 0 and series["free_mb"].max() <= 500
    assert np.all(series["served_events"] >= 0) and np.all(series["admitted_events"] >= 0)
    assert np.all(series["admitted_events"][500:550] == 0)


def test_without_control_a_rising_load_is_dropped_as_the_free_space_ends():
    settings = SCENARIO.read_settings({"ramp": 1, "hog": 0})
    dropped = SCENARIO.run("uncontrolled", settings, 1, None).series["dropped_events"]
    assert dropped[:300].sum() == 0 and dropped[-100:].sum() > dropped[500:600].sum() > 0
    assert SCENARIO.run("i-p", settings, 1, None).metrics["drops"] == 0


def test_gains_for_the_wrong_delay_oscillate_with_growing_amplitude_and_those_for_the_right_one_settle():
    def apart(designed):
        settings = SCENARIO.read_settings({"delay": 1, "designed_delay": designed, "hog": 0, "noise": 0})
        return np.abs(SCENARIO.run("pi", settings, 1, None).series["free_mb"][20:60] - 400)

    assert apart(0)[20:].max() > 2 * apart(0)[:5].max() and apart(1)[20:].max() < 1


@pytest.mark.parametrize("law", OURS)
def test_with_a_result_queue_per_replica_a_hog_on_one_changes_nothing_at_the_others(law):
    metrics, alone = run(law, replicas=3).metrics, run(law).metrics
    assert metrics["settling_samples"] == alone["settling_samples"]
    assert metrics["drops"] == 0
    assert metrics["served_share"] > 0.99
    others = [flow.build_course(SCENARIO.read_settings({"replicas": 3}), 1, None, replica) for replica in (1, 2)]
    assert all(course.capable.min() > 0.9 * flow.SERVED_PER_SAMPLE for course in others), "the hog is on the first"
