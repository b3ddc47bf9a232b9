"""A loop that is held: nobody's longer hold ends by somebody's shorter one."""

from datetime import timedelta

import pytest
from django.utils import timezone

from common.errors import BadInput
from console.accounts.access import build_user_actor
from console.actions import loops
from workers.models import Loop
from workers.steering import overrides
from workers.steering.overrides import Expiry

pytestmark = pytest.mark.django_db
NOW = timezone.now()


@pytest.fixture
def loop(db) -> Loop:
    target = {"queue": "alert", "node": "n1"}
    return Loop.objects.create(name="worker_rate/alert/n1", law="worker_rate", target=target)


@pytest.fixture
def hold(people, loop):
    def hold(role: str, mode: str = "hold", now=NOW, **expiry):
        actor = build_user_actor(people[role])
        return loops.set_mode(actor, loop, mode, reason="a test", now=now, expiry=Expiry(**expiry))

    return hold


def test_a_shorter_hold_in_place_of_a_longer_one_is_refused_and_names_it(hold, loop):
    hold("administrator", minutes=480)
    with pytest.raises(BadInput, match=r"mode of .*worker_rate/alert/n1.* is hold until .* by administrator"):
        hold("operator", minutes=30)
    (held,) = overrides.list_for_loop(loop, NOW)
    assert held.owner.get_username() == "administrator" and held.expires_at == NOW + timedelta(hours=8)


def test_a_longer_hold_takes_its_place_and_one_that_nobody_has_ended_gives_way_to_none(hold, loop):
    hold("operator", minutes=30)
    hold("administrator", endless=True)
    with pytest.raises(BadInput, match="without expiry by administrator"):
        hold("operator", minutes=30)
    assert [each.expires_at for each in overrides.list_for_loop(loop, NOW)] == [None]
