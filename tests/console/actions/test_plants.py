"""Attached plants: registered, changed, let go; paused and limited by people, and undone."""

import pytest
from django.utils import timezone

from common.errors import BadInput
from common.stored_document import encode_document
from console.accounts.access import Actor
from console.actions import plant_registration
from console.models import AuditEntry
from queues import keys
from tests.console.rows import held
from tests.workers.plants.foreign.celery_app.far import FakeCelery
from workers.models import Loop
from workers.plants.foreign import adapters, interventions
from workers.plants.foreign.interventions import Intervention
from workers.plants.foreign.kind import Adapter
from workers.plants.memory import MemoryPlant
from workers.plants.models import RegisteredPlant
from workers.plants.plant import PlantUnavailable
from workers.steering import overrides

pytestmark = pytest.mark.django_db


ACTOR = Actor(name="manage.py", role="administrator")
ADDRESS = "http://10.0.0.7:8001"


class HeldPlant(Adapter):
    """At an address; `let_go` gets it when it is let go."""

    def __init__(self, row, let_go, is_away):
        self.row, self.let_go, self.is_away = row, let_go, is_away

    def hold(self, seconds):
        self.is_held = True

    def release(self):
        if self.is_away:
            raise PlantUnavailable("shop can't be reached (refused).")
        self.let_go.append((self.row.url, self.row.options["workloads"]))


@pytest.fixture
def let_go(monkeypatch):
    found = []
    monkeypatch.setattr(adapters, "create_adapter", lambda row: HeldPlant(row, found, False))
    return found


def registered(workloads="parse > score", url=ADDRESS, secret="", kind="kubernetes", changes=True):
    return plant_registration.register(
        ACTOR, "shop", kind, url, secret_environment=secret, options={"workloads": workloads}, reason="a test",
        changes=changes,
    )  # fmt: skip


@pytest.fixture
def steering(django_user_model):
    """A loop on auto that has learned, and a mode that somebody holds for some hours."""
    loop = Loop.objects.create(
        name="parallelism_joint/plant:shop", law="parallelism_joint", target={"plant": "shop"}, mode=Loop.Mode.AUTO,
        parameters={"maximum": 5}, state={"law": {}},
    )  # fmt: skip
    held(django_user_model.objects.create(username="ada"), "mode", "auto", minutes=480, loop=loop)
    return loop


def test_what_is_held_is_let_go_by_the_way_that_led_there_when_the_registration_changes(control, let_go):
    assert registered().left == ""
    assert let_go == []  # nothing was held before it was registered
    registered()
    registered(secret="WEIR_SECRET_SHOP")  # another token for the same plant
    assert let_go == []
    registered("score")
    registered("score", "http://10.0.0.8:8001")
    assert let_go == [(ADDRESS, "parse > score"), (ADDRESS, "score")]


def test_of_two_who_change_a_registration_at_once_the_later_is_refused(control, let_go, monkeypatch):
    """Between the look at it and the change, which asks the plant itself, a colleague may be quicker."""
    registered()
    check = adapters.check

    def overtaken(row):
        check(row)
        RegisteredPlant.objects.update(url="http://10.0.0.9:8001")

    monkeypatch.setattr(adapters, "check", overtaken)
    with pytest.raises(BadInput, match="digest: shop was changed in the meantime"):
        registered("score")
    assert RegisteredPlant.objects.get().url == "http://10.0.0.9:8001"
    monkeypatch.setattr(adapters, "check", lambda row: RegisteredPlant.objects.all().delete())
    with pytest.raises(BadInput, match="name: shop was removed in the meantime"):
        registered("score")
    assert not RegisteredPlant.objects.exists()


@pytest.mark.parametrize(
    "end",
    [lambda: plant_registration.remove(ACTOR, "shop", "gone"), lambda: registered("score")],
    ids=["removed", "changed"],
)
def test_who_holds_the_plant_while_its_registration_ends_lets_it_go(control, let_go, end):
    registered()
    local = MemoryPlant(clock=float, containers=[])
    with adapters.open_plant("shop", local, "loop joint", by_loop=True) as plant:
        plant.hold(60.0)
    assert let_go == []
    with adapters.open_plant("shop", local, "loop joint", by_loop=True) as plant:
        end()
        let_go.clear()  # by who ended it
        plant.hold(60.0)
    assert let_go == [(ADDRESS, "parse > score")]


def test_where_the_plant_does_not_answer_it_is_forgotten_and_said_how_to_let_go_by_hand(control, monkeypatch):
    registered()
    monkeypatch.setattr(adapters, "create_adapter", lambda row: HeldPlant(row, [], True))
    left = plant_registration.remove(ACTOR, "shop", "gone").left
    assert left.startswith("shop can't be reached (refused).")
    assert "kubectl annotate scaledobject NAME autoscaling.keda.sh/paused- weir.io/held-" in left
    assert not RegisteredPlant.objects.exists()


def test_a_registration_does_not_change_while_something_is_in_force_that_a_person_did(control, let_go):
    registered()
    paused = Intervention(kind="pause", subject="celery", value="", before="{}", by="ann", until=2e9)
    control.hset(keys.PLANT_INTERVENTIONS.build("shop"), paused.field, encode_document(paused))
    for change in ({"workloads": "score"}, {"url": "http://10.0.0.8:8001"}):
        with pytest.raises(BadInput, match=r"pause celery.*Undo it first"):
            registered(**change)
    registered(secret="WEIR_SECRET_SHOP")
    row = RegisteredPlant.objects.get()
    assert (row.url, row.options, row.secret_environment) == (
        ADDRESS,
        {"workloads": "parse > score"},
        "WEIR_SECRET_SHOP",
    )
    assert let_go == []


def test_a_plant_does_not_take_the_place_of_another_of_its_name(control, let_go):
    registered()
    with pytest.raises(BadInput, match="shop is already registered"):
        registered("score", "http://10.0.0.8:8001", changes=False)
    assert RegisteredPlant.objects.get().url == ADDRESS and let_go == []


def test_loops_of_a_plant_that_is_another_one_now_advise_and_know_nothing(control, let_go, steering):
    registered()
    Loop.objects.update(mode=Loop.Mode.AUTO)  # the first one's, by a person
    assert registered(secret="WEIR_SECRET_SHOP").advising == []  # another token for the same plant
    steering.refresh_from_db()
    assert steering.mode == Loop.Mode.AUTO
    made = registered("score", "http://10.0.0.8:8001")
    assert "parallelism_joint/plant:shop" in made.sentence and "were set to advise" in made.sentence
    steering.refresh_from_db()
    assert (steering.mode, steering.state, steering.parameters) == (Loop.Mode.ADVISE, None, {"maximum": 5})
    assert AuditEntry.objects.filter(action="loop.mode").latest("pk").after == {"mode": "advise"}


def test_loops_of_a_plant_that_was_removed_do_not_act_on_the_next_of_its_name(control, let_go, steering):
    target = {"plant": "shop", "retired_at": "its plant is not registered"}
    Loop.objects.filter(pk=steering.pk).update(target=target)
    made = registered(changes=False)
    assert made.advising == ["parallelism_joint/plant:shop"]
    steering.refresh_from_db()
    assert steering.mode == Loop.Mode.ADVISE and overrides.list_for_loop(steering, timezone.now()) == []


PAUSE = {"kind": "pause", "subject": "celery", "value": "", "minutes": "15", "reason": "its database is away"}


@pytest.fixture
def far(stored_snapshot, control, monkeypatch):
    found = FakeCelery({"celery@one": 2})
    monkeypatch.setattr(adapters, "create_adapter", lambda row: found.plant())
    RegisteredPlant.objects.create(name="shop", kind="celery", url="redis://broker.example")
    stored_snapshot["plants"] = {"shop": {"kind": "celery", "state": "unseen"}}
    return found


def test_an_operator_pauses_a_queue_for_some_minutes_and_undoes_it(browsers, far, control):
    answer = browsers["operator"].post("/plants/shop/interventions", PAUSE, headers={"accept": "application/json"})
    assert answer.status_code == 200, answer.content
    assert far.paused == {("celery@one", "celery")}
    [found] = interventions.list_active(control, "shop")
    entry = AuditEntry.objects.latest("pk")
    assert (entry.action, entry.target, entry.reason) == ("plant.intervene", "shop", "its database is away")
    assert found.by == entry.actor
    posted = {"key": "intervention/shop/pause/celery", "minutes": "10"}
    answer = browsers["operator"].post("/manual-changes/extend", posted, headers={"accept": "application/json"})
    assert answer.status_code == 200, answer.content
    [longer] = interventions.list_active(control, "shop")
    assert longer.until == found.until + 600 and far.paused
    undo = {"kind": "pause", "subject": "celery", "reason": "it is back"}
    browsers["operator"].post("/plants/shop/interventions/undo", undo, headers={"accept": "application/json"})
    assert not far.paused
    assert AuditEntry.objects.latest("pk").action == "plant.undo"


def test_what_is_wrong_is_said_at_its_field_and_nothing_is_done(browsers, far, control):
    for wrong, field in (
        ({"subject": "nobody"}, "subject"),
        ({"minutes": "0"}, "minutes"),
        ({"kind": "delete"}, "kind"),
        ({"reason": ""}, "reason"),
    ):
        answer = browsers["operator"].post(
            "/plants/shop/interventions", PAUSE | wrong, headers={"accept": "application/json"}
        )
        assert answer.status_code == 422, wrong
        assert field in answer.json()["errors"]
    assert not far.paused
    assert not AuditEntry.objects.filter(action="plant.intervene").exists()


def entries():
    """What was done and what became of it, the newest last."""
    found = AuditEntry.objects.filter(action__contains="plant.").order_by("pk")
    return [(each.action, (each.after or {}).get("error", "")) for each in found]


def test_what_a_plant_may_have_done_that_fell_silent_in_its_midst_is_in_the_audit(browsers, far, control):
    answer = far.answer
    far.answer = lambda command, worker, **more: (
        None
        if command == "cancel_consumer" and far.paused.add((worker, "celery")) is None
        else answer(command, worker, **more)
    )
    said = browsers["operator"].post("/plants/shop/interventions", PAUSE, headers={"accept": "application/json"})
    assert said.status_code == 422 and "it stays active until you undo it" in str(said.json())
    assert far.paused
    assert [(action, "did not respond" in failed) for action, failed in entries()] == [
        ("plant.intervene", False),
        ("failed.plant.intervene", True),
    ]
    assert [each.subject for each in interventions.list_active(control, "shop")] == ["celery"]


def test_an_undo_that_fails_is_in_the_audit_and_its_page_says_why_and_that_it_is_tried_again(browsers, far, control):
    headers = {"accept": "application/json"}
    browsers["operator"].post("/plants/shop/interventions", PAUSE, headers=headers)
    far.silent = True
    undo = {"kind": "pause", "subject": "celery", "reason": "it is back"}
    said = browsers["operator"].post("/plants/shop/interventions/undo", undo, headers=headers)
    assert "no worker responds to remote control. Weir retries it every 10 s" in str(said.json())
    assert [action for action, _ in entries()] == ["plant.intervene", "plant.undo", "failed.plant.undo"]
    page = browsers["operator"].get("/plants/shop/").content.decode()
    assert "Undo failed" in page and "no worker responds to remote control" in page
