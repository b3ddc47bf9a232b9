"""The card "If Weir vanished now" of a plant's page, its guard, and the commands and operations for both."""

import json

import orjson
import pytest
from django.core.management import call_command

from console.actions import plant_detach
from console.actions.plant_detach import Detachment, RestoredItem
from console.display.plant_words import describe_remaining
from queues import keys
from tests.console.page_form import source_of
from workers.documents.plants import GuardStatus, PlantStatus, SetValue
from workers.plants.models import RegisteredPlant
from workers.plants.plant import PlantUnavailable

pytestmark = pytest.mark.django_db
PAUSED = {"item": "queue mail", "value": "paused", "afterwards": "paused", "by": "eve", "stays": "no guard is running"}
POOL = {"item": "celery@one", "value": "8 processes", "afterwards": "2 processes", "within_seconds": 47.0,
        "restored_by": "guard"}  # fmt: skip


@pytest.fixture
def shop(stored_snapshot, control):
    """Return a function that stores what is set at a registered Celery app."""
    RegisteredPlant.objects.create(name="shop", kind="celery", url="redis://broker.example:6379/3")

    def store(guard, *values):
        row = {"kind": "celery", "state": "seen", "age_seconds": 1.0, "guard": guard, "set_values": list(values)}
        stored_snapshot["plants"] = {"shop": row}
        control.set(keys.SNAPSHOT, orjson.dumps(stored_snapshot))

    return store


def run(capsys, *words):
    status = 0
    try:
        call_command(*words)
    except SystemExit as ended:
        status = ended.code
    return status, capsys.readouterr()


def test_the_page_names_what_stays_first_and_what_restores_the_rest(browsers, shop):
    shop({"alive": True}, POOL, PAUSED)
    page = source_of(browsers["operator"].get("/plants/shop/"))
    assert "If Weir vanished now" in page and "Guard running" in page
    assert page.index("queue mail") < page.index("celery@one")
    assert "Stays. No guard is running" in page
    assert "Detach plant" not in page  # only administrators can
    assert "Detach plant" in source_of(browsers["administrator"].get("/plants/shop/"))


def test_the_page_offers_the_guard_where_none_runs(browsers, shop):
    shop({"alive": False}, PAUSED)
    page = source_of(browsers["viewer"].get("/plants/shop/"))
    assert "No guard running" in page and "Install the guard" in page
    assert "weir-guard.service" in page and "compose.yaml" in page


def test_without_a_guard_an_action_says_what_stays():
    status = PlantStatus(guard=GuardStatus(alive=False), set_values=[SetValue(**PAUSED)])
    said = describe_remaining("shop", status)
    assert said.startswith("No guard is running at shop. If Weir vanishes, this stays: queue mail (paused).")
    assert describe_remaining("shop", PlantStatus(guard=GuardStatus(alive=True))) == ""
    assert describe_remaining("shop", PlantStatus(guard=None)) == ""


def test_the_files_of_the_guard_are_printed_and_nothing_is_applied(shop, capsys):
    status, printed = run(capsys, "guard", "shop", "--file", "weir_guard.py", "--json")
    assert status == 0
    assert "class CeleryGuard" in json.loads(printed.out)["files"]["weir_guard.py"]["text"]
    status, printed = run(capsys, "guard", "none")
    assert (status, printed.err.strip()) == (2, "NAME: none is not registered.")


def test_rabbitmq_needs_no_guard(control, capsys):
    RegisteredPlant.objects.create(name="mail", kind="celery", url="amqp://broker.example")
    printed = run(capsys, "guard", "mail", "--json")[1]
    assert json.loads(printed.out) == {"plant": "mail", "needs_guard": False, "files": {}}


@pytest.mark.parametrize(("is_verified", "code"), [(True, 0), (False, 1)])
def test_the_exit_code_of_detach_says_whether_anything_remains(shop, capsys, monkeypatch, is_verified, code):
    item = RestoredItem("pause celery", "in force", "consumed by celery@one", is_verified)
    done = Detachment("shop", [item], is_removed=is_verified)
    monkeypatch.setattr(plant_detach, "detach", lambda *arguments, **more: done)
    status, printed = run(capsys, "detach", "shop", "--json")
    assert status == code
    assert json.loads(printed.out)["items"][0]["said"] == item.sentence
    assert ("not verified" in printed.err) is not is_verified


def test_a_plant_that_is_away_is_not_taken_for_restored(shop, capsys, monkeypatch):
    def fail(*arguments, **more):
        raise PlantUnavailable("shop can't be reached (refused).")

    monkeypatch.setattr(plant_detach, "detach", fail)
    status, printed = run(capsys, "detach", "shop", "--json")
    assert (status, printed.err.strip()) == (1, "not verified: shop can't be reached (refused).")
