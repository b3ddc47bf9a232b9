"""Detaching a plant: its loops stop acting, all that Weir has set is restored, and read at the plant again."""

from contextlib import closing

import pytest

from bench.vanish.cluster import DEPLOYMENTS, HPAS, SCALED_OBJECTS, cluster
from common.errors import BadInput
from console.accounts.access import Actor, PermissionDenied
from console.actions import plant_control, plant_detach
from console.models import AuditEntry
from tests.workers.plants.foreign.celery_app.far import FakeCelery
from workers.models import Loop
from workers.plants.foreign import adapters, interventions
from workers.plants.foreign.celery_app.interventions import LIMIT, PAUSE
from workers.plants.foreign.kind import PlantAddress
from workers.plants.foreign.kubernetes.kubernetes_plant import KubernetesPlant
from workers.plants.foreign.leases import TasksBefore
from workers.plants.guard.weir_guard import HELD, PAUSED
from workers.plants.holding import find_holder, hold
from workers.plants.models import PlantOrder, RegisteredPlant

pytestmark = pytest.mark.django_db
ADMINISTRATOR = Actor(name="ada", role="administrator")
NOW = 1_790_000_000.0
ONE, TWO = "celery@one", "celery@two"


@pytest.fixture
def loop():
    target = {"plant": "shop"}
    return Loop.objects.create(name="joint/plant:shop", law="parallelism_joint", target=target, mode=Loop.Mode.AUTO)


@pytest.fixture
def far(control, monkeypatch, loop):
    """Return a registered Celery app."""
    app = FakeCelery({ONE: 2, TWO: 2})
    app.in_force = lambda: interventions.list_active(control, "shop")
    RegisteredPlant.objects.create(name="shop", kind="celery", url="redis://broker.example")
    monkeypatch.setattr(adapters, "create_adapter", lambda row: app.plant())
    return app


def detach(control, far, **more):
    return plant_detach.detach(ADMINISTRATOR, "shop", "a test", control, now=lambda: far.now, sleep=far.run, **more)


def intervene(control, kind, subject, value=""):
    plant_control.intervene(ADMINISTRATOR, "shop", kind, subject, value, control, minutes=5.0, reason="a test")


def said(detachment):
    return [item.sentence for item in detachment.items]


def test_everything_is_restored_and_verified_and_the_plant_is_removed(control, far, loop):
    observed = far.plant()
    observed.get_topology()
    intervene(control, PAUSE, "celery")
    intervene(control, LIMIT, "shop.mail", "1/m")
    far.plant().set_parallelism({ONE: 4})
    far.run(10.0)
    hold(control, "shop", "eve", NOW)
    done = detach(control, far)
    assert said(done) == [
        f"pause celery (in force): restored, verified: consumed by {ONE}, {TWO}",
        f"rate limit shop.mail (1/m): restored, verified: 10/m by {ONE}, {TWO}",
        f"tasks of {ONE} (4 tasks): restored, verified: 2 tasks",
        f"task events of {ONE} (on): restored, verified: off",
        f"task events of {TWO} (on): restored, verified: off",
    ]
    assert (done.is_removed, done.advising) == (True, [loop.name])
    assert (far.paused, far.limits["shop.mail"], far.processes[ONE], far.sending) == (set(), "10/m", 2, set())
    assert not RegisteredPlant.objects.exists()
    assert find_holder(control, "shop") is None
    assert far.store.items == []
    loop.refresh_from_db()
    assert loop.mode == Loop.Mode.ADVISE


def test_the_audit_log_keeps_what_was_set_and_what_was_read_afterwards(control, far, loop):
    intervene(control, PAUSE, "celery")
    detach(control, far)
    entries = {entry.action: entry for entry in AuditEntry.objects.all()}
    assert entries["plant.detach"].before == {"set": ["queue celery: paused"]}
    [item] = entries["plant.detached"].after["items"]
    assert "restored, verified: consumed by" in item
    assert {"plant.remove", "loop.mode"} <= entries.keys()


def test_what_can_t_be_verified_is_named_and_the_plant_stays_registered(control, far):
    far.plant().set_parallelism({ONE: 8})
    far.run(10.0)
    far.busy[ONE] = 8
    done = detach(control, far)
    assert said(done) == [f"tasks of {ONE} (8 tasks): not verified: 8 tasks"]
    assert (done.is_removed, len(done.remaining)) == (False, 1)
    far.busy[ONE] = 0
    done = detach(control, far)
    assert said(done) == [f"tasks of {ONE} (8 tasks): restored, verified: 2 tasks"]
    assert done.is_removed


def test_a_worker_that_does_not_follow_is_not_taken_for_restored(control, far):
    intervene(control, PAUSE, "celery")
    far.late = {"add_consumer": [TWO]}
    done = detach(control, far)
    assert "not verified" in said(done)[0] and TWO in said(done)[0]
    assert RegisteredPlant.objects.exists()


def test_a_plant_that_is_kept_is_restored_and_still_registered(control, far):
    intervene(control, PAUSE, "celery")
    done = detach(control, far, keep=True)
    assert (len(done.items), done.remaining, done.is_removed) == (1, [], False)
    assert RegisteredPlant.objects.exists()


def test_a_plant_that_is_away_stays_registered_and_its_loops_no_longer_act(control, far, monkeypatch, loop):
    intervene(control, PAUSE, "celery")
    far.silent = True
    done = detach(control, far)
    assert not done.is_removed
    assert "no worker responds" in said(done)[0]
    loop.refresh_from_db()
    assert loop.mode == Loop.Mode.ADVISE


def test_orders_are_forgotten(control, far):
    row = RegisteredPlant.objects.get()
    with adapters.open_plant("shop", None, "loop joint", by_loop=True) as plant:
        plant.set_parallelism({ONE: 4})
    assert PlantOrder.objects.filter(plant=row).exists()
    far.run(10.0)
    detach(control, far, keep=True)
    assert not PlantOrder.objects.exists()


def test_only_an_administrator_detaches_a_registered_plant(control, far):
    with pytest.raises(PermissionDenied):
        plant_detach.detach(Actor(name="eve", role="operator"), "shop", "a test", control)
    with pytest.raises(BadInput, match="none is not registered"):
        plant_detach.detach(ADMINISTRATOR, "none", "a test", control)


def test_held_autoscalers_and_changed_replicas_are_restored(control, monkeypatch):
    with cluster() as k8s:
        k8s.deployment("parse")
        k8s.deployment("score")
        k8s.deployment("mail", replicas=3)
        k8s.scaled_object("parse")
        k8s.hpa("score")
        options = {"namespace": "shop", "workloads": "parse > score, mail"}
        row = RegisteredPlant.objects.create(name="shop", kind="kubernetes", url=k8s.url, options=options)
        address, before = PlantAddress(name="shop", url=k8s.url, options=options), TasksBefore(lambda: NOW)
        monkeypatch.setattr(
            adapters, "create_adapter", lambda row: KubernetesPlant(address, lambda: NOW, before=before)
        )
        with closing(adapters.create_adapter(row)) as plant:
            plant.set_parallelism({"parse": 5, "score": 4, "mail": 6})
        k8s.settle()
        done = plant_detach.detach(ADMINISTRATOR, "shop", "a test", control, sleep=lambda seconds: k8s.settle())
        assert said(done) == [
            "tasks of mail (6 tasks): restored, verified: 3 tasks",
            "ScaledObject keda-parse (held): restored, verified: no longer held",
            "HorizontalPodAutoscaler hpa-score (held): restored, verified: no longer held",
        ]
        assert k8s.get(DEPLOYMENTS, "mail")["spec"]["replicas"] == 3
        annotations = k8s.annotations(SCALED_OBJECTS, "keda-parse") | k8s.annotations(HPAS, "hpa-score")
        assert not {PAUSED, HELD} & annotations.keys()
