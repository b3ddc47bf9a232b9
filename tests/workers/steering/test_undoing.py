"""What a person set, undone: what it ended is in force again as long as that would have run."""

from datetime import UTC, datetime, timedelta

import pytest

from common.errors import BadInput
from queues import keys, pausing
from queues.models import Queue
from workers.models import Loop, Override
from workers.steering import overrides

pytestmark = pytest.mark.django_db
START = datetime(2026, 1, 5, 3, 0, tzinfo=UTC)
GAINS = {"kp": -0.005589, "ki": -0.001293, "kd": 0.685}
OTHER_GAINS = {"kp": -0.013915, "ki": -0.007986, "kd": 1.893}  # each of them is unstable beside the first


def after(**period):
    return START + timedelta(**period)


@pytest.fixture
def people(django_user_model):
    return {name: django_user_model.objects.create(username=name) for name in ("ada", "bob")}


@pytest.fixture
def loop():
    return Loop.objects.create(name="worker_rate/alert/n1", law="worker_rate", target={})


def put(owner, now, values, minutes, **scope):
    given = {"owner": owner, "reason": "a sale", "now": now, "minutes": minutes, "beside": values, **scope}
    return [overrides.set_override(name=name, value=value, **given) for name, value in values.items()]


def held(now):
    return {row.name: row.value for row in overrides.list_active(now)}


def test_the_older_one_is_in_force_again_until_its_own_end_and_under_its_owner(people, loop):
    put(people["bob"], START, {"upper_limit": 30}, 480, loop=loop)
    (newer,) = put(people["ada"], after(minutes=60), {"upper_limit": 40}, 30, loop=loop)
    ((ended, again),) = overrides.undo(newer, by=people["ada"], now=after(minutes=61))
    assert (ended.ended_at, ended.ended_by) == (after(minutes=61), people["ada"])
    assert (again.value, again.owner, again.expires_at) == (30, people["bob"], after(minutes=480))
    assert held(after(minutes=479)) == {"upper_limit": 30} and held(after(minutes=480)) == {}


@pytest.mark.parametrize("has_ended", [False, True])
def test_an_older_one_whose_time_is_over_does_not_come_back_and_what_ended_already_is_not_undone(
    people, loop, has_ended
):
    put(people["bob"], START, {"upper_limit": 30}, 480 if has_ended else 10, loop=loop)
    (newer,) = put(people["ada"], after(minutes=5), {"upper_limit": 40}, 30, loop=loop)
    if has_ended:
        overrides.end(newer, by=people["bob"], now=after(minutes=6))
    expected = [] if has_ended else [(newer, None)]
    assert overrides.undo(newer, by=people["ada"], now=after(minutes=10)) == expected
    assert held(after(minutes=10)) == {}


@pytest.mark.parametrize("older", [GAINS, {"kp": GAINS["kp"], "ki": GAINS["ki"]}])
def test_values_that_are_stable_only_together_come_back_together(people, older):
    own = {**GAINS, "a": 0.985, "b": -134.0, "delay": 1}
    loop = Loop.objects.create(name="flow", law="flow", target={}, parameters=own)
    put(people["bob"], START, older, 480, loop=loop)
    newer = put(people["ada"], after(minutes=5), OTHER_GAINS, 30, loop=loop)
    assert len(overrides.undo(newer[1], by=people["ada"], now=after(minutes=6))) == 3
    assert held(after(minutes=6)) == older


def test_what_is_no_longer_valid_beside_the_others_is_refused_and_nothing_is_changed(people, loop):
    put(people["bob"], START, {"maximum_rate": 3}, 480, loop=loop)
    (newer,) = put(people["ada"], after(minutes=5), {"maximum_rate": 9}, 30, loop=loop)
    put(people["bob"], after(minutes=6), {"minimum_rate": 5}, 30, loop=loop)
    with pytest.raises(BadInput):
        overrides.undo(newer, by=people["ada"], now=after(minutes=7))
    assert held(after(minutes=7)) == {"maximum_rate": 9, "minimum_rate": 5}


def test_a_queue_stays_paused_while_one_pause_gives_way_to_the_older(people, control, monkeypatch):
    Queue.objects.create(name="alert", kind="jobs")
    scope = {"queue": "alert", "control": control}
    put(people["bob"], START, {"consumption": "paused"}, 10, **scope)
    (newer,) = put(people["ada"], START, {"consumption": "paused"}, 480, **scope)
    resumed = []
    monkeypatch.setattr(overrides, "end", lambda *args, **named: resumed.append(args))
    overrides.undo(newer, by=people["ada"], now=START, control=control)
    assert not resumed and pausing.load_pauses(control, ["alert"], "consumption")
    assert control.pttl(keys.PAUSE.build("alert", "consumption")) <= 600_000
    assert Override.objects.filter(ended_at__isnull=True).count() == 1
