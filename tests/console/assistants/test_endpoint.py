"""The door of assistants: what is no POST with a token is refused, and a slow one keeps nobody waiting."""

import asyncio
import threading
from typing import Any

import orjson
import pytest
from django.db import OperationalError

from console.accounts import authentication
from console.assistants import endpoint
from console.assistants.endpoint import AssistantEndpoint
from console.web.refusal import RequestRefused
from tests.waiting import MAX_SECONDS


async def asked(method: str = "POST", headers: Any = (), body: Any = ({"type": "http.request"},)) -> list[Any]:
    """What is sent back."""
    sent: list[Any] = []
    messages = iter(body)

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "path": "/mcp", "method": method, "headers": list(headers)}
    await AssistantEndpoint(None)(scope, receive, send)
    return sent


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", [(b"authorization", b"Bearer x")], 405),  # it would wait for ever, in a place of its own
        ("DELETE", [], 405),
        ("POST", [(b"origin", b"http://elsewhere")], 403),
        ("POST", [(b"cookie", b"sessionid=1")], 401),
    ],
)
def test_what_is_no_post_with_a_token_is_refused(method, headers, status):
    assert asyncio.run(asked(method, headers))[0]["status"] == status


@pytest.mark.django_db(transaction=True)
def test_while_the_database_does_not_answer_it_says_so(monkeypatch):
    def away(*asked: Any) -> Any:
        raise OperationalError("the connection is lost")

    monkeypatch.setattr(authentication, "find_token_actor", away)
    start, body = asyncio.run(asked(headers=[(b"authorization", b"Bearer weir_x")]))
    assert (start["status"], dict(start["headers"])[b"retry-after"]) == (503, b"2")
    assert "database" in orjson.loads(body["body"])["detail"]


def test_one_that_takes_long_keeps_no_other_waiting(monkeypatch):
    """Each works in a thread of its own: with one for all, the second would wait for the first."""
    is_other_served = threading.Event()

    def actor(scope: Any) -> Any:
        if scope["headers"]:
            assert is_other_served.wait(MAX_SECONDS)
        else:
            is_other_served.set()
        raise RequestRefused(401, "is missing", field="authorization")

    monkeypatch.setattr(endpoint, "_authenticate_caller", actor)

    async def both() -> list[Any]:
        slow = asyncio.create_task(asked(headers=[(b"x", b"slow")]))
        await asyncio.sleep(0)
        return [*await asked(), *await slow]

    assert [each["status"] for each in asyncio.run(both()) if "status" in each] == [401, 401]


def test_who_has_left_is_not_answered(monkeypatch):
    monkeypatch.setattr(endpoint, "_authenticate_caller", lambda scope: None)
    assert asyncio.run(asked(body=[{"type": "http.disconnect"}])) == []
