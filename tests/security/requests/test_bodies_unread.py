"""A body is read no further than its sender may send it, at any address, and no longer than it may take."""

import asyncio
import itertools
import threading

import pytest
from asgiref.sync import async_to_sync
from django.conf import settings
from django.db import connection

from console.accounts.access import Actor
from console.accounts.authentication import run_in_thread
from console.accounts.tokens import get_actor_quota
from console.api.ingestion import body_limit
from console.api.ingestion import events as publisher
from console.api.ingestion.body_limit import LARGE_OF_ONE, STRANGER_BYTES, Allowance, BodyLimit
from console.models import ApiToken
from tests.asgi import scope_of
from tests.security.requests.producing import ADDRESS
from tests.waiting import MAX_SECONDS

pytestmark = pytest.mark.django_db(transaction=True)
CHUNK = b"x" * 65_536
LARGE = 32 * 2**20
MIB = 2**20


class Sent:
    """One request to an ASGI application: what was read of its body, and the answer."""

    def __init__(self, path, size_bytes, announced=True, method="POST", **headers):
        self.left_bytes = size_bytes
        self.read_bytes = 0
        self.status, self.headers = 0, {}
        named = {"host": "testserver", "content-type": "application/x-www-form-urlencoded", **headers}
        if announced:
            named["content-length"] = str(size_bytes)
        self.scope = scope_of(method, path, named)

    async def receive(self):
        chunk = CHUNK[: self.left_bytes]
        self.left_bytes -= len(chunk)
        self.read_bytes += len(chunk)
        return {"type": "http.request", "body": chunk, "more_body": self.left_bytes > 0}

    async def send(self, message):
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}

    async def to(self, application):
        await application(self.scope, self.receive, self.send)
        return self


@pytest.fixture
def limit(plant_topology):
    """The console's own limit, in front of an application that reads all of a body."""
    yield BodyLimit(reading_all, allowed=body_limit.load_allowance)
    publisher._get_client.cache_clear()


async def reading_all(scope, receive, send):
    while (await receive())["more_body"]:
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})


ADDRESSES = ("/", "/login/", "/lab/begin", ADDRESS, "/api/v1/pipelines", "/nowhere", "/static/x", "/metrics")


@pytest.mark.parametrize("path", ADDRESSES)
async def test_32_mb_from_a_stranger_are_not_read_at_any_address(path, limit):
    announced = await Sent(path, LARGE).to(limit)
    assert (announced.status, announced.read_bytes) == (413, 0)
    streamed = await Sent(path, LARGE, announced=False).to(limit)
    assert (streamed.status, streamed.read_bytes) == (413, STRANGER_BYTES + len(CHUNK))


async def test_the_whole_console_stands_behind_the_limit(application, plant_topology):
    sent = await Sent(ADDRESS, LARGE).to(application)
    assert (sent.status, sent.read_bytes) == (413, 0)


@pytest.mark.parametrize(
    "header", ["Bearer weir_wrong", "Bearer", "Basic eDp5", "bearer \xff", "Bearer " + "x" * 9_000]
)
async def test_nor_with_a_token_that_is_none(header, limit):
    assert (await Sent(ADDRESS, LARGE, authorization=header).to(limit)).read_bytes == 0


async def test_a_producer_sends_32_mib_of_events_and_nothing_else(limit, secrets):
    bearer = f"Bearer {secrets['producer']}"
    assert (await Sent(ADDRESS, LARGE, authorization=bearer).to(limit)).status == 200
    assert (await Sent(ADDRESS, LARGE + 1, authorization=bearer).to(limit)).read_bytes == 0
    assert (await Sent("/api/v1/marks", MIB, authorization=bearer).to(limit)).read_bytes == 0


async def test_a_connection_to_the_database_that_broke_keeps_no_body_out(limit, secrets):
    bearer = f"Bearer {secrets['producer']}"
    assert (await Sent(ADDRESS, LARGE, authorization=bearer).to(limit)).status == 200

    def broken():
        connection.ensure_connection()
        connection.connection.close()

    await run_in_thread(broken)()
    assert (await Sent(ADDRESS, LARGE, authorization=bearer).to(limit)).status == 200


async def test_who_sends_a_body_is_asked_while_another_is_waited_for(limit, secrets, monkeypatch):
    both = threading.Barrier(2)

    def quota_after_both(actor):
        both.wait(MAX_SECONDS)
        return get_actor_quota(actor)

    monkeypatch.setattr(body_limit, "get_actor_quota", quota_after_both)
    bearer = f"Bearer {secrets['producer']}"
    sent = await asyncio.gather(*(Sent(ADDRESS, MIB, authorization=bearer).to(limit) for _ in range(2)))
    assert [each.status for each in sent] == [200, 200]


async def test_a_body_whose_sender_nobody_knows_in_time_is_not_read():
    async def nobody(scope):
        await asyncio.Event().wait()
        raise AssertionError

    sent = await Sent("/", MIB).to(BodyLimit(reading_all, allowed=nobody, asking_seconds=0.0))
    assert (sent.status, sent.read_bytes, sent.headers["retry-after"]) == (503, 0, "2")


async def test_a_viewer_sends_a_document_but_no_events(limit, secrets):
    bearer = f"Bearer {secrets['viewer']}"
    assert (await Sent("/api/v1/marks", MIB, authorization=bearer).to(limit)).status == 200
    assert (await Sent(ADDRESS, MIB + 1, authorization=bearer).to(limit)).read_bytes == 0


async def test_a_form_of_somebody_who_is_logged_in_is_taken_up_to_1_mib(limit, browsers):
    cookie = f"{settings.SESSION_COOKIE_NAME}={browsers['operator'].cookies[settings.SESSION_COOKIE_NAME].value}"
    assert (await Sent("/alerts/rules/change", MIB, cookie=cookie).to(limit)).status == 200
    assert (await Sent("/alerts/rules/change", MIB + 1, cookie=cookie).to(limit)).read_bytes == 0
    assert (await Sent("/lab/begin", 5 * MIB, cookie=cookie).to(limit)).status == 200


def test_a_token_over_its_quota_is_answered_so_before_its_body_is_read(limit, secrets, control):

    token = ApiToken.objects.get(name="of-producer")
    get_actor_quota(Actor("token:of-producer", "producer", token=token)).charge(10**8, 0)
    sent = async_to_sync(Sent(ADDRESS, LARGE, authorization=f"Bearer {secrets['producer']}").to)(limit)
    assert (sent.status, sent.read_bytes) == (429, 0)
    assert int(sent.headers["retry-after"]) > 900


async def everybody(scope):
    return Allowance(LARGE, "somebody")


async def test_a_body_that_does_not_arrive_in_time_ends():
    now = itertools.count(0.0, 15.0)
    sent = Sent("/", LARGE, announced=False)
    slow = BodyLimit(reading_all, allowed=everybody, clock=lambda: next(now))
    assert (await sent.to(slow)).status == 408
    assert sent.read_bytes < 10 * len(CHUNK)


async def test_one_sender_has_only_so_many_large_bodies_in_work():
    answers = []

    async def nested(scope, receive, send):
        await receive()
        if len(answers) <= LARGE_OF_ONE:
            answers.append(await Sent("/", MIB).to(limit))
        await send({"type": "http.response.start", "status": 200, "headers": []})

    limit = BodyLimit(nested, allowed=everybody)
    assert (await Sent("/", MIB).to(limit)).status == 200
    assert [each.status for each in answers] == [503] + [200] * (LARGE_OF_ONE - 1)
    assert limit.large.total() == 0
