"""No address that people type leads into this host, to a cloud's metadata, or elsewhere than was checked."""

import http.server
import ipaddress
import itertools
import socket
import threading
from typing import Any

import httpx
import pytest

from common.errors import BadInput, Forbidden
from console.models import AuditEntry
from workers.alerts.delivery import receivers, webhook
from workers.alerts.delivery.message_text import Failed
from workers.alerts.lifecycle.models import Receiver
from workers.host import egress
from workers.plants.foreign import adapters
from workers.plants.models import RegisteredPlant

HOSTILE = """
http://127.0.0.1:8000/ http://127.1/ http://2130706433/ http://0x7f000001/ http://0x7f.1/ http://0177.0.0.1/
http://127.0.0.1./ http://localhost/ http://LOCALHOST./ http://weir.localhost:8000/ http://0.0.0.0:8000/ http://0/
http://[::1]/ http://[::]/ http://[::ffff:127.0.0.1]/ http://[::ffff:169.254.169.254]/ http://[::127.0.0.1]/
http://[64:ff9b::7f00:1]/ http://[2002:7f00:1::]/ http://[fe80::1]/ http://[fe80::1%25eth0]/ http://[fd00:ec2::254]/
http://169.254.169.254/latest/meta-data/ http://2852039166/ http://100.100.100.200/ http://168.63.129.16/
http://224.0.0.1/ http://[ff02::1]/ http://255.255.255.255/ http://10.0.0.1:22/ http://10.0.0.1:6379/
http://10.0.0.1:5432/ http://desk.example:25/ http://desk.example:0/ http://user:password@desk.example/
http://desk.example@127.0.0.1/ file:///etc/passwd gopher://desk.example/ ftp://desk.example/ //desk.example/
desk.example http:// http:///path
"""
GOOD = (
    "https://desk.example/hook",
    "http://desk.example:8080/",
    "http://10.1.2.3:9000/",
    "https://192.168.1.20/",
    "http://[fd12:3456::1]:8443/",
    "https://desk.example./x",
)


@pytest.fixture(autouse=True)
def nothing_allowed(settings):
    settings.WEIR_EGRESS_ALLOW = ""


@pytest.mark.parametrize("url", ["", *HOSTILE.split()])
def test_a_hostile_address_is_refused_everywhere(url):
    for check in (egress.check_url, adapters.check_url, lambda text: receivers.READERS["webhook"]({"url": text})):
        with pytest.raises(BadInput) as refused:
            check(url)
        assert refused.value.field == "url"


@pytest.mark.parametrize("url", GOOD)
def test_an_address_of_a_site_is_taken(url):
    egress.check_url(url)


@pytest.mark.parametrize("url", [None, 7, ["https://desk.example/"], "http://[::1", "http://a:99999/"])
def test_what_is_no_address_is_refused_at_its_field(url):
    with pytest.raises(BadInput) as refused:
        egress.check_url(url, "somewhere")
    assert refused.value.field == "somewhere"


def test_an_administrator_allows_a_network_in_the_environment(settings):
    settings.WEIR_EGRESS_ALLOW = "127.0.0.0/8"
    egress.check_url("http://127.0.0.1:8000/")
    egress.check_url("http://[::ffff:127.0.0.1]:8000/")
    with pytest.raises(BadInput):
        egress.check_url("http://[::1]:8000/")
    with pytest.raises(BadInput):
        egress.check_url("http://169.254.169.254/")


class _Desk(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.server.seen.append((self.path, self.headers["Host"]))
        if self.path == "/away":
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/secret")
            self.end_headers()
            return
        self.send_response(200)
        self.end_headers()
        if self.path == "/endless":
            try:
                while not self.server.ended.is_set():
                    self.wfile.write(b"x" * 65_536)
            except OSError:
                return
        if self.path == "/drops":
            try:
                while not self.server.ended.wait(0.01):
                    self.wfile.write(b"x")
            except OSError:
                return

    do_GET = do_POST  # noqa: N815

    def log_message(self, *arguments: object) -> None: ...


@pytest.fixture
def desk():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Desk)
    server.seen, server.ended = [], threading.Event()  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    server.ended.set()  # type: ignore[attr-defined]
    server.shutdown()
    server.server_close()


def client(names: dict[str, list[str]], total_seconds: float = 120.0) -> httpx.Client:
    """Of these names; others are not known."""

    def resolve(host: str, port: int) -> list[str]:
        if host not in names:
            raise socket.gaierror("not known")
        return names[host]

    transport = egress.Transport(total_seconds, resolve)
    return httpx.Client(transport=transport, timeout=120, trust_env=False)


@pytest.mark.parametrize(
    "addresses",
    [["127.0.0.1"], ["10.0.0.1", "127.0.0.1"], ["::ffff:127.0.0.1"], ["169.254.169.254"], ["::1"], ["0.0.0.0"]],
)
def test_a_name_that_leads_into_this_host_is_not_connected_to(addresses, desk):
    with client({"desk.example": addresses}) as there, pytest.raises(httpx.ConnectError, match="which is not allowed"):
        there.get(f"http://desk.example:{desk.server_port}/")
    assert desk.seen == []


def test_a_name_is_resolved_once_and_the_checked_address_is_connected_to(desk, settings):
    settings.WEIR_EGRESS_ALLOW = "127.0.0.0/8"
    asked: list[str] = []

    def rebinding(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["169.254.169.254"]

    transport = egress.Transport(120.0, rebinding)
    with httpx.Client(transport=transport, trust_env=False) as there:
        assert there.get(f"http://desk.example:{desk.server_port}/x").status_code == 200
    assert asked == ["desk.example"]
    assert desk.seen == [("/x", f"desk.example:{desk.server_port}")]


def test_a_redirect_is_not_followed(desk, settings):
    settings.WEIR_EGRESS_ALLOW = "127.0.0.0/8"
    with egress.create_client(120.0) as there:
        assert there.get(f"http://127.0.0.1:{desk.server_port}/away").status_code == 302
    assert [path for path, _ in desk.seen] == ["/away"]


def test_an_endless_answer_is_read_to_a_bound(desk, settings):
    settings.WEIR_EGRESS_ALLOW = "127.0.0.0/8"
    with (
        egress.create_client(120.0) as there,
        there.stream("GET", f"http://127.0.0.1:{desk.server_port}/endless") as answer,
    ):
        assert len(egress.read(answer, 4_096)) == 4_096


def test_an_answer_that_comes_drop_by_drop_ends_with_the_requests_time(desk, settings):
    settings.WEIR_EGRESS_ALLOW = "127.0.0.0/8"
    ticks = itertools.count()  # each time somebody asks, a second has passed
    transport = egress.Transport(30.0, monotonic=lambda: float(next(ticks)))
    with (
        httpx.Client(transport=transport, timeout=None, trust_env=False) as there,
        pytest.raises(httpx.ReadTimeout),
        there.stream("GET", f"http://127.0.0.1:{desk.server_port}/drops") as answer,
    ):
        egress.read(answer, 1_000_000)


def test_a_name_that_no_name_server_answers_for_ends_with_the_requests_time():
    answers = threading.Event()

    def waiting(host: str, port: int) -> list[str]:
        answers.wait()
        return []

    transport = egress.Transport(0.05, waiting)
    with (
        httpx.Client(transport=transport, trust_env=False) as there,
        pytest.raises(httpx.ConnectError, match=r"cannot be resolved: .* in time"),
    ):
        try:
            there.get("http://desk.example/")
        finally:
            answers.set()


def test_a_proxy_of_the_environment_is_not_asked(desk, settings, monkeypatch):
    settings.WEIR_EGRESS_ALLOW = "127.0.0.0/8"
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with egress.create_client(120.0) as there:
        assert there.get(f"http://127.0.0.1:{desk.server_port}/").status_code == 200


@pytest.mark.parametrize("network", ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"])
def test_private_networks_are_allowed(network):
    assert egress.explain_refusal(next(iter(ipaddress.ip_network(network).hosts()))) == ""


def of_a_plant(kind: str, url: str = "", **options: str) -> tuple[str, dict[str, Any]]:
    return "/api/v1/plants/inspect", {"kind": kind, "url": url, "options": options}


def declared_as(sensor: str) -> tuple[str, dict[str, Any]]:
    return of_a_plant("declared", declaration=f"name: east\nsensors:\n  load: {{{sensor}}}\n")


CHAT = {"secret_environment": "WEIR_SECRET_CHAT", "answers_environment": "DATABASE_URL"}
REACHES = {
    "a sensor's address": declared_as("url: 'http://127.0.0.1/', json: a"),
    "a sensor's secret": declared_as("url: 'http://a.example/', json: a, secret_environment: REDIS_URL"),
    "a sensor's database": declared_as("sql: select 1, database: DATABASE_URL"),
    "a sensor's file": declared_as("file: /etc/passwd"),
    "another broker": of_a_plant("kafka", "kafka://a.example:9092", brokers="127.0.0.1:9092"),
    "a broker's management": of_a_plant("celery", "amqp://a.example:5672", management="http://127.0.0.1:80"),
    "a chat's answers": ("/api/v1/receivers/desk", {"channel": "apprise", "settings": CHAT, "reason": "-"}),
}


@pytest.mark.django_db
@pytest.mark.parametrize("reach", REACHES)
def test_whoever_reaches_for_what_nobody_may_have_stands_in_the_audit_by_whatever_field(reach, browsers, control):
    address, body = REACHES[reach]
    answer = browsers["administrator"].post(address, body, content_type="application/json")
    assert answer.status_code == 422, answer.content
    assert AuditEntry.objects.get().action.startswith("refused."), answer.content


NAMES = ("REDIS_URL", "DATABASE_URL", "WEIR_SECRET_KEY", "WEIR_SECRET_KEY_OLD", "WEIR_TOKEN", "PATH", "a b")
MORE_NAMES = ("WEIR_ADMIN_PASSWORD", "WEIR_AUDIT_KEY", "WEIR_SMTP_URL", "DESK_SECRET", "WEIR_SECRET_", "_TOKEN")


@pytest.mark.parametrize("name", NAMES + MORE_NAMES)
def test_a_variable_that_is_not_for_others_can_not_be_named(name):
    with pytest.raises(BadInput):
        receivers.READERS["webhook"]({"url": "https://desk.example/", "secret_environment": name})
    plant = RegisteredPlant(name="east", kind="weir", url="https://east.example", secret_environment=name)
    with pytest.raises(BadInput):
        adapters.check(plant)
    with pytest.raises(BadInput, match="WEIR_SECRET_"):
        adapters.create_adapter(plant, environment={name: "the value"})
    old = Receiver(name="old", channel="webhook", settings={"url": "https://x.example/", "secret_environment": name})
    with pytest.raises(Failed, match="Change the receiver"):
        webhook.read_signing_key(old, {name: "the value"})


# Mapped; compatible; translated; NAT64; local NAT64, behind 96, 48 (one with a suffix), 56 and 64 bits; 6to4; Teredo,
# of the server and of the client (inverted); ISATAP.
LOOPBACK = """
::ffff:127.0.0.1 ::127.0.0.1 ::ffff:0:127.0.0.1 ::ffff:0:7f00:1 64:ff9b::127.0.0.1
64:ff9b:1::127.0.0.1 64:ff9b:1:abcd:0:1234:7f00:1 64:ff9b:1:7f00:0:100:: 64:ff9b:1:7f00:0:100:0:1
64:ff9b:1:a7f:0:1:: 64:ff9b:1:a0a:7f:0:100:0 2002:7f00:1:: 2002:7f00:1:2:3:4:5:6
2001:0:7f00:1:0:0:f5fe:fdfc 2001:0:a01:203:0:0:80ff:fffe fd00::5efe:127.0.0.1 2001:db8::200:5efe:7f00:1
"""
METADATA = ("::ffff:0:169.254.169.254", "64:ff9b:1::a9fe:a9fe", "64:ff9b::6464:64c8", "2002:a9fe:a9fe::")
CARRIED_GOOD = """
64:ff9b::10.1.2.3 64:ff9b:1::10.1.2.3 64:ff9b:1:a01:2:300:: ::ffff:0:10.1.2.3 ::ffff:10.1.2.3 2002:a01:203::1
2001:0:a01:203:0:0:f5fe:fdfc fd00::5efe:10.1.2.3 2001:db8::1 fd12:3456::7f00:1
"""


@pytest.mark.parametrize("text", [*LOOPBACK.split(), *METADATA])
def test_a_carried_address_is_refused_when_typed_and_when_connected_to(text):
    assert egress.explain_refusal(ipaddress.ip_address(text))
    with pytest.raises(Forbidden, match="WEIR_EGRESS_ALLOW"):
        egress.check_url(f"http://[{text}]:8080/")
    with pytest.raises(egress.AddressRefused, match="WEIR_EGRESS_ALLOW"):
        egress.resolve_allowed_addresses("desk.example", 8080, lambda *said: ["10.1.2.3", text])


@pytest.mark.parametrize("text", CARRIED_GOOD.split())
def test_an_address_that_carries_one_of_the_site_is_allowed(text):
    assert egress.explain_refusal(ipaddress.ip_address(text)) == ""


@pytest.mark.parametrize("text", LOOPBACK.split())
def test_whoever_allows_loopback_allows_it_carried_too(text, settings):
    settings.WEIR_EGRESS_ALLOW = "127.0.0.0/8"
    assert egress.explain_refusal(ipaddress.ip_address(text)) == ""


@pytest.mark.parametrize("text", ["64:ff9b:1::a9fe:a9fe", "::ffff:0:169.254.169.254"])
def test_an_allowed_ipv6_network_does_not_open_what_it_carries(text, settings):
    settings.WEIR_EGRESS_ALLOW = "64:ff9b:1::/48 ::ffff:0:0:0/96"
    assert "link-local" in egress.explain_refusal(ipaddress.ip_address(text))
