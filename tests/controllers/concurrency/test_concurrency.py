"""The concurrency law: TCC's machine, the fitted explorer, and what is held."""

import itertools
import json
import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import BadInput
from controllers import catalog
from controllers.concurrency.explorer import CurveSearch, explore_again
from controllers.concurrency.law import Concurrency
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
from controllers.framework.law import decide_next, resume_state, start_state
from controllers.simulation.concurrency import SCENARIO, explore

LAW = Concurrency()
RATIOS = (0.1, 0.2, 0.5, 1, 2, 5, 10)


def read(**parameters):
    return catalog.read_parameters(LAW, parameters)


def look(parameters, state, threads, gaps, **more):
    seen = catalog.read_observation(LAW, {"threads": threads, "interdeparture_seconds": gaps, **more})
    return decide_next(LAW, parameters, catalog.read_state(LAW, parameters, json.loads(json.dumps(state))), seen)


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


def waiting_pool(parameters, rate_of, looks, threads=8, mixes=None):
    """Sizes and decisions of a pool that was at rest, while work waits."""
    state, _ = at_rest(parameters, capacity=threads)
    size = state["machine"]["threads"]
    for number in range(looks):
        more = {"waiting": True, "seconds": 5.0, "mix": mixes(number) if mixes else {}}
        state, decision = look(parameters, state, size, [1 / rate_of(size)] * 20, **more)
        if decision.action:
            size = int(decision.action["threads"])
        yield size, decision


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=40), st.sampled_from(["tcc", "explorer"]))
def test_a_pool_is_not_reduced_while_work_waits_unless_more_threads_reduced_the_throughput(rates, method):
    parameters = read(method=method, initial_samples=5, steady_seconds=20.0, trial_seconds=10.0, maximum=64)
    state, threads = at_rest(parameters)
    usual, size, more_was_worse = threads, threads, False
    for rate in rates:
        state, decision = look(parameters, state, size, [1 / rate] * 6, waiting=True, seconds=5.0)
        if state["machine"]["phase"] == "steady" and not state["trial"]["threads"]:
            usual = state["machine"]["threads"]
        more_was_worse = more_was_worse or state["overloaded"]
        size = int(decision.action["threads"]) if decision.action else size
        assert more_was_worse or size >= threads
    assert usual >= threads or more_was_worse


def test_a_pool_past_its_peak_is_reduced_even_if_work_waits():
    parameters = read(method="explorer", initial_samples=5, steady_seconds=20.0, maximum=64)
    past = [size for size, _ in waiting_pool(parameters, lambda size: min(size, 200 / size**2), 40, threads=16)]
    assert past[-1] <= 8


def test_a_smaller_size_on_trial_is_left_as_soon_as_work_waits():
    parameters = read(method="explorer", steady_seconds=20.0)
    state, threads = at_rest(parameters)
    while state["machine"]["threads"] >= threads:
        state, decision = look(parameters, state, state["machine"]["threads"], [1 / threads] * 60, seconds=10.0)
    assert decision.action["threads"] < threads
    _, decision = look(parameters, state, state["machine"]["threads"], [], seconds=0.0, waiting=True)
    assert decision.action["threads"] == threads and "work waits" in decision.reason


def test_a_probe_with_too_few_samples_is_undone_after_its_time_and_says_so_before():
    parameters = read(method="explorer", steady_seconds=20.0, probe_seconds=60.0)
    state, threads = at_rest(parameters)
    while state["machine"]["threads"] == threads:
        state, _ = look(parameters, state, state["machine"]["threads"], [1 / threads] * 60, seconds=10.0)
    probed = state["machine"]["threads"]
    state, decision = look(parameters, state, probed, [1.0, 1.1], elapsed_seconds=50.0)
    assert f"testing {probed} threads instead of {threads}" in decision.reason and "undone in 10 s" in decision.reason
    assert (decision.terms["samples"], decision.terms["undone_after_seconds"]) == (2, 10.0)
    state, decision = look(parameters, state, probed, [1.0], elapsed_seconds=10.0)
    assert decision.action["threads"] == threads and state["machine"]["phase"] == "steady"
    assert "only 3 samples after 60 s" in decision.reason


def collapse_last_size(parameters, sizes, **more):
    """Return the state of a search whose last size completes almost nothing, and the decision on it."""
    state = start_state(LAW, parameters)
    for threads in sizes[:-1]:
        state, _ = look(parameters, state, threads, [1 / (10 * threads)] * 60, seconds=5.0)
    assert state["machine"]["threads"] == sizes[-1]
    return look(parameters, state, sizes[-1], [], open_seconds=2.0, open_events=sizes[-1] + 5.0, **more)


def test_a_probe_that_completes_almost_nothing_ends_at_once_and_half_the_way_to_it_is_tested_next():
    parameters = read(method="explorer", start=16)
    state, decision = collapse_last_size(parameters, (16, 32, 64))
    assert decision.action["threads"] == 48 and state["ceiling"]["bad"] == 64
    # Events that the collapse left in progress delay the first completions, which therefore don't count.
    draining = state["ceiling"]["drain_seconds"]
    assert draining == pytest.approx(64 * 2 / 69)
    state, decision = look(parameters, state, 48, [1.0] * 60, seconds=draining - 0.1)
    assert decision.action is None
    state, decision = look(parameters, state, 48, [1 / 480] * 60, seconds=1.0)
    assert (state["ceiling"]["good"], decision.action["threads"]) == (48, 56)


def test_a_short_pause_does_not_end_a_probe():
    parameters = read(method="explorer", start=16)
    state = start_state(LAW, parameters)
    for threads in (16, 32):
        state, _ = look(parameters, state, threads, [1 / (10 * threads)] * 60, seconds=5.0)
    state, decision = look(parameters, state, 64, [], open_seconds=0.9, open_events=69.0)
    assert decision.action is None and state["ceiling"] is None


def test_no_size_past_the_ceiling_is_tested_until_it_expires():
    parameters = read(method="explorer", start=16, steady_seconds=300.0, trial_seconds=60.0, initial_samples=5)
    state, _ = collapse_last_size(parameters, (16, 32, 64))
    tested, seconds = [], 0.0
    while seconds < 3_700:
        threads = state["machine"]["threads"] if state["trial"]["threads"] == 0 else state["trial"]["threads"]
        tested.append((seconds, threads))
        rate = 10.0 * threads if threads <= 48 else 10.0
        state, _ = look(parameters, state, threads, [1 / rate] * 20, seconds=5.0)
        seconds += 5.0
    sizes = [threads for at, threads in tested if at < 3_500]
    assert max(sizes) == 56 and sum(size > 48 for size in sizes) <= 3
    assert max(threads for at, threads in tested if at > 3_600) > 56


def test_another_mix_of_work_starts_a_search_upward_if_work_waits_and_none_if_nothing_waits():
    parameters = read(method="explorer", initial_samples=5, steady_seconds=1e6, maximum=64)

    def mix(number):
        return {"cpu": 1.0} if number < 5 else {"cpu": 0.2, "web": 0.8}

    sizes = [size for size, _ in waiting_pool(parameters, lambda size: min(size, 40), 30, mixes=mix)]
    assert set(sizes[:5]) == {min(sizes)} and sizes[-1] >= 32
    state, threads = at_rest(parameters)
    for number in range(20):
        state, decision = look(parameters, state, threads, [1 / threads] * 20, seconds=5.0, mix=mix(number))
        assert decision.action is None


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


def at_rest(parameters, state=None, capacity=8, **more):
    """The state of a law that has explored a plant of so many servers, and its threads."""
    state = start_state(LAW, parameters) if state is None else state
    for _ in range(80):
        threads = state["machine"]["threads"]
        state, _ = look(parameters, state, threads, [1 / min(threads, capacity)] * 60, seconds=1.0, **more)
        if state["machine"]["phase"] == "steady":
            return state, state["machine"]["threads"]
    raise AssertionError("it does not come to rest")


@pytest.mark.parametrize("method", ["tcc", "explorer"])
def test_who_is_steady_joins_an_exploration_with_a_greater_number_and_only_once(method):
    parameters = read(method=method, steady_seconds=1e6)
    state, threads = at_rest(parameters)
    idle, decision = look(parameters, state, threads, [], epoch=state["epoch"])
    assert decision.action is None and idle["machine"]["phase"] == "steady"
    joined, decision = look(parameters, state, threads, [], epoch=state["epoch"] + 3)
    assert decision.action is not None and "another host" in decision.reason
    assert joined["epoch"] == state["epoch"] + 3
    rested, _ = at_rest(parameters, joined, epoch=joined["epoch"])
    _, decision = look(parameters, rested, rested["machine"]["threads"], [1.0] * 2, epoch=joined["epoch"])
    assert decision.action is None


def test_pools_that_explore_together_begin_alike_but_none_far_from_what_it_has():
    parameters = read(steady_seconds=1e6, maximum=40, w=0.39)
    state, threads = at_rest(parameters)
    begun = {}
    for mean in (None, float(threads), 2.0 * threads, 100.0 * threads, 0.0):
        more = {} if mean is None else {"mean_threads": mean}
        after, _ = look(parameters, state, threads, [], epoch=state["epoch"] + 1, **more)
        begun[mean] = after["machine"]["threads"]
    assert begun[None] == begun[float(threads)] < begun[2.0 * threads] < begun[100.0 * threads] <= 40
    assert begun[0.0] < begun[None]
    assert begun[100.0 * threads] <= 3 * threads and begun[0.0] >= 1


def test_a_pool_far_behind_the_others_tries_steps_until_one_brings_too_little_and_calls_nobody():
    parameters = read(steady_seconds=1e6, trial_seconds=60.0, q=0.14)
    state, threads = at_rest(parameters, epoch=0)
    shared, sizes = {"epoch": state["epoch"], "mean_threads": 4.0 * threads, "seconds": 1.0}, []
    size = threads
    for _ in range(30):
        # From twice its threads on it gets no more.
        state, decision = look(parameters, state, size, [1 / min(size, 2 * threads)] * 60, **shared)
        if decision.action:
            size = int(decision.action["threads"])
            sizes.append(size)
    assert state["machine"]["phase"] == "steady" and state["epoch"] == shared["epoch"]
    assert 1.5 * threads < state["machine"]["threads"] <= 1.25 * 2 * threads < max(sizes)
    assert sizes == sorted(sizes[:-1]) + sizes[-1:]  # the last step is taken back


@pytest.mark.parametrize("mean", [None, 0.0, 1.0, 1.4])
def test_a_pool_that_is_not_far_behind_tries_nothing_beside_others(mean):
    parameters = read(steady_seconds=1e6, trial_seconds=60.0)
    state, threads = at_rest(parameters, epoch=0)
    more = {} if mean is None else {"mean_threads": mean * threads}
    for _ in range(20):
        state, decision = look(
            parameters, state, threads, [1 / threads] * 60, epoch=state["epoch"], seconds=30.0, **more
        )
        assert decision.action is None


def test_who_explores_already_counts_for_the_newest_exploration():
    parameters = read(steady_seconds=1e6)
    state, _ = look(parameters, start_state(LAW, parameters), 1, [1.0] * 60, epoch=5)
    assert state["machine"]["phase"] == "add" and state["epoch"] == 5


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 9)), max_size=40))
def test_the_number_of_an_exploration_never_falls_and_no_pool_that_nobody_steers_begins_one(looks):
    parameters = read(minimum=1, maximum=20, initial_samples=2, steady_seconds=5.0)
    state = start_state(LAW, parameters)
    for steered, apart, epoch in looks:
        threads = max(1, min(20, state["machine"]["threads"] + (0 if steered else apart)))
        more = {"steered": steered, "epoch": epoch, "seconds": 3.0}
        after, decision = look(parameters, state, threads, [1 / threads] * 4, **more)
        assert after["epoch"] >= state["epoch"]
        assert decision.action is None or 1 <= decision.action["threads"] <= 20
        if not steered:
            assert (after["machine"]["phase"], after["machine"]["threads"]) == ("steady", threads)
        state = after


def test_a_pool_that_nobody_steers_is_measured_where_it_is_and_exploring_is_advice():
    parameters = read(steady_seconds=10.0)
    state = start_state(LAW, parameters)
    for second in range(4):
        state, decision = look(parameters, state, 6, [0.1] * 60, seconds=4.0, steered=False)
        assert state["machine"]["phase"] == "steady" and state["machine"]["threads"] == 6
        assert (decision.action is not None) == (second == 2)
    _, decision = look(parameters, state, 6, [0.1] * 60, seconds=1.0)
    assert decision.action["phase"] == "base" and "controls the pool from now on" in decision.reason


def test_what_was_measured_before_a_hold_is_no_part_of_what_is_measured_after_it():
    parameters = read()
    state, _ = look(parameters, start_state(LAW, parameters), 1, [0.9, 1.1] * 20)
    assert state["sample"]["count"] == 40
    after = resume_state(LAW, state)
    assert after["sample"]["count"] == 0 and after["machine"] == state["machine"]


def test_the_limit_of_a_pool_is_forgotten_with_the_next_exploration():
    parameters = read(patience=2, steady_seconds=1e6)
    state = start_state(LAW, parameters)
    for _ in range(60):
        threads = min(state["machine"]["threads"], 4)
        state, _ = look(parameters, state, threads, [1 / threads] * 60, trouble="no memory")
    assert state["limit"] == 4
    state, _ = look(parameters, state, 4, [], epoch=9)
    assert state["limit"] is None
    _, threads = at_rest(parameters, state)
    assert threads > 4


def steps(parameters, state, capacity, seconds=5.0):
    """Each decision with the threads it was made at, for as long as somebody takes them."""
    while True:
        threads = state["trial"]["threads"] or state["machine"]["threads"]
        per_second = min(threads, capacity)
        state, decision = look(parameters, state, threads, [1 / per_second] * 60, seconds=seconds)
        yield threads, decision, state


@pytest.mark.parametrize("method", ["tcc", "explorer"])
def test_a_capacity_that_rises_is_found_by_trying_a_step_more_though_throughput_stayed(method):
    parameters = read(method=method, steady_seconds=1e6, trial_seconds=20.0)
    state, rested = at_rest(parameters)
    assert rested <= 9
    seen = itertools.islice(steps(parameters, state, 24), 60)
    found = ((decision, after) for _, decision, after in seen if after["machine"]["phase"] == "steady")
    decision, grown = next(each for each in found if each[1]["machine"]["threads"] > rested)
    assert 20 <= grown["machine"]["threads"] <= 30
    assert decision.expected.metric == "throughput_per_second" and decision.expected.direction == "up"
    assert decision.expected.before == pytest.approx(min(rested, 24))


def test_a_trial_that_brings_nothing_is_taken_back_and_the_next_waits_twice_as_long():
    parameters = read(steady_seconds=1e6, trial_seconds=20.0)
    state, rested = at_rest(parameters)
    tried = []
    for look_number, (threads, decision, _) in enumerate(itertools.islice(steps(parameters, state, 8), 100)):
        assert threads in (rested, math.ceil(rested * 1.25))
        if decision.action and decision.action["phase"] == "trial":
            tried.append(look_number)
    waits = [later - sooner for sooner, later in itertools.pairwise(tried)]
    assert len(tried) >= 4 and all(later >= 1.8 * sooner for sooner, later in itertools.pairwise(waits))


@pytest.mark.parametrize("method", ["tcc", "explorer"])
def test_where_only_idle_threads_end_a_search_begins_with_what_the_pool_has(method):
    parameters = read(method=method, start=8, initial_samples=10)
    for ends_idle in (False, True):
        state, gaps = start_state(LAW, parameters), [0.1] * 40
        for _ in range(3):
            state, _ = look(parameters, state, 8, gaps, steered=False, ends_idle=ends_idle)
        state, decision = look(parameters, state, 8, gaps, ends_idle=ends_idle)
        assert (decision.action["threads"] == 8) is ends_idle
        assert decision.action["phase"] in ("probe", "base")


def test_nothing_is_tried_where_the_range_ends_nor_while_nobody_steers_the_pool():
    parameters = read(steady_seconds=1e6, trial_seconds=20.0, maximum=8)
    state, rested = at_rest(parameters, capacity=20)
    assert rested == 8
    assert all(threads == 8 for threads, _, _ in itertools.islice(steps(parameters, state, 20), 40))
    parameters = read(steady_seconds=1e6, trial_seconds=20.0)
    state, rested = at_rest(parameters)
    for _ in range(40):
        state, decision = look(parameters, state, rested, [1 / rested] * 60, seconds=5.0, steered=False)
        assert decision.action is None


def test_a_pool_that_refuses_a_trial_is_at_its_limit_and_tries_no_more():
    parameters = read(steady_seconds=1e6, trial_seconds=20.0, patience=2)
    state, rested = at_rest(parameters)
    for _ in range(60):
        state, decision = look(parameters, state, rested, [1 / rested] * 60, seconds=5.0, trouble="no memory")
    assert state["limit"] == rested and state["trial"]["threads"] == 0 and decision.action is None


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
