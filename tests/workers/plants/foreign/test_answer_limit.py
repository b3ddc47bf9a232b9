"""The timeout of attached plants: one setting, from which the others follow."""

import pytest

from common.errors import BadInput
from workers.plants.foreign.answer_limit import answer_seconds, compute_stale_seconds, order_seconds, round_seconds


def test_an_order_may_take_longer_and_what_was_seen_is_old_later(monkeypatch):
    monkeypatch.delenv("WEIR_PLANT_TIMEOUT_SECONDS")
    assert (answer_seconds(), round_seconds(), order_seconds(), compute_stale_seconds()) == (2.0, 4.0, 8.0, 6.0)
    monkeypatch.setenv("WEIR_PLANT_TIMEOUT_SECONDS", "5")
    assert (answer_seconds(), round_seconds(), order_seconds(), compute_stale_seconds()) == (5.0, 10.0, 20.0, 15.0)


@pytest.mark.parametrize("text", ["0", "10.5", "3600", "nan", "2 s"])
def test_a_limit_that_would_keep_loops_waiting_is_refused_by_name(text, monkeypatch):
    monkeypatch.setenv("WEIR_PLANT_TIMEOUT_SECONDS", text)
    with pytest.raises(BadInput, match=r"WEIR_PLANT_TIMEOUT_SECONDS: must be 0\.1 to 10 s,"):
        answer_seconds()
