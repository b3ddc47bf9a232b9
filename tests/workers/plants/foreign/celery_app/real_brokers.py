"""Real brokers of Celery apps, and their messages as a stock kombu client sends and gets them."""

from contextlib import contextmanager

import pytest
from celery import Celery
from kombu import Queue

from bench.celery.brokers import RABBITMQ, rabbitmq, valkey
from workers.plants.foreign.kind import PlantAddress


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


def get_address(url, **options):
    return PlantAddress(name="shop", url=url, options=options)


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


def publish(url, queue, count, headers=None, kwargs=None, **properties):
    """Send tasks shop.pay(0), shop.pay(1), … to a queue."""
    with Celery(broker=url).connection() as connection:
        producer = connection.Producer()
        for number in range(count):
            own = {"task": "shop.pay", "id": f"task-{number}", **(headers or {})}
            producer.publish([[number], kwargs or {}, {}], routing_key=queue, headers=own, **properties)
