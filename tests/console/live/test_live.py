"""The websocket `/live/` on a real control server."""

import asyncio
from contextlib import asynccontextmanager

import orjson
import pytest
from channels.routing import URLRouter
from channels.sessions import CookieMiddleware
from django.contrib.auth.models import User
from django.db import OperationalError
from django.urls import path

from console.live.consumer import LiveConsumer
from console.live.fanout import QUEUE_MESSAGES, Fanout, Listener, LiveMessage
from console.live.view import find_view
from console.models import ApiToken
from queues import keys
from tests.console.conftest import sample_snapshot
from tests.console.live.sockets import Socket
from tests.waiting import MAX_SECONDS

pytestmark = pytest.mark.django_db(transaction=True)
HOST = (b"host", b"testserver")
OUR_ORIGIN = (b"origin", b"http://testserver")


def cookie_of(browser):
    return b"cookie", f"sessionid={browser.cookies['sessionid'].value}".encode()


def message_of(snapshot, delta):
    """What the observer publishes."""
    head = {"seq": snapshot["seq"], "at": snapshot["at"], "topic": "plant"}
    return orjson.dumps({**head, "snapshot": snapshot, "delta": delta})


def store(control, snapshot, delta):
    control.set(keys.SNAPSHOT, orjson.dumps(snapshot))
    control.publish(keys.LIVE, message_of(snapshot, delta))


@asynccontextmanager
async def opened(app, *headers, query=b""):
    socket = Socket(app, [HOST, *headers], query=query)
    assert await socket.connect()
    yield socket
    await socket.disconnect()


async def test_a_socket_gets_the_snapshot_first_and_then_every_delta(application, control, browsers, stored_snapshot):
    async with opened(application, OUR_ORIGIN, cookie_of(browsers["viewer"])) as socket:
        first = await socket.receive()
        assert first["snapshot"] == stored_snapshot
        assert (first["seq"], first["topic"]) == (1, "plant")
        for seq in (2, 3):
            store(control, {**stored_snapshot, "seq": seq}, {"seq": seq})
            delta = await socket.receive()
            assert (delta["seq"], delta["delta"]) == (seq, {"seq": seq})
            assert "snapshot" not in delta


async def test_a_flood_of_questions_gets_one_answer_a_snapshot(application, control, browsers, stored_snapshot):
    async with opened(application, OUR_ORIGIN, cookie_of(browsers["viewer"])) as socket:
        await socket.receive()
        for _ in range(500):
            await socket.send('{"ask": "snapshot"}')
        assert (await socket.receive())["snapshot"] == stored_snapshot
        store(control, {**stored_snapshot, "seq": 2}, {"seq": 2})
        assert (await socket.receive())["delta"] == {"seq": 2}
        await socket.send('{"ask": "snapshot"}')
        assert (await socket.receive())["snapshot"]["seq"] == 2


async def test_an_observers_first_message_reaches_the_sockets_as_a_snapshot(application, control, browsers):
    async with opened(application, OUR_ORIGIN, cookie_of(browsers["viewer"])) as socket:
        waiting = await socket.receive()
        assert waiting["at"] is None and waiting["silent_seconds"] >= 0
        store(control, sample_snapshot(), None)
        assert (await socket.receive())["snapshot"] == sample_snapshot()


async def test_an_observer_that_starts_anew_under_the_same_number_is_heard(
    application, control, browsers, stored_snapshot
):
    async with opened(application, OUR_ORIGIN, cookie_of(browsers["viewer"])) as socket:
        await socket.receive()
        anew = {**stored_snapshot, "at": stored_snapshot["at"] + 5}
        store(control, anew, None)
        assert (await socket.receive())["snapshot"] == anew


async def test_a_socket_gets_the_view_it_asks_for_packed_if_it_can(application, control, browsers, stored_snapshot):
    viewer = cookie_of(browsers["viewer"])
    async with opened(application, OUR_ORIGIN, viewer, query=b"of=flow&packed=1") as socket:
        narrow = find_view("flow").narrow(stored_snapshot)
        assert (await socket.receive())["snapshot"] == narrow != stored_snapshot
        change = {"nodes": {"n1": {"state": "BUSY", "raw": 0.8}}}
        store(control, {**stored_snapshot, "seq": 2}, change)
        assert (await socket.receive())["delta"] == {"nodes": {"n1": {"state": "BUSY"}}}


async def test_a_view_that_is_not_there_closes_the_socket(application, control, browsers, stored_snapshot):
    viewer = cookie_of(browsers["viewer"])
    async with opened(application, OUR_ORIGIN, viewer, query=b"of=everything") as socket:
        assert await socket.closing_code() == 4400


async def test_who_holds_a_snapshot_gets_the_deltas_since(control, control_server, snapshot):
    control.set(keys.SNAPSHOT, orjson.dumps(snapshot))
    fanout = Fanout(control_server.url, clock=lambda: snapshot["at"], monotonic=lambda: 0.0)
    first = await fanout.join()
    await next_of(first)
    for seq in (2, 3, 4):
        later = {**snapshot, "seq": seq, "at": snapshot["at"] + seq}
        store(control, later, {"seq": seq})
        await next_of(first)
    await fanout.leave(first)  # as a browser does on its way to the next page
    again = await fanout.join(after=(2, snapshot["at"] + 2))
    assert [(await next_of(again))["delta"] for _ in range(2)] == [{"seq": 3}, {"seq": 4}]
    newest = await fanout.join(after=(4, snapshot["at"] + 4))
    store(control, {**snapshot, "seq": 5, "at": snapshot["at"] + 5}, {"seq": 5})
    assert (await next_of(newest))["delta"] == {"seq": 5}


@pytest.mark.parametrize("after", [(1, 7.0), (900, 1.0)])
async def test_who_holds_a_snapshot_of_another_observer_gets_the_whole(control, control_server, snapshot, after):
    control.set(keys.SNAPSHOT, orjson.dumps(snapshot))
    fanout = Fanout(control_server.url, clock=lambda: snapshot["at"], monotonic=lambda: 0.0)
    assert (await next_of(await fanout.join(after=after)))["snapshot"] == snapshot


@pytest.mark.parametrize("origin", [b"http://elsewhere", b"http://testserver.elsewhere", b"null", None])
async def test_another_pages_origin_is_refused_before_the_handshake(application, control, browsers, origin):
    headers = [HOST, cookie_of(browsers["viewer"])] + ([(b"origin", origin)] if origin else [])
    assert not await Socket(application, headers).connect()


def log_out(browser, person):
    browser.post("/logout/")


def change_password(browser, person):
    person.set_password("quite another pass phrase")
    person.save()


def take_role(browser, person):
    person.groups.clear()


def deactivate(browser, person):
    User.objects.filter(pk=person.pk).update(is_active=False)


@pytest.mark.parametrize(
    ("end", "code"), [(log_out, 4401), (change_password, 4401), (deactivate, 4401), (take_role, 4403)]
)
async def test_an_open_socket_is_closed_when_its_session_ends(control, browsers, people, stored_snapshot, end, code):
    app = CookieMiddleware(URLRouter([path("live/", LiveConsumer.as_asgi(recheck_seconds=0.05))]))
    async with opened(app, OUR_ORIGIN, cookie_of(browsers["viewer"])) as socket:
        assert "snapshot" in await socket.receive()
        await asyncio.to_thread(end, browsers["viewer"], people["viewer"])
        assert await socket.closing_code() == code


class Unanswering(LiveConsumer):
    """Whose database answers the first question, and of the others all but those in `failing`."""

    def __init__(self, failing, **options):
        super().__init__(**options)
        self.failing, self.asked = failing, 0

    def _identify_actor(self):
        self.asked += 1
        if self.failing(self.asked):
            raise OperationalError("the connection is lost")
        return super()._identify_actor()


async def test_a_database_that_was_away_for_one_question_is_asked_again_and_the_socket_closed_then(
    control, browsers, people, stored_snapshot
):
    consumer = Unanswering.as_asgi(recheck_seconds=0.05, failing=lambda asked: asked == 2)
    app = CookieMiddleware(URLRouter([path("live/", consumer)]))
    async with opened(app, OUR_ORIGIN, cookie_of(browsers["viewer"])) as socket:
        assert "snapshot" in await socket.receive()
        await asyncio.to_thread(deactivate, browsers["viewer"], people["viewer"])
        assert await socket.closing_code() == 4401


async def test_a_socket_whose_holder_can_not_be_asked_about_any_more_is_closed(control, browsers, stored_snapshot):
    consumer = Unanswering.as_asgi(recheck_seconds=0.05, failing=lambda asked: asked > 1)
    app = CookieMiddleware(URLRouter([path("live/", consumer)]))
    async with opened(app, OUR_ORIGIN, cookie_of(browsers["viewer"])) as socket:
        assert await socket.closing_code() == 1011


async def test_an_open_socket_is_closed_when_its_token_is_revoked(control, secrets, stored_snapshot):
    app = CookieMiddleware(URLRouter([path("live/", LiveConsumer.as_asgi(recheck_seconds=0.05))]))
    async with opened(app, (b"authorization", f"Bearer {secrets['viewer']}".encode())) as socket:
        assert "snapshot" in await socket.receive()
        await ApiToken.objects.filter(name="of-viewer").aupdate(revoked_at="2026-01-01T00:00:00Z")
        assert await socket.closing_code() == 4401


async def until_seq(listener, seq):
    """Until it is sent that snapshot."""
    async with asyncio.timeout(MAX_SECONDS):
        while (await next_of(listener)).get("seq") != seq:
            pass


async def next_of(listener):
    return orjson.loads(await asyncio.wait_for(listener.take_next(), MAX_SECONDS))


async def test_an_old_snapshot_is_sent_as_old_each_second(control, control_server, snapshot):
    control.set(keys.SNAPSHOT, orjson.dumps(snapshot))
    fanout = Fanout(control_server.url, clock=lambda: snapshot["at"] + 14.0, monotonic=lambda: 0.0)
    listener = await fanout.join()
    assert (await next_of(listener))["snapshot"] == snapshot
    said = await next_of(listener)
    assert said == {"topic": "plant", "at": snapshot["at"], "silent_seconds": 14.0}
    await fanout.leave(listener)


async def test_a_wall_clock_that_jumps_makes_no_silence(control, control_server, snapshot):
    now_seconds = [snapshot["at"]]
    fanout = Fanout(control_server.url, clock=lambda: now_seconds[0], monotonic=lambda: 0.0)
    listener = await fanout.join()
    await next_of(listener)  # that there is nothing yet
    store(control, snapshot, None)
    await next_of(listener)
    now_seconds[0] += 86_400
    store(control, {**snapshot, "seq": 2}, {"seq": 2})
    assert (await next_of(listener))["delta"] == {"seq": 2}
    await fanout.leave(listener)


async def test_a_silence_is_as_long_where_the_clock_is_behind_the_observers(control, control_server, snapshot):
    control.set(keys.SNAPSHOT, orjson.dumps(snapshot))
    elapsed = [0.0]
    fanout = Fanout(control_server.url, lambda: snapshot["at"] - 600.0, lambda: elapsed[0])
    listener = await fanout.join()
    assert (await next_of(listener))["seq"] == 1
    elapsed[0] = 20.0  # it is followed anew meanwhile, and the stored snapshot is the same
    assert (await next_of(listener))["silent_seconds"] == 20.0
    elapsed[0] = 35.0
    async with asyncio.timeout(MAX_SECONDS):
        while (await next_of(listener))["silent_seconds"] != 35.0:
            pass
    await fanout.leave(listener)


async def test_the_fanout_follows_again_after_the_control_server_was_killed(control, control_server, snapshot):
    control.set(keys.SNAPSHOT, orjson.dumps(snapshot))
    fanout = Fanout(control_server.url, clock=lambda: snapshot["at"], monotonic=lambda: 0.0)
    listener = await fanout.join()
    await next_of(listener)
    await asyncio.to_thread(control_server.kill)
    await asyncio.to_thread(control_server.start)
    newer = {**snapshot, "seq": 9}
    control.set(keys.SNAPSHOT, orjson.dumps(newer))
    await until_seq(listener, 9)
    await fanout.leave(listener)


@pytest.mark.parametrize("said", [b"{", b"[]", b'{"seq": 2}'])
async def test_what_no_socket_can_be_sent_ends_the_fanout_for_nobody(said, control, control_server, snapshot):
    control.set(keys.SNAPSHOT, orjson.dumps(snapshot))
    fanout = Fanout(control_server.url, clock=lambda: snapshot["at"], monotonic=lambda: 0.0)
    listener = await fanout.join()
    assert (await next_of(listener))["seq"] == 1
    control.publish(keys.LIVE, said)
    newer = {**snapshot, "seq": 9}
    control.set(keys.SNAPSHOT, orjson.dumps(newer))
    await until_seq(listener, 9)
    await fanout.leave(listener)


async def test_a_fanout_without_a_control_server_sends_silence_instead_of_failing(unused_tcp_port):
    fanout = Fanout(f"redis://127.0.0.1:{unused_tcp_port}/0")
    listener = await fanout.join()
    assert (await next_of(listener))["at"] is None
    await fanout.leave(listener)


async def test_a_slow_listener_loses_the_oldest_only():
    listener = Listener()
    for number in range(QUEUE_MESSAGES + 3):
        listener.put(LiveMessage({"seq": number}))
    assert [await listener.take_next() for _ in range(QUEUE_MESSAGES)] == [
        LiveMessage({"seq": number}).text for number in range(3, QUEUE_MESSAGES + 3)
    ]
