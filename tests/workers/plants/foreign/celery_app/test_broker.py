"""Redis as the broker of an app: which of its keys are queues, and which only have such a name.

RabbitMQ: what its management plugin reports, and that its failure affects nothing else.
"""

from types import SimpleNamespace

import httpx
import pytest

from workers.plants.foreign import redis_client
from workers.plants.foreign.celery_app import broker
from workers.plants.foreign.celery_app.broker import AmqpBroker, QueueLength, RedisBroker
from workers.plants.foreign.kind import PlantAddress
from workers.plants.plant import InvalidPlantResponse

USUAL = "\x06\x16"


@pytest.fixture
def observed(control, monkeypatch):
    """Return the broker with these options; the control server represents the app's."""
    monkeypatch.setattr(broker, "resolve_host", lambda *_: "127.0.0.1")
    monkeypatch.setattr(redis_client, "create_client", lambda *_, **__: control)
    return lambda **options: RedisBroker(PlantAddress(name="shop", url="redis://127.0.0.1:6379/0", options=options))


def test_what_bears_the_name_of_a_priority_and_is_no_list_blinds_nobody_and_counts_nothing(control, observed):
    control.rpush("user", "one", "two")
    control.rpush(f"user{USUAL}3", "three")
    control.hset("user:1", "name", "ada")
    control.set("user:2", "bo")
    control.set("unacked", "of somebody else")
    found = observed()
    assert found.read_queue_lengths(["user"]) == {"user": QueueLength(3, {0: 2, 3: 1})}
    assert found.count_unacknowledged() == 0


@pytest.mark.parametrize(("separator", "waiting"), [("", 6), ("any", 6), ("usual", 3), (":", 4)])
def test_lists_by_the_separator_of_the_app_are_counted(control, observed, separator, waiting):
    control.rpush("orders", "one")
    control.rpush(f"orders{USUAL}1", "two", "three")
    control.rpush("orders:1", "of 2025", "of 2026", "of the app's own")
    assert observed(separator=separator).read_queue_lengths(["orders"])["orders"].waiting == waiting


@pytest.mark.parametrize("answer", [-5, 10**20, True, 2.5, None, b"3"])
def test_what_can_be_no_length_of_a_list_is_said_to_be_none(observed, monkeypatch, answer):
    found = observed()
    pipeline = SimpleNamespace(llen=lambda key: None, hlen=lambda key: None, execute=lambda **_: [answer] * 100)
    monkeypatch.setattr(found, "server", SimpleNamespace(pipeline=lambda **_: pipeline))
    for ask in (lambda: found.read_queue_lengths(["orders"]), found.count_unacknowledged):
        with pytest.raises(InvalidPlantResponse, match="invalid queue length"):
            ask()


def refused(request):
    raise httpx.ConnectError("refused")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda request: httpx.Response(503, text="starting"), "503"),
        (lambda request: httpx.Response(200, json=[1]), "rejected the request"),
        (lambda request: httpx.Response(200, text="<html>"), "JSON"),
        (refused, "refused"),
    ],
)
def test_a_management_plugin_that_does_not_answer_hides_no_length_and_is_asked_once(monkeypatch, answer, why):
    asked = []

    def answered(request):
        asked.append(request)
        return answer(request)

    options = {"management": "http://127.0.0.1:15672"}
    address = PlantAddress(name="shop", url="amqp://broker/", options=options, transport=httpx.MockTransport(answered))
    found = AmqpBroker(address, None)
    monkeypatch.setattr(found, "_declare_passively", lambda queue: QueueLength(3, consumers=1))
    lengths = found.read_queue_lengths(["mail", "orders"])
    assert lengths == dict.fromkeys(("mail", "orders"), QueueLength(3, consumers=1))
    assert len(asked) == 1
    [said] = found.list_missing()
    assert said.startswith("Unacknowledged tasks are unknown") and why in said
    answer = lambda request: httpx.Response(200, json={"messages_unacknowledged": 2})  # noqa: E731
    assert found.read_queue_lengths(["mail"])["mail"].unacknowledged == 2 and found.list_missing() == []
