"""RabbitMQ's management plugin leaves out what it has not counted yet: that is unknown, and never 0."""

from contextlib import closing

import httpx
import pytest

from workers.plants.foreign.declared.declaration import parse_declaration
from workers.plants.foreign.declared.declared_plant import DeclaredPlant
from workers.plants.foreign.declared.examples import EXAMPLES

STATS = {"publish_details": {"rate": 0.0}}
JUST_DECLARED = {"name": "check", "vhost": "/", "state": "running", "consumers": 2}


def plant_of(queue):
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json=queue))
    environment = {"WEIR_SECRET_RABBITMQ": "monitor:x"}
    return closing(DeclaredPlant(parse_declaration(EXAMPLES["rabbitmq"]), environment, transport))


@pytest.mark.parametrize(
    ("more", "rate", "waiting"),
    [
        ({}, None, None),
        ({"message_stats": [], "messages_ready": 0}, None, 0.0),
        ({"message_stats": {}, "messages_ready": 0}, None, 0.0),
        ({"message_stats": None, "messages_ready": None}, None, None),
        ({"message_stats": {"ack": 3}, "messages_ready": "unknown"}, None, None),
        ({"message_stats": STATS, "messages_ready": 7}, 0.0, 7.0),
    ],
    ids=["just-declared", "empty-list", "never-used", "null", "other-words", "counted"],
)
def test_what_a_queue_does_not_say_is_unknown(more, rate, waiting):
    with plant_of({**JUST_DECLARED, **more}) as plant:
        topology = plant.get_topology()
        check = topology.operators["check"]
        assert (check.parallelism, check.waiting) == (2, waiting)
        assert plant.get_sensor_statuses()["checked_in"].value == rate
        assert topology.operators["publishers"].measure("outputs") == rate
