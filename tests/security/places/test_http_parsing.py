"""Requests that two programs could read differently: the web process refuses them, or reads one request."""

import re
import socket
from contextlib import suppress

import pytest

from tests.waiting import MAX_SECONDS

HOST = b"Host: localhost\r\n"
SMUGGLED = b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n"
CHUNKED, LAST_CHUNK = b"Transfer-Encoding: chunked", b"0\r\n\r\n" + SMUGGLED


def exchange(port, sent, source="127.0.0.1", silence_seconds=MAX_SECONDS, rest_seconds=MAX_SECONDS):
    """Return what is answered to these bytes, until the server closes the connection or is silent so long.

    rest_seconds: the same once it has begun to answer.
    """
    answer = b""
    with socket.create_connection(("127.0.0.1", port), MAX_SECONDS, source_address=(source, 0)) as connection:
        connection.sendall(sent)
        connection.settimeout(silence_seconds)
        try:
            while piece := connection.recv(65_536):
                answer += piece
                connection.settimeout(rest_seconds)
        except (TimeoutError, ConnectionResetError):
            pass
    return answer


def statuses(answer):
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]


def post(*headers, body=b"", path=b"/login/"):
    return b"POST " + path + b" HTTP/1.1\r\n" + HOST + b"".join(each + b"\r\n" for each in headers) + b"\r\n" + body


REFUSED = {
    "length and chunked": post(b"Content-Length: 6", CHUNKED, body=LAST_CHUNK),
    "chunked and length": post(CHUNKED, b"Content-Length: 4", body=b"5c\r\n" + SMUGGLED),
    "two codings": post(b"Transfer-Encoding: chunked, identity", body=LAST_CHUNK),
    "an unknown coding": post(b"Transfer-Encoding: xchunked", b"Content-Length: 4", body=LAST_CHUNK),
    "two fields of coding": post(
        b"Transfer-Encoding: identity", b"Transfer-Encoding: chunked", b"Content-Length: 4", body=LAST_CHUNK
    ),
    "a coding with a tab": post(b"Transfer-Encoding:\tchunked", b"Content-Length: 4", body=LAST_CHUNK),
    "two lengths": post(b"Content-Length: 0", b"Content-Length: 44", body=SMUGGLED),
    "two equal lengths": post(b"Content-Length: 4", b"Content-Length: 4", body=b"a=bc" + SMUGGLED),
    "a list of lengths": post(b"Content-Length: 4, 4", body=b"a=bc" + SMUGGLED),
    "a signed length": post(b"Content-Length: +4", body=b"a=bc" + SMUGGLED),
    "a length in hex": post(b"Content-Length: 0x4", body=b"a=bc" + SMUGGLED),
    "a length beyond 64 bits": post(b"Content-Length: 18446744073709551617", body=b"a" + SMUGGLED),
    "a space before the colon": post(b"Content-Length : 4", body=b"a=bc" + SMUGGLED),
    "a folded header": post(b"X-A: b\r\n Content-Length: 4", body=b"a=bc" + SMUGGLED),
    "a folded coding": post(b"Transfer-Encoding:\r\n chunked", body=LAST_CHUNK),
    "a chunk that is too long": post(CHUNKED, body=b"10000000000000001\r\na\r\n0\r\n\r\n" + SMUGGLED),
    "a signed chunk": post(CHUNKED, body=b"-1\r\na\r\n0\r\n\r\n" + SMUGGLED),
    "a chunk without its end": post(CHUNKED, body=b"1\r\naX0\r\n\r\n" + SMUGGLED),
    "a carriage return in a header": post(b"X-A: b\rContent-Length: 4", body=b"a=bc" + SMUGGLED),
    "a NUL in a header": post(b"X-A: b\x00c", body=SMUGGLED),
    "a header without a name": post(b": b", body=SMUGGLED),
    "a line feed alone": b"POST /login/ HTTP/1.1\nHost: localhost\nContent-Length: 0\n\n" + SMUGGLED,
    "a line feed in a chunk": post(CHUNKED, body=b"1\na\n0\n\n" + SMUGGLED),
    "a chunk extension with a line feed": post(CHUNKED, body=b"1;a\nb\r\na\r\n0\r\n\r\n" + SMUGGLED),
    "another version": b"GET / HTTP/1.2\r\n" + HOST + b"\r\n" + SMUGGLED,
    "HTTP/2's preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SMUGGLED,
    "no target": b"GET  HTTP/1.1\r\n" + HOST + b"\r\n" + SMUGGLED,
    "an authority": b"CONNECT 127.0.0.1:22 HTTP/1.1\r\n" + HOST + b"\r\n" + SMUGGLED,
}
ANSWERED = {
    "an asterisk": b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n" + SMUGGLED,
    "two hosts": b"GET /login/ HTTP/1.1\r\n" + HOST + b"Host: evil.example\r\n\r\n" + SMUGGLED,
    "no host": b"GET /login/ HTTP/1.1\r\n\r\n" + SMUGGLED,
    "another host in the target": b"GET http://evil.example/login/ HTTP/1.1\r\n" + HOST + b"\r\n" + SMUGGLED,
    "after close": b"GET /healthz HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n" + SMUGGLED,
}
# Ends the connection, so that no test waits until the server does.
LAST = b"GET /healthz HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"
BODIES = {
    "a length": (b"Content-Length: %d" % len(SMUGGLED), SMUGGLED),
    "chunked": (b"Transfer-Encoding: chunked", b"%x\r\n" % len(SMUGGLED) + SMUGGLED + b"\r\n0\r\n\r\n"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_request_that_can_be_read_in_two_ways_is_refused_and_ends_its_connection(served, case):
    assert statuses(exchange(served.port, REFUSED[case])) == [400]


@pytest.mark.parametrize("case", ANSWERED)
def test_what_follows_a_request_is_read_once(served, case):
    first, *rest = statuses(exchange(served.port, ANSWERED[case] + LAST))
    assert (first, rest) in [(404, [200, 200]), (400, [200, 200]), (200, [200, 200]), (200, [])]


@pytest.mark.parametrize("upgrade", [b"h2c", b"other", b"websocket", b"h2c, websocket", b"WebSocket"])
@pytest.mark.parametrize("method", [b"POST", b"GET"])
@pytest.mark.parametrize("body", BODIES)
def test_the_body_of_a_request_with_an_upgrade_is_no_second_request(served, upgrade, method, body):
    """The parser stops at an Upgrade, and would read what comes later as another request."""
    header, content = BODIES[body]
    head = method + b" /login/ HTTP/1.1\r\n" + HOST + b"Connection: Upgrade\r\nUpgrade: " + upgrade
    with socket.create_connection(("127.0.0.1", served.port), MAX_SECONDS) as connection:
        connection.sendall(head + b"\r\n" + header + b"\r\n\r\n")
        answer = connection.recv(65_536)  # the server has read the head before the body comes
        with suppress(ConnectionError):
            connection.sendall(content)
            while piece := connection.recv(65_536):
                answer += piece
    assert statuses(answer) == [400]


def test_a_request_that_offers_http_2_is_answered_and_is_its_connections_last(served):
    """As curl --http2 sends it."""
    head = b"GET /healthz HTTP/1.1\r\n" + HOST + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    answer = exchange(served.port, head + b"HTTP2-Settings: AAMAAABk\r\n\r\n" + SMUGGLED)
    assert statuses(answer) == [200] and b"connection: close" in answer.lower()


@pytest.mark.parametrize("missing", [b"Sec-WebSocket-Key", b"Sec-WebSocket-Version", b"Origin"])
def test_half_a_handshake_of_a_websocket_is_answered_and_ends(served, missing):
    fields = [b"Host: localhost", b"Origin: http://localhost", b"Connection: Upgrade", b"Upgrade: websocket"]
    fields += [b"Sec-WebSocket-Version: 13", b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="]
    kept = [field for field in fields if not field.startswith(missing)]
    with socket.create_connection(("127.0.0.1", served.port), MAX_SECONDS) as connection:
        connection.sendall(b"\r\n".join([b"GET /live/ HTTP/1.1", *kept, b"", b""]))
        answer = b""
        while piece := connection.recv(65_536):
            answer += piece
    assert statuses(answer)[0] >= 400


def test_a_trailer_is_no_header(served):
    """It comes after the body, when proxies and limits have judged the request."""
    trailers = b"Authorization: Bearer weir_x\r\nHost: evil.example\r\nX-Forwarded-For: 203.0.113.5\r\n"
    head = b"Transfer-Encoding: chunked\r\nTrailer: Authorization, Host\r\nAccept: application/json\r\n\r\n"
    request = b"POST /api/v1/overrides HTTP/1.1\r\n" + HOST + head + b"2\r\n{}\r\n0\r\n" + trailers + b"\r\n"
    answer = exchange(served.port, request + LAST)
    assert statuses(answer) == [401, 200] and b"Send a token" in answer  # and not: the token is unknown


@pytest.mark.parametrize(
    "path",
    [
        b"/static/%2e%2e/%2e%2e/secret_key",
        b"/static/..%2f..%2fweir.sqlite3",
        b"/static/../local.json",
        b"/static/;/../weir.sqlite3",
        b"//evil.example/%2e%2e",
        b"/login/..;/nodes/",
        b"/%2e%2e/nodes/",
        b"/nodes/%00",
        b"/static//etc/passwd",
    ],
)
def test_a_confusing_path_leads_nowhere(served, path):
    answer = exchange(served.port, b"GET " + path + b" HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n")
    assert statuses(answer)[0] in (302, 404)
    location = re.search(rb"(?i)\r\nlocation: ([^\r]*)", answer)
    assert location is None or location[1].startswith(b"/login/?next=/")
