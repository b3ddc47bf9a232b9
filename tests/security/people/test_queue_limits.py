"""A role that is limited to queues: what reaches beyond them is refused on pages, API and commands alike."""

from datetime import timedelta

import pytest
from django.core.exceptions import PermissionDenied
from django.test import Client
from django.utils import timezone

from console.accounts.access import ACTIONS, OF_NO_QUEUE, Actor, build_user_actor, create_token, require_permission
from console.actions import alerts, dead_letter_steering, tasks
from console.actions.dead_letters import Name
from console.actions.proposals import plans
from console.models import AuditEntry, QueueLimit
from queues.models import Container, Node, Queue
from tests.console.rows import a_plan, held
from workers.batch import task_definitions
from workers.models import Loop, Override, Run

pytestmark = pytest.mark.django_db
WHY = {"reason": "a test"}


@pytest.fixture
def loops(people, control):
    """A loop a queue, one of the plant; the operator is limited to queue alert."""
    node = Node.objects.create(name="n1", url="redis://127.0.0.1:1/0")
    found = {"plant": Loop.objects.create(name="rebalancing", law="rebalancing")}
    for name in ("alert", "process"):
        Container.objects.create(queue=Queue.objects.create(name=name, kind="jobs"), node=node, points=1000)
        target = {"queue": name, "node": "n1"}
        found[name] = Loop.objects.create(name=f"worker_rate/{name}/n1", law="worker_rate", target=target)
    QueueLimit.objects.create(user=people["operator"], queues=["alert"])
    return found


def fetch(browser, address, posted):
    answer = browser.post(address, posted, headers={"accept": "application/json"})
    assert answer.status_code != 302, answer.url
    return answer.status_code


@pytest.mark.parametrize(("which", "status"), [("alert", 200), ("process", 403), ("plant", 403)])
def test_modes_and_overrides_of_other_loops_are_refused(which, status, loops, browsers):
    loop, browser = loops[which], browsers["operator"]
    assert fetch(browser, f"/loops/{loop.pk}/mode", {"mode": "advise", **WHY}) == status
    posted = {"name": "upper_limit", "value": 500, "minutes": 5, **WHY}
    if which != "plant":
        assert fetch(browser, f"/loops/{loop.pk}/override", posted) == status
        assert Override.objects.exists() == (status == 200)


def test_overrides_over_a_law_or_a_node_reach_too_far_and_over_the_queue_do_not(loops, browsers):
    body = {"name": "upper_limit", "value": 500, "minutes": 5, **WHY}

    def put(**scope):
        address, posted = "/api/v1/overrides", {**body, **scope}
        return browsers["operator"].post(address, posted, content_type="application/json").status_code

    assert [put(law="worker_rate"), put(node="n1"), put(queue="process")] == [403] * 3
    assert put(law="worker_rate", queue="alert") == 201


def test_who_is_limited_neither_ends_nor_extends_anothers_override(loops, people, browsers):
    override = held(people["administrator"], "upper_limit", 5, loop=loops["process"])
    for what in ("end", "extend"):
        assert fetch(browsers["operator"], f"/overrides/{override.pk}/{what}", {"minutes": 5}) == 403
    assert AuditEntry.objects.filter(action__startswith="override").count() == 0


def test_only_plans_that_move_their_queues_alone_are_theirs(loops, people):
    actor, now = build_user_actor(people["operator"]), timezone.now()
    drain = a_plan("alert", empties="n1")
    # Which puts the node to use again, for every queue.
    roll_back = a_plan("alert", undoes=drain)
    for other in (a_plan("process"), a_plan("alert", "process"), drain, roll_back):
        with pytest.raises(PermissionDenied):
            plans.approve(actor, other, other.hash, "a test", None, now)
        for act in (plans.reject, plans.stop):
            with pytest.raises(PermissionDenied):
                act(actor, other, "a test", now)
    plans.reject(actor, a_plan("alert"), "a test", now)
    with pytest.raises(PermissionDenied, match="process"):
        plans.propose_points(actor, "process", {"n1": 1000}, "a test", None, now)
    with pytest.raises(PermissionDenied, match="whole plant"):
        plans.propose_drain(actor, "n1", "a test", None, now)


def test_dead_letters_caps_tasks_and_silences_of_other_queues_are_refused(loops, people, browsers):
    actor, now = build_user_actor(people["operator"]), timezone.now()
    with pytest.raises(PermissionDenied):
        dead_letter_steering.act(actor, "requeue", [Name("process", "n1", "1-0", "x")], "a test")
    assert fetch(browsers["operator"], "/queues/process/cap", {"cap": "nodes", **WHY}) == 403
    assert fetch(browsers["operator"], "/queues/alert/cap", {"cap": "nodes", **WHY}) == 422  # no ladder yet
    run = Run.objects.create(task=task_definitions.define("retention", "retention"), single_instance=True)
    with pytest.raises(PermissionDenied):
        tasks.cancel(actor, run, "a test", now)

    def silence(*matchers):
        rows = [{"label": label, "is": how, "value": value} for label, how, value in matchers]
        alerts.silence(actor, rows, reason="a test", minutes=5, now=now)

    for matchers in ([("node", "=", "n1")], [("queue", "~", "*")], [("queue", "=", "process")]):
        with pytest.raises(PermissionDenied):
            silence(*matchers)
    silence(("queue", "=", "alert"), ("node", "=", "n1"))


@pytest.mark.parametrize("action", sorted(set(ACTIONS) - OF_NO_QUEUE))
def test_an_act_whose_queues_are_not_said_is_refused_to_who_is_limited(action):
    actor = Actor("somebody", "administrator", queues=frozenset({"alert"}))
    with pytest.raises(PermissionDenied):
        require_permission(actor, action)
    require_permission(actor, action, ["alert"])


def test_a_limit_holds_for_the_tokens_of_whom_it_limits(loops, people):
    secret = create_token(people["operator"], "t", "operator", timezone.now() + timedelta(days=1))[1]
    headers = {"Authorization": f"Bearer {secret}"}
    for which, status in (("alert", 200), ("process", 403)):
        body = {"mode": "advise", **WHY}
        address = f"/api/v1/loops/{loops[which].pk}/mode"
        answer = Client().post(address, body, content_type="application/json", headers=headers)
        assert answer.status_code == status


def test_limits_are_set_by_administrators_and_never_on_them(loops, people, browsers):
    browser, address = browsers["administrator"], f"/settings/users/{people['viewer'].pk}"
    posted = {"change": "queues", "queues": ["alert", "process"], **WHY}
    assert fetch(browser, address, posted) == 200
    assert QueueLimit.objects.get(user=people["viewer"]).queues == ["alert", "process"]
    assert fetch(browser, address, {**posted, "queues": ["none"]}) == 422
    said = browser.post(address, {"change": "queues", **WHY}, headers={"accept": "application/json"}).json()
    assert said["message"] == "viewer is now permitted to act on all queues."
    assert not QueueLimit.objects.filter(user=people["viewer"]).exists()
    assert fetch(browser, f"/settings/users/{people['administrator'].pk}", posted) == 422
    assert fetch(browsers["operator"], address, posted) == 403
    fetch(browser, f"/settings/users/{people['operator'].pk}", {"change": "role", "role": "administrator", **WHY})
    assert not QueueLimit.objects.exists()
