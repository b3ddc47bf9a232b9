"""What a loop's record teaches: proposed only where the days after agree, and with all it rests on."""

from datetime import timedelta

import pytest

from common.errors import BadInput
from controllers.design.tuning import Improvement
from tests.workers.control.records import NOW, WASTEFUL, flow_loop, record, record_flow, wasteful_loop
from workers.control import tuning
from workers.models import Loop, Override, Tuning
from workers.steering import overrides

pytestmark = pytest.mark.django_db
DAYS = 3
SEARCHED, PROVEN = range(DAYS + 1, 2 * DAYS + 1), range(1, DAYS + 1)


@pytest.fixture(autouse=True)
def _short_stretches(monkeypatch):
    monkeypatch.setattr(tuning, "STRETCH_SECONDS", 200)


def learned_of(loop):
    """As the search and the proof leave it."""
    days = [{"day": f"2026-03-0{number}", "before": 2.0, "after": 1.0} for number in (7, 8, 9)]
    found = Improvement(before=2.0, after=1.0, confidence=1.0)
    return tuning.LearnedValues(loop, "", {"caution": 0.25}, {"caution": 0.0}, days, found)


@pytest.fixture
def loop():
    return wasteful_loop()


def learn(loop):
    return tuning.learn(loop, NOW, DAYS, evaluations=15)


@pytest.mark.slow  # each day is decided again some dozens of times
def test_what_costs_less_on_the_days_after_is_proposed_and_changes_nothing(loop, monkeypatch):
    monkeypatch.setattr(tuning, "STRETCH_SECONDS", 600)
    record(loop, [*SEARCHED, *PROVEN])
    learned = learn(loop)
    assert learned.why == ""
    made = tuning.propose(learned, NOW)
    assert made is not None
    assert made.improvement >= tuning.MIN_IMPROVEMENT
    assert made.confidence >= tuning.MIN_CONFIDENCE
    assert [day["day"] for day in made.days] == ["2026-03-07", "2026-03-08", "2026-03-09"]
    assert made.instead_of == {name: learned.instead_of[name] for name in made.values}
    assert Loop.objects.get(pk=loop.pk).parameters == WASTEFUL
    assert not Override.objects.exists()


@pytest.mark.thorough
def test_the_search_does_not_see_the_days_that_prove_it(loop, monkeypatch):
    seen = []

    def search(cost, ranges, begin, *_):
        seen.append(cost(begin))
        return {**begin, "fill_share": 1.0}

    monkeypatch.setattr(tuning.design, "search", search)
    record(loop, [*SEARCHED, *PROVEN])
    first = learn(loop)
    loop.entries.filter(at__gte=NOW.replace(hour=0) - timedelta(days=DAYS)).delete()
    record(loop, PROVEN, seed=2)
    second = learn(loop)
    assert seen[0] == seen[1]
    assert (first.days or first.why) != (second.days or second.why)


def test_too_short_a_record_is_said_and_not_guessed_from(loop):
    record(loop, [*SEARCHED, 1])
    learned = learn(loop)
    assert learned.why == "collecting data: 1 of 3 days"
    assert tuning.propose(learned, NOW) is None
    assert not Tuning.objects.exists()


def test_a_proposal_drifts_as_soon_as_its_loop_is_changed(loop):
    made = tuning.propose(learned_of(loop), NOW)
    assert made is not None
    assert tuning.describe_drift(made, NOW) == ""
    made.loop.parameters = {**WASTEFUL, "caution": 0.5}
    assert tuning.describe_drift(made, NOW) == "the loop's values have changed since (caution)"


@pytest.mark.thorough
def test_a_search_ends_where_its_work_is_taken_away(loop):
    record(loop, [*SEARCHED, *PROVEN])

    def taken():
        raise LookupError

    with pytest.raises(LookupError):
        tuning.learn(loop, NOW, DAYS, taken)


@pytest.mark.thorough
def test_a_flow_loop_with_sluggish_gains_learns_better_ones(monkeypatch):
    """A hog comes every two minutes, and what was in force hardly admits less."""
    loop = flow_loop()
    record_flow(loop, [*SEARCHED, *PROVEN])
    better = {"kp": -0.002, "ki": -0.0004}
    monkeypatch.setattr(tuning.design, "search", lambda cost, ranges, begin, *_: better)
    learned = learn(loop)
    assert (learned.why, learned.values) == ("", better)
    assert tuning.propose(learned, NOW) is not None
    monkeypatch.setattr(tuning.design, "search", lambda *_: {"kp": -0.0001, "ki": -0.000005})
    assert "on the following days, confidence" in learn(loop).why


def test_a_loop_whose_kind_has_no_model_is_refused_by_name():
    other = Loop.objects.create(name="rebalancing", law="rebalancing")
    with pytest.raises(BadInput, match=r"rebalancing cannot be tuned; laws that can be tuned: .*worker_rate"):
        tuning.learn(other, NOW, DAYS)


def test_overrides_that_contradict_each_other_are_left_out_as_the_loop_leaves_them_out(loop, user):
    made = tuning.propose(learned_of(loop), NOW)
    assert made is not None
    given = {"owner": user, "reason": "A test.", "now": NOW, "loop": loop}
    overrides.set_override(name="history", value=40, minutes=5, **given)
    overrides.set_override(name="low_count", value=30, minutes=60, **given)
    overrides.set_override(name="caution", value=0.5, minutes=60, **given)
    assert tuning.describe_drift(made, NOW) == "the loop's values have changed since (caution)"
    later = NOW + timedelta(minutes=6)
    assert overrides.compute_effective_values(loop, overrides.list_for_loop(loop, later), later).conflict
    assert tuning.describe_drift(made, later) == ""
