"""The lab's manager: our law beside the thesis' tables, on sines, chance, steps and real traces."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.simulation import manager
from tests.controllers.worker_rate.thesis_tables import ROWS, TABLES
from tests.shared_data import DATA
from workers.lab.trace_files import read_trace

SCENARIO = manager.SCENARIO
RATES = DATA / "rates"
TRACES = ["nasa_http_1995_jul_per_second", "twitter_sample_2021_08_per_second_d01_11", "worldcup98_per_minute_to_0619"]
FEW = [(50, 50, 50), (1_000, 50, 250), (3_000, 400, 15_000)]
LIMITS = [row[0] for row in TABLES[50, 50]]


def run(law, of, trace=None, seed=1, **settings):
    names = ("max_rate", "events_per_worker", "upper_limit")
    values = SCENARIO.read_settings({**dict(zip(names, of, strict=True)), **settings})
    return SCENARIO.run(law, values, seed, trace).metrics


def check_dominates(ours, waiting, runs):
    assert ours["waiting_5s_post"] < waiting
    assert ours["waiting_1s_post"] < waiting
    assert ours["worker_runs"] < runs
    assert ours["worker_runs"] <= 1.08 * ours["minimum_runs"]


def check_beats_thesis(of, trace):
    ours, thesis = (run(law, of, trace) for law in ("worker_rate", "thesis"))
    for metric in ("waiting_5s_post", "waiting_1s_post", "worker_runs"):
        assert ours[metric] < thesis[metric], (of, metric)


@pytest.mark.sweep(8)
@pytest.mark.parametrize("row", [row for row in ROWS if row[:3] in FEW], ids=str)
@pytest.mark.parametrize("settings", [{}, {"poisson": 1}, {"cycles": 4}], ids=str)
def test_ours_leaves_less_waiting_with_fewer_runs_than_a_row_of_the_tables(row, settings):
    check_dominates(run("worker_rate", row[:3], **settings), *row[3:])


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=str)
@pytest.mark.parametrize("settings", [{}, {"poisson": 1}, {"cycles": 4}, {"cycles": 4, "poisson": 1}], ids=str)
def test_ours_leaves_less_waiting_with_fewer_runs_than_every_row_of_the_tables(row, settings):
    check_dominates(run("worker_rate", row[:3], **settings), *row[3:])


@pytest.mark.thorough
def test_the_thesis_law_of_the_lab_reproduces_its_tables():
    errors = []
    for *of, waiting, runs in ROWS:
        thesis = run("thesis", of)
        errors.append(abs(math.log(thesis["waiting_5s_post"] / waiting)))
        errors.append(abs(math.log(thesis["worker_runs"] / runs)))
    assert sum(errors) / len(errors) <= 0.2


@pytest.mark.sweep(4)
@pytest.mark.parametrize(("of", "runs"), [((50, 50, 50), 12_000), ((3_000, 400, 50), 90_000)])
def test_the_static_configuration_runs_the_workers_of_the_greatest_rate(of, runs):
    static = run("static", of)
    assert static["worker_runs"] == pytest.approx(runs, abs=1)
    ours = run("worker_rate", of)
    assert static["waiting_1s_post"] < ours["waiting_1s_post"]
    assert ours["worker_runs"] < 0.6 * runs


@pytest.mark.sweep(8)
@pytest.mark.parametrize("upper_limit", [50, 1_000, 15_000])
@pytest.mark.parametrize("poisson", [0, 1])
def test_a_step_up_and_down_costs_at_most_a_tenth_more_runs_than_the_fewest(upper_limit, poisson):
    trace = np.repeat([0.05, 1.0, 0.05], 4_000)
    ours = run("worker_rate", (1_000, 50, upper_limit), trace, poisson=poisson)
    assert ours["worker_runs"] <= 1.1 * ours["minimum_runs"]
    assert ours["waiting_greatest"] <= 2_000
    assert ours["wait_greatest_seconds"] <= 3


@pytest.mark.sweep(4)
@pytest.mark.parametrize("bound", [5, 20])
def test_no_event_waits_longer_than_the_bound(bound):
    # At 3 events/s a worker fills in 17 s, and at night much later.
    ours = run("worker_rate", (3, 50, 1_000), max_wait_seconds=bound)
    assert ours["wait_greatest_seconds"] <= bound
    assert run("worker_rate", (3, 50, 1_000))["worker_runs"] < ours["worker_runs"]


def spiky_trace():
    """Quiet nights, noisy days, and now and then a spike: chance of a fixed seed."""
    chance = np.random.default_rng(7)
    day = 3 + 2 * np.sin(np.arange(12_000) / 1_900)
    return chance.poisson(day) + np.where(chance.random(12_000) < 0.002, 12, 0)


@pytest.mark.sweep(6)
@pytest.mark.parametrize("of", [(50, 50, 50), (1_000, 50, 1_000), (3_000, 400, 15_000)], ids=str)
def test_on_a_spiky_trace_ours_beats_the_thesis(of):
    check_beats_thesis(of, spiky_trace())


def rare_spikes():
    """Nothing, and now and then within one second as much as a heavy tail has."""
    chance = np.random.default_rng(3)
    at = chance.random(12_000) < 0.003
    return np.where(at, chance.pareto(1.3, 12_000) + 1, 0.0)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("of", [(1_000, 50, 50), (3_000, 400, 400), (1_000, 50, 250)], ids=str)
def test_rare_spikes_cost_hardly_more_runs_than_who_foreknows_them_needs(of):
    """As a spike is not expected to come again: it was, and a third more ran."""
    ours = run("worker_rate", of, rare_spikes())
    assert ours["worker_runs"] <= 1.12 * ours["minimum_runs_in_time"]


def one_by_one(inflow, events_per_worker, max_wait_seconds):
    """The same count, a worker at a time."""
    inserted, taken, runs, oldest = np.cumsum(inflow).tolist(), 0.0, 0, 0
    for second, there in enumerate(inserted):
        while True:
            while oldest <= second and inserted[oldest] <= taken + 1e-3:
                oldest += 1
            filled = there - taken >= events_per_worker - 1e-9
            if oldest > second or not (filled or second - oldest >= max_wait_seconds):
                break
            runs, taken = runs + 1, min(there, taken + events_per_worker)
    return runs + math.ceil((inserted[-1] - taken) / events_per_worker - 1e-9) if inserted else 0


@given(
    st.lists(st.one_of(st.just(0.0), st.floats(0, 1e3), st.integers(0, 400).map(float)), max_size=60),
    st.integers(1, 60),
    st.sampled_from([0.0, 1.0, 7.5, 300.0]),
)
def test_workers_counted_at_once_are_those_counted_one_by_one(inflow, size, wait):
    assert manager.runs_in_time(np.array(inflow), size, wait) == one_by_one(np.array(inflow), size, wait)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRACES)
@pytest.mark.parametrize(("maximum_rate", "size"), [*TABLES, (5, 50), (50, 400)])
def test_on_real_traces_a_limit_near_one_worker_costs_a_fifth_more_runs_at_most(name, maximum_rate, size):
    path = RATES / f"{name}.csv.gz"
    if not path.exists():
        pytest.skip(f"the trace {name} is not on this machine")
    trace = read_trace(str(path), "count")
    for share in (0.75, 1.0, 1.5):
        ours = run("worker_rate", (maximum_rate, size, share * size), trace)
        assert ours["worker_runs"] <= 1.2 * ours["minimum_runs_in_time"], share


@pytest.mark.slow
@pytest.mark.parametrize("name", TRACES)
def test_on_real_traces_ours_beats_the_thesis_at_every_upper_limit(name):
    path = RATES / f"{name}.csv.gz"
    if not path.exists():
        pytest.skip(f"the trace {name} is not on this machine")
    trace = read_trace(str(path), "count")
    for maximum_rate, size in TABLES:
        for upper_limit in LIMITS:
            check_beats_thesis((maximum_rate, size, upper_limit), trace)
