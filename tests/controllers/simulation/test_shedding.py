"""The lab's scenario `shedding`: recall, the bound, and what state-awareness brings."""

import numpy as np
import pytest

from controllers.simulation.shed_stream import SequenceMatcher, SetMatcher, compute_departures, join_events
from controllers.simulation.shedding import SCENARIO

LOADS = (110, 150, 200, 300)
SCARCE = dict(zip(LOADS, (0.98, 0.98, 0.85, 0.57), strict=True))
SCARCE_LOCAL = dict(zip(LOADS, (0.98, 0.57, 0.29, 0.17), strict=True))
BALANCED = dict(zip(LOADS, (0.98, 0.73, 0.56, 0.38), strict=True))


def metrics(law: str, seed: int = 1, **settings):
    return SCENARIO.run(law, SCENARIO.read_settings(settings), seed, None).metrics


def short(law: str, **settings):
    return metrics(law, seconds=1_800, **settings)


@pytest.mark.slow
@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize(("balance", "least"), [("q11-scarce", SCARCE), ("balanced", BALANCED)])
def test_the_global_program_keeps_recall_and_the_bound_at_every_overload(load, balance, least):
    found = metrics("global", load_percent=load, balance=balance)
    assert found["recall"] >= least[load]
    assert found["realised_share"] >= 0.97
    assert 0.90 <= found["latency_mean_seconds"] / 0.12 <= 1.05


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("load", "least"), [(150, 0.97), (200, 0.84), (300, 0.56)])
def test_over_twelve_seeds_recall_and_the_bound_are_kept(load, least):
    found = [metrics("global", seed, load_percent=load, seconds=3_600) for seed in range(1, 13)]
    assert min(each["recall"] for each in found) >= least
    assert np.mean([each["latency_mean_seconds"] for each in found]) <= 1.02 * 0.12


@pytest.mark.slow
@pytest.mark.parametrize("load", LOADS)
def test_the_local_program_keeps_what_the_sinks_can_not_use(load):
    assert metrics("local", load_percent=load)["recall"] == pytest.approx(SCARCE_LOCAL[load], abs=0.03)


@pytest.mark.thorough
def test_with_something_scarce_downstream_a_forecast_keeps_the_recall():
    ours, local = short("global", load_percent=200), short("local", load_percent=200)
    assert ours["recall"] > 0.83 and local["recall"] < 0.36
    assert ours["realised_share"] > 0.97


@pytest.mark.thorough
def test_no_rival_that_drops_keeps_as_much_and_without_dropping_the_queue_grows():
    ours = short("global", load_percent=150)
    for baseline in ("random", "utility"):
        assert short(baseline, load_percent=150)["recall"] < ours["recall"] - 0.1
    none = short("none", load_percent=150)
    assert none["bound_violations"] > 0.95 and none["latency_mean_seconds"] > 100


@pytest.mark.thorough
def test_spending_the_shares_on_events_whose_partners_wait_finds_more_in_a_short_window():
    plain, aware = (
        short("global", load_percent=200, balance="balanced", window_seconds=0.2, state_aware=each) for each in (0, 1)
    )
    assert aware["matches"] >= 1.06 * plain["matches"]
    assert aware["utilisation"] <= plain["utilisation"] * 1.01


@pytest.mark.thorough
def test_what_an_event_costs_before_its_state_is_known_takes_the_gain_of_asking_for_it():
    settings = {"load_percent": 200, "balance": "balanced", "window_seconds": 0.2}
    plain = short("global", **settings)
    cheap, dear = (short("global", **settings, state_aware=1, reading_percent=each) for each in (5, 20))
    assert cheap["matches"] > 1.05 * plain["matches"] > 1.1 * dear["matches"]
    # What is shed without being read costs nothing, whatever reading would cost.
    assert short("global", **settings, reading_percent=20) == plain
    for found in (cheap, dear):
        assert 0.9 <= found["latency_mean_seconds"] / 0.12 <= 1.05


def test_below_the_bound_nothing_is_shed():
    found = short("global", load_percent=60, balance="balanced")
    assert found["recall"] == 1.0 and found["bound_violations"] < 0.2


@pytest.mark.parametrize("law", ["global", "local"])
def test_before_the_first_table_nothing_is_promised(law):
    found = metrics(law, seed=10, load_percent=1, latency_bound_seconds=0.013, seconds=600)
    assert found["matches"] > 0 and 0 < found["realised_share"] < 1


def test_of_nothing_promised_no_share_is_realised():
    settings = SCENARIO.read_settings({"seconds": 600, "interval_seconds": 20})
    trace = np.array([0.0] * 59 + [1.0])  # what comes, comes after the last table
    assert SCENARIO.run("global", settings, 1, trace).metrics["realised_share"] is None


def test_a_trace_shapes_the_arrivals():
    quiet = SCENARIO.run(
        "none", SCENARIO.read_settings({"seconds": 600, "load_percent": 90}), 1, np.asarray([0.0, 1.0])
    )
    assert quiet.metrics["utilisation"] < 0.8


def test_a_sequence_takes_the_most_advanced_automaton_and_each_event_once():
    matcher = SequenceMatcher(10.0)
    found = [matcher.take(kind, float(at)) for at, kind in enumerate([0, 0, 0, 1, 1, 0, 1])]
    # 0 0 make a pair, the third opens a machine, the first 1 completes the pair, the second finds none.
    assert found == [False, False, False, True, False, False, True]


def test_automata_older_than_the_window_are_discarded():
    matcher = SequenceMatcher(1.0)
    assert not any([matcher.take(0, 0.0), matcher.take(0, 0.1), matcher.take(1, 1.2)])
    pairs = SetMatcher((0, 1), 1.0)
    assert [pairs.take(0, 0.0), pairs.take(1, 1.5), pairs.take(0, 2.0)] == [False, False, True]


def test_a_join_pairs_the_oldest_of_both_sides_within_the_window():
    found = join_events(np.asarray([0.0, 5.0]), np.asarray([1.0, 9.0, 30.0]), 10.0)
    assert found.tolist() == [1.0, 9.0]


def test_a_queue_is_left_in_order_and_never_before_the_work_is_done():
    left = compute_departures(np.asarray([0.0, 1.0, 1.5, 10.0]), np.asarray([2.0, 1.0, 0.0, 1.0]))
    assert left.tolist() == [2.0, 3.0, 3.0, 11.0]
