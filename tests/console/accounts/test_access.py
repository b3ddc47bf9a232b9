"""Who may do what: one table for every address and every role, and the keys to the doors."""

import copy
import functools
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import redis
from django.contrib.auth.models import Group, User
from django.db import transaction
from django.http import HttpRequest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone

from console.accounts.access import (
    ACTIONS,
    ROLES,
    Actor,
    actor_of_token,
    create_token,
    digest_of,
    least_role,
    role_of,
)
from console.models import ApiToken, Mark, UserSession
from queues.models import Container, Node, Queue
from tests.console.conftest import PASSWORD
from tests.console.pipeline_sample import DECLARATION
from workers.alerts.lifecycle.models import Alert, Receiver, Silence
from workers.alerts.rules.rules import define
from workers.batch import task_definitions
from workers.lab.models import Experiment
from workers.models import LedgerEntry, Loop, Override, Plan, Run
from workers.pipeline.declaration.declared import Declarations, Declared

pytestmark = pytest.mark.django_db
EVERYBODY = ("anonymous", "stranger", "viewer", "operator", "administrator")

# Method and route → who is let in (what is behind the door is another test's). `free`: no login needed.
DOORS = {
    "GET ": "viewer",
    "GET nodes/": "viewer",
    "POST nodes/use": "operator",
    "GET nodes/<str:name>/": "viewer",
    "POST nodes/<str:name>/thresholds": "operator",
    "GET queues/": "viewer",
    "GET queues/<str:name>/": "viewer",
    "POST queues/<str:name>/points": "operator",
    "POST queues/<str:name>/cap": "operator",
    "POST queues/<str:name>/pause": "operator",
    "GET queues/new": "administrator",
    "POST queues/create": "administrator",
    "GET queues/<str:name>/definition/": "administrator",
    "POST queues/<str:name>/definition/preview": "administrator",
    "POST queues/<str:name>/change": "administrator",
    "GET queues/<str:name>/waiting/": "operator",
    "GET dead-letters/": "viewer",
    "POST dead-letters/act": "operator",
    "GET dead-letters/<str:queue>/<str:node>/<str:dead_id>/": "viewer",
    "GET dead-letters/<str:queue>/<str:node>/<str:dead_id>/bytes": "viewer",
    "POST dead-letters/<str:queue>/<str:node>/<str:dead_id>/fix": "operator",
    "GET workers/": "viewer",
    "GET processes/": "administrator",
    "POST processes/restart": "administrator",
    "GET workers/<str:name>/": "viewer",
    "POST workers/<str:name>/drain": "operator",
    "GET pipeline/": "viewer",
    "GET pipeline/<str:name>/": "viewer",
    "GET pipeline/<str:name>/operators/<str:operator>/": "viewer",
    "POST pipeline/<str:name>/operators/<str:operator>/tasks": "operator",
    "POST pipeline/<str:name>/order": "operator",
    "POST pipeline/<str:name>/criteria/hold": "operator",
    "POST pipeline/<str:name>/criteria/<str:criterion>/release": "operator",
    "GET pipeline/<str:name>/declaration/": "viewer",
    "POST pipeline/<str:name>/declaration/preview": "operator",
    "POST pipeline/<str:name>/declare": "operator",
    "GET plants/": "viewer",
    "POST plants/register": "administrator",
    "GET plants/<str:name>/": "viewer",
    "POST plants/<str:name>/tasks": "operator",
    "POST plants/<str:name>/release": "operator",
    "POST plants/<str:name>/remove": "administrator",
    "GET loops/": "viewer",
    "GET loops/<int:loop_id>/": "viewer",
    "GET loops/<int:loop_id>/predicted": "viewer",
    "GET loops/<int:loop_id>/what-if/": "viewer",
    "POST loops/<int:loop_id>/override": "operator",
    "POST loops/<int:loop_id>/weigh": "operator",
    "POST loops/<int:loop_id>/tasks": "operator",
    "POST loops/<int:loop_id>/mode": "operator",
    "GET overrides/": "viewer",
    "POST overrides/create": "operator",
    "POST overrides/<int:override_id>/end": "operator",
    "POST overrides/<int:override_id>/extend": "operator",
    "GET plans/": "viewer",
    "POST plans/rebalance": "operator",
    "GET plans/<int:plan_id>/": "viewer",
    "POST plans/<int:plan_id>/approve": "operator",
    "POST plans/<int:plan_id>/reject": "operator",
    "POST plans/<int:plan_id>/stop": "operator",
    "POST plans/<int:plan_id>/roll-back": "operator",
    "GET tasks/": "viewer",
    "POST tasks/define": "administrator",
    "GET tasks/<str:name>/": "viewer",
    "POST tasks/<str:name>/run": "operator",
    "POST tasks/<str:name>/change": "operator",
    "GET lab/": "viewer",
    "POST lab/begin": "operator",
    "GET lab/compare": "viewer",
    "GET lab/<int:experiment_id>/": "viewer",
    "POST lab/<int:experiment_id>/cancel": "operator",
    "POST lab/<int:experiment_id>/apply": "operator",
    "POST lab/<int:experiment_id>/plan": "operator",
    "GET runs/<int:run_id>/": "viewer",
    "POST runs/<int:run_id>/cancel": "operator",
    "POST runs/<int:run_id>/resume": "operator",
    "GET alerts/": "viewer",
    "GET alerts/<int:alert_id>/": "viewer",
    "POST alerts/<int:alert_id>/acknowledge": "operator",
    "POST alerts/<int:alert_id>/snooze": "operator",
    "POST alerts/<int:alert_id>/escalate": "operator",
    "POST alerts/<int:alert_id>/note": "operator",
    "GET alerts/review/": "viewer",
    "GET alerts/silences/": "viewer",
    "POST alerts/silences/add": "operator",
    "POST alerts/silences/preview": "viewer",
    "POST alerts/silences/<int:silence_id>/end": "operator",
    "GET alerts/rules/": "viewer",
    "POST alerts/rules/preview": "viewer",
    "POST alerts/rules/change": "operator",
    "GET alerts/rules/<str:name>/": "viewer",
    "GET alerts/receivers/": "viewer",
    "POST alerts/receivers/change": "administrator",
    "POST alerts/receivers/<int:receiver_id>/delete": "administrator",
    "POST alerts/receivers/<int:receiver_id>/test": "administrator",
    "GET ledger/": "viewer",
    "GET ledger/<int:entry_id>/": "viewer",
    "GET timeline/": "viewer",
    "GET timeline/table.csv": "viewer",
    "GET timeline/document.html": "viewer",
    "POST timeline/marks": "operator",
    "POST timeline/marks/remove": "operator",
    "GET audit/": "administrator",
    "GET settings/": "viewer",
    "POST settings/": "viewer",
    "POST filters/save": "viewer",
    "POST filters/remove": "viewer",
    "GET settings/plant/": "viewer",
    "POST settings/plant/<str:name>": "administrator",
    "POST settings/plant/loops/<int:loop_id>": "administrator",
    "GET settings/users/": "administrator",
    "POST settings/users/create": "administrator",
    "POST settings/users/<int:user_id>": "administrator",
    "POST settings/users/<int:user_id>/reset": "administrator",
    "POST settings/sessions/<int:session_id>/end": "viewer",
    "POST settings/tokens": "viewer",
    "POST settings/tokens/<int:token_id>/revoke": "viewer",
    "GET help/": "viewer",
    "GET help/<path:address>": "viewer",
    "GET login/": "free",
    "POST login/": "free",
    "POST logout/": "stranger",
    "GET logged-out/": "free",
    "GET login/code/": "free",
    "POST login/code/": "free",
    "GET confirm/": "stranger",
    "POST confirm/": "stranger",
    "GET oidc/begin/": "free",
    "GET oidc/callback/": "free",
    "GET settings/second-factor/": "viewer",
    "POST settings/second-factor/": "viewer",
    "GET healthz": "free",
    "GET readyz": "free",
    "GET metrics": "free",  # from this machine; test_health shuts the others out
    "GET api/": "free",
    "GET api/schema": "free",
    "GET control/": "free",
    "GET api/v1/live": "viewer",
    "GET api/v1/history": "viewer",
    "GET api/v1/snapshot": "viewer",
    "GET api/v1/decisions": "viewer",
    "GET api/v1/marks": "viewer",
    "POST api/v1/marks": "operator",
    "POST api/v1/marks/<mark_id>/remove": "operator",
    "GET api/v1/queues": "viewer",
    "GET api/v1/queues/<name>": "viewer",
    "POST api/v1/queues/<queue>/events": "operator",
    "GET api/v1/nodes": "viewer",
    "GET api/v1/nodes/<name>": "viewer",
    "GET api/v1/loops": "viewer",
    "GET api/v1/loops/<loop_id>": "viewer",
    "POST api/v1/loops/<loop_id>/mode": "operator",
    "GET api/v1/ledger": "viewer",
    "GET api/v1/loops/<loop_id>/what-if": "viewer",
    "GET api/v1/applications": "viewer",
    "POST api/v1/applications": "operator",
    "POST api/v1/applications/<name>/restart": "operator",
    "POST api/v1/applications/<name>/stop": "operator",
    "POST api/v1/applications/<name>/start": "operator",
    "POST api/v1/applications/<name>/operators/<operator>/tasks": "operator",
    "POST api/v1/applications/<name>/criteria/<criterion>": "operator",
    "POST api/v1/applications/<name>/criteria/<criterion>/release": "operator",
    "GET api/v1/ledger/export": "viewer",
    "GET api/v1/ledger/<entry_id>": "viewer",
    "GET api/v1/ledger/<entry_id>/replay": "viewer",
    "GET api/v1/settings": "viewer",
    "POST api/v1/settings/<name>": "administrator",
    "POST api/v1/loops/<loop_id>/settings": "administrator",
    "GET api/v1/users": "administrator",
    "POST api/v1/users": "administrator",
    "POST api/v1/users/<username>/role": "administrator",
    "POST api/v1/users/<username>/disable": "administrator",
    "POST api/v1/users/<username>/enable": "administrator",
    "POST api/v1/users/<username>/reset": "administrator",
    "POST api/v1/users/<username>/queues": "administrator",
    "POST api/v1/users/<username>/second-factor": "administrator",
    "GET api/v1/sessions": "viewer",
    "POST api/v1/sessions/<session_id>/end": "viewer",
    "GET api/v1/tokens": "viewer",
    "POST api/v1/tokens": "viewer",
    "POST api/v1/tokens/<token_id>/revoke": "viewer",
    "POST api/v1/tokens/<token_id>/quota": "administrator",
    "GET api/v1/audit": "administrator",
    "GET api/v1/audit/export": "administrator",
    "GET api/v1/plans": "viewer",
    "POST api/v1/plans": "operator",
    "GET api/v1/plans/<plan_id>": "viewer",
    "POST api/v1/plans/<plan_id>/approve": "operator",
    "POST api/v1/plans/<plan_id>/reject": "operator",
    "POST api/v1/plans/<plan_id>/stop": "operator",
    "POST api/v1/plans/<plan_id>/roll-back": "operator",
    "POST api/v1/queues/<queue>/points": "operator",
    "POST api/v1/queues/<queue>/cap": "operator",
    "GET api/v1/queues/<queue>/waiting": "operator",
    "GET api/v1/palette": "viewer",
    "POST api/v1/queues/<queue>/create": "administrator",
    "GET api/v1/queues/<queue>/definition": "administrator",
    "POST api/v1/queues/<queue>/definition": "administrator",
    "GET api/v1/processes": "administrator",
    "GET api/v1/processes/<process>/log": "administrator",
    "POST api/v1/processes/<process>/restart": "administrator",
    "POST api/v1/queues/<queue>/pause": "operator",
    "POST api/v1/queues/<queue>/resume": "operator",
    "POST api/v1/workers/<host>/drain": "operator",
    "POST api/v1/workers/<host>/return": "operator",
    "POST api/v1/nodes/<name>/use": "operator",
    "GET api/v1/alerts": "viewer",
    "GET api/v1/alerts/review": "viewer",
    "GET api/v1/alerts/<alert_id>": "viewer",
    "POST api/v1/alerts/<alert_id>/acknowledge": "operator",
    "POST api/v1/alerts/<alert_id>/snooze": "operator",
    "POST api/v1/alerts/<alert_id>/escalate": "operator",
    "POST api/v1/alerts/<alert_id>/notes": "operator",
    "GET api/v1/silences": "viewer",
    "POST api/v1/silences": "operator",
    "POST api/v1/silences/preview": "viewer",
    "POST api/v1/silences/<silence_id>/end": "operator",
    "GET api/v1/alert-rules": "viewer",
    "GET api/v1/alert-rules/<name>": "viewer",
    "POST api/v1/alert-rules/<name>": "operator",
    "POST api/v1/alert-rules/<name>/preview": "viewer",
    "GET api/v1/receivers": "viewer",
    "POST api/v1/receivers/<name>": "administrator",
    "POST api/v1/receivers/<name>/delete": "administrator",
    "POST api/v1/receivers/<name>/test": "administrator",
    "GET api/v1/tasks": "viewer",
    "POST api/v1/tasks": "administrator",
    "GET api/v1/tasks/<name>": "viewer",
    "POST api/v1/tasks/<name>": "operator",
    "POST api/v1/tasks/<name>/run": "operator",
    "GET api/v1/runs": "viewer",
    "GET api/v1/runs/<run_id>": "viewer",
    "POST api/v1/runs/<run_id>/cancel": "operator",
    "POST api/v1/runs/<run_id>/resume": "operator",
    "GET api/v1/lab": "viewer",
    "GET api/v1/experiments": "viewer",
    "POST api/v1/experiments": "operator",
    "GET api/v1/experiments/<experiment_id>": "viewer",
    "GET api/v1/experiments/<experiment_id>/series": "viewer",
    "POST api/v1/experiments/<experiment_id>/cancel": "operator",
    "POST api/v1/experiments/<experiment_id>/apply": "operator",
    "POST api/v1/experiments/<experiment_id>/plan": "operator",
    "GET api/v1/dead-letters": "viewer",
    "POST api/v1/dead-letters/requeue": "operator",
    "POST api/v1/dead-letters/discard": "operator",
    "GET api/v1/dead-letters/<queue>/<node>/<dead_id>": "viewer",
    "GET api/v1/dead-letters/<queue>/<node>/<dead_id>/bytes": "viewer",
    "POST api/v1/dead-letters/<queue>/<node>/<dead_id>/fix": "operator",
    "GET api/v1/overrides": "viewer",
    "POST api/v1/overrides": "operator",
    "POST api/v1/overrides/<override_id>/end": "operator",
    "POST api/v1/overrides/<override_id>/extend": "operator",
    "GET api/v1/plants": "viewer",
    "POST api/v1/plants": "administrator",
    "POST api/v1/plants/<plant>/remove": "administrator",
    "POST api/v1/plants/<plant>/tasks": "operator",
    "POST api/v1/plants/<plant>/release": "operator",
    "GET control/<plant>/v1/getalloperators": "viewer",
    "GET control/<plant>/v1/getlogicaltopology": "viewer",
    "GET control/<plant>/v1/getphysicaltopology": "viewer",
    "GET control/<plant>/v1/gettopology": "viewer",
    "GET control/<plant>/v1/getoperatorparallelism": "viewer",
    "GET control/<plant>/v1/getpathlatency": "viewer",
    "GET control/<plant>/v1/getfailedtuplescount": "viewer",
    "GET control/<plant>/v1/getackedtuplescount": "viewer",
    "GET control/<plant>/v1/getlatency": "viewer",
    "GET control/<plant>/v1/getoperatorlatency": "viewer",
    "GET control/<plant>/v1/getoperatorlatencyvariance": "viewer",
    "GET control/<plant>/v1/getoutputcount": "viewer",
    "GET control/<plant>/v1/getoperatoroutputcount": "viewer",
    "GET control/<plant>/v1/getoperatoroutputcountvariance": "viewer",
    "GET control/<plant>/v1/getexecutioncount": "viewer",
    "GET control/<plant>/v1/getoperatorexecutioncount": "viewer",
    "GET control/<plant>/v1/getoperatorexecutioncountvariance": "viewer",
    "GET control/<plant>/v1/getinputcount": "viewer",
    "GET control/<plant>/v1/getoperatorinputcount": "viewer",
    "GET control/<plant>/v1/getoperatorinputcountvariance": "viewer",
    "POST control/<plant>/v1/setoperatorparallelism": "operator",
    "POST control/<plant>/v1/setmultipleoperatorparallelism": "operator",
    "POST control/<plant>/v1/hold": "operator",
    "POST control/<plant>/v1/release": "operator",
}
QUERY = {
    "GET api/v1/queues/<queue>/waiting": {"node": "n1"},
    "GET api/v1/history": {"series": "totals.in_per_second", "from": 0, "to": 1},
    "GET api/v1/loops/<loop_id>/what-if": {"set": "upper_limit=5"},
    "GET api/v1/snapshot": {"at": "2026-11-20T03:12:00Z"},
    "GET api/v1/decisions": {"from": 0, "to": 1},
    "GET api/v1/marks": {"from": "2026-11-20T03:12:00Z", "to": "2026-11-20T03:13:00Z"},
    **{door: {"operator": "performance/hosts"} for door in DOORS if door.startswith("GET control/")},
}
NAMES = {
    "pipeline": "performance",
    "applications": "performance",
    "nodes": "n1",
    "plants": "main",
    "tasks": "retention",
    "workers": "jobs@here",
    "receivers": "desk",
}
# Of the control API: what it takes stands in its address.
OPERATIONS = {
    "setoperatorparallelism": "?operator=performance/hosts&parallelism=2",
    "setmultipleoperatorparallelism": "?map=performance/hosts:2",
}
API_BODIES = {
    "POST api/v1/plants": {"name": "east", "kind": "weir", "url": "http://east", "reason": "a test"},
    "POST api/v1/plants/<plant>/remove": {"reason": "a test"},
    "POST api/v1/plants/<plant>/tasks": {"operator": "performance/hosts", "tasks": 2, "reason": "a test"},
    "POST api/v1/alerts/<alert_id>/acknowledge": {},
    "POST api/v1/alerts/<alert_id>/snooze": {"minutes": 15},
    "POST api/v1/alerts/<alert_id>/escalate": {},
    "POST api/v1/alerts/<alert_id>/notes": {"note": "a test"},
    "POST api/v1/silences": {"matchers": [], "reason": "a test", "minutes": 1},
    "POST api/v1/silences/preview": {"matchers": []},
    "POST api/v1/alert-rules/<name>": {"fields": {}, "reason": "a test"},
    "POST api/v1/alert-rules/<name>/preview": {"fields": {}},
    "POST api/v1/receivers/<name>": {"channel": "browser", "reason": "a test"},
    "POST api/v1/receivers/<name>/delete": {"reason": "a test"},
    "POST api/v1/marks": {"title": "a test"},
    "POST api/v1/marks/<mark_id>/remove": {"reason": "a test"},
    "POST api/v1/loops/<loop_id>/mode": {"mode": "auto", "reason": "a test"},
    "POST api/v1/plans/<plan_id>/approve": {"hash": "0" * 64, "reason": "a test"},
    "POST api/v1/plans/<plan_id>/reject": {"reason": "a test"},
    "POST api/v1/plans/<plan_id>/stop": {"reason": "a test"},
    "POST api/v1/plans/<plan_id>/roll-back": {"reason": "a test"},
    "POST api/v1/queues/<queue>/points": {"points": {"n1": 1000}, "reason": "a test"},
    "POST api/v1/processes/<process>/restart": {"reason": "a test"},
    "POST api/v1/queues/<queue>/create": {"kind": "jobs", "reason": "a test"},
    "POST api/v1/queues/<queue>/definition": {"digest": "", "reason": "a test"},
    "POST api/v1/queues/<queue>/pause": {"part": "intake", "minutes": 1, "reason": "a test"},
    "POST api/v1/queues/<queue>/resume": {"part": "intake"},
    "POST api/v1/workers/<host>/drain": {"minutes": 1, "reason": "a test"},
    "POST api/v1/queues/<queue>/cap": {"cap": "nodes", "reason": "a test"},
    "POST api/v1/nodes/<name>/use": {"use": "cordon", "reason": "a test"},
    "POST api/v1/experiments": {"scenario": "crash"},
    "POST api/v1/experiments/<experiment_id>/apply": {"law": "x", "names": ["x"], "reason": "a test"},
    "POST api/v1/experiments/<experiment_id>/plan": {"law": "x"},
    "POST api/v1/dead-letters/requeue": {"letters": ["alert/n1/1-0/x"], "reason": "a test"},
    "POST api/v1/dead-letters/discard": {"letters": ["alert/n1/1-0/x"], "reason": "a test"},
    "POST api/v1/dead-letters/<queue>/<node>/<dead_id>/fix": {"digest": "x", "event": {}, "reason": "a test"},
    "POST api/v1/tasks": {"name": "mine", "job": "retention", "reason": "a test"},
    "POST api/v1/tasks/<name>": {"job": "retention", "reason": "a test"},
    "POST api/v1/tasks/<name>/run": {"reason": "a test"},
    "POST api/v1/runs/<run_id>/cancel": {"reason": "a test"},
    "POST api/v1/runs/<run_id>/resume": {"reason": "a test"},
    "POST api/v1/settings/<name>": {"value": 600, "reason": "a test"},
    "POST api/v1/loops/<loop_id>/settings": {"name": "upper_limit", "value": 600, "reason": "a test"},
    "POST api/v1/users": {"username": "new", "role": "viewer", "reason": "a test"},
    "POST api/v1/users/<username>/role": {"role": "operator", "reason": "a test"},
    "POST api/v1/users/<username>/disable": {"reason": "a test"},
    "POST api/v1/users/<username>/enable": {"reason": "a test"},
    "POST api/v1/users/<username>/reset": {"reason": "a test"},
    "POST api/v1/users/<username>/queues": {"queues": ["alert"], "reason": "a test"},
    "POST api/v1/users/<username>/second-factor": {"reason": "a test"},
    "POST api/v1/tokens": {"name": "new", "role": "viewer", "days": 5},
    "POST api/v1/tokens/<token_id>/quota": {"events_per_second": 5, "reason": "a test"},
    "POST api/v1/applications": {"text": "name: a test", "reason": "a test"},
    "POST api/v1/applications/<name>/restart": {"reason": "a test"},
    "POST api/v1/applications/<name>/stop": {"reason": "a test"},
    "POST api/v1/applications/<name>/start": {"reason": "a test"},
    "POST api/v1/applications/<name>/operators/<operator>/tasks": {"tasks": 2, "reason": "a test"},
    "POST api/v1/applications/<name>/criteria/<criterion>": {"value": 0.5, "reason": "a test"},
    "POST api/v1/overrides": {"loop": 1, "name": "upper_limit", "value": 1, "reason": "a test", "minutes": 1},
    "POST api/v1/overrides/<override_id>/extend": {"minutes": 1},
}


def of_api(door: str) -> bool:
    """Whether it answers who it doesn't know, rather than leading to the login page."""
    return door.split(" ", 1)[1].startswith(("api/", "control/"))


def routes(patterns: Any = None, before: str = "") -> Iterator[str]:
    for pattern in get_resolver().url_patterns if patterns is None else patterns:
        here = before + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from routes(pattern.url_patterns, here)
        elif isinstance(pattern, URLPattern):
            yield here


def test_every_address_stands_in_the_table():
    assert set(routes()) == {door.split(" ", 1)[1] for door in DOORS}


@pytest.fixture
def things(people, control) -> dict[str, Any]:
    """One of everything an address may name. Ids are what the addresses are filled with."""
    node = Node.objects.create(name="n1", url="redis://127.0.0.1:1/0")
    queue = Queue.objects.create(name="alert", kind="jobs")
    Container.objects.create(queue=queue, node=node, points=1000)
    loop = Loop.objects.create(name="worker_rate/alert/n1", law="worker_rate", target={"queue": "alert"})
    entry = LedgerEntry.objects.create(loop=loop, mode="auto", parameters={}, reason="a test")
    override = Override.objects.create(
        loop=loop,
        name="upper_limit",
        value=1,
        owner=people["operator"],
        reason="a test",
        expires_at=timezone.now() + timedelta(hours=1),
    )
    token, _ = create_token(people["viewer"], "mine", "viewer", timezone.now() + timedelta(days=1))
    session = UserSession.objects.create(user=people["viewer"], digest="0" * 64)
    plan = Plan.objects.create(
        kind="hand",
        title="a test",
        reason="a test",
        moves=[],
        base={},
        base_revision=1,
        hash="0" * 64,
        expires_at=timezone.now() + timedelta(minutes=5),
    )
    Declarations(control).note_at_work(Declared("performance", 0, DECLARATION))
    run = Run.objects.create(task=task_definitions.define("retention", "retention"), single_instance=True)
    experiment = Experiment.objects.create(scenario="crash", laws=["thesis"])
    return {
        "<int:loop_id>": loop.pk,
        "<loop_id>": loop.pk,
        "<int:entry_id>": entry.pk,
        "<entry_id>": entry.pk,
        "<int:override_id>": override.pk,
        "<override_id>": override.pk,
        "<int:token_id>": token.pk,
        "<token_id>": token.pk,
        "<int:user_id>": people["viewer"].pk,
        "<username>": "stranger",
        "<int:session_id>": session.pk,
        "<session_id>": session.pk,
        "<int:plan_id>": plan.pk,
        **alert_things(people),
        "<plan_id>": plan.pk,
        "<int:run_id>": run.pk,
        "<run_id>": run.pk,
        "<int:experiment_id>": experiment.pk,
        "<experiment_id>": experiment.pk,
        "<queue>": "alert",
        "<str:queue>": "alert",
        "<host>": "jobs@here",
        "<process>": "web",
        "<node>": "n1",
        "<str:node>": "n1",
        "<dead_id>": "1-0",
        "<str:dead_id>": "1-0",
        "<str:operator>": "hosts",
        "<path:address>": "start/",
        "<mark_id>": Mark.objects.create(title="a test", at=timezone.now(), author="operator").pk,
    }


def alert_things(people: dict[str, User]) -> dict[str, Any]:
    """An alert that nobody has, its rule and receiver, and a silence."""
    now = timezone.now()
    receiver = Receiver.objects.create(name="desk", channel="browser")
    rule = define("alert", {"condition": "node_lost", "title": "a test", "threshold": 10}, now)
    alert = Alert.objects.create(
        rule=rule,
        rule_name=rule.name,
        condition="node_lost",
        fingerprint="0" * 64,
        labels={"node": "n1"},
        severity="warning",
        title="a test",
        threshold=10,
        state="firing",
        began_at=now,
        fired_at=now,
    )
    end = now + timedelta(hours=1)
    silence = Silence.objects.create(matchers=[], reason="a test", owner=people["operator"], expires_at=end)
    return {
        "<int:alert_id>": alert.pk,
        "<alert_id>": alert.pk,
        "<int:silence_id>": silence.pk,
        "<silence_id>": silence.pk,
        "<int:receiver_id>": receiver.pk,
    }


def address_of(route: str, things: dict[str, Any]) -> str:
    address = route
    for place, value in things.items():
        address = address.replace(place, str(value))
    name = NAMES.get(route.removeprefix("api/v1/").split("/")[0], "alert")
    if "settings/" in route:
        name = "plan.expires_seconds"
    address = address.replace("<plant>", "main")
    return "/" + address.replace("<str:name>", name).replace("<name>", name)


def knock(browser: Client, door: str, things: dict[str, Any], **headers: str) -> int:
    """The status behind a door; what a door changes is taken back with the test's transaction."""
    method, route = door.split(" ", 1)
    address = address_of(route, things)
    if method == "GET":
        return browser.get(address, QUERY.get(door), **headers).status_code
    if of_api(door):
        address += OPERATIONS.get(route.rpartition("/")[2], "")
        body = API_BODIES.get(door, {})
        return browser.post(address, body, content_type="application/json", **headers).status_code
    return browser.post(address, {}, headers={"accept": "application/json"}, **headers).status_code


def taken_back(knocking: Callable[[], int]) -> int:
    """The status of a knock; what it changed in the database is as before."""
    with transaction.atomic():
        status = knocking()
        transaction.set_rollback(True)
    return status


def grouped(*doors: str) -> list[Any]:
    """The doors by the first part of their route: one test a group, which makes what they share once."""
    groups: dict[str, list[str]] = defaultdict(list)
    for door in doors:
        groups[door.split(" ", 1)[1].removeprefix("api/v1/").split("/")[0] or "overview"].append(door)
    return [pytest.param(those, id=group) for group, those in sorted(groups.items())]


class Knocker:
    """Knocks at one door after another; before each, control server, cookies and database are as at first."""

    def __init__(self, control: redis.Redis, things: dict[str, Any]) -> None:
        self.control = control
        self.things = things
        self.stored = {key: control.dump(key) for key in control.scan_iter()}

    def status(self, browser: Client, door: str, **headers: str) -> int:
        cookies = copy.deepcopy(browser.cookies)
        try:
            return taken_back(functools.partial(knock, browser, door, self.things, **headers))
        finally:
            browser.cookies = cookies

    def at_each(self, doors: list[str]) -> Iterator[str]:
        for door in doors:
            self.control.flushall()
            for key, value in self.stored.items():
                self.control.restore(key, 0, value)
            yield door


@pytest.fixture
def knocker(control, things, stored_snapshot) -> Knocker:
    return Knocker(control, things)


def admits(door: str, who: str) -> bool:
    least = DOORS[door]
    return least == "free" or EVERYBODY.index(who) >= EVERYBODY.index(least)


@pytest.mark.parametrize("doors", grouped(*DOORS))
def test_a_door_opens_to_its_least_role_and_those_above(doors, browsers, knocker):
    wrong = []
    for door in knocker.at_each(doors):
        for who in EVERYBODY:
            status = knocker.status(browsers[who], door)
            # A page sends to the login, the API says that it does not know who asks.
            refusal = (401 if of_api(door) else 302) if who == "anonymous" else 403
            if status in (401, 403) if admits(door, who) else status != refusal:
                wrong.append((door, who, status))
    assert not wrong


# What takes a login, or a token whose own actions name it (tests/security/test_tokens.py).
NO_PLAIN_TOKEN = tuple(f"api/v1/{each}" for each in ("users", "sessions", "tokens"))


@pytest.mark.parametrize(
    "doors", grouped(*(each for each in DOORS if of_api(each) and DOORS[each] != "free"))
)
def test_a_token_opens_the_api_as_far_as_its_role(doors, secrets, knocker):
    wrong = []
    for door in knocker.at_each(doors):
        publishes = door.endswith("/events")
        for role in ("producer", *ROLES):
            status = knocker.status(Client(), door, HTTP_AUTHORIZATION=f"Bearer {secrets[role]}")
            let_in = publishes if role == "producer" else admits(door, role)
            let_in = let_in and not door.split(" ")[1].startswith(NO_PLAIN_TOKEN)
            let_in = let_in or (publishes and role == "administrator")
            if status in (401, 403) if let_in else status != 403:
                wrong.append((door, role, status))
    assert not wrong


def test_a_token_opens_no_page(secrets, knocker):
    headers = {"HTTP_AUTHORIZATION": f"Bearer {secrets['administrator']}"}
    pages = [door for door in DOORS if DOORS[door] != "free" and not of_api(door)]
    answers = {door: knocker.status(Client(), door, **headers) for door in knocker.at_each(pages)}
    assert {door: status for door, status in answers.items() if status != 302} == {}


def test_a_session_without_the_csrf_token_changes_nothing(people, knocker):
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(people["administrator"], backend="django.contrib.auth.backends.ModelBackend")
    doors = [door for door in DOORS if door.startswith("POST")]
    answers = {door: knocker.status(browser, door) for door in knocker.at_each(doors)}
    assert {door: status for door, status in answers.items() if status != 403} == {}


def test_an_api_token_needs_no_csrf_token(secrets, things):
    browser = Client(enforce_csrf_checks=True)
    headers = {"HTTP_AUTHORIZATION": f"Bearer {secrets['operator']}"}
    assert knock(browser, "POST api/v1/overrides/<override_id>/end", things, **headers) == 200


def test_a_wrong_token_does_not_fall_back_to_the_session(browsers, things):
    headers = {"HTTP_AUTHORIZATION": "Bearer weir_nobodys"}
    assert knock(browsers["administrator"], "GET api/v1/loops", things, **headers) == 401


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic YTpi", "weir_x"])
def test_a_malformed_authorization_is_refused(header, things):
    response = Client().get("/api/v1/loops", HTTP_AUTHORIZATION=header)
    assert response.status_code == 401
    assert response["WWW-Authenticate"] == "Bearer"
    assert "authorization" in response.json()["errors"]


def test_only_the_digest_of_a_token_is_kept(people):
    token, secret = create_token(people["viewer"], "t", "viewer", timezone.now() + timedelta(days=1))
    kept = str(ApiToken.objects.values().get(pk=token.pk))
    assert secret not in kept and digest_of(secret) in kept


@pytest.mark.parametrize("end", ["expired", "revoked", "owner inactive"])
def test_a_token_that_has_ended_is_nobody(end, people):
    now = timezone.now()
    token, secret = create_token(people["viewer"], "t", "viewer", now + timedelta(days=1))
    assert actor_of_token(secret, now).name == "token:t"
    if end == "owner inactive":
        User.objects.filter(pk=people["viewer"].pk).update(is_active=False)
    if end == "revoked":
        ApiToken.objects.filter(pk=token.pk).update(revoked_at=now)
    assert actor_of_token(secret, now + timedelta(days=1 if end == "expired" else 0)) is None


def test_a_token_falls_with_its_owners_role(people):
    _, secret = create_token(people["operator"], "t", "operator", timezone.now() + timedelta(days=1))
    people["operator"].groups.set([Group.objects.get(name="viewer")])
    actor = actor_of_token(secret, timezone.now())
    assert actor.role == "viewer"
    assert not actor.may("override.set")


@pytest.mark.parametrize(
    ("token", "owner", "least"),
    [
        ("administrator", "operator", "operator"),
        ("viewer", "administrator", "viewer"),
        ("producer", "operator", "producer"),
        ("producer", "viewer", None),
        ("viewer", None, None),
    ],
)
def test_a_token_never_has_more_than_its_owner(token, owner, least):
    assert least_role(token, owner) == least


def test_the_highest_group_counts_and_a_superuser_is_an_administrator(people):
    people["viewer"].groups.add(Group.objects.get(name="operator"))
    assert role_of(people["viewer"]) == "operator"
    assert role_of(User(username="root", is_superuser=True)) == "administrator"
    assert role_of(people["stranger"]) is None


@pytest.mark.parametrize("action", ACTIONS)
def test_each_role_may_all_that_a_lower_one_may(action):
    answers = [Actor("somebody", role).may(action) for role in ROLES]
    assert answers == sorted(answers)
    assert answers[-1]
    assert not Actor("nobody", None).may(action)


def test_an_action_that_is_not_in_the_table_is_refused_loudly():
    with pytest.raises(KeyError):
        Actor("somebody", "administrator").may("plant.destroy")


def test_every_page_carries_the_content_security_policy(browsers, stored_snapshot):
    for address in ("/", "/login/", "/nowhere", "/healthz", "/api/v1/live"):
        policy = browsers["viewer"].get(address)["Content-Security-Policy"]
        assert "script-src 'self';" in policy and "frame-ancestors 'none'" in policy


def test_a_login_leads_in_and_a_logout_out(people, control):
    browser = Client()
    assert browser.get("/nodes/").url == "/login/?next=/nodes/"
    answer = browser.post("/login/?next=/nodes/", {"username": "viewer", "password": PASSWORD})
    assert answer.url == "/nodes/"
    assert browser.get("/nodes/").status_code == 200
    assert browser.get("/logout/").status_code == 405
    browser.post("/logout/")
    assert browser.get("/nodes/").status_code == 302


def test_a_login_never_leads_to_another_site(people, control):
    answer = Client().post("/login/?next=https://elsewhere/", {"username": "viewer", "password": PASSWORD})
    assert answer.url == "/"


def test_five_wrong_passwords_lock_the_account_out_for_a_while(people, control):
    browser = Client()
    tries = [browser.post("/login/", {"username": "viewer", "password": "wrong"}) for _ in range(5)]
    assert [answer.status_code for answer in tries[:4]] == [200] * 4
    assert tries[4].status_code == 429
    assert browser.post("/login/", {"username": "viewer", "password": PASSWORD}).status_code == 429
    assert browser.post("/login/", {"username": "operator", "password": PASSWORD}).status_code == 302


def test_a_locked_out_page_says_so(people, control):
    answers = [Client().post("/login/", {"username": "viewer", "password": "wrong"}) for _ in range(5)]
    assert "people/locked_out.html" in [template.name for template in answers[-1].templates]


def test_a_request_has_one_actor(people):
    request = HttpRequest()
    request.user = people["operator"]
    assert role_of(request.user) == "operator"
