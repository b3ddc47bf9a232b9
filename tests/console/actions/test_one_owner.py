"""Tasks of an attached plant have one owner: a second loop that would set them is not let act."""

import pytest
from django.utils import timezone

from console.accounts.access import actor_of_user
from console.actions import loops
from queues.errors import BadInput
from workers.models import Loop

pytestmark = pytest.mark.django_db
POOL, WHOLE = "concurrency/plant:shop/celery@one", "parallelism_joint/plant:shop"


@pytest.fixture
def both():
    made = {
        POOL: {"law": "concurrency", "target": {"plant": "shop", "operator": "celery@one"}},
        WHOLE: {"law": "parallelism_joint", "target": {"plant": "shop"}},
    }
    return {name: Loop.objects.create(name=name, mode="advise", **fields) for name, fields in made.items()}


@pytest.fixture
def put(people):
    def put(loop: Loop, mode: str) -> None:
        actor = actor_of_user(people["operator"])
        loops.set_mode(actor, loop, mode, reason="a test", now=timezone.now())

    return put


@pytest.mark.parametrize(("owner", "second"), [(POOL, WHOLE), (WHOLE, POOL)])
def test_the_second_of_two_loops_that_set_the_same_tasks_is_refused_until_the_first_only_advises(
    both, put, owner, second
):
    put(both[owner], "auto")
    with pytest.raises(BadInput, match=f"put {owner} on advise first") as refused:
        put(both[second], "auto")
    assert refused.value.field == "mode" and "celery@one" in str(refused.value)
    assert Loop.objects.get(name=second).mode == "advise"
    put(both[owner], "advise")
    put(both[second], "auto")
    assert Loop.objects.get(name=second).mode == "auto"


def test_the_page_of_a_pools_loop_says_which_pool_it_is_and_the_plants_page_lists_it(
    both, browsers, stored_snapshot
):
    text = browsers["viewer"].get(f"/loops/{both[POOL].pk}/").content.decode()
    assert "Concurrency of plant" in text and "celery@one" in text
    assert "Nothing is measured yet" in text


def test_the_ladder_of_a_plant_has_a_page_that_says_that_it_only_advises_and_is_not_put_on_auto(
    browsers, stored_snapshot, put
):
    target = {"plant": "shop"}
    ladder = Loop.objects.create(name="ladder/plant:shop", law="ladder", mode="advise", target=target)
    answer = browsers["viewer"].get(f"/loops/{ladder.pk}/")
    assert answer.status_code == 200 and "At an attached plant it only advises" in answer.content.decode()
    with pytest.raises(BadInput, match="applies nothing there"):
        put(ladder, "auto")
