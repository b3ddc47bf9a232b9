"""A throttled queue: its producers wait, and no event is lost."""

import pytest

from common.errors import QueueThrottled
from queues import keys, throttling
from queues.publishing import telemetry
from queues.publishing.client import THROTTLE_CHECK_SECONDS, Client
from tests.queues.publishing.test_client import stored_ids
from tests.queues.samples import batch_of


class Time:
    """A monotonic clock that only waiting advances. `then` runs at the first wait that ends after its time."""

    def __init__(self) -> None:
        self.now, self.waits, self.then = 0.0, [], []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds
        while self.then and self.then[0][0] <= self.now:
            self.then.pop(0)[1]()


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def client(control_server, plant_topology, time):
    with Client(control_server.url, "shop", monotonic=time.monotonic, sleep=time.sleep) as made:
        yield made


def test_throttling_expires_or_ends_at_once_and_is_checked_again_if_it_has_no_expiry(control):
    throttling.throttle(control, "alert", 30.0)
    assert 29 < throttling.load_left_seconds(control, "alert") <= 30
    assert throttling.load_left_seconds(control, "telemetry") == 0
    throttling.throttle(control, "alert", 0.0)
    assert throttling.load_left_seconds(control, "alert") == 0
    control.set(keys.THROTTLE.build("alert"), "1")
    assert throttling.load_left_seconds(control, "alert") == throttling.ENDLESS_SECONDS


def test_the_client_waits_until_the_queue_is_open_and_then_stores_every_event(client, control, nodes, time):
    throttling.throttle(control, "alert", 600.0)
    time.then.append((7.0, lambda: throttling.throttle(control, "alert", 0.0)))
    assert client.publish("telemetry", batch_of(5)).events == 5, "another queue is open"
    assert time.now == 0
    assert client.publish("alert", batch_of(2_000)).events == 2_000
    assert 7.0 <= client.throttled_seconds <= 7.0 + 2 * THROTTLE_CHECK_SECONDS
    assert max(time.waits) <= THROTTLE_CHECK_SECONDS, "each wait is short"
    assert len(stored_ids(nodes)) == 2_000


def test_a_client_in_the_middle_of_a_stream_waits_between_flushes(client, control, nodes, time):
    def batches():
        for first in range(0, 40_000, 20_000):
            yield batch_of(20_000, first=first)
            throttling.throttle(control, "alert", 600.0)
            time.now += 1.0  # the client looks once a second
            time.then.append((time.now + 3.0, lambda: throttling.throttle(control, "alert", 0.0)))

    assert client.publish_batches("alert", batches()).events == 40_000
    assert 3.0 <= client.throttled_seconds <= 4.0
    assert len(set(stored_ids(nodes))) == 40_000


def test_a_client_that_must_not_wait_is_told_when_to_come_again_and_nothing_is_stored(
    control, control_server, plant_topology, nodes, time
):
    throttling.throttle(control, "alert", 4.2)
    clocks = {"monotonic": time.monotonic, "sleep": time.sleep}
    with Client(control_server.url, "loop", when_throttled="raise", **clocks) as client:
        with pytest.raises(QueueThrottled) as refused:
            client.publish("alert", batch_of(5))
        assert (refused.value.retry_seconds, stored_ids(nodes), time.waits) == (5, [], [])
    with Client(control_server.url, "pipeline-performance", when_throttled="ignore", **clocks) as client:
        assert client.publish("alert", batch_of(5)).events == 5


def test_without_the_control_server_a_throttling_ends_by_the_clients_clock(client, control, control_server, time):
    client.publish("alert", batch_of(1))
    throttling.throttle(control, "alert", 4.0)
    client.get_topology(fresh=True)
    control_server.kill()
    assert client.publish("alert", batch_of(1)).events == 1
    assert 3.5 < time.now <= 4.0 + THROTTLE_CHECK_SECONDS


def test_in_open_times_of_the_ladder_a_busy_client_publishes_its_share(client, control, time):
    """The ladder closes the queue for 60 % of each 5 s. The client publishes as fast as it can."""
    published = 0
    client.publish("alert", batch_of(1))
    for second in range(0, 50, 5):
        time.then.append((second + 3.0, lambda: throttling.throttle(control, "alert", 0.0)))
        throttling.throttle(control, "alert", 600.0)
        while time.now < second + 5.0:
            published += client.publish("alert", batch_of(1)).events
            time.now += 0.05
    assert published == pytest.approx(0.4 * 50 / 0.05, rel=0.15)


def test_the_telemetry_of_a_host_takes_no_samples_for_a_throttled_queue(
    control, control_server, plant_topology, nodes, time
):
    clocks = {"monotonic": time.monotonic, "sleep": time.sleep}
    with Client(control_server.url, "host", when_throttled="raise", **clocks) as client:
        outbox = telemetry.UnpublishedEvents(client)
        assert not telemetry.is_throttled(client, "telemetry") and telemetry.takes_processes(client)
        outbox.add("telemetry", [{"type": "cpu"}])
        for queue in ("telemetry", "process"):
            throttling.throttle(control, queue, 600.0)
        time.now += 1.0
        assert telemetry.is_throttled(client, "telemetry") and not telemetry.takes_processes(client)
        outbox.flush()
        throttling.throttle(control, "telemetry", 0.0)
        time.now += 1.0
        outbox.flush()
        assert outbox.dropped == 0
        assert len(stored_ids(nodes, "telemetry")) == 1
