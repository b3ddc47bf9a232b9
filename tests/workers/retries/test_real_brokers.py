"""Retried tasks on real brokers: a stock Celery worker runs each once, although Weir's processes are killed."""

import json
import os
import random
import subprocess
import sys
import time

import pytest
from celery import Celery

from tests.waiting import MAX_SECONDS
from tests.workers.plants.foreign.celery_app.real_brokers import consume_all, declare, get_address, run_broker
from workers.plants.foreign.celery_app.retry_outlet import open_outlet
from workers.plants.foreign.retry_outlet import DestinationMissing, RetriedTask, StagingLost

pytestmark = pytest.mark.slow
TASKS = 3_000
QUEUE = "pay"


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


def build_tasks(count, queue=QUEUE):
    return [
        RetriedTask(id=f"new-{n}", retry_of=f"old-{n}", plan=1, task="shop.pay", queue=queue, args=(n,))
        for n in range(count)
    ]


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
