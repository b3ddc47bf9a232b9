"""How a counter grows from one observation to the next, which code decides, and words of reasons."""

import pytest

from controllers.framework.reason import (
    are,
    format_count,
    format_names,
    format_no_action,
    format_not_applied,
    format_percent,
)
from controllers.framework.sensed import count_growth


@pytest.mark.parametrize(
    ("before", "now", "growth"),
    [
        (None, 5.0, 0),
        ({}, 5.0, 0),
        ({"n": 3.0}, None, 0),
        ({"n": 3.0}, 5.0, 2.0),
        ({"n": 3.0}, 1.0, 1.0),  # its server came back empty
    ],
)
def test_a_counter_grows_by_what_is_new_also_after_a_reset(before, now, growth):
    assert count_growth(before, {"n": now}, "n") == growth


def test_reasons_count_and_list_in_plain_words():
    assert format_count(1, "worker") == "1 worker" and format_count(1_200, "worker") == "1,200 workers"
    assert format_percent(0.925) == "92 %" and format_percent(0.925, 1) == "92.5 %"
    assert format_names(["n1", "n2"]) == "n1, n2" and are(["n1"]) == "is" and are(["n1", "n2"]) == "are"
    assert format_names([f"n{at}" for at in range(9)]) == "n0, n1, n2, n3, n4 and 4 more"


def test_a_cause_that_is_a_sentence_ends_in_one_full_stop():
    reason = format_no_action("shop can't be reached (connection refused.).", "nothing else.")
    assert reason == "No action: shop can't be reached (connection refused.); nothing else."
    assert format_not_applied(reason, "advice only").endswith("nothing else.")
