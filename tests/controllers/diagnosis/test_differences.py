"""What is different in a stretch: found where it is, rarely where it is not, also with events in bursts."""

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from controllers.diagnosis.differences import compare_means, find_differences, select_significant, share_tests

SLICES = 12


def drawn(random: np.random.Generator, shares: list[float], per_slice: float, burst: float) -> dict[str, list[float]]:
    """Events of each slice by value; burst: of a gamma that each value's share is multiplied by (0: none)."""
    rows = []
    for _ in range(SLICES):
        weights = np.array(shares)
        if burst:
            weights = weights * random.gamma(1 / burst, burst, len(shares))
        rows.append(random.multinomial(random.poisson(per_slice), weights / weights.sum()))
    columns = np.array(rows, dtype=float).T
    return {f"v{at}": list(column) for at, column in enumerate(columns)}


def test_what_comes_in_stands_beside_what_a_queue_that_falls_behind_has_more_to_do():
    """A hot key: rates and waits rise by more than any share can."""
    here = {"hot": [90.0] * 12, "k": [5.0] * 12, "l": [5.0] * 12}
    there = {"hot": [1.0] * 12, "k": [49.0] * 12, "l": [50.0] * 12}
    rates = [float(at % 3) for at in range(12)]
    means = {
        ("queue", "orders", measure): ([base + each for each in rates], rates)
        for measure, base in (("events in, /s", 900.0), ("events out, /s", 300.0))
    }
    found = find_differences({"key": (here, there)}, means)
    assert [each.value for each in found] == ["hot", "orders", "l", "orders", "k"]
    assert [each.is_share for each in found] == [True, False, True, False, True]


def test_what_falls_beside_what_has_risen_comes_after_the_first_of_other_dimensions():
    def of(share: float) -> dict[str, list[float]]:
        return {"a": [1_000 * share] * 12, "b": [1_000 * (1 - share)] * 12}

    found = find_differences({"operator": (of(0.9), of(0.1)), "producer": (of(0.6), of(0.2))}, {})
    rows = [(each.dimension, each.effect > 0) for each in found]
    assert {dimension for dimension, _ in rows[:2]} == {"operator", "producer"} and len(rows) == 4


def test_without_bursts_it_is_the_g_test():
    here, there = {"a": [40.0] * 6, "b": [60.0] * 6}, {"a": [50.0] * 6, "b": [50.0] * 6}
    ours = next(share_tests("type", here, there)).probability
    known = scipy.stats.chi2_contingency([[240, 360], [300, 300]], correction=False, lambda_="log-likelihood")
    assert ours == pytest.approx(float(scipy.stats.f.sf(known.statistic, 1, 10)))


@given(st.lists(st.floats(0, 1), max_size=40))
def test_what_is_kept_is_what_benjamini_and_hochberg_keep(probabilities):
    kept = select_significant(probabilities, 0.05)
    if probabilities:
        adjusted = scipy.stats.false_discovery_control(probabilities, method="bh")
        near = np.isclose(adjusted, 0.05)
        assert all(keep == (p <= 0.05) or close for keep, p, close in zip(kept, adjusted, near, strict=True))
    assert select_significant([], 0.05) == []


@pytest.mark.slow
@pytest.mark.parametrize("burst", [0.0, 0.3, 1.0])
def test_where_nothing_differs_hardly_anything_is_found(burst):
    """Of 150 pairs of stretches of 40 values each that are drawn alike at most 3 % show any difference."""
    random = np.random.default_rng(7)
    shares = list(random.dirichlet(np.ones(40)))
    wrong = sum(
        bool(find_differences({"key": (drawn(random, shares, 400, burst), drawn(random, shares, 400, burst))}, {}))
        for _ in range(150)
    )
    assert wrong / 150 <= 0.03


@pytest.mark.parametrize(("burst", "least"), [(0.0, 20), (0.1, 20), (0.3, 13)])
def test_a_value_that_became_three_times_as_frequent_is_first(burst, least):
    """The more events come in bursts, the more often it may be chance."""
    random = np.random.default_rng(11)
    shares = [0.05] * 20
    first = []
    for _ in range(20):
        changed = [0.15, *shares[1:]]
        here, there = drawn(random, changed, 400, burst), drawn(random, shares, 400, burst)
        first += [each.value for each in find_differences({"key": (here, there)}, {})[:1]]
    assert first.count("v0") >= least


def test_a_measure_that_doubled_is_found_with_its_ratio():
    random = np.random.default_rng(3)
    here, there = random.normal(0.02, 0.001, 12), random.normal(0.01, 0.001, 12)
    found = find_differences({}, {("handler", "alert", "seconds per event"): (list(here), list(there))})
    assert [(each.value, round(each.effect, 1)) for each in found] == [("alert", 0.7)]


@pytest.mark.parametrize(("here", "there"), [([1.0], [1.0] * 9), ([0.0] * 9, [0.0] * 9), ([], [])])
def test_too_few_slices_and_means_of_nothing_say_nothing(here, there):
    assert compare_means("handler", "alert", "seconds per event", here, there) == []


def test_what_stopped_or_has_just_begun_differs_the_most():
    random = np.random.default_rng(4)
    came, nothing = list(random.normal(500.0, 20.0, 12)), [0.0] * 12
    queue = ("queue", "orders", "events/s in")
    (stopped,) = find_differences({}, {queue: (nothing, came)})
    (begun,) = find_differences({}, {queue: (came, nothing)})
    assert stopped.effect == -begun.effect < -2 and (stopped.here, begun.there) == (0.0, 0.0)


@pytest.mark.parametrize(("here", "there"), [({}, {"a": [9.0] * 5}), ({"a": [9.0] * 5}, {"a": [9.0] * 5})])
def test_without_anything_to_compare_there_is_no_test(here, there):
    assert list(share_tests("type", here, there)) == []
