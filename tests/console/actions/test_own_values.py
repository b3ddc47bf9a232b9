"""A loop's own values: set for good, and refused where they would not be what holds."""

from typing import Any

import pytest
from django.utils import timezone

from console.models import AuditEntry
from queues.topology import NodeSpec, QueueSpec, Topology
from workers.control.kinds.registry import KINDS
from workers.control.parts.kind import PlantInventory
from workers.models import Loop
from workers.steering import overrides

pytestmark = pytest.mark.django_db


@pytest.fixture
def loop(db) -> Loop:
    target = {"queue": "alert", "node": "n1"}
    return Loop.objects.create(name="worker_rate/alert/n1", law="worker_rate", target=target)


@pytest.fixture
def override(people):
    def override(name: str, value: Any, **scope: Any):
        return overrides.set_override(
            name=name,
            value=value,
            owner=people["operator"],
            reason="its database is slow",
            now=timezone.now(),
            minutes=480,
            **scope,
        )

    return override


def set_own(browsers, loop: Loop, name: str, value: str):
    posted = {"name": name, "value": value, "reason": "a test"}
    address = f"/settings/plant/loops/{loop.pk}"
    return browsers["administrator"].post(address, posted, headers={"accept": "application/json"})


@pytest.mark.parametrize("wide", [False, True])
def test_what_is_overridden_is_not_said_to_hold_for_good(browsers, loop, override, wide):
    override("upper_limit", 30, **({"law": "worker_rate"} if wide else {"loop": loop}))
    answer = set_own(browsers, loop, "upper_limit", "500")
    (said,) = answer.json()["errors"]["value"]
    assert answer.status_code == 422 and "is overridden with 30 on" in said and "by operator until" in said
    loop.refresh_from_db()
    assert loop.parameters == {} and not AuditEntry.objects.filter(action="settings.change").exists()


def test_an_own_value_that_contradicts_what_is_overridden_is_refused_and_names_it(browsers, loop, override):
    override("maximum_rate", 2, loop=loop)
    override("guard.maximum", 3, loop=loop)
    answer = set_own(browsers, loop, "minimum_rate", "5")
    (said,) = answer.json()["errors"]["value"]
    assert answer.status_code == 422 and "maximum_rate 2 by operator" in said
    loop.refresh_from_db()
    assert loop.parameters == {}
    assert set_own(browsers, loop, "minimum_rate", "1.5").status_code == 200


def test_what_follows_the_queue_is_not_set_for_good_and_not_offered(browsers, loop, stored_snapshot):
    answer = set_own(browsers, loop, "events_per_worker", "500")
    (said,) = answer.json()["errors"]["name"]
    assert answer.status_code == 422 and "follows its queue" in said
    page = browsers["administrator"].get(f"/settings/plant/?loop={loop.pk}").content.decode()
    assert '"events_per_worker">' not in page and "set by its queue" in page


def test_each_kind_says_which_parameters_follow_the_plant(db, control):
    queues = {name: QueueSpec(name, kind, {"n1": 1000}) for name, kind in (("a", "jobs"), ("b", "pipeline"))}
    topology = Topology(1, {"n1": NodeSpec("n1", "redis://127.0.0.1:1/0")}, queues)
    present = PlantInventory(topology, control)
    for kind in KINDS.values():
        for start in kind.targets(present).loops.values():
            assert set(start.follows) == set(kind.followed), kind.name
