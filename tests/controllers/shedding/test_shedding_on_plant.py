"""What the shedding law does with what only a plant can tell: what comes per match, batches, the ladder."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.shedding.latency_bound import WaitingTimeModel
from tests.controllers.shedding.test_shedding import decide, example

JOBS = [
    {
        "operator": "jobs",
        "name": name,
        "expression": f"SEQ(submit; {end})",
        "emits": name,
        "seconds": 0.002,
        "takes": takes,
    }
    for name, end, takes in (
        ("killed", "kill", {"submit": 3.0, "kill": 1.0}),
        ("failed", "fail", {"submit": 100.0, "fail": 1.0}),
    )
]
SEEN = {
    "patterns": JOBS,
    "arrivals": {"jobs": {"submit": 300.0, "kill": 100.0, "fail": 3.0}},
    "sinks": {"killed": 1, "failed": 1},
}


def test_what_is_measured_per_match_is_no_surplus_and_types_of_a_pattern_are_kept_alike():
    _, by_expression = decide({"utilisation_budget": 1.0}, SEEN)
    assert by_expression.action["shed"]["failed"] == pytest.approx({"submit": 0.99, "fail": 0.0})
    _, measured = decide({"utilisation_budget": 1.0, "needs": "measured"}, SEEN)
    assert set(measured.action["shed"]["killed"].values()) == {0.0}
    kept = {1 - share for share in measured.action["shed"]["failed"].values()}
    assert max(kept) - min(kept) < 1e-9
    # 0.8 s a second for `killed`; the 0.2 s that are left are a third of what `failed` would take.
    assert max(kept) == pytest.approx(0.2 / 0.606)
    assert measured.action["expected"]["failed"] == pytest.approx(3 * 0.2 / 0.606)


def test_surplus_within_keys_is_dropped_before_events_that_matches_need():
    ways = [{"takes": {"submit": 50.0, "fail": 1.0}}, {"takes": {"submit": 26.0, "fail": 1.04}}]
    patterns = [JOBS[0], {**JOBS[1], "reduced": ways}]
    for budget, failed in ((0.956, 2.885), (1.0, 2.918)):
        _, decision = decide({"utilisation_budget": budget, "needs": "measured"}, {**SEEN, "patterns": patterns})
        shares = decision.action["shed"]
        assert set(shares["killed"].values()) == {0.0}
        assert decision.action["expected"]["failed"] == pytest.approx(failed, abs=0.001)
        assert shares["failed"]["fail"] <= 0.05 and decision.action["utilisation"] <= budget + 1e-9


def test_a_protected_type_is_kept_whatever_symbols_its_events_match():
    row = {**JOBS[0], "takes": {"cpu[low]": 5.0, "cpu[high]": 1.0, "load": 1.0}}
    seen = {"patterns": [row], "arrivals": {"jobs": {"cpu[low]": 50.0, "cpu[high]": 10.0, "load": 10.0}}}
    given = {"utilisation_budget": 0.13, "needs": "measured", "never_shed": {"cpu": True}}
    _, decision = decide(given, {**seen, "sinks": {"killed": 1}})
    assert decision.action["shed"]["killed"] == pytest.approx({"cpu[low]": 0.0, "cpu[high]": 0.0, "load": 0.5})


def test_few_events_in_a_batch_leave_less_of_the_budget():
    many, few = (WaitingTimeModel(1.0, 0.003, 0.0, seconds) for seconds in (0.00001, 0.012))
    assert many.compute_utilisation_budget(0.12, 100.0) == pytest.approx(0.95, abs=0.001)
    assert few.compute_utilisation_budget(0.12, 100.0) == pytest.approx(0.864, abs=0.001)


@given(st.floats(0.5, 30.0), st.floats(100.0, 5_000.0), st.floats(0.0, 2.0))
def test_no_batch_has_more_work_than_the_bound_allows_on_average(bound, rows_per_second, elsewhere):
    seen = {**SEEN, "batch_seconds": 0.1, "elsewhere_seconds": elsewhere, "rows_per_second": rows_per_second}
    _, decision = decide({"needs": "measured", "latency_bound_seconds": bound + elsewhere}, seen)
    rows, work_per_row = decision.action["rows"], decision.action["utilisation"] / rows_per_second
    assert 0.1 + rows * work_per_row == pytest.approx(bound / 1.5, rel=0.01)
    # With twice the rows, the second table admits the same work.
    rates, admitted = SEEN["arrivals"]["jobs"], 0.0
    for job in JOBS:
        kept = decision.action["reduced"][job["name"]]
        admitted += sum(job["seconds"] * rates[name] * (1 - kept[name]) for name in job["takes"])
    assert admitted == pytest.approx(decision.action["utilisation"] / 2, rel=0.01)


def test_without_the_number_of_rows_or_a_bound_batches_are_not_limited():
    for parameters, seen in (
        ({"latency_bound_seconds": 3.0}, {"batch_seconds": 0.5}),
        ({"latency_bound_seconds": 3.0}, {"rows_per_second": 400.0}),
        ({"utilisation_budget": 0.5}, {"batch_seconds": 0.5, "rows_per_second": 400.0}),
    ):
        _, decision = decide({"needs": "measured", **parameters}, {**SEEN, **seen})
        assert not {"rows", "reduced"} & decision.action.keys()


def test_an_error_budget_limits_the_second_table_too():
    objective = {"level": "shed", "name": "loss", "left": 3_600.0 * 20, "share": 0.9}
    seen = {**SEEN, "batch_seconds": 0.1, "rows_per_second": 400.0, "budgets": [objective]}
    _, decision = decide({"needs": "measured", "latency_bound_seconds": 3.0}, seen)
    rates = SEEN["arrivals"]["jobs"]
    shed = sum(rates[name] * share for types in decision.action["reduced"].values() for name, share in types.items())
    assert decision.action["rows"] and shed <= 20.0 + 1e-6


def test_weights_that_people_set_stand_before_those_observed():
    given = {"utilisation_budget": 0.65, "needs": "measured"}
    _, plain = decide(given, SEEN)
    _, weighted = decide({**given, "sink_weights": {"failed": 100.0}}, SEEN)
    assert plain.action["expected"]["failed"] == pytest.approx(0.0)
    assert weighted.action["expected"]["failed"] == pytest.approx(3.0)
    assert weighted.action["expected"]["sinks"] > 300


def test_nothing_is_shed_before_the_ladder_permits_it_and_what_is_shed_ends_with_it():
    given = {"utilisation_budget": 0.6}
    state, waits = decide(given, example(5, 12, permitted=False))
    assert waits.action is None and "has not enabled shedding" in waits.reason
    state, sheds = decide(given, example(5, 12), state)
    assert any(any(types.values()) for types in sheds.action["shed"].values())
    state, ends = decide(given, example(5, 12, permitted=False), state)
    assert ends.action["shed"] == {} and ends.reason.startswith("Stop shedding: ")
    _, again = decide(given, example(5, 12, permitted=False), state)
    assert again.action is None


@given(st.floats(0.01, 100), st.floats(0.001, 20), st.floats(0, 50), st.floats(0, 20))
def test_of_batches_the_budget_is_the_greatest_that_keeps_the_bound(bound, batch, elsewhere, cv2):
    waiting = WaitingTimeModel(cv2, batch, elsewhere)
    budget = waiting.compute_utilisation_budget(bound, 100.0)
    if bound <= waiting.compute_minimum_seconds(0.0):
        assert budget == 0.0
    else:
        assert waiting.compute_time_seconds(budget, 100.0) <= bound * (1 + 1e-9)
        assert waiting.compute_time_seconds(min(1.0, budget + 1e-6), 100.0) > bound


def test_what_a_longer_bound_is_worth_is_what_it_brings():
    seen = {**SEEN, "batch_seconds": 0.5, "elsewhere_seconds": 1.0}
    given = {"needs": "measured", "latency_bound_seconds": 4.0}
    _, decision = decide(given, seen)
    _, longer = decide({**given, "latency_bound_seconds": 4.01}, seen)
    gained = longer.action["expected"]["sinks"] - decision.action["expected"]["sinks"]
    assert decision.terms["jobs"]["worth_per_second"] * 0.01 == pytest.approx(gained, rel=0.05)
    assert gained > 0
