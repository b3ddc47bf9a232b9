"""./run --host ADDRESS: the address that is printed answers, and the one by which the plant asks itself."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from django.http.request import split_domain_port, validate_host

from common import environment as variables
from console.embedded import launch
from console.embedded.launch import PageAddress
from queues.nodes.server import free_port


@pytest.fixture
def process(monkeypatch):
    """The environment of the launcher, without host names."""
    monkeypatch.setenv(variables.HOSTS.name, "")  # put back at the end, whatever is written meanwhile
    monkeypatch.delenv(variables.HOSTS.name)
    return os.environ


def allowed(process: dict[str, str]) -> list[str]:
    """What the settings of the web process make of its environment."""
    code = "from django.conf import settings; print(*settings.ALLOWED_HOSTS)"
    made = subprocess.run([sys.executable, "-c", code], env=process, capture_output=True, text=True, check=True)
    return made.stdout.split()


@pytest.mark.parametrize("host", ["127.0.0.1", "192.0.2.7", "0.0.0.0", "::", "console.example.org", "2001:db8::7"])
def test_the_address_that_is_printed_may_be_asked_for(host, process, tmp_path):
    page = PageAddress(host, 8123)
    launch.let_in(page)
    hosts = allowed({**process, "WEIR_DATA": str(tmp_path), "DJANGO_SETTINGS_MODULE": "console.settings"})
    for address in (page.announced, page.probed):
        name, port = split_domain_port(address.removeprefix("http://").rstrip("/"))
        assert (validate_host(name, hosts), port) == (True, "8123"), address
    assert "localhost" in hosts and "*" not in hosts


def test_a_port_is_free_or_not_at_the_address_that_is_listened_on():
    with socket.socket() as taken:
        taken.bind(("127.0.0.2", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert not PageAddress("127.0.0.2", port).is_free()
        assert PageAddress("127.0.0.1", port).is_free()
    assert not PageAddress("192.0.2.7", free_port()).is_free()  # no address of this machine


class Page(BaseHTTPRequestHandler):
    """Answers as the console does."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/healthz" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def port(monkeypatch) -> Iterator[int]:
    """Of a page on a host whose environment names a proxy, which is away."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "localhost")
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def test_the_launcher_asks_its_own_page_and_no_proxy(port):
    assert launch.wait_for_page(PageAddress("127.0.0.1", port))
