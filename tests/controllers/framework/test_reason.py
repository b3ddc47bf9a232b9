"""The words of a decision."""

from controllers.framework.reason import format_no_action, format_not_applied


def test_a_cause_that_is_a_sentence_ends_in_one_full_stop():
    reason = format_no_action("shop can't be reached (connection refused.).", "nothing else.")
    assert reason == "No action: shop can't be reached (connection refused.); nothing else."
    assert format_not_applied(reason, "advice only").endswith("nothing else.")
