"""A client that publishes in order: its block IDs and times show its progress."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from common.errors import MalformedEvent, NoContainerAvailable
from queues import keys
from queues.events.block import BLOCK_EVENTS
from queues.publishing import producer_order
from queues.publishing.client import Client
from queues.publishing.producer_order import REGISTRATION_SECONDS, SESSION_SECONDS, OrderMark, ProducerOrder
from queues.segments.segment import Segment
from tests.workers.pipeline.times import Times

NOW_SECONDS = 1_700_000_000.0


@pytest.fixture
def client(control_server, plant_topology):
    with Client(control_server.url, "gateway", clock=lambda: NOW_SECONDS, in_order=True) as made:
        yield made


def read_marks(nodes) -> list[tuple[OrderMark, int]]:
    """Return mark and newest time of each stored block, by position."""
    blocks = [block for node in nodes.values() if node.process for block in Segment(node.client(), "alert").scan()]
    return sorted((OrderMark.parse(block.block_id), block.newest_time_us) for block in blocks)


def events(count: int, **values: object) -> list[dict[str, object]]:
    return [{"type": "t", **values}] * count


def test_a_mark_is_read_from_a_block_id_of_a_client_only():
    mark = OrderMark("0123456789abcdef", 2**40, True)
    assert OrderMark.parse(mark.build_block_id()) == mark and len(mark.build_block_id()) == 32
    assert [OrderMark.parse(block_id) for block_id in ("", "foreign", "g" * 32, "a" * 33)] == [None] * 4


def test_concurrent_calls_are_stored_one_after_the_other_with_later_times(client, nodes, control):
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: client.publish("alert", events(3 * BLOCK_EVENTS)), range(8)))
    marks = read_marks(nodes)
    session = control.hget(keys.PRODUCER_SESSIONS.build("alert"), "gateway").decode()
    assert [mark for mark, _ in marks] == [OrderMark(session, place, place % 3 == 2) for place in range(24)]
    times = [time_us for _, time_us in marks]
    assert times == sorted(times) and len(set(times)) == 8, "the clock stands still, but calls differ"


def test_an_event_that_goes_back_in_time_is_rejected_and_nothing_is_stored(client, nodes):
    client.publish("alert", events(1, time=NOW_SECONDS + 5))
    with pytest.raises(MalformedEvent, match=r"time.*1700000005000000.*in_order") as refusal:
        client.publish("alert", events(1, time=NOW_SECONDS + 5))
    assert refusal.value.field == "time"
    client.publish("alert", events(1))
    assert [time_us - round(NOW_SECONDS * 1e6) for _, time_us in read_marks(nodes)] == [5_000_000, 5_000_001]


def test_after_a_failure_a_new_session_begins(client, nodes, control):
    client.publish("alert", events(1))
    before = control.hget(keys.PRODUCER_SESSIONS.build("alert"), "gateway")
    for node in nodes.values():
        node.kill()
    with pytest.raises(NoContainerAvailable):
        client.publish("alert", events(1))
    for node in nodes.values():
        node.start()
    client.publish("alert", events(1))
    after = control.hget(keys.PRODUCER_SESSIONS.build("alert"), "gateway")
    assert after != before
    assert OrderMark(after.decode(), 0, True) in [mark for mark, _ in read_marks(nodes)]


@pytest.mark.parametrize("is_control_down", [False, True])
def test_the_events_of_a_failed_call_can_be_published_again(client, nodes, control_server, is_control_down):
    client.publish("alert", events(1, time=NOW_SECONDS))
    if is_control_down:
        control_server.kill()
        client._orders["alert"].restart()  # the next call has to register its session, and fails twice
    for node in nodes.values():
        node.kill()
    with pytest.raises(NoContainerAvailable):
        client.publish("alert", events(1, time=NOW_SECONDS + 1))
    for node in nodes.values():
        node.start()
    with pytest.raises(MalformedEvent):
        client.publish("alert", events(1, time=NOW_SECONDS))
    client.publish("alert", events(1, time=NOW_SECONDS + 1))
    with pytest.raises(MalformedEvent):
        client.publish("alert", events(1, time=NOW_SECONDS + 1))


def test_the_events_of_a_call_that_could_not_be_encoded_can_be_published_again(client, nodes, monkeypatch):
    client.publish("alert", events(1, time=NOW_SECONDS))
    with monkeypatch.context() as patch:
        patch.setattr(producer_order, "cut", lambda *_: (_ for _ in ()).throw(MemoryError))
        with pytest.raises(MemoryError):
            client.publish("alert", events(1, time=NOW_SECONDS + 1))
    client.publish("alert", events(1, time=NOW_SECONDS + 1))
    marks = [mark for mark, _ in read_marks(nodes)]
    assert [mark.position for mark in marks] == [0, 1] and len({mark.session for mark in marks}) == 1


def test_a_session_is_registered_again_in_case_that_the_control_server_lost_it(control):
    times, key = Times(), keys.PRODUCER_SESSIONS.build("alert")
    order = ProducerOrder(control, "gateway", "alert", times)
    order.register()
    session = control.hget(key, "gateway")
    control.delete(key)
    times.now += REGISTRATION_SECONDS - 1
    order.register()
    assert not control.exists(key)
    times.now += 1
    order.register()
    assert control.hget(key, "gateway") == session
    order.restart()
    order.register()
    assert control.hget(key, "gateway") != session, "a new session is registered at once"


def test_a_session_stays_if_only_its_second_registration_fails(control, monkeypatch):
    times, key = Times(), keys.PRODUCER_SESSIONS.build("alert")
    order = ProducerOrder(control, "gateway", "alert", times)
    order.register()
    session = control.hget(key, "gateway")
    attempts = []
    with monkeypatch.context() as patch:
        patch.setattr(control, "pipeline", lambda **_: attempts.append(1) or (_ for _ in ()).throw(redis.TimeoutError))
        for _ in range(2):
            times.now += REGISTRATION_SECONDS
            order.register()
            order.register()
    assert len(attempts) == 2, "a call doesn't wait each time while the control server is unavailable"
    times.now += REGISTRATION_SECONDS
    control.delete(key)
    order.register()
    assert control.hget(key, "gateway") == session


def test_sessions_expire_two_days_after_the_last_registration(control):
    times, key = Times(), keys.PRODUCER_SESSIONS.build("alert")
    order = ProducerOrder(control, "gateway", "alert", times)
    for _ in range(2):
        order.register()
        assert SESSION_SECONDS - 60 < control.ttl(key) <= SESSION_SECONDS == 2 * 86_400
        control.expire(key, 100)
        times.now += REGISTRATION_SECONDS
