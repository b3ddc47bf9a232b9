"""Tasks of an attached plant have one owner: a second loop that would set them is not let act."""

import pytest
from django.utils import timezone

from common.errors import BadInput
from console.accounts.access import build_user_actor
from console.actions import loops
from workers.models import Loop, Override
from workers.steering import overrides

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
        actor = build_user_actor(people["operator"])
        loops.set_mode(actor, loop, mode, reason="a test", now=timezone.now())

    return put


@pytest.mark.parametrize(("owner", "second"), [(POOL, WHOLE), (WHOLE, POOL)])
def test_the_second_of_two_loops_that_set_the_same_tasks_is_refused_until_the_first_only_advises(
    both, put, owner, second
):
    put(both[owner], "auto")
    with pytest.raises(BadInput, match=f"set {owner} to advise first") as refused:
        put(both[second], "auto")
    assert refused.value.field == "mode" and "celery@one" in str(refused.value)
    assert Loop.objects.get(name=second).mode == "advise"
    put(both[owner], "advise")
    put(both[second], "auto")
    assert Loop.objects.get(name=second).mode == "auto"


def test_the_page_of_a_pools_loop_says_which_pool_it_is_and_the_plants_page_lists_it(both, browsers, stored_snapshot):
    text = browsers["viewer"].get(f"/loops/{both[POOL].pk}/").content.decode()
    assert "Concurrency of plant" in text and "celery@one" in text
    assert "No measurements yet" in text


def test_the_ladder_of_a_plant_has_a_page_that_says_that_it_only_advises_and_is_not_put_on_auto(
    browsers, stored_snapshot, put
):
    target = {"plant": "shop"}
    ladder = Loop.objects.create(name="ladder/plant:shop", law="ladder", mode="advise", target=target)
    answer = browsers["viewer"].get(f"/loops/{ladder.pk}/")
    assert answer.status_code == 200 and "On an attached plant, this loop only advises" in answer.content.decode()
    with pytest.raises(BadInput, match="can't change an attached plant"):
        put(ladder, "auto")


@pytest.mark.parametrize("mode", ["auto", "manual"])
@pytest.mark.parametrize(
    ("law", "target"),
    [
        ("ladder", {"plant": "shop"}),
        ("concurrency", {"plant": "shop", "operator": "celery@one"}),
        ("worker_rate", {"plant": "shop", "operator": "celery@one"}),
    ],
)
def test_what_lets_all_loops_of_a_law_act_lets_none_act_that_began_to_advise_at_an_attached_plant(
    people, both, put, law, target, mode
):
    """An override of an older Weir would cover them from the first: nobody has allowed them anything."""
    name = f"{law}/plant:shop/new"
    there = Loop.objects.create(name=name, law=law, mode="advise", target=target)
    own = Loop.objects.create(name=f"{law}/own", law=law, mode="advise", target={"queue": "tasks"})
    now = timezone.now()

    def put_all(value: str) -> None:
        owner = people["operator"]
        overrides.set_override(law=law, name="mode", value=value, owner=owner, reason="a test", now=now, endless=True)

    put_all(mode)
    held = overrides.group_by_loop([there, own], now)
    modes = {loop.name: overrides.get_effective_mode(loop, held[loop.pk], now) for loop in (there, own)}
    assert modes == {there.name: "advise", own.name: mode}
    put(both[WHOLE], "auto")  # and nothing has the plant's tasks
    put_all("hold")
    held = overrides.group_by_loop([there], now)[there.pk]
    assert overrides.get_effective_mode(there, held, now) == "hold"


def test_to_let_all_loops_of_a_law_act_is_refused_where_all_are_of_pools(people, both):
    with pytest.raises(BadInput, match="one by one") as refused:
        overrides.set_override(
            law="concurrency",
            name="mode",
            value="auto",
            owner=people["operator"],
            reason="a test",
            now=timezone.now(),
            minutes=5,
        )
    assert refused.value.field == "scope" and not Override.objects.exists()
