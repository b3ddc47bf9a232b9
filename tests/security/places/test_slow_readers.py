"""Whoever reads an answer slowly, or asks too often from one address, shuts nobody else out."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from unittest.mock import AsyncMock

import pytest
from django.core.handlers.asgi import ASGIHandler
from django.http import StreamingHttpResponse
from django.test import Client
from django.utils import timezone

from console.accounts import authentication
from console.actions import exports
from console.assistants import endpoint
from console.assistants.endpoint import AssistantEndpoint
from console.pages.health.readiness import ReadinessPart, SharedReadiness
from console.web import admission
from console.web.admission import LINES, Admission, choose_waiting_line, claim, compute_credential_digest
from console.web.refusal import RequestRefused
from console.web.slow_reader import PATIENCE_SECONDS, Reader, ReaderLeft
from tests.virtual_time import in_virtual_time
from tests.waiting import MAX_SECONDS

ATTACKER, SOMEBODY = "198.51.100.9", "203.0.113.7"
MANY = 60


async def answer(scope, receive, send):
    """An application whose answer is larger than what a connection takes unread."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def reads_nothing(message):
    if message["type"] == "http.response.body":
        await asyncio.Event().wait()


async def ask(application, path, address, send, *headers):
    messages = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive():
        for message in messages:
            return message
        return await asyncio.Event().wait()

    scope = {"type": "http", "http_version": "1.1", "method": "GET", "path": path, "scheme": "http"}
    peer = {"client": (address, 40_000), "server": ("testserver", 80), "headers": [(b"host", b"testserver"), *headers]}
    await application({**scope, **peer, "raw_path": path.encode(), "query_string": b""}, receive, send)


async def status(application, path, address=SOMEBODY):
    """What somebody who reads gets, at once."""
    found = []

    async def send(message):
        found.extend([message["status"]] if "status" in message else [])

    began = asyncio.get_running_loop().time()
    await ask(application, path, address, send)
    assert asyncio.get_running_loop().time() == began, "a place was waited for"
    return found[0]


@asynccontextmanager
async def slow_readers(application, path, address=ATTACKER, many=MANY):
    tasks = [asyncio.create_task(ask(application, path, address.format(at), reads_nothing)) for at in range(many)]
    for _ in range(20):
        await asyncio.sleep(0)
    yield tasks
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("path", ["/static/weir.css", "/login/", "/api/v1/snapshot", "/readyz", "/healthz"])
@in_virtual_time
async def test_one_address_that_reads_nothing_leaves_places_for_others(path):
    application = Admission(answer)
    async with slow_readers(application, path):
        assert [await status(application, each) for each in (path, "/", "/static/a.js", "/healthz")] == [200] * 4


@in_virtual_time
async def test_one_customer_of_a_provider_has_many_ipv6_addresses_and_counts_as_one():
    application = Admission(answer)
    async with slow_readers(application, "/login/", "2001:db8:0:1::{:x}"):
        assert await status(application, "/login/", "2001:db8:0:2::1") == 200


@asynccontextmanager
async def slow_person(application, path, credentials, many):
    """Read nothing of many answers as one person, from four addresses and with these credentials by turns."""
    refused = []

    async def reads_no_body(message):
        refused.extend([message["status"]] if message.get("status", 200) >= 400 else [])
        await reads_nothing(message)

    tasks = [
        asyncio.create_task(
            ask(application, path, f"198.51.100.{at % 4}", reads_no_body, credentials[at % len(credentials)])
        )
        for at in range(many)
    ]
    for _ in range(40):
        await asyncio.sleep(0)
    yield refused
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def answer_the_viewer(scope, receive, send):
    """An application that finds every credential to be the viewer's."""
    while (await receive()).get("more_body"):
        pass
    if compute_credential_digest(scope):
        claim(scope, "person:viewer")
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


TOKENS = [(b"authorization", b"Bearer weir_%d" % number) for number in range(40)]
SESSIONS = [(b"cookie", b"csrftoken=x; weir_session=%d" % number) for number in range(40)]


@pytest.mark.parametrize(
    "credentials",
    [TOKENS[:1], SESSIONS[:1], [TOKENS[0], SESSIONS[0]], TOKENS + SESSIONS],
    ids=["one token", "one session", "token and session", "many of both"],
)
@pytest.mark.parametrize("path", ["/", "/api/v1/snapshot", "/api/v1/ledger/export", "/mcp"])
@in_virtual_time
async def test_one_person_that_reads_nothing_leaves_places_for_others(path, credentials, settings):
    settings.SESSION_COOKIE_NAME = "weir_session"
    application = Admission(answer_the_viewer)
    for _ in range(2):  # the second time the process knows whose the credentials are
        async with slow_person(application, path, credentials, 16):
            assert [await status(application, each) for each in (path, "/", "/healthz")] == [200] * 3
        assert not application.at_work.total() and not application.at_work_of


async def test_a_person_who_waits_for_answers_is_not_refused_once_known():
    application = Admission(answer_the_viewer)
    await ask(application, "/api/v1/snapshot", SOMEBODY, AsyncMock(), TOKENS[0])
    async with slow_person(application, "/api/v1/snapshot", TOKENS[:1], 12) as refused:
        assert refused == []
        assert application.at_work["programs"] == 4 and len(application.waiting["programs"]) == 8


@in_virtual_time
async def test_exports_keep_nobody_from_the_api():
    application = Admission(answer)
    async with slow_readers(application, "/api/v1/audit/export", "198.51.100.{}"):
        assert application.at_work["exports"] == 4
        assert await status(application, "/api/v1/snapshot") == 200


@pytest.mark.django_db
def test_sessions_tokens_and_assistants_are_counted_for_their_person(browsers, secrets, stored_snapshot, monkeypatch):
    claimed = []

    def refuse(scope, person):
        claimed.append(person)
        raise RequestRefused(429, "you have too many requests at work at once.", 1, field="")

    monkeypatch.setattr(admission, "claim", refuse)
    token = {"HTTP_AUTHORIZATION": f"Bearer {secrets['viewer']}"}
    answers = [
        browsers["viewer"].get("/nodes/"),
        browsers["viewer"].get("/api/v1/loops"),
        Client().get("/api/v1/loops", **token),
    ]
    assert [(each.status_code, each["Retry-After"]) for each in answers] == [(429, "1")] * 3
    scope = {"headers": [(b"authorization", f"Bearer {secrets['viewer']}".encode())], "client": (SOMEBODY, 5)}
    with pytest.raises(RequestRefused):
        endpoint._authenticate_caller(scope)
    assert len(claimed) == 4 and len(set(claimed)) == 1


@in_virtual_time
async def test_readers_of_files_from_everywhere_keep_nobody_from_the_pages():
    application = Admission(answer)
    async with slow_readers(application, "/static/weir.css", "198.51.100.{}"):
        assert await status(application, "/") == 200


@pytest.mark.parametrize("line", LINES)
@in_virtual_time
async def test_who_reads_nothing_is_let_go_and_the_next_is_served(line):
    paths = ("/", "/api/v1/ledger", "/audit/export", "/static/a.js", "/readyz", "/healthz")
    path = next((each for each in paths if choose_waiting_line({"method": "GET", "path": each}) == line.name), "/")
    application = Admission(answer)
    async with slow_readers(application, path, "198.51.100.{}", many=line.at_work) as tasks:
        assert application.at_work.total()
        began = asyncio.get_running_loop().time()
        await asyncio.wait(tasks)
        assert asyncio.get_running_loop().time() - began < 1.5 * PATIENCE_SECONDS
        assert all(task.exception() is None for task in tasks)
        assert not application.at_work.total() and not application.at_work_of


@pytest.mark.parametrize(("bytes_per_second", "is_read"), [(12_000, True), (4_000, False)])
@in_virtual_time
async def test_a_long_export_goes_on_as_long_as_its_reader_takes_it(bytes_per_second, is_read):
    seconds, piece = [0.0], b"x" * 32_768

    async def slowly(message):
        seconds[0] += len(message["body"]) / bytes_per_second

    reader = Reader(slowly, clock=lambda: seconds[0])
    message = {"type": "http.response.body", "body": piece, "more_body": True}
    if is_read:
        for _ in range(200):
            await reader.send(message)
        assert seconds[0] > 20 * PATIENCE_SECONDS
        return
    with pytest.raises(ReaderLeft):
        for _ in range(200):
            await reader.send(message)


@in_virtual_time
async def test_what_lies_in_buffers_buys_no_time():
    """Megabytes are taken at once by the network's buffers, and then nothing is read."""
    pieces = iter(range(100))

    async def stuck_after_many(message):
        if next(pieces, None) is None:
            await asyncio.Event().wait()

    reader = Reader(stuck_after_many)
    message = {"type": "http.response.body", "body": b"x" * 4_096, "more_body": True}
    for _ in range(100):
        await reader.send(message)
    began = asyncio.get_running_loop().time()
    with pytest.raises(ReaderLeft):
        await reader.send(message)
    waited = asyncio.get_running_loop().time() - began
    assert waited < PATIENCE_SECONDS + 1, "70 s, if what was sent were read"


@in_virtual_time
async def test_the_time_in_which_an_answer_is_made_is_not_its_readers():
    seconds = [0.0]

    async def at_once(message):
        pass

    reader = Reader(at_once, clock=lambda: seconds[0])
    for _ in range(5):
        seconds[0] += 10 * PATIENCE_SECONDS
        await reader.send({"type": "http.response.body", "body": b"x", "more_body": True})


@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume")
async def test_django_closes_an_export_whose_reader_has_left(settings):
    """Its audit's end is written, and its thread and its database connection are free."""
    settings.ALLOWED_HOSTS = ["*"]
    closed = asyncio.Event()

    def pieces():
        try:
            while True:
                yield "x" * 65_536
        finally:
            loop.call_soon_threadsafe(closed.set)

    class Export(ASGIHandler):
        async def run_get_response(self, request):
            return StreamingHttpResponse(exports._iterate_asynchronously(pieces()))

    loop = asyncio.get_running_loop()
    application = Admission(Export(), reading_seconds=0.05)
    async with asyncio.timeout(MAX_SECONDS):
        await ask(application, "/audit/export", SOMEBODY, reads_nothing)
        await closed.wait()
    assert not application.at_work.total()


OK = {"database": ReadinessPart(True, 0.0, "answers")}


@in_virtual_time
@pytest.mark.parametrize(("path", "most"), [("/readyz", 4), ("/metrics", 4), ("/healthz", 4), ("/mcp", 6)])
async def test_of_a_flood_from_everywhere_few_are_at_work_and_few_wait(path, most):
    working, go = [], asyncio.Event()

    async def answer(scope, receive, send):
        await receive()
        working.append(scope["path"])
        await go.wait()

    application = Admission(answer)
    async with slow_readers(application, path, "198.51.100.{}", many=200):
        assert len(working) == most
        assert sum(map(len, application.waiting.values())) <= 64
        assert application.refused.total() >= 200 - most - 64
        assert path == "/healthz" or await _is_served(application, go)


async def _is_served(application, go):
    """Whether who asks for a page beside the flood gets to work."""
    task = asyncio.create_task(ask(application, "/", SOMEBODY, None))
    await asyncio.sleep(0)
    go.set()
    await asyncio.wait([task])
    return True


def test_however_many_ask_readiness_is_found_once_a_second():
    found, seconds, begun = [], [0.0], threading.Event()

    def find(now):
        found.append(now)
        begun.wait()
        return OK

    shared = SharedReadiness(find, clock=lambda: seconds[0], retained_seconds=1.0)
    with ThreadPoolExecutor(8) as threads:
        answers = [threads.submit(shared.list_parts, timezone.now()) for _ in range(100)]
        begun.set()
        assert all(each.result() == OK for each in answers)
    assert len(found) == 1
    seconds[0] = 1.1
    shared.list_parts(timezone.now())
    assert len(found) == 2


@in_virtual_time
async def test_no_token_is_searched_for_an_assistant_that_finds_no_place(monkeypatch):
    looked_up = []
    monkeypatch.setattr(authentication, "authenticate_token", lambda *said: looked_up.append(said))
    application = Admission(AssistantEndpoint(None), at_once=0)

    async def post(path):
        sent = []

        async def send(message):
            sent.extend([message["status"]] if "status" in message else [])

        async def receive():
            return {"type": "http.request", "body": b"{}", "more_body": False}

        headers = [(b"authorization", b"Bearer weir_made_up")]
        scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
        await application({**scope, "client": (SOMEBODY, 1)}, receive, send)
        return sent[0]

    assert await post("/mcp") == 429 and not looked_up
    application.at_once = 12
    assert await post("/mcp") == 401 and looked_up
