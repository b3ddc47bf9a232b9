"""Where a request comes from, and its id: headers are believed from trusted proxies only."""

import http.client
from contextlib import closing

import pytest
from django.http import HttpResponse
from django.test import RequestFactory

from console.connections.client_addresses import parse_networks
from console.web.proxies import TrustedProxies
from console.web.request_id import RequestId
from tests.waiting import MAX_SECONDS

PROXY, CLIENT = "10.0.3.4", "192.0.2.7"


def seen(peer, *forwarded, proto=None, trusted="10.0.3.0/24"):
    headers = [(b"x-forwarded-for", each.encode()) for each in forwarded]
    headers += [(b"x-forwarded-proto", proto.encode())] if proto else []
    scope = {"type": "http", "scheme": "http", "client": peer and (peer, 5), "headers": headers}
    result = TrustedProxies(None, parse_networks(trusted)).rewrite_scope(scope)
    return result["client"] and result["client"][0], result["scheme"]


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        (CLIENT, ["203.0.113.5"], CLIENT),  # no proxy of ours
        ("127.0.0.1", ["203.0.113.5"], "127.0.0.1"),
        (PROXY, [CLIENT], CLIENT),
        (PROXY, [f"203.0.113.5, {CLIENT}"], CLIENT),  # the client's own invention stands left
        (PROXY, [f"203.0.113.5, {CLIENT}, 10.0.3.9"], CLIENT),  # two of ours
        (PROXY, [f"{CLIENT}:4711"], CLIENT),
        (PROXY, ["[2001:db8::1]:4711"], "2001:db8::1"),
        (PROXY, ["unknown, 10.1.1.1"], "10.1.1.1"),  # Squid and Apache write "unknown" for a hidden client
        (PROXY, ["10.1.1.1, unknown"], PROXY),
        (PROXY, ["::ffff:192.0.2.7"], CLIENT),
        (PROXY, [f"{CLIENT}, nonsense"], PROXY),
        (PROXY, [""], PROXY),
        (PROXY, [], PROXY),
        (PROXY, ["10.0.3.9"], "10.0.3.9"),
        ("::ffff:10.0.3.4", [CLIENT], CLIENT),
        ("fe80::1%eth0", [CLIENT], "fe80::1"),  # no database takes the name of an interface
        (PROXY, ["fe80::1%eth0"], "fe80::1"),
        (None, [CLIENT], None),
    ],
)
def test_the_client_is_the_right_most_hop_that_is_no_proxy_of_ours(peer, forwarded, client):
    assert seen(peer, *forwarded)[0] == client


def test_https_is_believed_from_a_trusted_proxy_only():
    assert seen(PROXY, CLIENT, proto="https")[1] == "https"
    assert seen(CLIENT, proto="https")[1] == "http"
    assert seen(PROXY, CLIENT, proto="https", trusted="")[1] == "http"


def test_a_network_that_is_none_is_refused():
    with pytest.raises(ValueError):
        parse_networks("10.0.3.0/24 everybody")


def test_the_served_console_believes_no_header_of_a_peer_on_its_own_host(served):
    """uvicorn would believe 127.0.0.1 by itself: metrics are for this machine, and say whom they see."""
    with closing(http.client.HTTPConnection("127.0.0.1", served.port, timeout=MAX_SECONDS)) as connection:
        headers = {"X-Forwarded-For": "203.0.113.5", "Authorization": "Bearer weir_none"}
        for _ in range(41):  # 20 a minute: two minutes may have begun meanwhile
            connection.request("GET", "/api/v1/loops", headers=headers)
            answer = connection.getresponse()
            answer.read()
            if answer.status == 429:
                break
        assert answer.status == 429
        connection.request("GET", "/api/v1/loops", headers={**headers, "X-Forwarded-For": "203.0.113.6"})
        assert connection.getresponse().status == 429


PROXY, CLIENT = "10.0.3.4", "192.0.2.7"
CHOSEN = "chosen-by-the-sender"


async def answered_id(peer, chosen, **more):
    """Return the id in the answer to a request of this peer."""
    answered = []

    async def application(scope, receive, send):
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
