"""Messages of an app's queues: viewed, moved, requeued, and deleted, in memory and on real brokers alike."""

import json
import threading
import time
from collections import Counter

import pytest
from celery import Celery

from common.errors import BadInput
from tests.waiting import MAX_SECONDS
from tests.workers.plants.foreign.celery_app.memory_messages import MemoryMessages
from tests.workers.plants.foreign.celery_app.real_brokers import (
    consume_all,
    declare,
    get_address,
    iterate_messages,
    publish,
    run_broker,
)
from workers.plants.foreign.celery_app.queue_messages import open_messages
from workers.plants.foreign.queue_messages import MOVE, PURGE, REQUEUE
from workers.plants.plant import InvalidPlantResponse

QUEUES = ("first", "second")


class MemoryPlace:
    """Queues in memory."""

    def __init__(self):
        self.messages = MemoryMessages(QUEUES)
        self.publish, self.consume_all = self.messages.publish, self.messages.consume_all

    def open(self, **options):
        self.messages.shown = options.get("arguments", self.messages.shown)
        return self.messages


class BrokerPlace:
    """Queues at a real broker."""

    def __init__(self, url):
        self.url = url
        for queue in QUEUES:
            declare(url, queue)

    def open(self, **options):
        return open_messages(get_address(self.url, **options), QUEUES)

    def publish(self, queue, count, **more):
        publish(self.url, queue, count, **more)

    def consume_all(self, queue):
        return consume_all(self.url, queue)


@pytest.fixture(scope="module")
def valkey(tmp_path_factory):
    with run_broker("valkey", tmp_path_factory.mktemp("broker")) as url:
        yield url


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory):
    with run_broker("rabbitmq", tmp_path_factory.mktemp("broker")) as url:
        yield url


@pytest.fixture(
    params=["memory", pytest.param("valkey", marks=pytest.mark.slow), pytest.param("rabbitmq", marks=pytest.mark.slow)]
)
def place(request):
    """A place with two empty queues, which each test leaves empty."""
    made = MemoryPlace() if request.param == "memory" else BrokerPlace(request.getfixturevalue(request.param))
    yield made
    for queue in QUEUES:
        made.consume_all(queue)


@pytest.fixture
def opened(place):
    messages = place.open()
    yield messages
    messages.close()


def test_a_preview_shows_the_oldest_messages_and_leaves_them_in_their_order(place, opened):
    place.publish("first", 30)
    seen = opened.preview("first", 10)
    assert (seen.waiting, seen.tasks, seen.origins) == (30, {"shop.pay": 10}, {"": 10})
    assert [(message.id, message.args) for message in seen.messages[:2]] == [("task-0", "[0]"), ("task-1", "[1]")]
    assert seen.messages[0].size_bytes == len(json.dumps([[0], {}, {}]))
    assert place.consume_all("first") == list(range(30))


def test_the_oldest_messages_are_moved_in_their_order(place, opened):
    place.publish("first", 30)
    assert opened.act(MOVE, "first", 12, "second").moved == {"second": 12}
    assert place.consume_all("second") == list(range(12))
    assert place.consume_all("first") == list(range(12, 30))


def test_more_messages_are_moved_than_a_broker_moves_at_once(place, opened):
    place.publish("first", 250)
    assert opened.act(MOVE, "first", 5_000, "second").total == 250
    assert place.consume_all("second") == list(range(250))


def test_the_oldest_messages_are_deleted(place, opened):
    place.publish("first", 5)
    assert opened.act(PURGE, "first", 3).moved == {"": 3}
    assert place.consume_all("first") == [3, 4]


def test_messages_that_were_not_dead_lettered_stay_in_their_place(place, opened):
    place.publish("first", 150)
    result = opened.act(REQUEUE, "first", 120)
    assert (result.total, result.left) == (0, 120)
    assert place.consume_all("first") == list(range(150))


@pytest.mark.parametrize(
    ("queue", "destination", "field"), [("third", "second", "queue"), ("first", "3", "destination")]
)
def test_an_unknown_queue_is_refused_and_nothing_is_moved(place, opened, queue, destination, field):
    place.publish("first", 1)
    with pytest.raises(BadInput) as refused:
        opened.act(MOVE, queue, 1, destination)
    assert refused.value.field == field
    assert place.consume_all("first") == [0]


def test_secrets_in_arguments_are_not_shown(place, opened):
    place.publish("first", 1, kwargs={"order": 4711, "password": "swordfish"})
    [message] = opened.preview("first", 1).messages
    assert "4711" in message.kwargs and "swordfish" not in message.kwargs


def test_texts_that_the_app_shows_instead_of_its_arguments_are_shown(place, opened):
    place.publish("first", 1, headers={"argsrepr": "(hidden)", "kwargsrepr": "{}"})
    assert opened.preview("first", 1).messages[0].args == "(hidden)"


def test_a_plant_whose_arguments_are_hidden_shows_only_their_length(place):
    place.publish("first", 1, kwargs={"order": 4711})
    messages = place.open(arguments="hidden")
    shown = messages.preview("first", 1).messages[0]
    messages.close()
    assert shown.args.endswith(" characters") and "4711" not in shown.args + shown.kwargs


@pytest.mark.slow
def test_dead_lettered_messages_are_requeued_to_where_they_came_from(rabbitmq):
    declare(rabbitmq, "dead")
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    for queue in ("orders", "mails"):
        declare(rabbitmq, queue, **dead)
        publish(rabbitmq, queue, 5)
        for message in iterate_messages(rabbitmq, queue):
            message.reject()
    publish(rabbitmq, "dead", 2)
    messages = open_messages(get_address(rabbitmq), ())
    deadline = time.monotonic() + MAX_SECONDS
    while messages.preview("dead", 20).waiting < 12 and time.monotonic() < deadline:
        pass
    assert Counter(messages.preview("dead", 20).origins) == {"orders": 5, "mails": 5, "": 2}
    result = messages.act(REQUEUE, "dead", 20)
    messages.close()
    assert result.moved == {"orders": 5, "mails": 5} and result.left == 2
    assert consume_all(rabbitmq, "orders") == consume_all(rabbitmq, "mails") == list(range(5))
    assert consume_all(rabbitmq, "dead") == [0, 1]


@pytest.fixture
def redis_place(valkey):
    """The messages of an app on Valkey, and a client of its server."""
    messages = open_messages(get_address(valkey), QUEUES)
    yield messages, messages._broker.server
    messages.close()
    for queue in QUEUES:
        consume_all(valkey, queue)


@pytest.mark.slow
def test_a_moved_message_keeps_its_priority_and_names_its_new_queue(valkey, redis_place):
    messages, server = redis_place
    for priority in (6, 0):
        publish(valkey, "first", 3, priority=priority)
    assert [message.priority for message in messages.preview("first", 6).messages] == [0] * 3 + [6] * 3
    assert messages.act(MOVE, "first", 4, "second").total == 4
    assert (server.llen("second"), server.llen("second\x06\x166"), server.llen("first\x06\x166")) == (3, 1, 2)
    stored = json.loads(server.lindex("second\x06\x166", -1))
    assert stored["properties"]["delivery_info"] == {"exchange": "", "routing_key": "second"}


@pytest.mark.slow
def test_a_moved_message_that_a_worker_returns_stays_in_its_new_queue(valkey, redis_place):
    messages, server = redis_place
    publish(valkey, "first", 1)
    messages.act(MOVE, "first", 1, "second")
    for message in iterate_messages(valkey, "second"):
        message.requeue()
        break
    assert (server.llen("second"), server.llen("first")) == (1, 0)


@pytest.mark.slow
def test_entries_of_the_app_that_are_no_messages_are_left_alone(valkey, redis_place):
    messages, server = redis_place
    publish(valkey, "first", 1)
    server.rpush("first:3", "an entry of the app")
    for action in (MOVE, PURGE):
        with pytest.raises(InvalidPlantResponse, match="not a message of Celery"):
            messages.act(action, "first", 5, "second")
    assert server.lrange("first:3", 0, -1) == [b"an entry of the app"]
    server.delete("first:3")
    assert consume_all(valkey, "first") == [0]


@pytest.mark.slow
def test_a_destination_that_is_no_list_keeps_the_messages_in_their_queue(valkey, redis_place):
    messages, server = redis_place
    publish(valkey, "first", 3)
    server.set("second", "a value of the app")
    with pytest.raises(InvalidPlantResponse, match="WRONGTYPE"):
        messages.act(MOVE, "first", 3, "second")
    server.delete("second")
    assert consume_all(valkey, "first") == [0, 1, 2]


@pytest.mark.slow
def test_each_message_is_processed_once_while_workers_take_messages_meanwhile(valkey, redis_place):
    messages, _ = redis_place
    publish(valkey, "first", 2_000)
    taken = []
    worker = threading.Thread(target=lambda: taken.extend(consume_all(valkey, "first")))
    worker.start()
    moved = messages.act(MOVE, "first", 1_500, "second").total
    worker.join()
    rest = consume_all(valkey, "second")
    assert len(rest) == moved
    assert sorted([*taken, *rest]) == list(range(2_000))


@pytest.mark.slow
def test_a_body_that_is_not_json_is_not_decoded(place, opened):
    if isinstance(place, MemoryPlace):
        pytest.skip("messages in memory are JSON")
    with Celery(broker=place.url).connection() as connection:
        connection.Producer().publish(
            b"\x80\x04.", routing_key="first", content_type="application/x-python-serialize", content_encoding="binary",
            headers={"task": "shop.pay", "id": "task-0"},
        )  # fmt: skip
    [message] = opened.preview("first", 1).messages
    assert (message.task, message.args, message.size_bytes) == ("shop.pay", "", 3)
    opened.act(PURGE, "first", 1)
