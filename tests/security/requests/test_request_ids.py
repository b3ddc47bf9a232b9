"""An id of a request is ours, or a trusted proxy's: nobody else writes into the audit with it."""

from typing import Any

import pytest
from django.http import HttpResponse
from django.test import RequestFactory

from console.connections.client_addresses import parse_networks
from console.web.proxies import TrustedProxies
from console.web.request_id import RequestId

PROXY, CLIENT = "10.0.3.4", "192.0.2.7"
CHOSEN = "chosen-by-the-sender"


async def answered_id(peer: str, chosen: str, **more: str) -> str:
    """Return the id in the answer to a request of this peer."""
    answered: list[str] = []

    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        request = RequestFactory().get("/", headers={"X-Request-ID": chosen, **more})
        request.scope = scope
        middleware = RequestId(lambda request: HttpResponse())
        middleware.process_request(request)
        answered.append(middleware.process_response(request, HttpResponse())["X-Request-ID"])
        assert answered[0] == request.request_id

    headers = [(name.lower().encode(), value.encode()) for name, value in more.items()]
    scope = {"type": "http", "scheme": "http", "client": (peer, 5), "headers": headers}
    await TrustedProxies(application, parse_networks("10.0.3.0/24"))(scope, None, None)
    return answered[0]


async def test_a_trusted_proxy_chooses_the_id():
    assert await answered_id(PROXY, CHOSEN, **{"X-Forwarded-For": CLIENT}) == CHOSEN


@pytest.mark.parametrize("peer", [CLIENT, "127.0.0.1", "::1"])
async def test_nobody_else_chooses_the_id(peer):
    assert await answered_id(peer, CHOSEN) != CHOSEN
    assert await answered_id(peer, CHOSEN, **{"X-Forwarded-For": PROXY, "Forwarded": f"for={PROXY}"}) != CHOSEN


@pytest.mark.parametrize("chosen", ["short", "x" * 65, "with space in it", "<script>alert(1)</script>", ""])
async def test_an_odd_id_is_replaced(chosen):
    assert await answered_id(PROXY, chosen) not in ("", chosen)
