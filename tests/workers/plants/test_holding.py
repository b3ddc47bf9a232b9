"""One controller at a time controls a plant; another is told who holds it, and until when."""

from datetime import UTC, datetime

import pytest

from queues import keys
from workers.plants.holding import PlantHeld, find_holder, hold, release

NOW = 1_790_000_000.0


def test_the_holder_keeps_it_longer_and_only_the_holder_lets_go(control):
    hold(control, "main", "weir-2", NOW, 30.0)
    assert hold(control, "main", "weir-2", NOW + 20.0, 30.0) == NOW + 50.0
    assert not release(control, "main", "weir-3")
    assert release(control, "main", "weir-2")
    assert find_holder(control, "main") is None
    assert hold(control, "main", "weir-3", NOW)


def test_a_controller_that_says_nothing_more_loses_the_plant(control):
    hold(control, "main", "weir-2", NOW, 30.0)
    assert 0 < control.pttl(keys.HOLDER.build("main")) <= 30_000
    control.pexpire(keys.HOLDER.build("main"), 0)
    assert find_holder(control, "main") is None
    assert hold(control, "main", "weir-3", NOW)


@pytest.mark.parametrize("seconds", [1e300, -1e300])
def test_a_time_that_another_plant_says_is_one_that_a_page_can_show(seconds):
    assert datetime.fromtimestamp(PlantHeld("shop", "x", seconds).until, UTC)
