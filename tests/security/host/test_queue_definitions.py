"""Who defines queues and tasks sends workers where the host allows, and names code that it allows."""

import json
import socket
import struct
import sys
import tempfile
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from common.errors import BadInput
from console.embedded.seeding import seed
from console.models import AuditEntry
from queues import keys
from queues.models import Queue
from workers.consumer import registry
from workers.consumer.handler import Place
from workers.consumer.handlers import sql
from workers.consumer.handlers.sql import PostgresStore
from workers.consumer.registry import build
from workers.host.egress import AddressRefused, resolve_allowed_addresses
from workers.models import Task

pytestmark = pytest.mark.django_db
REASON = {"reason": "a test of the attack"}
HOSTILE = """
postgresql://127.0.0.1/weir postgresql://127.0.0.1:6379/x postgresql://localhost/weir
postgresql://169.254.169.254:80/x postgresql://[::1]/weir postgresql://[::ffff:127.0.0.1]/weir postgresql:///weir
postgresql:///weir?host=/var/run/postgresql postgresql://db.example/weir?host=127.0.0.1
postgresql://db.example/weir?hostaddr=127.0.0.1 postgresql://db.example,127.0.0.1/weir
postgresql://%2Fvar%2Frun%2Fpostgresql/weir postgresql://db.example@127.0.0.1/weir postgresql://db.example:22/weir
postgresql://db.example:6379/weir postgresql://weir:secret-word@db.example/weir service=other
sqlite:////tmp/weir-attack/handler.sqlite3 sqlite:////etc/passwd sqlite:///handled.sqlite3
sqlite:///{data}/weir.sqlite3 sqlite:///{data}/archive/index.sqlite3 sqlite:///{data}/handled/../weir.sqlite3
sqlite:///{data}/handled/hook.pth sqlite:///{data}/handled/link/x.sqlite3 mysql://db.example/weir
"""
NO_ADDRESSES = ["", 7, "postgres://weir@host=127.0.0.1 dbname=x/weir", "host=127.0.0.1 dbname=weir"]
GOOD = (
    "postgresql://db.example/weir",
    "postgresql://weir@db.example:5433/weir",
    "postgres://weir@10.1.2.3/weir",
    "sqlite:///{data}/handled.sqlite3",
    "sqlite:///{data}/handled/orders.sqlite3",
)


@pytest.fixture(autouse=True)
def plant(control, settings, tmp_path, monkeypatch):
    settings.WEIR_DATA, settings.WEIR_EGRESS_ALLOW = tmp_path, ""
    monkeypatch.delenv("WEIR_HANDLERS")
    (tmp_path / "handled").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "handled" / "link").symlink_to(tmp_path / "elsewhere")
    seed(control, {"WEIR_NODES": "n1=redis://127.0.0.1:1/0 n2=redis://127.0.0.1:1/1"})
    return tmp_path


@pytest.fixture
def trap(tmp_path, monkeypatch):
    """A module of the host that nobody allowed: importing it is the attack."""
    (tmp_path / "weir_trap.py").write_text("def handle(events): pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "weir_trap", raising=False)
    return "weir_trap"


def at(url: Any, data: Path) -> Any:
    return url.replace("{data}", str(data)) if isinstance(url, str) else url


def made(browser: Any, handler: str, options: Any) -> Any:
    body = {"kind": "jobs", "handler": handler, "handler_options": options, **REASON}
    return browser.post("/api/v1/queues/mail/create", body, content_type="application/json")


def digest(browser: Any) -> str:
    return browser.get("/api/v1/queues/alert/definition").json()["digest"]


@pytest.mark.sweep(3)
@pytest.mark.parametrize("url", [*HOSTILE.split(), *NO_ADDRESSES])
def test_no_typed_database_leads_into_the_host_or_keeps_a_password(url, plant):
    with pytest.raises(BadInput) as caught:
        registry.check("sql", {"url": at(url, plant)}, plant)
    assert caught.value.field == "handler_options.url" and "secret-word" not in str(caught.value)


@pytest.mark.parametrize("url", GOOD)
def test_a_database_of_the_site_may_be_typed(url, plant):
    registry.check("sql", {"url": at(url, plant)}, plant)
    build("sql", {"url": at(url, plant)}, Place("alert", plant))


def test_pages_and_api_refuse_it_note_it_and_make_nothing(browsers, control):
    browser, url = browsers["administrator"], "postgresql://169.254.169.254:80/x"
    before = control.get(keys.TOPOLOGY)
    assert made(browser, "sql", {"url": url}).status_code == 422
    options = {"handler_options": json.dumps({"url": url}), "digest": digest(browser), **REASON}
    answer = browser.post("/queues/alert/change", options, headers={"accept": "application/json"})
    assert answer.status_code == 422 and control.get(keys.TOPOLOGY) == before
    noted = AuditEntry.objects.filter(action="refused.queue.define")
    assert sorted(noted.values_list("target", flat=True)) == ["alert", "mail"]


def rebound(host: str, port: int, ports: frozenset[int]) -> list[str]:
    """A name that means this host by now."""
    return resolve_allowed_addresses(host, port, lambda *said: ["127.0.0.1"], ports)


def test_a_name_is_judged_again_when_a_worker_connects():
    with pytest.raises(AddressRefused):
        sql.connect("postgresql://db.example/weir", rebound)
    with pytest.raises(psycopg.OperationalError) as caught:
        sql.connect("postgresql://db.example:1025/weir", lambda *said, **more: ["127.0.0.1"])
    assert "127.0.0.1" in str(caught.value)  # there, and not where the name leads by now


STORED = (
    "postgresql://127.0.0.1:{port}/weir",
    "postgresql://weir:word@127.0.0.1:{port}/weir",
    "postgresql://localhost:{port}/weir",
    "postgresql://[::ffff:127.0.0.1]:{port}/weir",
    "postgresql:///weir?host=127.0.0.1&port={port}",
    "postgresql://db.example:{port}/weir?hostaddr=127.0.0.1",
    "postgresql://127.0.0.1:{port},localhost:{port}/weir",
    "host=127.0.0.1,127.0.0.1 port={port} dbname=weir",
    "hostaddr=,127.0.0.1 host=localhost,db.example port={port}",
    "postgresql:///weir",
    "postgresql://%2Fvar%2Frun%2Fpostgresql/weir",
    "postgresql://@weir/weir?host=@weir",
    "service=weir",
    "postgresql://10.1.2.3/weir?service=weir",
    "postgresql://10.1.2.3/weir?oauth_issuer=https://127.0.0.1:{port}",
)


@pytest.mark.parametrize("url", STORED)
def test_a_stored_database_that_the_policy_refuses_by_now_is_not_connected_to(url, monkeypatch):
    """The policy was wider when somebody wrote it. A service file names the same server."""
    with socket.create_server(("127.0.0.1", 0)) as server, tempfile.NamedTemporaryFile("w") as services:
        port = server.getsockname()[1]
        services.write(f"[weir]\nhost=127.0.0.1\nport={port}\ndbname=weir\n")
        services.flush()
        monkeypatch.setenv("PGSERVICEFILE", services.name)
        monkeypatch.setenv("PGHOSTADDR", "127.0.0.1")
        store = PostgresStore("handled", partial(sql.connect, url.format(port=port)))
        for _ in range(2):  # a connection that was lost is judged again
            with pytest.raises(AddressRefused, match=r"WEIR_EGRESS_ALLOW|url_environment"):
                store.insert("alert", [])
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


def test_what_the_host_itself_has_set_is_not_judged(browsers, control, monkeypatch, plant):
    """In its database or a variable; and the rest of such a queue can be changed."""
    own = {"url": "postgresql://weir:word@127.0.0.1:1/weir"}
    Queue.objects.filter(name="alert").update(handler="sql", handler_options=own)
    browser = browsers["administrator"]
    body = {"tries": 7, "digest": digest(browser), **REASON}
    answer = browser.post("/api/v1/queues/alert/definition", body, content_type="application/json")
    assert answer.status_code == 200, answer.content
    build("sql", own, Place("alert", plant))
    monkeypatch.setenv("WEIR_SECRET_DATABASE", own["url"])
    assert made(browser, "sql", {"url_environment": "WEIR_SECRET_DATABASE"}).status_code == 201


def test_no_page_imports_code_that_the_host_does_not_allow(browsers, trap):
    browser = browsers["administrator"]
    form = {"handler": f"python:{trap}.handle", "handler_options": "{}", **REASON}
    said = browser.post("/queues/alert/definition/preview", form).json()["sentence"]
    assert "WEIR_HANDLERS" in said
    assert made(browser, f"python:{trap}.handle", {}).status_code == 422
    change = {**form, "digest": digest(browser)}
    assert browser.post("/queues/alert/change", change).status_code == 422
    task = {"when": "interval", "interval": "10", "unit": "minutes", "parallel": "1", **REASON}
    task |= {"name": "mine", "job": f"python:{trap}.handle"}
    assert browser.post("/tasks/define", task).status_code == 422
    assert trap not in sys.modules and not Task.objects.filter(name="mine").exists()
    refused = AuditEntry.objects.filter(action__in=["refused.queue.define", "refused.task.define"])
    assert {entry.target for entry in refused} == {"alert", "mail", "mine"}


@pytest.mark.parametrize(
    ("allowed", "is_made"),
    [
        ("weir_trap", True),
        ("shop.orders, weir_trap.handle", True),
        ("weir_tra", False),
        ("weir_trap.handle.more", False),
    ],
)
def test_the_host_allows_packages_modules_and_whole_paths(allowed, is_made, browsers, trap, monkeypatch):
    monkeypatch.setenv("WEIR_HANDLERS", allowed)
    answer = made(browsers["administrator"], f"python:{trap}.handle", {})
    assert answer.status_code == (201 if is_made else 422), answer.content


def test_the_audit_keeps_of_options_no_secret_for_good(browsers):
    options = {
        "url": "https://desk.example/hook/secret-word",
        "headers": {"Authorization": "secret-word"},
        "timeout_seconds": 5,
    }
    assert made(browsers["administrator"], "webhook", options).status_code == 201
    kept = AuditEntry.objects.get(action="queue.create").after["handler_options"]
    assert kept == {"url": "https://desk.example/…", "headers": {"Authorization": "…"}, "timeout_seconds": 5}


PASSWORD = "of-another-database"
SSL_REQUEST, GSS_REQUEST = 80877103, 80877104
CLEARTEXT, MD5 = struct.pack("!cii", b"R", 8, 3), struct.pack("!cii4s", b"R", 12, 5, b"salt")


class Thief:
    """A server that speaks PostgreSQL up to the login, and keeps what it is told."""

    def __init__(self, demand: bytes) -> None:
        self.heard, self._demand = b"", demand
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            for _ in range(5):
                connection, _ = self._listening.accept()
                connection.settimeout(2)
                with connection, suppress(OSError, struct.error):
                    self._ask(connection)

    def _ask(self, connection: socket.socket) -> None:
        while True:
            size, code = struct.unpack("!ii", connection.recv(8))
            connection.recv(size - 8)
            if code not in (SSL_REQUEST, GSS_REQUEST):
                break
            connection.sendall(b"N")
        connection.sendall(self._demand)
        self.heard += connection.recv(1_000)

    def close(self) -> None:
        self._listening.close()


@pytest.fixture(params=[CLEARTEXT, MD5], ids=["cleartext", "md5"])
def thief(request):
    server = Thief(request.param)
    yield server
    server.close()


def connect(thief: Thief) -> None:
    """As a worker does, for a name that an administrator of Weir has typed."""
    with pytest.raises(psycopg.OperationalError):
        sql.connect(f"postgresql://weir@thief.example:{thief.port}/weir", lambda *_, **__: ["127.0.0.1"])


def test_a_password_of_the_environment_is_not_sent(thief, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    connect(thief)
    assert thief.heard == b""


def test_a_password_file_of_the_environment_is_not_sent(thief, tmp_path, monkeypatch):
    file = tmp_path / "pgpass"
    file.write_text(f"*:*:*:*:{PASSWORD}\n")
    file.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(file))
    connect(thief)
    assert thief.heard == b""


def test_the_host_s_own_address_still_logs_in_with_its_password(thief, monkeypatch):
    """The thief hears what it is sent, so that the tests above can fail."""
    with pytest.raises(psycopg.OperationalError):
        sql.open_own(f"postgresql://weir:{PASSWORD}@127.0.0.1:{thief.port}/weir")
    assert thief.heard.startswith(b"p")
