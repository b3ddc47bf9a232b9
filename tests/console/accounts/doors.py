"""The doors of the console: every address with the least role that it opens to, and what to knock with."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone

from console.accounts.access import create_token
from console.actions.timeline.shared_links import address_of as address_of_link
from console.models import AssistantProposal, Mark, SharedLink, UserSession
from queues.models import Container, Node, Queue
from tests.console.pipeline_sample import DECLARATION
from workers.alerts.lifecycle.models import Alert, Incident, Receiver, Silence
from workers.alerts.rules.rules import define
from workers.batch import task_definitions
from workers.lab.models import Experiment
from workers.models import LedgerEntry, Loop, Override, Plan, Run, Tuning
from workers.objectives.models import Objective
from workers.pipeline.declaration.declared import Declarations, Declared

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
    "GET plants/attach": "administrator",
    "POST plants/attach": "administrator",
    "POST plants/register": "administrator",
    "GET plants/<str:name>/": "viewer",
    "POST plants/<str:name>/tasks": "operator",
    "POST plants/<str:name>/release": "operator",
    "POST plants/<str:name>/resume": "operator",
    "POST plants/<str:name>/interventions": "operator",
    "POST plants/<str:name>/interventions/undo": "operator",
    "POST plants/<str:name>/remove": "administrator",
    "GET loops/": "viewer",
    "GET loops/<int:loop_id>/": "viewer",
    "GET loops/<int:loop_id>/predicted": "viewer",
    "GET loops/<int:loop_id>/what-if/": "viewer",
    "POST loops/<int:loop_id>/override": "operator",
    "POST loops/<int:loop_id>/weigh": "operator",
    "POST loops/<int:loop_id>/tasks": "operator",
    "POST loops/<int:loop_id>/mode": "operator",
    "POST loops/<int:loop_id>/tuning": "operator",
    "GET proposals/": "viewer",
    "GET proposals/<int:proposal_id>/": "viewer",
    "POST proposals/<int:proposal_id>/decide": "operator",
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
    "GET alerts/<int:alert_id>/incident/": "viewer",
    "POST alerts/<int:alert_id>/incident/change": "operator",
    "POST alerts/<int:alert_id>/incident/review": "operator",
    "GET alerts/<int:alert_id>/incident/review.md": "viewer",
    "POST alerts/<int:alert_id>/incident/follow-ups": "operator",
    "POST alerts/<int:alert_id>/incident/follow-ups/<int:follow_up_id>": "operator",
    "GET alerts/review/": "viewer",
    "GET reports/": "viewer",
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
    "POST timeline/share": "operator",
    "POST timeline/share/end": "operator",
    "GET shared/<str:signed>/": "free",
    "GET shared/<str:signed>/picture.png": "free",
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
    "GET api/v1/changes": "viewer",
    "GET api/v1/differences": "viewer",
    "GET differences/": "viewer",
    "GET costs/": "viewer",
    "GET api/v1/costs": "viewer",
    "GET api/v1/loops/<loop_id>/costs": "viewer",
    "POST api/v1/changes": "operator",
    "POST api/v1/marks": "operator",
    "POST api/v1/marks/<mark_id>/remove": "operator",
    "GET api/v1/shared-links": "operator",
    "POST api/v1/shared-links": "operator",
    "POST api/v1/shared-links/<link_id>/end": "operator",
    "GET api/v1/queues": "viewer",
    "GET api/v1/queues/<name>": "viewer",
    "POST api/v1/queues/<queue>/events": "operator",
    "GET api/v1/nodes": "viewer",
    "GET api/v1/nodes/<name>": "viewer",
    "GET api/v1/loops": "viewer",
    "GET api/v1/loops/<loop_id>": "viewer",
    "GET api/v1/loops/<loop_id>/desired": "viewer",
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
    "GET api/v1/reports": "viewer",
    "GET api/v1/alerts/reported": "viewer",
    "POST api/v1/alerts/reported": "operator",
    "GET api/v1/alerts/<alert_id>": "viewer",
    "GET api/v1/alerts/<alert_id>/changes": "viewer",
    "GET api/v1/alerts/<alert_id>/incident": "viewer",
    "POST api/v1/alerts/<alert_id>/incident": "operator",
    "GET api/v1/alerts/<alert_id>/review": "viewer",
    "POST api/v1/alerts/<alert_id>/review": "operator",
    "POST api/v1/alerts/<alert_id>/follow-ups": "operator",
    "POST api/v1/alerts/<alert_id>/follow-ups/<follow_up_id>": "operator",
    "GET api/v1/follow-ups": "viewer",
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
    "GET api/v1/proposals": "viewer",
    "GET api/v1/proposals/<proposal_id>": "viewer",
    "POST api/v1/proposals": "viewer",
    "POST api/v1/proposals/<proposal_id>/approve": "operator",
    "POST api/v1/proposals/<proposal_id>/reject": "operator",
    "GET service-levels/": "viewer",
    "POST service-levels/change": "operator",
    "GET service-levels/<str:name>/": "viewer",
    "POST service-levels/<str:name>/remove": "operator",
    "GET api/v1/objectives": "viewer",
    "GET api/v1/objectives/<name>": "viewer",
    "POST api/v1/objectives/<name>": "operator",
    "POST api/v1/objectives/<name>/remove": "operator",
    "GET api/v1/tunings": "viewer",
    "POST api/v1/tunings/<tuning_id>/approve": "operator",
    "POST api/v1/tunings/<tuning_id>/reject": "operator",
    "POST api/v1/overrides/<override_id>/end": "operator",
    "POST api/v1/overrides/<override_id>/extend": "operator",
    "GET api/v1/plants": "viewer",
    "POST api/v1/plants": "administrator",
    "POST api/v1/plants/inspect": "administrator",
    "GET api/v1/plants/<plant>/desired": "viewer",
    "POST api/v1/plants/<plant>/remove": "administrator",
    "POST api/v1/plants/<plant>/tasks": "operator",
    "POST api/v1/plants/<plant>/release": "operator",
    "POST api/v1/plants/<plant>/resume": "operator",
    "GET api/v1/plants/<plant>/interventions": "viewer",
    "POST api/v1/plants/<plant>/interventions": "operator",
    "POST api/v1/plants/<plant>/interventions/undo": "operator",
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
    "GET api/v1/changes": {"from": "2026-11-20T03:12:00Z", "to": "2026-11-20T03:13:00Z"},
    "GET api/v1/differences": {"from": "2026-11-20T03:12:00Z", "to": "2026-11-20T03:13:00Z"},
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
    "POST api/v1/plants/inspect": {"kind": "weir", "url": "http://127.0.0.1:9/control/main/v1"},
    "POST api/v1/plants": {"name": "east", "kind": "weir", "url": "http://east", "reason": "a test"},
    "POST api/v1/plants/<plant>/remove": {"reason": "a test"},
    "POST api/v1/plants/<plant>/resume": {"reason": "a test"},
    "POST api/v1/plants/<plant>/interventions": {"kind": "pause", "subject": "celery", "reason": "a test"},
    "POST api/v1/plants/<plant>/interventions/undo": {
        "kind": "pause",
        "subject": "celery",
        "reason": "a test",
    },
    "POST api/v1/plants/<plant>/tasks": {"operator": "performance/hosts", "tasks": 2, "reason": "a test"},
    "POST api/v1/alerts/reported": {"version": "4", "alerts": []},
    "POST api/v1/alerts/<alert_id>/acknowledge": {},
    "POST api/v1/alerts/<alert_id>/snooze": {"minutes": 15},
    "POST api/v1/alerts/<alert_id>/escalate": {},
    "POST api/v1/alerts/<alert_id>/notes": {"note": "a test"},
    "POST api/v1/alerts/<alert_id>/incident": {"severity": "critical"},
    "POST api/v1/alerts/<alert_id>/review": {"text": "a test", "revision": 0},
    "POST api/v1/alerts/<alert_id>/follow-ups": {"text": "a test"},
    "POST api/v1/alerts/<alert_id>/follow-ups/<follow_up_id>": {"done": True},
    "POST api/v1/silences": {"matchers": [], "reason": "a test", "minutes": 1},
    "POST api/v1/silences/preview": {"matchers": []},
    "POST api/v1/alert-rules/<name>": {"fields": {}, "reason": "a test"},
    "POST api/v1/alert-rules/<name>/preview": {"fields": {}},
    "POST api/v1/receivers/<name>": {"channel": "browser", "reason": "a test"},
    "POST api/v1/receivers/<name>/delete": {"reason": "a test"},
    "POST api/v1/marks": {"title": "a test"},
    "POST api/v1/changes": {"specversion": "1.0", "id": "1", "source": "/ci", "type": "dev.test.deploy"},
    "POST api/v1/marks/<mark_id>/remove": {"reason": "a test"},
    "POST api/v1/shared-links": {"at": "2026-11-20T03:12:00Z", "hours": 1, "reason": "a test"},
    "POST api/v1/shared-links/<link_id>/end": {"reason": "a test"},
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
    "POST api/v1/objectives/<name>": {"fields": {"target": 0.9}, "reason": "a test"},
    "POST api/v1/objectives/<name>/remove": {"reason": "a test"},
    "POST api/v1/tunings/<tuning_id>/approve": {"hash": "0" * 64, "reason": "a test", "minutes": 1},
    "POST api/v1/tunings/<tuning_id>/reject": {"reason": "a test"},
    "POST api/v1/proposals": {"act": "hold", "arguments": {}, "reason": "a test"},
    "POST api/v1/proposals/<proposal_id>/approve": {"hash": "0" * 64, "reason": "a test"},
    "POST api/v1/proposals/<proposal_id>/reject": {"reason": "a test"},
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
    tuning = Tuning.objects.create(
        loop=loop,
        values={"caution": 0.2},
        instead_of={"caution": 0.4},
        days=[],
        improvement=0.1,
        confidence=1.0,
        hash="0" * 64,
    )
    Objective.objects.create(name="alert", condition="backlog_seconds <= 30", target=0.99)
    token, _ = create_token(people["viewer"], "mine", "viewer", timezone.now() + timedelta(days=1))
    proposal = AssistantProposal.objects.create(
        act="hold",
        arguments={"loop": loop.name, "minutes": 10},
        reason="a test",
        token=token,
        snapshot_seq=1,
        snapshot_at=1_790_000_000.0,
        hash="0" * 64,
        created_at=timezone.now(),
        expires_at=timezone.now() + timedelta(minutes=5),
    )
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
        "<tuning_id>": tuning.pk,
        "<int:proposal_id>": proposal.pk,
        "<proposal_id>": proposal.pk,
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
        **link_things(),
        "<mark_id>": Mark.objects.create(title="a test", at=timezone.now(), author="operator").pk,
    }


def link_things() -> dict[str, Any]:
    """A link to an instant."""
    now = timezone.now()
    link = SharedLink.objects.create(
        at=now, reason="a test", author="ada", expires_at=now + timedelta(hours=1)
    )
    return {"<link_id>": link.pk, "<str:signed>": address_of_link(link).split("/")[2]}


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
    follow_up = Incident.objects.create(alert=alert).follow_ups.create(text="a test")
    end = now + timedelta(hours=1)
    silence = Silence.objects.create(matchers=[], reason="a test", owner=people["operator"], expires_at=end)
    return {
        "<int:alert_id>": alert.pk,
        "<alert_id>": alert.pk,
        "<int:silence_id>": silence.pk,
        "<silence_id>": silence.pk,
        "<int:receiver_id>": receiver.pk,
        "<int:follow_up_id>": follow_up.pk,
        "<follow_up_id>": follow_up.pk,
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
