"""The concurrency law: TCC's machine, the fitted explorer, and what is held."""

import json
import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import BadInput
from controllers import catalog, request
from controllers.concurrency.explorer import CurveSearch, explore_again
from controllers.concurrency.parameters import ConcurrencyParameters
from controllers.concurrency.tcc import Cycle, count_needed_samples
from controllers.concurrency.throughput import (
    FEW_SAMPLES,
    MIN_SECONDS,
    ThroughputMoments,
    ThroughputSample,
    compute_first_samples,
    compute_second_samples,
)
from controllers.concurrency.throughput_curve import (
    Point,
    StationCurve,
    compute_station_throughput,
    fit,
    fit_scalability,
)
from controllers.design import friendliness
from controllers.design.friendliness import TABLE_1, compute_minimum_q, compute_minimum_w, scale_q, share
from controllers.framework import guard
from controllers.framework.guard import ObservationQuality
from controllers.framework.law import start_state
from controllers.simulation.concurrency import SCENARIO, explore
from tests.controllers.concurrency.pools import LAW, look, read

RATIOS = (0.1, 0.2, 0.5, 1, 2, 5, 10)


def metrics(law, **settings):
    return SCENARIO.run(law, SCENARIO.read_settings(settings), 1, None).metrics


LEAST = {"repairman": 0.93, "escalation": 0.84, "enrichment": 0.81}


@pytest.mark.parametrize("model", LEAST)
def test_tcc_keeps_the_bottleneck_busy_and_never_saturates_it_by_more_than_a_step(model):
    found = {ratio: metrics("tcc", model=model, ratio=ratio) for ratio in RATIOS}
    assert min(each["utilisation"] for each in found.values()) >= LEAST[model]
    assert max(each["utilisation"] for each in found.values()) < 0.99
    if model != "repairman":
        assert min(found, key=lambda ratio: found[ratio]["utilisation"]) == 1


@pytest.mark.parametrize("p", TABLE_1)
def test_every_row_of_table_1_uses_92_to_97_percent(p):
    assert 0.92 <= metrics("tcc", model="section-4.8", p=p)["utilisation"] <= 0.97


def test_vegas_leaves_the_bottleneck_idle_as_the_paper_found():
    assert metrics("vegas+", model="section-4.8")["utilisation"] == pytest.approx(0.558, abs=0.01)
    assert metrics("vegas++", model="section-4.8")["utilisation"] == pytest.approx(0.713, abs=0.01)


@pytest.mark.parametrize("baseline", ["gradient2", "aimd", "envoy", "hill-climber"])
def test_no_rival_both_fills_the_bottleneck_and_leaves_it_unsaturated(baseline):
    assert not 0.85 <= metrics(baseline, model="section-4.8")["utilisation"] <= 0.97


def test_the_sharing_bounds_are_those_of_the_errata():
    assert share(0.25, 0.14) == pytest.approx((0.44, 0.4955), abs=5e-5)
    assert share(0.25, 0.05) == pytest.approx((0.80, 0.8333), abs=5e-5)
    printed = friendliness.answer({"p": 0.2, "q": 0.115, "w": 0.33})
    assert not printed["friendly"] and printed["conditions"]["w_at_least"] == pytest.approx(0.4537, abs=1e-4)
    assert all(friendliness.answer({"p": p, "q": q, "w": w})["friendly"] for p, (q, w) in TABLE_1.items())


@given(st.floats(0.01, 2), st.floats(1.001, 1.5), st.floats(0.01, 3))
def test_a_step_of_another_size_has_to_bring_what_keeps_condition_1(p, above, step):
    q = above * compute_minimum_q(p)
    assert scale_q(p, q, step) > compute_minimum_q(step)
    assert scale_q(p, q, p) == pytest.approx(q)


def test_parameters_that_break_a_condition_are_refused_with_the_nearest_that_do_not():
    with pytest.raises(BadInput, match=r"condition \(1\).*0\.138889") as refused:
        read(q=0.13)
    assert refused.value.field == "parameters.q"
    with pytest.raises(BadInput, match=r"condition \(2\)") as refused:
        read(w=0.2)
    assert refused.value.field == "parameters.w"
    assert f"{compute_minimum_w(0.25, 0.14):.6g}" in refused.value.message
    with pytest.raises(BadInput) as refused:
        read(minimum=10, maximum=5)
    assert refused.value.field == "parameters.minimum"


def test_the_sample_sizes_are_those_of_the_errata():
    # With factor 8, and a deviation as great as the mean.
    z = 1.2815515655446004
    assert compute_first_samples(1.0, 0.14, 0.1, 0.25) == pytest.approx(8 * (z / 0.25 * (1 + 1 / 0.14)) ** 2)
    before = ThroughputMoments(4, 1.0, 1.0, 1_000)
    gained = 0.14 / 1.14
    after = ThroughputMoments(5, 1 - gained, (1 - gained) ** 2, 1_000)
    # In the worst case, a gain of exactly q, the second needs about as many as the first.
    ratio = compute_second_samples(before, after, 0.14, 0.1, 0.25) / compute_first_samples(1.0, 0.14, 0.1, 0.25)
    assert ratio == pytest.approx((1 - gained) ** 2, rel=1e-9)
    idle = ThroughputMoments(5, 1.0, 1.0, 1_000)
    assert compute_second_samples(before, idle, 0.14, 0.1, 0.25) < compute_first_samples(1.0, 0.14, 0.1, 0.25) / 10


@given(st.lists(st.floats(0, 100), min_size=1, max_size=400), st.integers(1, 399))
def test_samples_taken_in_parts_are_the_same_without_their_largest_percent(gaps, cut):
    gaps = gaps * math.ceil(FEW_SAMPLES / len(gaps))
    whole = ThroughputSample().add_samples(gaps)
    parts = ThroughputSample().add_samples(gaps[:cut]).add_samples(gaps[cut:])
    kept = sorted(gaps)[: len(gaps) - len(gaps) // 100]
    for sample in (whole, parts):
        found = sample.measure(1)
        if math.fsum(kept) < MIN_SECONDS * len(kept):
            assert found is None, "nothing that runs is so fast"
        elif math.fsum(kept) > 1e-9:  # else rounding decides
            assert found.samples == len(kept)
            assert found.mean_seconds == pytest.approx(math.fsum(kept) / len(kept))


@given(st.lists(st.floats(0.9, 1.1), min_size=15, max_size=98), st.floats(2.5, 1_000))
def test_a_pause_among_few_samples_is_left_out_and_the_others_count(honest, pause):
    sample = ThroughputSample().add_samples(honest[:7]).add_samples([pause, *honest[7:]])
    found = sample.measure(4)
    assert found.samples == len(honest)
    assert found.mean_seconds == pytest.approx(statistics.fmean(honest))


def test_long_samples_count_if_they_are_no_pauses():
    """Samples are means of ten exponential times, as a pool's are of its completions."""
    chance = random.Random(3)
    kept, means = [], []
    for _ in range(500):
        gaps = [chance.gammavariate(10, 1 / 10) for _ in range(16)]
        found = ThroughputSample().add_samples(gaps).measure(1)
        kept.append(found.samples)
        means.append(found.mean_seconds)
    assert statistics.fmean(kept) >= 0.995 * 16
    assert statistics.fmean(means) == pytest.approx(1.0, abs=0.02)


def test_samples_of_two_kinds_are_no_pauses():
    found = ThroughputSample().add_samples([0.1] * 10 + [2.0] * 6).measure(1)
    assert found.samples == 16


def test_few_samples_of_an_older_weir_are_read_and_added_to():
    older = {"count": 40, "total": 40.0, "squares": 41.0, "largest": [1.5]}
    parameters = read()
    state = {**start_state(LAW, parameters), "sample": older}
    after, _ = look(parameters, state, 1, [1.0] * 4)
    assert after["sample"]["count"] == 44
    state["sample"] = {**older, "count": 400, "total": 400.0, "squares": 410.0, "largest": [1.5] * 5}
    after, _ = look(parameters, state, 1, [1.0] * 4)
    assert after["machine"] != state["machine"] or after["sample"]["count"] == 404


def test_where_the_range_leaves_one_number_of_threads_it_is_explored_again():
    parameters = ConcurrencyParameters(method="explorer", minimum=4, maximum=4)
    points = tuple(Point(threads, float(threads)) for threads in (2, 4, 8))
    again = explore_again(
        parameters, CurveSearch(phase="steady", threads=4, points=points, steady_per_second=4.0), False
    )
    assert (again.phase, again.threads, again.pending) == ("probe", 4, ())


def test_a_step_that_a_changed_range_has_undone_needs_no_second_sample():
    parameters = ConcurrencyParameters()
    same = ThroughputMoments(8, 1.0, 0.0, 30)
    cycle = Cycle(phase="add", threads=8, before=same)
    assert count_needed_samples(parameters, cycle, same) == parameters.initial_samples


def test_a_decline_is_taken_back_at_once():
    cliff = {threads: float(threads if threads <= 10 else 1) for threads in range(1, 60)}
    found = explore("tcc", cliff.__getitem__, 0.25)
    assert found.threads <= 10
    assert max(found.series) <= 13  # one step beyond the cliff, and no further


def test_what_can_not_be_decided_on_is_held_with_the_reason():
    parameters = read()
    state = start_state(LAW, parameters)
    for gaps, words in (([], "no completions"), ([0.5], "one sample"), ([0.0, 0.0], "the same time")):
        after, decision = look(parameters, state, 1, gaps)
        assert decision.action is None and words in decision.reason
        assert after["machine"] == state["machine"]


def test_a_pool_that_refuses_to_grow_is_asked_again_and_then_believed():
    parameters = read(patience=3)
    state = start_state(LAW, parameters)
    for _ in range(40):
        threads = min(state["machine"]["threads"], 4)
        state, decision = look(parameters, state, threads, [1 / threads] * 60)
        assert decision.action is None or 1 <= decision.action["threads"] <= 5
    assert state["limit"] == 4 and state["machine"]["threads"] <= 4


def guarded_pool(ticks, **settings):
    """Threads and decisions of a pool of a service that is linear: 10/s for each thread."""
    parameters, pool = read(method="explorer", start=2, minimum=1, maximum=32), 2
    state, guard_state, chance = (start_state(LAW, parameters), guard.read_state(None), random.Random(1))
    for tick in range(ticks):
        gaps = [chance.gauss(1 / (10.0 * pool), 0.01 / pool) for _ in range(20)]
        seen = catalog.read_observation(LAW, {"threads": pool, "interdeparture_seconds": gaps, "seconds": 5.0})
        guarded = guard.decide(
            LAW,
            parameters,
            state,
            seen,
            settings=guard.read_settings(LAW, settings),
            guard_state=guard_state,
            now_seconds=5.0 * tick,
            measured=ObservationQuality(0.5),
        )
        state, guard_state = guarded.state, guarded.guard_state
        if guarded.decision.action:
            pool = guarded.decision.action["threads"]
        yield pool, guarded.decision


def test_a_pool_whose_steps_cool_down_grows_a_step_at_a_time_and_refuses_none():
    found = list(guarded_pool(60, cooldown_seconds=60.0))
    pools = [pool for pool, _ in found]
    assert pools == sorted(pools) and pools[-1] >= 16
    assert not any("was set to" in decision.reason for _, decision in found)
    cooled = [decision for _, decision in found if decision.limited_by == "guard cool-down"]
    assert cooled and all(decision.terms["threads"] == pool for pool, decision in found if decision in cooled)


@pytest.mark.parametrize(("settings", "threads"), [({"maximum": 6.0}, 6), ({"slew_up": 3.0}, 32)])
def test_a_guard_that_holds_a_pool_back_ends_its_exploration_there(settings, threads):
    found = list(guarded_pool(120, **settings))
    assert found[-1][0] == threads
    assert found[-1][1].terms["phase"] == "steady"
    assert not any("was set to" in decision.reason for _, decision in found)


@given(st.integers(1, 20), st.integers(0, 200), st.lists(st.floats(0.001, 10), min_size=2, max_size=30))
def test_threads_never_leave_the_range(minimum, more, rates):
    parameters = read(minimum=minimum, maximum=minimum + more, initial_samples=2, method="explorer")
    state = start_state(LAW, parameters)
    for rate in rates:
        threads = state["machine"]["threads"]
        state, _ = look(parameters, state, threads, [1 / rate] * 4, seconds=100.0)
        assert minimum <= state["machine"]["threads"] <= minimum + more


def test_the_steady_state_ends_after_its_time_or_when_the_throughput_has_changed_twice_over():
    parameters = read(steady_seconds=1000.0)
    state = start_state(LAW, parameters)
    while state["machine"]["phase"] != "steady":
        threads = state["machine"]["threads"]
        state, _ = look(parameters, state, threads, [1 / min(threads, 8)] * 60)
    steady = state["machine"]["threads"]
    calm, decision = look(parameters, state, steady, [1 / min(steady, 8)] * 60, seconds=1.0)
    assert decision.action is None and "throughput is steady" in decision.reason
    once, decision = look(parameters, calm, steady, [1.0] * 60, seconds=1.0)
    assert decision.action is None and "checking again" in decision.reason
    _, decision = look(parameters, once, steady, [1.0] * 60, seconds=1.0)
    assert decision.action["phase"] == "base" and decision.action["threads"] < steady
    _, decision = look(parameters, calm, steady, [1 / min(steady, 8)] * 60, seconds=2000.0)
    assert decision.action["phase"] == "base"


def test_a_pool_that_is_to_be_smaller_promises_so_many_threads_less_than_it_began_with():
    parameters = read(method="explorer", start=32)
    state = start_state(LAW, parameters)
    while state["machine"]["phase"] != "steady":
        threads = state["machine"]["threads"]
        state, decision = look(parameters, state, threads, [1 / min(threads, 8)] * 60)
    assert decision.expected.metric == "threads" and decision.expected.direction == "down"
    assert decision.expected.before == 32
    assert decision.expected.amount == 32 - state["machine"]["threads"]


def test_a_refusal_names_what_the_pool_says_of_it():
    parameters = read()
    _, decision = look(parameters, start_state(LAW, parameters), 3, [1.0] * 60, trouble="no memory")
    assert "the pool has 3 threads instead of 1 (no memory)" in decision.reason and decision.limited_by == "pool"


def test_a_station_is_found_from_its_points_and_a_bend_is_taken_for_scalability():
    points = [Point(n, compute_station_throughput(n, 2, 1538.0, 0.0093)) for n in (1, 2, 4, 8, 16, 32)]
    curve = fit(points)
    assert isinstance(curve, StationCurve) and curve.servers == 2
    assert curve.capacity_per_second == pytest.approx(1538, rel=1e-3)
    bent = [Point(n, 100 * n / (1 + 0.02 * (n - 1) + 0.0005 * n * (n - 1))) for n in (1, 4, 16, 64, 128)]
    found = fit_scalability(bent)
    assert found.peak_threads == pytest.approx(math.sqrt(0.98 / 0.0005), rel=1e-6)
    assert type(fit(bent)) is type(found)


def test_where_no_curve_fits_tcc_takes_over():
    rugged = {n: 10.0 * n * (0.4 if n in (4, 8) else 1.0) if n <= 32 else 330.0 for n in range(1, 700)}
    parameters = read(method="explorer", fit_tolerance=0.01)
    state, kinds = start_state(LAW, parameters), set()
    for _ in range(60):
        threads = state["machine"]["threads"]
        state, _ = look(parameters, state, threads, [1 / rugged[threads]] * 60, seconds=1.0)
        kinds.add(state["machine"]["kind"])
    assert kinds == {"tcc", "explorer"} or "tcc" in kinds


def test_a_pool_without_threads_measures_nothing_and_its_state_can_be_read_again():
    parameters = read()
    state = start_state(LAW, parameters)
    for _ in range(3):  # what ends now was begun by threads that are no more
        state, decision = look(parameters, state, 0, [1.0, 2.0], steered=False, epoch=0)
        assert decision.action is None
    assert catalog.read_state(LAW, parameters, json.loads(json.dumps(state)))["origin"] is None


def test_a_pool_whose_throughput_falls_far_below_that_of_fewer_threads_at_the_end_of_a_walk_explores_again():
    machine = {
        "kind": "tcc",
        "phase": "steady",
        "threads": 2,
        "steady_per_second": 0.2,
        "steady_seconds": 0.0,
        "doubted": False,
        "steps": 5,
        "before": {"threads": 2, "mean_seconds": 4.9, "variance": 0.0, "samples": 390},
        "best": 2.0,
        "back_to": 2,
    }
    state = {
        "machine": machine,
        "sample": {"count": 0, "total": 0.0, "squares": 0.0, "largest": [], "elapsed_seconds": 0.0},
        "refused": 0,
        "limit": None,
        "epoch": 0,
        "followed": False,
        "trial": {"threads": 0, "began_at": 0.0, "fruitless": 0},
        "origin": {"threads": 1, "per_second": 1e12},
        "ceiling": None,
        "overloaded": True,
        "mix": {},
    }
    seen = {"threads": 2, "interdeparture_seconds": [0.5, 0.4] * 65, "open_seconds": 5.7, "open_events": 2.0}
    document = {"parameters": {"method": "explorer"}, "state": state, "observations": [seen]}
    answer = request.answer("concurrency", document)
    assert "far below that of fewer threads" in answer["decisions"][0]["reason"]
    assert answer["state"]["machine"]["phase"] != "steady"
