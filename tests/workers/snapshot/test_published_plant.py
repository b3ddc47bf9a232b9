"""The published snapshot as a host reads it whose clock differs from the observer's."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queues import keys
from tests.console.conftest import sample_snapshot
from tests.workers.snapshots import snapshot_of
from workers.control import engine
from workers.models import Loop
from workers.plants.steered import PublishedPlant

PLANT_NOW = 1_790_000_001.0  # by the plant's clock, when the observer and the reader see it
clocks = st.floats(-86_400, 86_400)


class Stored:
    """A control server that has this snapshot alone."""

    def __init__(self, snapshot):
        self._text = snapshot.to_json()

    def get(self, key):
        return self._text if key == keys.SNAPSHOT else None


def published(age_seconds, observer_ahead):
    """A snapshot of so long ago, made by a clock that is so far ahead of the plant's."""
    at = PLANT_NOW - age_seconds + observer_ahead
    return snapshot_of({**sample_snapshot(), "at": at, "ahead_seconds": observer_ahead})


@given(age=st.floats(0, 600), observer_ahead=clocks, reader_ahead=clocks)
def test_a_snapshot_is_as_old_as_it_is_whatever_the_clocks_of_two_hosts_say(age, observer_ahead, reader_ahead):
    plant = PublishedPlant(Stored(published(age, observer_ahead)), lambda: PLANT_NOW, lambda: reader_ahead)
    seen = plant.observe()
    assert PLANT_NOW + reader_ahead - seen.at == pytest.approx(age, abs=1e-3)
    assert seen.ahead_seconds == reader_ahead


def test_the_time_of_an_older_observer_that_does_not_say_how_far_ahead_it_is_stays_as_it_is():
    """In an upgrade, where both clocks are ahead: loops would be held until the observer is new, too."""
    shown = {**sample_snapshot(), "at": PLANT_NOW + 4.0}
    older = snapshot_of({name: value for name, value in shown.items() if name != "ahead_seconds"})
    plant = PublishedPlant(Stored(older), lambda: PLANT_NOW, lambda: 5.0)
    assert plant.observe().at == PLANT_NOW + 4.0


@pytest.mark.django_db
@pytest.mark.parametrize("observer_ahead", [-600.0, -4.0, 0.0, 4.0, 600.0])
def test_a_loop_decides_though_the_observers_clock_differs_from_its_own(control, observer_ahead):
    loop = Loop.objects.create(
        name="parallelism_queueing/performance",
        law="parallelism_queueing",
        target={"application": "performance"},
        mode="advise",
        parameters={"bound_seconds": 60.0, "minimum": 3, "maximum": 8, "only_changes": True},
    )
    control.set(keys.SNAPSHOT, published(1.0, observer_ahead).to_json())
    plant = PublishedPlant(control, lambda: PLANT_NOW, lambda: 0.0)
    entry = engine.tick(loop, plant, datetime.fromtimestamp(PLANT_NOW, UTC), control)
    assert entry.limited_by is None and entry.action is not None
