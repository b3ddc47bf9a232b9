"""The shop of ./run --demo: what it creates once, its daily rhythm, and the modes that it sets once."""

import pytest

from console.embedded import launch
from console.management.commands import shop
from console.management.commands.weir import find_acting_user
from queues.models import Container, Node, Queue
from queues.publishing.streams import ROUNDS_PER_SECOND
from workers.models import Loop, PipelineVersion
from workers.pipeline.declaration.declaration import parse_application_text


@pytest.fixture
def actor(people):
    for name in ("n1", "n2", "n3"):
        Node.objects.create(name=name, url="redis://127.0.0.1:1/0")
    alert = Queue.objects.create(name="alert", kind="jobs")
    Container.objects.create(queue=alert, node=Node.objects.get(name="n1"), points=1000)
    return find_acting_user(None)


def test_the_shop_is_opened_once_and_stays_as_people_change_it(actor, control):
    shop.open_shop(actor)
    assert set(Queue.objects.values_list("name", flat=True)) == {"alert", "orders", "payments", "logins"}
    points = dict(Container.objects.filter(queue__name="logins").values_list("node__name", "points"))
    assert points == {"n1": 600, "n2": 200, "n3": 200}
    Queue.objects.filter(name="orders").update(priority=9)
    shop.open_shop(actor)
    assert Queue.objects.get(name="orders").priority == 9
    assert PipelineVersion.objects.filter(application="shop").count() == 1


def test_the_rate_follows_a_day_of_24_minutes(actor):
    stream = next(each for each in shop.build_streams() if each.type == "order" and each.producer == "web")

    def rate(at):
        return sum(stream.count_due(at) for _ in range(10 * ROUNDS_PER_SECOND)) / 10

    assert [round(rate(minutes * 60)) for minutes in (0, 6, 12, 18, 24)] == [40, 70, 40, 10, 40]


def test_each_loop_of_the_shop_is_set_to_auto_once(actor, control):
    for law, target in (("ladder", {"queue": "orders"}), ("ladder", {"queue": "alert"})):
        Loop.objects.create(name=f"{law}/{target['queue']}", law=law, target=target, mode="advise")
    starter = shop.LoopStarter(actor)
    starter.step()
    assert dict(Loop.objects.values_list("name", "mode")) == {"ladder/orders": "auto", "ladder/alert": "advise"}
    Loop.objects.update(mode="hold")
    starter.step()
    assert set(Loop.objects.values_list("mode", flat=True)) == {"hold"}


def test_the_application_of_the_shop_is_valid(tmp_path):
    assert parse_application_text(shop.DECLARATION, tmp_path).name == shop.APPLICATION


def test_the_demo_has_a_data_folder_of_its_own_unless_one_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("WEIR_DATA", "")
    assert launch.parse_arguments(["--demo"]).data == launch.parse_arguments([]).data / "demo"
    assert launch.parse_arguments(["--demo", "--data", str(tmp_path)]).data == tmp_path
