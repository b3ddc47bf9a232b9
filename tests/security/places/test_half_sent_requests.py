"""Connections that never send a whole request keep nobody out, and end: against a real web process."""

import http.client
import resource
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, closing

import pytest

from common.own_process import raise_open_file_limit
from console.connections.connection_table import MAX_HEAD_SECONDS
from console.connections.web_protocols import MAX_HEAD_BYTES
from tests.console.served import serving
from tests.waiting import MAX_SECONDS

MANY = 1_100
USUAL_LIMIT = 1_024
HALF_HEADS = {
    "half a head": b"GET /login/ HTTP/1.1\r\nHost: localhost\r\nX-Half: ",
    "half a request line": b"GET /lo",
    "nothing": b"",
    "half a body": b"POST /login/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nusername=",
    "half an upgrade": b"GET /live/ HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgr",
}


@pytest.fixture(scope="module")
def narrow(_control_server, _node_servers, tmp_path_factory):
    """A console that may hold USUAL_LIMIT files open, and can't raise that."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    data = tmp_path_factory.mktemp("narrow")
    with serving(_control_server, _node_servers, data, open_files=USUAL_LIMIT) as console:
        if soft < 2 * MANY:
            raise_open_file_limit()
        yield console
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def get(served, path, source):
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=MAX_SECONDS, source_address=(source, 0))
    with closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        return answer.status


@pytest.mark.parametrize("sent", HALF_HEADS.values(), ids=HALF_HEADS)
def test_many_half_sent_requests_leave_the_console_to_others(narrow, sent):
    with ExitStack() as attack:
        for _ in range(MANY):
            connection = attack.enter_context(socket.create_connection(("127.0.0.1", narrow.port), MAX_SECONDS))
            connection.sendall(sent)
        for source in ("127.0.0.2", "127.0.0.1"):  # another client, and another behind the same address
            assert get(narrow, "/healthz", source) == 200
            assert get(narrow, "/login/", source) == 200


def test_a_half_sent_head_is_answered_and_closed_at_its_deadline(narrow):
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", narrow.port), MAX_SECONDS) as connection:
        connection.sendall(HALF_HEADS["half a head"])
        answer = b""
        while piece := connection.recv(4_096):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert time.monotonic() - began >= MAX_HEAD_SECONDS


@pytest.mark.parametrize("endless", [b"X-Long: " + b"a" * 3 * MAX_HEAD_BYTES, b"X-A: b\r\n" * MAX_HEAD_BYTES])
def test_an_endless_head_is_refused(narrow, endless):
    with socket.create_connection(("127.0.0.1", narrow.port), MAX_SECONDS) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        answer = b""
        try:
            connection.sendall(endless)
            while piece := connection.recv(4_096):
                answer += piece
        except ConnectionError:
            pass  # what is still on its way is not read
    assert answer.startswith(b"HTTP/1.1 400 ") or not answer
    assert get(narrow, "/healthz", "127.0.0.1") == 200


def test_a_process_raises_its_limit_of_open_files():
    """The launcher and each process do so: a host's default of 1,024 is few."""
    script = (
        "import resource; from common.own_process import raise_open_file_limit; raise_open_file_limit();"
        "print(*resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    raised = subprocess.run(
        ["bash", "-c", f'ulimit -Sn 500; exec "$0" -c "{script}"', sys.executable],
        capture_output=True,
        text=True,
        check=True,
    )
    soft, hard = map(int, raised.stdout.split())
    assert soft == min(hard, 65_536)
