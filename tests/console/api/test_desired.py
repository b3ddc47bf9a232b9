"""What loops want in force, as KEDA's `metrics-api` polls it: one number of JSON, or an error.

The poller here does what KEDA's documentation says of it: a GET with a bearer token, the value at a GJSON path, the
replicas as the value over the target (AverageValue, rounded up), 0 and less as "scale to zero", and anything but 200 as
a failure, after which `fallback` decides.
"""

import math
import re
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client as Browser

from controllers.parallelism.measured_topology import Link, MeasuredOperator, MeasuredTopology
from workers.control import engine
from workers.documents.plants import PlantStatus
from workers.documents.snapshot import Snapshot
from workers.models import LedgerEntry, Loop

pytestmark = pytest.mark.django_db
EVENTS, SECONDS = 6_000.0, 30.0  # 200 a second; a task works 50


class NoMetricError(Exception):
    """KEDA's scaler failed."""


def polled(secret, url, value_location, target_value="1"):
    """The replicas that a ScaledObject with this trigger would get."""
    answer = Browser().get(url, headers={"authorization": f"Bearer {secret}"})
    if answer.status_code != 200:
        raise NoMetricError(answer.status_code, answer.content.decode())
    value = answer.json()
    for part in re.split(r"(?<!\\)\.", value_location):
        value = value[part.replace("\\.", ".")]
    assert isinstance(value, int | float) and not isinstance(value, bool)
    return max(0, math.ceil(value / float(target_value)))


class Shop:
    """A plant of one Deployment, as a snapshot has it; nothing may be set there: KEDA does that."""

    def __init__(self, replicas=1):
        self.replicas, self.state = replicas, "seen"

    def observe(self):
        now = datetime.now(UTC).timestamp()
        offered = EVENTS / max(1, self.replicas)
        measures = {"inputs": offered, "executions": min(offered, 50 * SECONDS), "service_seconds": 0.02}
        operators = {
            "orders": MeasuredOperator("orders", "source", 1, fixed="a source"),
            "shop.worker": MeasuredOperator(
                "shop.worker", "operator", self.replicas, 1, 20, tasks=(measures,) * self.replicas
            ),
        }
        topology = MeasuredTopology("shop", now, SECONDS, operators, (Link("orders", "shop.worker", 4.0),))
        status = PlantStatus(kind="weir", state=self.state, age_seconds=0.5, topology=topology.to_document())
        return Snapshot(plant="main", at=now, plants={"shop": status})

    def set_parallelism(self, tasks):
        raise AssertionError("a loop that advises sets nothing")


@pytest.fixture
def loop():
    return Loop.objects.create(
        name="parallelism_queueing/plant:shop", law="parallelism_queueing", target={"plant": "shop"},
        mode=Loop.Mode.ADVISE, parameters={"bound_seconds": 15.0, "maximum": 20, "only_changes": True},
        interval_seconds=5,
    )  # fmt: skip


@pytest.fixture
def tick(control, loop):
    def run(shop, now=None):
        return engine.tick(Loop.objects.get(pk=loop.pk), shop, now or datetime.now(UTC), control)

    return run


def test_keda_scales_to_what_an_advising_loop_wants_and_back_to_what_is_enough(secrets, loop, tick):
    shop, url = Shop(), f"/api/v1/loops/{loop.pk}/desired"
    entry = tick(shop)
    assert entry.action is not None and not entry.applied
    wanted = entry.action["tasks"]["shop.worker"]
    assert wanted > 1
    assert polled(secrets["viewer"], url, "desired") == wanted
    assert polled(secrets["viewer"], url, r"values.shop\.worker") == wanted
    assert polled(secrets["viewer"], "/api/v1/plants/shop/desired", "desired") == wanted
    shop.replicas = wanted  # KEDA has done it
    LedgerEntry.objects.filter(loop=loop).update(at=datetime.now(UTC) - timedelta(seconds=10))
    after = tick(shop)
    assert after.limited_by not in ("stale measurement", "nothing to decide")
    told = (after.action or {}).get("tasks", {}).get("shop.worker", wanted)
    assert polled(secrets["viewer"], url, "desired") == told >= 1


def test_without_a_sound_decision_keda_gets_an_error_and_never_0(secrets, loop, tick):
    shop, url = Shop(), f"/api/v1/loops/{loop.pk}/desired"
    with pytest.raises(NoMetricError, match=r"503.*has not decided yet"):
        polled(secrets["viewer"], url, "desired")
    shop.state = "stale"
    tick(shop)
    with pytest.raises(NoMetricError, match=r"503.*stale measurement"):
        polled(secrets["viewer"], url, "desired")
    shop.state = "seen"
    LedgerEntry.objects.filter(loop=loop).update(at=datetime.now(UTC) - timedelta(seconds=10))
    tick(shop)
    assert polled(secrets["viewer"], url, "desired") > 0
    ago = datetime.now(UTC) - timedelta(seconds=60)
    LedgerEntry.objects.filter(loop=loop).update(at=ago)
    Loop.objects.filter(pk=loop.pk).update(ticked_at=ago, decided_at=ago)
    with pytest.raises(NoMetricError, match=r"503.*decided 60 s ago"):
        polled(secrets["viewer"], url, "desired")
    Loop.objects.filter(pk=loop.pk).update(target={"plant": "shop", "retired_at": "2026-01-01"})
    with pytest.raises(NoMetricError, match=r"503.*retired"):
        polled(secrets["viewer"], url, "desired")


def test_of_a_workload_without_replicas_keda_gets_an_error_and_keeps_its_own_count(secrets, loop, tick):
    """A quota has held up its pods, or all have died: wanted were 0, so that none ever came back."""
    tick(Shop(replicas=0))
    for url in (f"/api/v1/loops/{loop.pk}/desired", "/api/v1/plants/shop/desired"):
        with pytest.raises(NoMetricError, match=r"503.*shop\.worker was not measured"):
            polled(secrets["viewer"], url, "desired")


def test_on_hold_what_is_in_force_stays_wanted(secrets, loop, tick):
    Loop.objects.filter(pk=loop.pk).update(mode=Loop.Mode.HOLD)
    tick(Shop(replicas=3))
    assert polled(secrets["viewer"], f"/api/v1/loops/{loop.pk}/desired", "desired") == 3


def test_a_plant_without_a_loop_a_stranger_and_an_unknown_loop_get_no_number(secrets, loop):
    for secret, url, status in (
        (secrets["viewer"], "/api/v1/plants/nobody/desired", 404),
        (secrets["viewer"], "/api/v1/plants/shop/desired?law=flow", 404),
        (secrets["viewer"], "/api/v1/loops/999999/desired", 404),
        ("nothing", f"/api/v1/loops/{loop.pk}/desired", 401),
    ):
        with pytest.raises(NoMetricError) as refused:
            polled(secret, url, "desired")
        assert refused.value.args[0] == status
