"""A secret with a byte that is no UTF-8 is refused by its name, and no error quotes it."""

from typing import Any

import pytest

from common.errors import BadInput
from workers.alerts.delivery import alertmanager, apprise, webhook
from workers.alerts.delivery.message_text import Failed
from workers.alerts.lifecycle.models import Receiver
from workers.consumer.handler import Place
from workers.consumer.registry import build
from workers.plants.foreign import adapters
from workers.plants.foreign.declared import sensor_reader
from workers.plants.foreign.declared.servers import Login, ServerClients
from workers.plants.models import RegisteredPlant

NAME, URL = "WEIR_SECRET_DESK", "https://desk.example/"
LATIN = "postgresql://u:contrase\udcf1a@db.example/shop"  # ñ as one byte


def receiver(channel: str) -> Receiver:
    return Receiver(name="desk", channel=channel, settings={"url": URL, "secret_environment": NAME})


def plant(kind: str, url: str, **options: str) -> Any:
    row = RegisteredPlant(name="shop", kind=kind, url=url, secret_environment=NAME, options=options)
    return adapters.create_adapter(row)


USES = {
    "basic authentication": lambda: ServerClients("shop").resolve(URL, Login(NAME, "basic")),
    "a sensor's database": lambda: sensor_reader._read_address(NAME, "database", {NAME: LATIN}),
    "a Celery app": lambda: plant("celery", "amqp://broker.example:5672"),
    "a Kafka cluster": lambda: plant("kafka", "kafka://kafka.example:9092", user="weir"),
    "a webhook's key": lambda: webhook.read_signing_key(receiver("webhook")),
    "a chat's address": lambda: apprise.read_address(receiver("apprise")),
    "an Alertmanager's token": lambda: alertmanager._build_login_headers(receiver("alertmanager")),
    "a queue's webhook": lambda: build("webhook", {"url": URL, "secret_environment": NAME}, Place("alert", None)),
}


@pytest.mark.parametrize("use", USES)
def test_a_secret_that_is_no_text_is_refused_by_its_name(use, monkeypatch):
    monkeypatch.setenv(NAME, LATIN)
    with pytest.raises((BadInput, Failed), match="must be UTF-8") as refused:
        USES[use]()
    assert NAME in str(refused.value) and "contrase" not in repr(refused.value)
