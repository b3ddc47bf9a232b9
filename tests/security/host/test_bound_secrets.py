"""A secret that the host binds to hosts goes nowhere else, one that is no UTF-8 nowhere; inspections are audited."""

import http.server
import threading
from typing import Any

import pytest

from common.errors import BadInput
from console.models import AuditEntry
from workers.alerts.delivery import alertmanager, apprise, receivers, webhook
from workers.alerts.delivery.message_text import Failed
from workers.alerts.lifecycle.models import Receiver
from workers.consumer.handler import Place
from workers.consumer.registry import build
from workers.host import egress
from workers.plants.foreign import adapters
from workers.plants.foreign.declared import sensor_reader
from workers.plants.foreign.declared.servers import Login, ServerClients
from workers.plants.foreign.kafka import cluster
from workers.plants.foreign.kind import PlantAddress
from workers.plants.models import RegisteredPlant
from workers.plants.plant import PlantUnavailable

pytestmark = pytest.mark.django_db
NAME, OWN, ELSEWHERE = "WEIR_SECRET_FLINK", "https://flink.example/", "https://attacker.example/"


@pytest.fixture(autouse=True)
def bound(monkeypatch, control):
    monkeypatch.setenv(NAME, "hunter2")
    monkeypatch.setenv(f"{NAME}_HOSTS", "flink.example, flink-2.example")


@pytest.fixture
def heard():
    """An attacker's server on this machine, and the secrets that were sent to it."""
    sent: list[str] = []

    class Listens(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent.append(self.headers.get("Authorization", ""))
            self.send_response(404)
            self.end_headers()

        def log_message(self, *said: Any) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Listens)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", sent
    server.shutdown()
    server.server_close()


def place(url: str, kind: str = "flink") -> RegisteredPlant:
    return RegisteredPlant(name="shop", kind=kind, url=url, secret_environment=NAME, options={})


def receiver(url: str, channel: str) -> Receiver:
    return Receiver(name="desk", channel=channel, settings={"url": url, "secret_environment": NAME})


USES = {
    "a plant that is registered": lambda url: adapters.check(place(url)),
    "a plant that is asked": lambda url: adapters.build_address(place(url)),
    "another address of a plant": lambda url: PlantAddress(
        name="shop", url=OWN, secret="hunter2", secret_name=NAME
    ).create_client(url=url),
    "another broker of a Kafka cluster": lambda url: cluster.build_client_settings(
        PlantAddress(
            name="shop",
            url="kafka://flink.example:9092",
            options={"user": "u", "brokers": f"{url.split('/')[2]}:9092"},
            secret="hunter2",
            secret_name=NAME,
        )
    ),
    "a declared plant": lambda url: ServerClients("shop").resolve(url, Login(NAME)),
    "a receiver that is set": lambda url: receivers._validate_webhook_settings(
        {"url": url, "secret_environment": NAME}
    ),
    "a message": lambda url: webhook.read_signing_key(receiver(url, "webhook")),
    "a silence": lambda url: alertmanager._build_login_headers(receiver(url, "alertmanager")),
    "a queue's webhook": lambda url: build("webhook", {"url": url, "secret_environment": NAME}, Place("alert", None)),
}


@pytest.mark.parametrize("use", USES)
def test_a_bound_secret_is_used_at_its_hosts_alone(use, monkeypatch):
    monkeypatch.setattr(egress, "resolve_allowed_addresses", lambda *said, **more: ["192.0.2.7"])  # no name is resolved
    USES[use](OWN)
    with pytest.raises((BadInput, Failed, PlantUnavailable), match=r"flink-2\.example"):
        USES[use](ELSEWHERE)
    monkeypatch.delenv(f"{NAME}_HOSTS")
    USES[use](ELSEWHERE)  # a secret that is not bound works as before


def inspected(browser: Any, url: str) -> Any:
    body = {"kind": "flink", "url": url, "secret_environment": NAME}
    return browser.post("/api/v1/plants/inspect", body, content_type="application/json")


def test_an_inspection_sends_no_bound_secret_elsewhere(browsers, heard):
    address, sent = heard
    answer = inspected(browsers["administrator"], address)
    assert answer.status_code == 422 and not sent
    assert AuditEntry.objects.get().action == "refused.plant.register"


@pytest.mark.parametrize("by", ["the API", "the page"])
def test_an_inspection_stands_in_the_audit_also_when_nothing_is_there(by, browsers, heard, monkeypatch):
    monkeypatch.delenv(f"{NAME}_HOSTS")
    address, sent = heard
    if by == "the API":
        assert inspected(browsers["administrator"], address).status_code == 422
    else:
        form = {"kind": "flink", "url": address, "secret_environment": NAME}
        assert browsers["administrator"].post("/plants/attach", form).status_code == 422
    assert sent[0] == "Bearer hunter2"
    noted = AuditEntry.objects.get(action="plant.inspect")
    assert (noted.actor, noted.target) == ("administrator", f"flink {address}")
    assert noted.after["secret_environment"] == NAME and "hunter2" not in str(noted.after)


DESK, URL = "WEIR_SECRET_DESK", "https://desk.example/"
LATIN = "postgresql://u:contrase\udcf1a@db.example/shop"  # ñ as one byte


def desk(channel: str) -> Receiver:
    return Receiver(name="desk", channel=channel, settings={"url": URL, "secret_environment": DESK})


def plant(kind: str, url: str, **options: str) -> Any:
    row = RegisteredPlant(name="shop", kind=kind, url=url, secret_environment=DESK, options=options)
    return adapters.create_adapter(row)


TEXT_USES = {
    "basic authentication": lambda: ServerClients("shop").resolve(URL, Login(DESK, "basic")),
    "a sensor's database": lambda: sensor_reader._read_address(DESK, "database", {DESK: LATIN}),
    "a Celery app": lambda: plant("celery", "amqp://broker.example:5672"),
    "a Kafka cluster": lambda: plant("kafka", "kafka://kafka.example:9092", user="weir"),
    "a webhook's key": lambda: webhook.read_signing_key(desk("webhook")),
    "a chat's address": lambda: apprise.read_address(desk("apprise")),
    "an Alertmanager's token": lambda: alertmanager._build_login_headers(desk("alertmanager")),
    "a queue's webhook": lambda: build("webhook", {"url": URL, "secret_environment": DESK}, Place("alert", None)),
}


@pytest.mark.parametrize("use", TEXT_USES)
def test_a_secret_that_is_no_text_is_refused_by_its_name(use, monkeypatch):
    monkeypatch.setenv(DESK, LATIN)
    with pytest.raises((BadInput, Failed), match="must be UTF-8") as refused:
        TEXT_USES[use]()
    assert DESK in str(refused.value) and "contrase" not in repr(refused.value)
