"""Brokers whose messages never end, or end slowly, and messages of the maximum size."""

import itertools
import struct

import psutil
import pytest
import redis
from kombu import Producer

from tests.waiting import until
from tests.workers.plants.foreign.endless_server import answering, drops
from workers.plants.foreign.celery_app import transport
from workers.plants.foreign.celery_app.broker import FAILURES, create_app
from workers.plants.foreign.celery_app.events import EventListener, TaskEvents
from workers.plants.foreign.celery_app.remote_control import RemoteControl
from workers.plants.foreign.kind import PlantAddress

START = b"\x01\x00\x00"
HUGE_FRAME = START + struct.pack(">I", 2**32 - 1)


@pytest.fixture(autouse=True)
def loopback(settings):
    settings.WEIR_EGRESS_ALLOW = "127.0.0.0/8"


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("scheme", "begin", "rest"),
    [
        ("redis", b"$10000000000\r\n", itertools.repeat(b"1" * 65_536)),
        ("redis", b"*1000000000\r\n", itertools.repeat(b":1\r\n" * 10_000)),
        ("redis", b"$1000000\r\n", drops()),
        ("amqp", HUGE_FRAME, itertools.repeat(b"1" * 65_536)),
        ("amqp", HUGE_FRAME, drops()),
    ],
)
def test_a_broker_that_answers_without_end_is_left(scheme, begin, rest, monkeypatch):
    """Neither broker ever finishes: a client that does not leave stays until the test times out."""
    monkeypatch.setattr(transport, "SECONDS", 0.5)
    monkeypatch.setenv("WEIR_PLANT_TIMEOUT_SECONDS", "0.5")
    before = psutil.Process().memory_info().rss
    with answering(scheme, itertools.chain([begin], rest)) as url:
        app = create_app(PlantAddress(name="shop", url=url))
        with pytest.raises(FAILURES), app.connection_for_read() as connection:
            connection.default_channel.queue_declare("any", passive=True)
    assert psutil.Process().memory_info().rss - before < 60e6


@pytest.fixture
def app(control_server):
    return create_app(PlantAddress(name="shop", url=control_server.url))


@pytest.fixture
def is_heard(control_server):
    """Return whether the broker delivers events: a listener subscribes when it first waits for one."""
    with redis.Redis.from_url(control_server.url) as broker:
        yield lambda: bool(broker.pubsub_numpat() or broker.pubsub_channels())


@pytest.fixture
def listener(app, is_heard, monkeypatch):
    monkeypatch.setattr("workers.plants.foreign.celery_app.events.AGAIN_SECONDS", 0.1)
    made = EventListener(app, TaskEvents())
    made.start()
    until(lambda: made.error is None and is_heard())
    yield made
    made.close()


def send(app, worker, size):
    with app.events.default_dispatcher(hostname=worker) as sender:
        sender.send("worker-heartbeat", text="x" * size)


def test_an_event_larger_than_any_of_celery_is_not_taken_and_those_after_it_are(app, listener, is_heard):
    before = psutil.Process().memory_info().rss
    # Not so large that the server ends a subscription of which it has to keep two copies.
    send(app, "celery@large", transport.MAX_BYTES + 2**20)
    until(lambda: listener.error is not None)
    assert f"more than {transport.MAX_BYTES} bytes" in (listener.error or "")
    until(lambda: listener.error is None and is_heard())
    send(app, "celery@small", 1)
    until(lambda: listener.events.pools)
    assert list(listener.events.pools) == ["celery@small"]
    assert psutil.Process().memory_info().rss - before < 120e6


def test_answers_that_come_late_are_not_kept_for_ever(app, control):
    """Late answers are never read; a worker that is always late would fill the observer's memory."""
    control.sadd("_kombu.binding.celery.pidbox", "\x06\x16\x06\x16celery@late.celery.pidbox")
    asking, mailbox = RemoteControl("shop", app.control.broadcast), app.control.mailbox
    for number in range(3):
        with app.connection_for_write() as connection:
            queue = mailbox.reply_queue(connection.default_channel)
            queue.declare()
            Producer(connection).publish(
                {"celery@late": {"ok": "x" * 100_000}},
                exchange=mailbox.reply_exchange,
                routing_key=mailbox.oid,
                headers={"ticket": f"of before {number}"},
            )
        assert asking.ask("stats", expected=1) == {}
    assert not mailbox.unclaimed
