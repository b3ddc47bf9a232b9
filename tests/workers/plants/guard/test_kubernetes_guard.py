"""The guard of Kubernetes: it releases what Weir has stopped renewing. `kmock` represents the API server."""

import json
from contextlib import closing
from datetime import UTC, datetime

import pytest

from bench.vanish.cluster import HPAS, LEASES, NAMESPACE, SCALED_OBJECTS, cluster
from workers.plants.foreign.kind import PlantAddress
from workers.plants.foreign.kubernetes.kubernetes_plant import KubernetesPlant
from workers.plants.foreign.leases import lease_seconds, renew_seconds
from workers.plants.guard.manifests import build_kubernetes_manifests
from workers.plants.guard.weir_guard import BEAT_NAME, HELD, PAUSED, ClusterApi, KubernetesGuard, build_guard

NOW = 1_790_000_000.0


class Clock:
    now = NOW

    def __call__(self):
        return self.now


@pytest.fixture
def k8s():
    with cluster() as running:
        running.deployment("parse")
        running.deployment("score")
        running.scaled_object("parse")
        running.hpa("score", behavior={"scaleUp": {"selectPolicy": "Min"}})
        yield running


@pytest.fixture
def weirs_clock():
    return Clock()


@pytest.fixture
def plant(k8s, weirs_clock):
    address = PlantAddress(name="shop", url=k8s.url, options={"namespace": NAMESPACE, "workloads": "parse > score"})
    with closing(KubernetesPlant(address, weirs_clock)) as made:
        yield made


@pytest.fixture
def guards_clock():
    """Return a clock that has nothing in common with that of Weir."""
    clock = Clock()
    clock.now = 77.0
    return clock


@pytest.fixture
def said():
    return []


@pytest.fixture
def guard(k8s, guards_clock, weirs_clock, said):
    def now():
        return datetime.fromtimestamp(weirs_clock.now, UTC)

    return KubernetesGuard(ClusterApi(k8s.url), NAMESPACE, guards_clock, now, said.append)


def is_held(k8s):
    hpa = k8s.get(HPAS, "hpa-score")["spec"]["behavior"]
    return (
        PAUSED in k8s.annotations(SCALED_OBJECTS, "keda-parse"),
        {direction: hpa.get(direction, {}).get("selectPolicy") for direction in ("scaleUp", "scaleDown")},
    )


HELD_BOTH = True, {"scaleUp": "Disabled", "scaleDown": "Disabled"}
AS_BEFORE = False, {"scaleUp": "Min", "scaleDown": None}


def test_a_hold_that_is_not_renewed_is_released_as_it_was_before(k8s, plant, guard, guards_clock, said):
    plant.hold(3_600.0)
    guard.step()
    guards_clock.now += lease_seconds() - 1.0
    guard.step()
    assert is_held(k8s) == HELD_BOTH
    guards_clock.now += 1.0
    guard.step()
    assert is_held(k8s) == AS_BEFORE
    assert HELD not in k8s.annotations(SCALED_OBJECTS, "keda-parse") | k8s.annotations(HPAS, "hpa-score")
    assert said == [
        "weir/shop did not renew its hold. Released: KEDA keda-parse.",
        "weir/shop did not renew its hold. Released: HPA hpa-score.",
    ]


def test_a_hold_that_is_renewed_stays_until_its_end(k8s, plant, guard, guards_clock, weirs_clock):
    plant.hold(300.0)
    while weirs_clock.now < NOW + 299.0:
        guard.step()
        plant.renew_leases()
        weirs_clock.now += renew_seconds()
        guards_clock.now += renew_seconds()
    assert is_held(k8s) == HELD_BOTH
    weirs_clock.now += 2.0
    plant.list_sections()
    assert is_held(k8s) == AS_BEFORE


def test_a_guard_that_starts_waits_for_a_whole_lease(k8s, plant, guard, guards_clock):
    """It can't know how long ago the last renewal was."""
    plant.hold(3_600.0)
    guards_clock.now += 1_000.0
    guard.step()
    assert is_held(k8s) == HELD_BOTH


@pytest.mark.parametrize("ahead_seconds", [-100_000.0, 100_000.0])
def test_the_clocks_of_weir_and_of_the_guard_are_not_compared(
    k8s, plant, guard, guards_clock, weirs_clock, ahead_seconds
):
    weirs_clock.now += ahead_seconds
    plant.hold(3_600.0)
    guard.step()
    assert is_held(k8s) == HELD_BOTH
    guards_clock.now += lease_seconds()
    guard.step()
    assert is_held(k8s) == AS_BEFORE


def test_a_hold_of_somebody_else_is_left_alone(k8s, guard, guards_clock):
    k8s.scaled_object("mail", annotations={PAUSED: "true"})
    for _ in range(3):
        guard.step()
        guards_clock.now += 100.0
    assert k8s.annotations(SCALED_OBJECTS, "keda-mail") == {PAUSED: "true"}


def test_an_unreadable_record_is_released_without_former_values(k8s, guard, guards_clock):
    k8s.scaled_object("mail", annotations={PAUSED: "true", HELD: "no JSON"})
    guard.step()
    guards_clock.now += lease_seconds()
    guard.step()
    assert k8s.annotations(SCALED_OBJECTS, "keda-mail") == {}


def test_the_heartbeat_shows_whether_a_guard_is_running(k8s, plant, guard, weirs_clock):
    plant.hold(3_600.0)
    [scaled_object, hpa] = plant.list_set_values()
    assert plant.get_guard().alive is False
    assert (scaled_object.value, scaled_object.afterwards) == ("held", "held")
    assert "install the guard" in scaled_object.stays
    guard.step()
    assert k8s.get(LEASES, BEAT_NAME)["spec"]["leaseDurationSeconds"] == 30
    [scaled_object, hpa] = plant.list_set_values()
    assert plant.get_guard().alive is True
    assert (hpa.item, hpa.afterwards, hpa.restored_by) == ("HorizontalPodAutoscaler hpa-score", "active", "guard")
    assert hpa.within_seconds <= 60.0
    weirs_clock.now += 100.0
    plant.list_set_values()
    assert plant.get_guard().alive is False


def test_weir_itself_keeps_its_hold_after_a_late_renewal(k8s, plant, weirs_clock):
    plant.hold(3_600.0)
    weirs_clock.now += 600.0
    plant.list_sections()
    assert is_held(k8s) == HELD_BOTH
    plant.renew_leases()
    held = json.loads(k8s.annotations(SCALED_OBJECTS, "keda-parse")[HELD])
    assert held["until"] == weirs_clock.now + lease_seconds()
    assert held["ends"] == NOW + 3_600.0
    assert held["since"] == NOW


def test_the_manifest_starts_this_program_for_the_plants_namespace(k8s):
    [manifest] = build_kubernetes_manifests("shop")
    assert "kubectl apply" in manifest.about
    assert "--namespace, shop" in manifest.text
    assert "    class KubernetesGuard:" in manifest.text
    guard = build_guard(["kubernetes", "--namespace", NAMESPACE, "--url", k8s.url])
    guard.step()
    assert k8s.get(LEASES, BEAT_NAME)["spec"]["holderIdentity"]
