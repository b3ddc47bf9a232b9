"""A value of a loop has one owner: holds, own values, and tasks of an attached plant."""

import functools
from datetime import timedelta

import pytest
from django.utils import timezone

from common.errors import BadInput
from console.accounts.access import build_user_actor
from console.actions import loops
from console.models import AuditEntry
from queues.topology import NodeSpec, QueueSpec, Topology
from tests.console.rows import held
from workers.control.kinds.registry import KINDS
from workers.control.parts.kind import PlantInventory
from workers.models import Loop, Override
from workers.steering import overrides
from workers.steering.overrides import Expiry

pytestmark = pytest.mark.django_db


NOW = timezone.now()


@pytest.fixture
def hold(people, loop):
    def hold(role, mode="hold", now=NOW, **expiry):
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


@pytest.fixture
def override(people):
    return functools.partial(held, people["operator"], minutes=480)


def set_own(browsers, loop, name, value):
    posted = {"name": name, "value": value, "reason": "a test"}
    address = f"/settings/plant/loops/{loop.pk}"
    return browsers["administrator"].post(address, posted, headers={"accept": "application/json"})


@pytest.mark.parametrize("wide", [False, True])
def test_what_is_overridden_is_not_said_to_hold_for_good(browsers, loop, override, wide):
    override("upper_limit", 30, **({"law": "worker_rate"} if wide else {"loop": loop}))
    answer = set_own(browsers, loop, "upper_limit", "500")
    (said,) = answer.json()["errors"]["value"]
    assert answer.status_code == 422 and "is overridden with 30 on" in said and "by operator until" in said
    loop.refresh_from_db()
    assert loop.parameters == {} and not AuditEntry.objects.filter(action="settings.change").exists()


def test_an_own_value_that_contradicts_what_is_overridden_is_refused_and_names_it(browsers, loop, override):
    override("maximum_rate", 2, loop=loop)
    override("guard.maximum", 3, loop=loop)
    answer = set_own(browsers, loop, "minimum_rate", "5")
    (said,) = answer.json()["errors"]["value"]
    assert answer.status_code == 422 and "maximum_rate 2 by operator" in said
    loop.refresh_from_db()
    assert loop.parameters == {}
    assert set_own(browsers, loop, "minimum_rate", "1.5").status_code == 200


def test_what_follows_the_queue_is_not_set_for_good_and_not_offered(browsers, loop, stored_snapshot):
    answer = set_own(browsers, loop, "events_per_worker", "500")
    (said,) = answer.json()["errors"]["name"]
    assert answer.status_code == 422 and "follows its queue" in said
    page = browsers["administrator"].get(f"/settings/plant/?loop={loop.pk}").content.decode()
    assert '"events_per_worker">' not in page and "set by its queue" in page


def test_each_kind_says_which_parameters_follow_the_plant(db, control):
    queues = {name: QueueSpec(name, kind, {"n1": 1000}) for name, kind in (("a", "jobs"), ("b", "pipeline"))}
    topology = Topology(1, {"n1": NodeSpec("n1", "redis://127.0.0.1:1/0")}, queues)
    present = PlantInventory(topology, control)
    for kind in KINDS.values():
        for start in kind.targets(present).loops.values():
            assert set(start.follows) == set(kind.followed), kind.name


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
    def put(loop, mode):
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

    def put_all(value):
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
        held(people["operator"], "mode", "auto", law="concurrency")
    assert refused.value.field == "scope" and not Override.objects.exists()
