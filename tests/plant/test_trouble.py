"""Trouble as an operator sees it: figures of what the screen showed."""

import pytest

from bench.trouble import LIMITS, figures_of
from bench.trouble.kinds import FROZEN_AGENT, SLOW, TROUBLES
from bench.trouble.outcome import (
    Outcome,
    Reading,
    compute_named_share,
    count_headline_changes,
    find_named_seconds,
    format_table,
)


def reading(at, *headlines):
    return Reading(at, list(headlines), [], ["Pause consumption of orders"], "")


def outcome(**fields):
    good = {
        "kind": "slow handler", "causes": 1, "needs_action": True, "named_seconds": 6.0, "named_share": 1.0,
        "headline_changes": 1, "incidents": ["orders"], "notifications": 2, "first_action": "", "clicks": 2, "taps": 3,
        "ended_seconds": 8.0, "readings": [],
    }  # fmt: skip
    return Outcome(**{**good, **fields})


def test_a_cause_is_named_only_by_a_headline_with_all_of_its_words():
    screen = [
        reading(2.0, "All 3 nodes are normal."),
        reading(8.0, "Queue mail falls behind."),
        reading(11.0, "The handler of orders holds both worker slots."),
        reading(12.0, "Queue mail falls behind."),
    ]
    assert find_named_seconds(screen, [SLOW]) == 11.0
    assert compute_named_share(screen, [SLOW]) == 0.5
    assert find_named_seconds(screen, [SLOW, FROZEN_AGENT]) is None
    both = [reading(11.0, "The handler of orders holds both slots.", "The agent of n1 is suspended.")]
    assert compute_named_share(both, [SLOW, FROZEN_AGENT]) == 1.0
    assert compute_named_share([], [SLOW]) == 0.0


def test_a_cause_has_to_be_named_from_ten_seconds_after_its_first_effect_on_until_it_is_over():
    late = [Reading(at, ["Queue mail falls behind."], [], [], "", is_effective=at > 5) for at in (4.0, 6.0, 13.0)]
    named = Reading(16.0, ["The handler of orders holds both worker slots."], [], [], "")
    assert compute_named_share([*late, named], [SLOW]) == 1.0
    over = reading(17.0, "Normal: All queues keep up.")
    assert compute_named_share([*late, named, over], [SLOW]) == 0.5
    assert compute_named_share([*late, named, over], [SLOW], needs_action=False) == 1.0


def test_changes_are_counted_where_they_are_closest():
    texts = [(0.0, "a"), (4.0, "b"), (5.0, "a"), (7.5, "b"), (20.0, "a")]
    assert count_headline_changes([reading(at, text) for at, text in texts]) == 3
    assert count_headline_changes([reading(at, "a") for at in (0.0, 0.5, 1.0)]) == 0


@pytest.mark.parametrize(
    ("fields", "figure"),
    [
        ({"named_share": 0.9}, "named_share"),
        ({"headline_changes": 2}, "headline_changes"),
        ({"incidents": ["a", "b"]}, "incidents_a_cause"),
        ({"notifications": 3}, "notifications_a_cause"),
        ({"clicks": None}, "clicks"),
        ({"taps": 5}, "taps"),
        ({"ended_seconds": None}, "ended_share"),
    ],
)
def test_each_figure_can_miss_its_limit(fields, figure):
    good = figures_of([outcome()])
    bad = figures_of([outcome(), outcome(**fields)])
    assert all(good[name] <= limit or name.endswith("share") for name, limit in LIMITS.items())
    assert bad[figure] != good[figure] and (bad[figure] > LIMITS[figure]) != figure.endswith("share")


def test_all_kinds_are_in_the_table():
    assert len(TROUBLES) == 11 and len({trouble.name for trouble in TROUBLES}) == 11
    table = format_table([outcome(kind=trouble.name, clicks=None) for trouble in TROUBLES])
    assert all(trouble.name in table for trouble in TROUBLES) and "never" in table
