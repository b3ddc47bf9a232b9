"""What if: the same record decided on with other parameters, and with none changed the same decisions."""

from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common.errors import BadInput
from controllers import catalog
from controllers.framework import guard
from controllers.framework.guard import ObservationQuality
from controllers.framework.law import start_state
from tests.workers.control.conftest import START
from tests.workers.control.test_loops import override, tick
from workers.control import what_if
from workers.control.ledger import ledger
from workers.models import LedgerEntry, Loop
from workers.plants.memory import MemoryPlant
from workers.steering import overrides

pytestmark = pytest.mark.django_db
LATER = START + timedelta(days=1)


@pytest.fixture
def loop(loop):
    loop.parameters = {"events_per_worker": 100}
    loop.save()
    return loop


def run(loop, changed=None, until=LATER, monotonic=lambda: 0.0, **more):
    return what_if.rerun(loop, changed or {}, START, until, monotonic, **more)


def record(loop, plant, clock, control, arrivals, seconds=5):
    for count in arrivals:
        plant.put("alert", "n1", count)
        plant.run("alert", "n1", min(2, count))
        loop.refresh_from_db()
        tick(loop, plant, clock, control, seconds=seconds)


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    arrivals=st.lists(st.integers(0, 2_000), min_size=3, max_size=12),
    hold=st.integers(0, 11),
    manual=st.integers(0, 11),
    method=st.sampled_from(["forecast", "thesis"]),
)
def test_with_nothing_changed_it_decides_what_was_decided(arrivals, hold, manual, method, loop, clock, control, owner):
    """Through holds, hand-overs, stale measurements and overrides that come and go."""
    LedgerEntry.objects.all().delete()
    overrides.list_active(clock.now).delete()
    Loop.objects.update(state=None, parameters={"events_per_worker": 100, "method": method})
    plant = MemoryPlant(clock, [("alert", "n1")])
    for number, count in enumerate(arrivals):
        if number == hold:
            override(loop, owner, clock, "mode", "hold", minutes=0.2)
        if number == manual:
            override(loop, owner, clock, "upper_limit", 50, minutes=0.3)
        record(loop, plant, clock, control, [count])
    found = what_if.rerun(loop, {}, START, clock.now + timedelta(days=1), lambda: 0.0)
    assert (len(found.steps), found.skipped, found.left) == (len(arrivals), 0, 0)
    assert found.differing == [] and found.did == found.would
    assert [step.entry for step in found.steps] == list(loop.entries.order_by("pk").values_list("pk", flat=True))


def test_through_advice_and_actions_that_failed_nothing_differs_either(loop, plant, clock, control):
    Loop.objects.update(mode="advise", guard={"cooldown_seconds": 12.0, "slew_up": 3})
    record(loop, plant, clock, control, [300, 500, 900])
    Loop.objects.update(mode="auto")
    record(loop, plant, clock, control, [300, 500, 900])
    plant.error = ConnectionError("the broker is away")
    record(loop, plant, clock, control, [2_000] * 4)
    plant.error = None
    record(loop, plant, clock, control, [100] * 4)
    assert {entry.mode for entry in loop.entries.all()} == {"advise", "auto"}
    assert loop.entries.exclude(error="").exists()
    assert run(loop).differing == []


def test_a_lower_ceiling_would_have_started_fewer(loop, plant, clock, control):
    record(loop, plant, clock, control, [3_000] * 8)
    found = run(loop, {"guard.maximum": 2})
    assert found.did.total > 2 * len(found.steps) >= found.would.total
    assert found.would.actions > 0 and found.would.movement <= found.did.movement
    assert all(step.would <= 2 for step in found.steps)
    assert "guard maximum" in found.differing[0].would_reason
    assert found.to_json()["differing"] == len(found.differing) > 0


def test_what_is_not_reached_in_time_is_said(loop, plant, clock, control):
    record(loop, plant, clock, control, [100] * 6)
    seconds = iter(range(100))
    found = run(loop, monotonic=lambda: float(next(seconds)), budget_seconds=4.0)
    assert (len(found.steps), found.left) == (3, 3)


def test_an_entry_that_no_longer_fits_is_skipped_and_said_and_the_next_begins_from_its_own(loop, plant, clock, control):
    record(loop, plant, clock, control, [400] * 5)
    second = loop.entries.order_by("pk")[1]
    second.parameters = {**second.parameters, "speed": 1}
    second.save()
    found = run(loop)
    assert (len(found.steps), found.skipped) == (4, 1)
    assert found.first_error.startswith(f"entry {second.pk}: parameters.speed")
    assert found.differing == []


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"upper_limit": -1}, "upper_limit"),
        ({"upper_limit": float("nan")}, "upper_limit"),
        ({"speed": 1}, "name"),
        ({"start": 3}, "name"),
        ({"guard.direction": "sideways"}, "guard.direction"),
        ({"minimum_rate": 9_000}, "parameters.minimum_rate"),
        ({"guard.minimum": 200}, "guard.minimum"),
    ],
)
def test_values_that_can_not_be_are_refused_by_name(changed, field, loop):
    with pytest.raises(BadInput) as refused:
        run(loop, changed)
    assert refused.value.field == field


def of_ladder(loads, now):
    """The ladder's record of a queue whose demand was so much of 100 events/s that it can handle."""
    target, law = {"queue": "alert"}, catalog.get_law("ladder")
    loop = Loop.objects.create(name="ladder/alert", law="ladder", target=target, state=None)
    parameters, settings = catalog.read_parameters(law, None), guard.read_settings(law, None)
    state = {"law": start_state(law, parameters), "guard": {**guard.read_state(None), "value": 0.0}}
    for number, demand in enumerate(loads):
        at = now + timedelta(seconds=5 * number)
        seen = catalog.read_observation(law, {"demand_per_second": demand, "capacity_per_second": 100.0})
        about = {"now_seconds": at.timestamp(), "measured": ObservationQuality(0.4)}
        states = {"guard_state": state["guard"], "settings": settings}
        guarded = guard.decide(law, parameters, state["law"], seen, **states, **about)
        ledger.build_entry(
            loop, at=at, fence=number, mode="auto", parameters={**parameters, "guard": settings},
            state_before=state, observation={**seen, "age_seconds": 0.4, "unfit": None, "idle": None},
            guarded=guarded, reason=guarded.decision.reason, baseline=None,
        ).save()  # fmt: skip
        state = {"law": guarded.state, "guard": guarded.guard_state}
    return loop


def test_what_stays_as_it_was_set_is_in_force_until_the_next_action():
    loop = of_ladder([50.0, 120.0, 120.0, 95.0, 95.0, 10.0, 10.0, 10.0, 10.0], START)
    found = run(loop, {"release_share": 0.05})
    assert [step.did for step in found.steps] == [0, 1, 1, 1, 1, 1, 1, 0, 0]
    assert [step.would for step in found.steps] == [0, 1, 1, 1, 1, 1, 1, 1, 1]
    assert (found.did.actions, found.did.movement) == (2, 2.0)
    assert (found.would.actions, found.would.movement) == (1, 1.0)
    same = run(loop)
    assert same.differing == [] and same.did == same.would
