"""Weir is killed while it steers: each attached system is under its own control again within a minute."""

import pytest

from bench import vanish
from bench.celery.brokers import RABBITMQ

pytestmark = [pytest.mark.slow, pytest.mark.alone]


@pytest.mark.skipif(not RABBITMQ, reason="rabbitmq-server is not installed")
def test_after_each_kill_everything_is_under_its_own_control_within_a_minute():
    outcome = vanish.run(1.0)
    figures, limits = outcome["figures"], outcome["peers"]
    assert figures["rounds"] >= vanish.MIN_ROUNDS
    assert figures["restored_rounds"] == figures["rounds"], outcome["notes"]
    assert figures["restored_seconds"] <= limits["limit_restored_seconds"], outcome["notes"]
