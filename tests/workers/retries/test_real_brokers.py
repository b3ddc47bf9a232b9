"""Retried tasks on real brokers: a stock Celery worker runs each once, although Weir's processes are killed."""

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager

import pytest
from celery import Celery
from kombu import Queue

from bench.celery.brokers import RABBITMQ, rabbitmq, valkey
from tests.waiting import MAX_SECONDS
from workers.plants.foreign.celery_app.queue_messages import AmqpMessages
from workers.plants.foreign.celery_app.retry_outlet import open_outlet
from workers.plants.foreign.kind import PlantAddress
from workers.plants.foreign.queue_messages import MOVE, PURGE, REQUEUE
from workers.plants.foreign.retry_outlet import DestinationMissing, RetriedTask, StagingLost

pytestmark = pytest.mark.slow
TASKS = 3_000
QUEUE = "pay"


@contextmanager
def run_broker(kind, folder):
    if kind == "valkey":
        with valkey(["shop"]) as urls:
            yield urls["shop"]
    elif RABBITMQ:
        with rabbitmq(["shop"], folder / "rabbitmq") as urls:
            yield urls["shop"]
    else:
        pytest.skip("rabbitmq-server is not installed")


@pytest.fixture(scope="module", params=["valkey", "rabbitmq"])
def broker(request, tmp_path_factory):
    """The address of a broker; each test leaves its queues empty."""
    with run_broker(request.param, tmp_path_factory.mktemp("broker")) as url:
        yield url


@pytest.fixture
def rabbit(broker):
    if not broker.startswith("amqp"):
        pytest.skip("concerns RabbitMQ only")
    return broker


def get_address(url):
    return PlantAddress(name="shop", url=url)


def build_tasks(count, queue=QUEUE):
    return [
        RetriedTask(id=f"new-{n}", retry_of=f"old-{n}", plan=1, task="shop.pay", queue=queue, args=(n,))
        for n in range(count)
    ]


def declare(url, queue, **arguments):
    if url.startswith("amqp"):
        with Celery(broker=url).connection() as connection:
            connection.default_channel.queue_declare(queue, durable=True, auto_delete=False, arguments=arguments)


def iterate_messages(url, queue):
    """Yield all messages of a queue, as a stock kombu consumer gets them; the caller acknowledges or rejects each."""
    with Celery(broker=url).connection() as connection:
        messages = Queue(queue, no_declare=True)(connection.default_channel)
        while (message := messages.get()) is not None:
            yield message


def consume_all(url, queue):
    """Return the first argument of all messages of a queue."""
    arguments = []
    for message in iterate_messages(url, queue):
        arguments.append(message.payload[0][0])
        message.ack()
    return arguments


MOVER = """
import sys
import django
django.setup()
from workers.plants.foreign.celery_app.retry_outlet import open_outlet
from workers.plants.foreign.kind import PlantAddress
outlet = open_outlet(PlantAddress(name="shop", url=sys.argv[1]), "1.1")
print("ready", flush=True)
while outlet.count_staged():
    outlet.send(37)
"""


def test_each_message_is_staged_or_sent_although_movers_are_killed_at_random(broker):
    declare(broker, QUEUE)
    outlet = open_outlet(get_address(broker), "1.1")
    assert outlet.write_staging(build_tasks(TASKS)) == TASKS
    kills, chance = 0, random.Random(7)
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "console.settings"}
    deadline = time.monotonic() + 5 * MAX_SECONDS
    while outlet.count_staged() and time.monotonic() < deadline:
        command = [sys.executable, "-c", MOVER, broker]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
            assert process.stdout.readline() == b"ready\n"
            try:
                process.wait(chance.uniform(0.05, 0.3))
            except subprocess.TimeoutExpired:
                process.kill()
                kills += 1
    outlet.close()
    assert kills
    assert sorted(consume_all(broker, QUEUE)) == list(range(TASKS))


def test_messages_are_sent_in_their_order_and_what_is_discarded_is_not_sent(broker):
    declare(broker, QUEUE)
    outlet = open_outlet(get_address(broker), "1.2")
    outlet.write_staging(build_tasks(600))
    assert outlet.send(450) == 450
    assert outlet.count_staged() == 150 and outlet.count_waiting([QUEUE]) == 450
    assert outlet.discard() == 150
    with pytest.raises(StagingLost):
        outlet.count_staged()
    outlet.close()
    assert consume_all(broker, QUEUE) == list(range(450))


def test_messages_whose_queue_does_not_exist_stay_staged_on_rabbitmq(rabbit):
    outlet = open_outlet(get_address(rabbit), "1.3")
    outlet.write_staging(build_tasks(10, "missing"))
    with pytest.raises(DestinationMissing, match="missing"):
        outlet.send(5)
    assert outlet.discard() == 10
    outlet.close()


def publish(url, queue, count, **properties):
    with Celery(broker=url).connection() as connection:
        producer = connection.Producer()
        for number in range(count):
            producer.publish([[number], {}, {}], routing_key=queue, headers={"task": "shop.pay"}, **properties)


def test_messages_are_moved_and_deleted_between_queues_of_rabbitmq(rabbit):
    for queue in ("first", "second"):
        declare(rabbit, queue)
    publish(rabbit, "first", 30)
    messages = AmqpMessages(get_address(rabbit))
    seen = messages.preview("first", 10)
    assert (seen.waiting, seen.messages, seen.tasks) == (30, 10, {"shop.pay": 10})
    assert messages.act(MOVE, "first", 12, "second").moved == {"second": 12}
    assert messages.act(PURGE, "first", 3).moved == {"": 3}
    assert messages.act(REQUEUE, "first", 100).left == 15
    messages.close()
    assert consume_all(rabbit, "second") == list(range(12))
    assert consume_all(rabbit, "first") == list(range(15, 30))


def test_dead_lettered_messages_are_requeued_to_where_they_came_from(rabbit):
    declare(rabbit, "dead")
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    for queue in ("orders", "mails"):
        declare(rabbit, queue, **dead)
        publish(rabbit, queue, 5)
        for message in iterate_messages(rabbit, queue):
            message.reject()
    publish(rabbit, "dead", 2)
    messages = AmqpMessages(get_address(rabbit))
    deadline = time.monotonic() + MAX_SECONDS
    while messages.preview("dead", 20).waiting < 12 and time.monotonic() < deadline:
        pass
    assert Counter(messages.preview("dead", 20).origins) == {"orders": 5, "mails": 5, "": 2}
    result = messages.act(REQUEUE, "dead", 20)
    messages.close()
    assert result.moved == {"orders": 5, "mails": 5} and result.left == 2
    assert consume_all(rabbit, "orders") == consume_all(rabbit, "mails") == list(range(5))
    assert consume_all(rabbit, "dead") == [0, 1]


def test_a_message_is_what_celery_itself_sends_apart_from_its_mark(tmp_path):
    """kombu's own message of the same task has the same fields."""
    with run_broker("valkey", tmp_path) as url:
        app = Celery(broker=url)
        app.send_task("shop.pay", (1,), queue="stock", task_id="new-0")
        outlet = open_outlet(get_address(url), "1.4")
        outlet.write_staging(build_tasks(1))
        outlet.send(1)
        server = outlet._broker.server
        own, stock = (json.loads(server.lindex(name, 0)) for name in (QUEUE, "stock"))
        outlet.close()
    assert own.keys() == stock.keys() and own["properties"].keys() == stock["properties"].keys()
    assert own["headers"].keys() - {"weir_retry"} == stock["headers"].keys()
