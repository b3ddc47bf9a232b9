"""The lab's scenario `shedding`: recall, the bound."""

import numpy as np
import pytest

from controllers.simulation.shed_stream import SequenceMatcher, SetMatcher
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
@pytest.mark.parametrize("load", LOADS)
def test_the_local_program_keeps_what_the_sinks_can_not_use(load):
    assert metrics("local", load_percent=load)["recall"] == pytest.approx(SCARCE_LOCAL[load], abs=0.03)


@pytest.mark.thorough
def test_no_rival_that_drops_keeps_as_much_and_without_dropping_the_queue_grows():
    ours = short("global", load_percent=150)
    for baseline in ("random", "utility"):
        assert short(baseline, load_percent=150)["recall"] < ours["recall"] - 0.1
    none = short("none", load_percent=150)
    assert none["bound_violations"] > 0.95 and none["latency_mean_seconds"] > 100


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
