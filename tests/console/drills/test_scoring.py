"""The score: monotonic in the times, within its bounds, and as the page states it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.drills.scoring import MAX_SCORE, NOTICE, RIGHT_ACTION, compute_score

SECONDS = st.floats(0.0, 3_600.0)
MAYBE = st.none() | SECONDS
VERDICTS = st.lists(st.sampled_from(["right", "no effect", "harmful", "neutral"]), max_size=12)


@given(MAYBE, MAYBE, VERDICTS)
def test_each_part_stays_within_its_points(notice, action, verdicts):
    score = compute_score(notice, action, verdicts)
    assert 0 <= score.notice <= 30 and 0 <= score.right_action <= 50 and 0 <= score.no_wrong_action <= 20
    assert score.total == score.notice + score.right_action + score.no_wrong_action <= MAX_SCORE == 100


@given(SECONDS, SECONDS, SECONDS, VERDICTS)
def test_an_earlier_time_never_costs_points(first, second, other, verdicts):
    early, late = sorted((first, second))
    assert compute_score(early, other, verdicts).total >= compute_score(late, other, verdicts).total
    assert compute_score(other, early, verdicts).total >= compute_score(other, late, verdicts).total


@given(SECONDS, SECONDS, VERDICTS, st.sampled_from(["no effect", "harmful"]))
def test_a_wrong_action_never_gives_points(notice, action, verdicts, wrong):
    score = compute_score(notice, action, verdicts)
    assert compute_score(notice, action, [*verdicts, wrong]).total <= score.total


@pytest.mark.parametrize(
    ("points", "full", "none"), [(NOTICE, 30.0, 300.0), (RIGHT_ACTION, 60.0, 600.0)], ids=["notice", "right action"]
)
def test_all_points_within_the_first_limit_and_none_after_the_second(points, full, none):
    assert points.compute(full) == points.points and points.compute(none) == 0
    assert 0 < points.compute((full + none) / 2) < points.points


def test_the_example_of_the_documentation_adds_up():
    score = compute_score(18.0, 107.0, ["no effect", "right"])
    assert (score.notice, score.right_action, score.no_wrong_action, score.total) == (30, 46, 15, 91)


def test_who_does_nothing_gets_nothing():
    assert compute_score(None, None, []).total == 0


def test_who_acts_without_opening_the_incident_has_noticed_it_then():
    assert compute_score(None, 40.0, ["right"]).notice == NOTICE.compute(40.0)
