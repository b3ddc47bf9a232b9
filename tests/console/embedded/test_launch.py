"""The launcher: what it refuses before it starts anything, where it listens, and how it ends."""

import os
import signal
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from django.http.request import split_domain_port, validate_host

from common import environment as variables
from console.embedded import launch
from console.embedded.launch import PageAddress
from console.embedded.local import EmbeddedServers
from console.embedded.processes import list_plant_processes
from queues.nodes.server import free_port


@pytest.fixture
def _signals():
    """Those that stop the launcher, handled as it handles them."""
    before = {signum: signal.signal(signum, launch.stop_on_signal) for signum in launch.STOPPING}
    yield
    for signum, handler in before.items():
        signal.signal(signum, handler)


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("WEIR_NODES", "n1", "must be name=redis://host:port/0 pairs"),
        ("WEIR_NODES", "n1=redis://a:1/0 n1=redis://b:1/0", "Give each node a different name"),
        ("WEIR_PRODUCTION", "yes", "must be 1 or 0"),
    ],
)
def test_a_bad_setting_is_refused_in_one_line_before_anything_is_started(
    name, value, remedy, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv(name, value)
    assert launch.main(["--data", str(tmp_path / "data"), "--prepare"]) == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1 and f"{name}: " in said.err and remedy in said.err
    assert said.out == "" and not (tmp_path / "data").exists()


def test_a_backup_is_restored_into_a_plant_that_is_started_and_else_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        launch.parse_arguments(["--prepare", "--restore", "weir.tar"])
    assert "can't be combined with --prepare" in capsys.readouterr().err


@pytest.mark.parametrize("inside", ["", "below", "lock"])
def test_a_data_folder_that_can_t_be_written_to_is_said_in_one_line(inside, tmp_path):
    """A file in its place, or above it; a file of its own that can't be opened."""
    data = tmp_path / "data"
    if inside == "lock":
        (data / "lock").mkdir(parents=True, mode=0o700)
    else:
        data.write_text("")
        data = data / inside
    with pytest.raises(SystemExit, match=r"^--data: \S+ is not a writable folder \(.+\). Choose another folder\.$"):
        launch.main(["--data", str(data), "--prepare"])


def test_a_plant_and_then_its_servers_have_20_seconds_to_stop(tmp_path):
    """What takes longer is killed; how long it took on a busy host is no verdict."""
    servers = EmbeddedServers(tmp_path)
    launch.choose_ports(servers, ["n1"])
    plant = list_plant_processes(["n1"], 2, "127.0.0.1", 8000)
    server = launch.start_server(servers, "n1")
    assert max(process.stop_seconds for process in plant) + server.stop_seconds <= 20


@pytest.mark.usefixtures("_signals")
@pytest.mark.parametrize("signum", launch.STOPPING)
def test_a_signal_cuts_no_stop_short_also_where_it_is_the_first_one(signum):
    stopped = []

    class Stopping:
        def stop(self):
            os.kill(os.getpid(), signum)
            stopped.append(signum)

    launch.stop(Stopping())
    assert stopped == [signum]


@pytest.fixture
def process(monkeypatch):
    """The environment of the launcher, without host names."""
    monkeypatch.setenv(variables.HOSTS.name, "")  # put back at the end, whatever is written meanwhile
    monkeypatch.delenv(variables.HOSTS.name)
    return os.environ


def allowed(process):
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

    def do_GET(self):
        self.send_response(200 if self.path == "/healthz" else 404)
        self.end_headers()

    def log_message(self, *_):
        """Nothing."""


@pytest.fixture
def port(monkeypatch):
    """Of a page on a host whose environment names a proxy, which is away."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "localhost")
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def test_the_launcher_asks_its_own_page_and_no_proxy(port):
    assert launch.wait_for_page(PageAddress("127.0.0.1", port))
