"""Fairness of queues, changed over the API: authorized, audited, and bounded."""

import pytest
from django.utils import timezone

from console.embedded.seeding import seed
from console.models import AuditEntry
from queues import fairness
from queues.fairness import KeyWeight
from queues.models import Queue
from tests.console.actions.test_queue_acts import ask

pytestmark = pytest.mark.django_db

WEIGHT = {"key": "4711", "weight": 5.0, "reason": "a launch", "minutes": 10}


@pytest.fixture
def plant(control):
    seed(control, {"WEIR_NODES": "n1=redis://127.0.0.1:1/0 n2=redis://127.0.0.1:1/1"})
    assert Queue.objects.get(name="process").kind == Queue.Kind.JOBS


def change(browsers, secrets, address: str, body: dict, role: str = "operator"):
    return ask(browsers["anonymous"], f"queues/{address}", body, secrets[role])


def test_an_operator_makes_a_queue_fair_and_gives_a_key_a_weight_until_an_end(plant, browsers, secrets, control):
    made = change(browsers, secrets, "process/fairness", {"reason": "floods", "ordinary_weight": 200.0})
    assert made.status_code == 200, made.content
    made = change(browsers, secrets, "process/weight", WEIGHT)
    assert made.status_code == 200, made.content
    (row,) = made.json()["weights"]
    assert (row["key"], row["weight"], row["by"]) == ("4711", 5.0, "token:of-operator")
    current = fairness.load_fairness(control, "process", timezone.now().timestamp())
    assert current is not None
    assert current.build_lane_weights().ordinary == 200.0
    assert current.overrides["4711"].weight == 5.0
    assert [entry.action for entry in AuditEntry.objects.order_by("pk")][-2:] == [
        "queue.fairness",
        "queue.fairness.weight",
    ]
    ended = change(browsers, secrets, "process/weight/end", {"key": "4711"})
    assert ended.json()["weights"] == []
    disabled = change(browsers, secrets, "process/fairness", {"reason": "calm", "enabled": False})
    assert disabled.json()["enabled"] is False
    assert fairness.load_fairness(control, "process", 0.0) is None


@pytest.mark.parametrize(
    ("address", "body", "field"),
    [
        ("process/weight", WEIGHT, "queue"),  # not fair
        ("process/fairness", {"reason": "x", "ordinary_weight": 0.0}, "ordinary_weight"),
        ("process/fairness", {"reason": ""}, "reason"),
        ("nothing/fairness", {"reason": "x"}, "queue"),
    ],
)
def test_an_invalid_change_names_its_field(plant, browsers, secrets, address, body, field):
    refused = change(browsers, secrets, address, body)
    assert refused.status_code in (400, 422), refused.content
    assert field in refused.content.decode()


def test_a_viewer_changes_no_fairness(plant, browsers, secrets, control):
    assert change(browsers, secrets, "process/fairness", {"reason": "x"}, "viewer").status_code == 403
    assert fairness.load_fairness(control, "process", 0.0) is None


def test_ended_weights_are_removed_when_another_one_is_set(plant, browsers, secrets, control):
    assert change(browsers, secrets, "process/fairness", {"reason": "floods"}).status_code == 200
    fairness.set_weight(control, "process", "old", KeyWeight(weight=2.0, until=1.0, reason="x", by="ada"))
    assert change(browsers, secrets, "process/weight", WEIGHT).status_code == 200
    assert fairness.list_ended_keys(control, "process", timezone.now().timestamp()) == []
