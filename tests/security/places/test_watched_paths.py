"""What anybody may ask without a login costs a bounded part of a process, however many ask."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.utils import timezone

from console.accounts import authentication
from console.assistants.endpoint import AssistantEndpoint
from console.pages.health.readiness import ReadinessPart, SharedReadiness
from console.web.admission import Admission
from tests.security.places.test_slow_readers import SOMEBODY, ask, slow_readers
from tests.virtual_time import in_virtual_time

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
