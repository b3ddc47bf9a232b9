"""The doors of the console: every address with the least role that it opens to, and what to request_route with.

The addresses are those of the program; the roles are a policy that is stated here: what reads is open to viewers, what
changes something to operators, and POLICY says all else.
"""

import re

from django.db import transaction
from django.urls import URLPattern, URLResolver, get_resolver

from console.accounts.access import ACTIONS
from console.api import v1
from console.api.routes import plant_control
from console.navigation import load_pages

# No session helps there: who posts proves itself by a secret of its own (tests/console/api/test_chat.py).
BY_SECRET = frozenset({"POST api/v1/chat/<receiver>"})
EVERYBODY = ("anonymous", "stranger", "viewer", "operator", "administrator")
DESCRIBING = ("GET api/", "GET api/schema", "GET control/")  # of the API itself, no operation of it
# Policy: who is let in where it is not the viewer (reading) or the operator (changing). `free`: no login needed.
OPEN_TO = {
    ("free", "GET"): """
        shared/<str:signed>/ login/ logged-out/ login/code/ oidc/begin/ oidc/callback/ healthz readyz metrics
        api/ api/schema control/ windows/feed.ics
    """,
    ("free", "POST"): """
        login/ login/code/ login/passkey login/passkey/options api/v1/chat/<receiver>
    """,
    ("stranger", "GET"): """
        confirm/
    """,
    ("stranger", "POST"): """
        logout/ confirm/
    """,
    ("viewer", "POST"): """
        alerts/silences/preview alerts/rules/preview windows/preview settings/ settings/preferences filters/save
        filters/remove
        settings/sessions/<int:session_id>/end settings/tokens settings/tokens/<int:token_id>/revoke
        settings/second-factor/ settings/passkeys/options api/v1/passkeys/<passkey_id>/rename
        api/v1/passkeys/<passkey_id>/remove
        api/v1/sessions/<session_id>/end api/v1/tokens api/v1/tokens/<token_id>/revoke
        api/v1/silences/preview api/v1/alert-rules/<name>/preview api/v1/proposals
    """,
    ("operator", "GET"): """
        queues/<str:name>/waiting/ dead-letters/<str:queue>/<str:node>/<str:dead_id>/bytes api/v1/shared-links
        api/v1/queues/<queue>/waiting api/v1/dead-letters/<queue>/<node>/<dead_id>/bytes windows/import/
        plants/<str:name>/messages/ plants/<str:name>/revoke/ windows/<int:window_id>/edit/
    """,
    ("administrator", "GET"): """
        queues/new queues/<str:name>/definition/ processes/ plants/attach audit/ settings/users/ api/v1/users
        api/v1/users/<username>/passkeys
        api/v1/audit api/v1/audit/export api/v1/queues/<queue>/definition api/v1/processes
        api/v1/processes/<process>/log
    """,
    ("administrator", "POST"): """
        queues/create queues/<str:name>/definition/preview queues/<str:name>/change processes/restart
        queues/<str:name>/roll-back
        plants/attach plants/register plants/<str:name>/remove plants/<str:name>/detach tasks/define
        alerts/receivers/change
        alerts/receivers/<int:receiver_id>/delete alerts/receivers/<int:receiver_id>/test
        windows/<int:window_id>/override api/v1/windows/<window_id>/override
        settings/plant/<str:name> settings/plant/loops/<int:loop_id> settings/users/create
        settings/users/<int:user_id> settings/users/<int:user_id>/reset api/v1/settings/<name>
        api/v1/loops/<loop_id>/settings api/v1/users api/v1/users/<username>/role
        api/v1/users/<username>/disable api/v1/users/<username>/enable api/v1/users/<username>/reset
        api/v1/users/<username>/queues api/v1/users/<username>/second-factor api/v1/tokens/<token_id>/quota
        api/v1/users/<username>/passkeys/<passkey_id>/remove
        api/v1/queues/<queue>/create api/v1/queues/<queue>/definition api/v1/processes/<process>/restart
        api/v1/receivers/<name> api/v1/receivers/<name>/delete api/v1/receivers/<name>/test api/v1/tasks
        api/v1/plants api/v1/plants/inspect api/v1/plants/<plant>/remove api/v1/plants/<plant>/detach
    """,
}
POLICY = {
    role: tuple(
        f"{method} {route}" for (who, method), routes in OPEN_TO.items() for route in routes.split() if who == role
    )
    for role, _ in OPEN_TO
}
# A page's address ends with a slash, that of a file has a dot, and that of a change has neither, except for these.
READ = frozenset(
    {
        "", "dead-letters/<str:queue>/<str:node>/<str:dead_id>/bytes", "healthz", "help/<path:address>",
        "lab/compare", "loops/<int:loop_id>/predicted", "metrics", "queues/new", "readyz",
    },
)  # fmt: skip
READ_AND_CHANGED = frozenset(
    {"plants/attach", "settings/", "settings/second-factor/", "login/", "login/code/", "confirm/"}
)
CHANGED = frozenset({"logout/"})


def of_api(door):
    """Whether it answers who it doesn't know, rather than leading to the login page."""
    return door.split(" ", 1)[1].startswith(("api/", "control/"))


def routes(patterns=None, before=""):
    for pattern in get_resolver().url_patterns if patterns is None else patterns:
        here = before + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from routes(pattern.url_patterns, here)
        elif isinstance(pattern, URLPattern):
            yield here


def find_doors():
    """Method and route of every page, change, and operation of both APIs."""
    for route in sorted({*routes()}):
        if of_api(f"GET {route}"):
            continue
        reads = route in READ or (route not in CHANGED and (route.endswith("/") or "." in route))
        if reads or route in READ_AND_CHANGED:
            yield f"GET {route}"
        if not reads or route in READ_AND_CHANGED:
            yield f"POST {route}"
    yield from DESCRIBING
    for api, before in ((v1.api, "api/"), (plant_control.api, "control/")):
        for path, methods in api.get_openapi_schema(path_prefix="/")["paths"].items():
            if api is plant_control.api or not path.startswith("/control/"):
                route = re.sub(r"\{(\w+)\}", r"<\1>", path.lstrip("/"))
                yield from (f"{method.upper()} {before}{route}" for method in methods)


def of_declared_pages():
    """Those of pages that declare themselves, each with the role that its declaration names."""
    return {f"GET {page.address}": ACTIONS[page.action] for page in load_pages().values()}


# Method and route → who is let in (what is behind the door is another test's).
ROUTE_PERMISSIONS = {
    **{door: "viewer" if door.startswith("GET ") else "operator" for door in find_doors()},
    **{door: role for role, doors in POLICY.items() for door in doors},
    **of_declared_pages(),
}
QUERY = {
    "GET api/v1/queues/<queue>/waiting": {"node": "n1"},
    "GET task-history/task/": {"plant": "main", "id": "run-7"},
    "GET api/v1/history": {"series": "totals.in_per_second", "from": 0, "to": 1},
    "GET api/v1/loops/<loop_id>/what-if": {"set": "upper_limit=5"},
    "GET api/v1/snapshot": {"at": "2026-11-20T03:12:00Z"},
    "GET api/v1/decisions": {"from": 0, "to": 1},
    "GET api/v1/marks": {"from": "2026-11-20T03:12:00Z", "to": "2026-11-20T03:13:00Z"},
    "GET api/v1/changes": {"from": "2026-11-20T03:12:00Z", "to": "2026-11-20T03:13:00Z"},
    "GET api/v1/differences": {"from": "2026-11-20T03:12:00Z", "to": "2026-11-20T03:13:00Z"},
    **{door: {"operator": "performance/hosts"} for door in ROUTE_PERMISSIONS if door.startswith("GET control/")},
}
NAMES = {
    "pipeline": "performance", "applications": "performance", "nodes": "n1", "plants": "main", "tasks": "retention",
    "workers": "jobs@here", "receivers": "desk",
}  # fmt: skip
# Of the control API: what it takes stands in its address.
OPERATIONS = {
    "setoperatorparallelism": "?operator=performance/hosts&parallelism=2",
    "setmultipleoperatorparallelism": "?map=performance/hosts:2",
}
# What takes a reason and nothing else.
WITH_A_REASON = """
    plants/<plant>/remove plants/<plant>/detach plants/<plant>/resume plants/<plant>/pause-queues
    plants/<plant>/resume-queues schedules/pause schedules/resume receivers/<name>/delete marks/<mark_id>/remove
    shared-links/<link_id>/end plans/<plan_id>/reject plans/<plan_id>/stop plans/<plan_id>/roll-back
    processes/<process>/restart tasks/<name>/run runs/<run_id>/cancel runs/<run_id>/resume users/<username>/disable
    users/<username>/enable users/<username>/reset users/<username>/second-factor
    users/<username>/passkeys/<passkey_id>/remove applications/<name>/restart
    applications/<name>/stop applications/<name>/start objectives/<name>/remove
    proposals/<proposal_id>/reject windows/<window_id>/end retries/<plan_id>/reject retries/<plan_id>/pause
    retries/<plan_id>/resume retries/<plan_id>/end plants/<plant>/offsets/<plan_id>/reject
"""
API_BODIES = {
    **{f"POST api/v1/{route}": {"reason": "a test"} for route in WITH_A_REASON.split()},
    "POST api/v1/plants/inspect": {"kind": "weir", "url": "http://127.0.0.1:9/control/main/v1"},
    "POST api/v1/plants": {"name": "east", "kind": "weir", "url": "http://east", "reason": "a test"},
    "POST api/v1/plants/<plant>/interventions": {"kind": "pause", "subject": "celery", "reason": "a test"},
    "POST api/v1/plants/<plant>/interventions/undo": {"kind": "pause", "subject": "celery", "reason": "a test"},
    "POST api/v1/plants/<plant>/start-task": {"task": "shop.work", "queue": "celery", "reason": "a test"},
    "POST api/v1/plants/<plant>/offsets/plan": {"group": "billing", "target": "latest"},
    "POST api/v1/plants/<plant>/offsets": {"group": "billing", "target": "latest", "hash": "", "reason": "a test"},
    "POST api/v1/plants/<plant>/offsets/<plan_id>/approve": {"hash": "0" * 64, "reason": "a test"},
    "POST api/v1/plants/<plant>/revoke/preview": {"query": "name:shop.pay"},
    "POST api/v1/plants/<plant>/revoke": {"query": "name:shop.pay", "at": 1, "reason": "a test"},
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
    "POST api/v1/windows": {"name": "a test", "start": "2026-11-20T03:00", "minutes": 5, "reason": "a test"},
    "POST api/v1/windows/import/preview": {"calendar": "none"},
    "POST api/v1/windows/import": {"events": [], "reason": "a test"},
    "POST api/v1/windows/<window_id>/change": {"version": 1, "minutes": 5, "reason": "a test"},
    "POST api/v1/windows/<window_id>/occurrences/end": {"occurrence": "2026-11-20T03:00:00"},
    "POST api/v1/windows/<window_id>/occurrences/extend": {"occurrence": "2026-11-20T03:00:00", "minutes": 1},
    "POST api/v1/windows/<window_id>/override": {"minutes": 1, "reason": "a test"},
    "POST api/v1/alert-rules/<name>": {"fields": {}, "reason": "a test"},
    "POST api/v1/alert-rules/<name>/preview": {"fields": {}},
    "POST api/v1/receivers/<name>": {"channel": "browser", "reason": "a test"},
    "POST api/v1/marks": {"title": "a test"},
    "POST api/v1/changes": {"specversion": "1.0", "id": "1", "source": "/ci", "type": "dev.test.deploy"},
    "POST api/v1/shared-links": {"at": "2026-11-20T03:12:00Z", "hours": 1, "reason": "a test"},
    "POST api/v1/loops/<loop_id>/mode": {"mode": "auto", "reason": "a test"},
    "POST api/v1/loops/<loop_id>/mode-proposal": {"approve": False, "reason": "a test"},
    "POST api/v1/plans/<plan_id>/approve": {"hash": "0" * 64, "reason": "a test"},
    "POST api/v1/retries": {"plant": "main", "query": "state:failed", "reason": "a test"},
    "POST api/v1/retries/preview": {"plant": "main", "query": "state:failed"},
    "POST api/v1/retries/<plan_id>/approve": {"hash": "0" * 64, "reason": "a test"},
    "POST api/v1/plants/<plant>/messages": {"queue": "pay", "action": "purge", "reason": "a test"},
    "POST api/v1/plants/<plant>/messages/preview": {"queue": "pay"},
    "POST api/v1/queues/<queue>/points": {"points": {"n1": 1000}, "reason": "a test"},
    "POST api/v1/queues/<queue>/create": {"kind": "jobs", "reason": "a test"},
    "POST api/v1/queues/<queue>/definition": {"digest": "", "reason": "a test"},
    "POST api/v1/queues/<queue>/pause": {"part": "intake", "minutes": 1, "reason": "a test"},
    "POST api/v1/queues/<queue>/circuit": {"circuit": "open", "minutes": 1, "reason": "a test"},
    "POST api/v1/queues/<queue>/fairness": {"reason": "a test"},
    "POST api/v1/queues/<queue>/weight": {"key": "a", "weight": 2, "minutes": 1, "reason": "a test"},
    "POST api/v1/queues/<queue>/weight/end": {"key": "a"},
    "POST api/v1/queues/<queue>/resume": {"part": "intake"},
    "POST api/v1/workers/<host>/drain": {"minutes": 1, "reason": "a test"},
    "POST api/v1/queues/<queue>/cap": {"cap": "nodes", "reason": "a test"},
    "POST api/v1/nodes/<name>/use": {"use": "cordon", "reason": "a test"},
    "POST api/v1/experiments": {"scenario": "crash"},
    "POST api/v1/experiments/<experiment_id>/apply": {"law": "x", "names": ["x"], "reason": "a test"},
    "POST api/v1/experiments/<experiment_id>/plan": {"law": "x"},
    "POST api/v1/drills": {"scenario": "burst"},
    "POST api/v1/drills/schedule": {"until": "2026-11-20T03:12:00Z"},
    "POST api/v1/dead-letters/requeue": {"letters": ["alert/n1/1-0/x"], "reason": "a test"},
    "POST api/v1/dead-letters/retry": {"letters": ["alert/n1/1-0/x"], "reason": "a test"},
    "POST api/v1/dead-letters/discard": {"letters": ["alert/n1/1-0/x"], "reason": "a test"},
    "POST api/v1/dead-letters/<queue>/<node>/<dead_id>/fix": {"digest": "x", "event": {}, "reason": "a test"},
    "POST api/v1/tasks": {"name": "mine", "job": "retention", "reason": "a test"},
    "POST api/v1/tasks/<name>": {"job": "retention", "reason": "a test"},
    "POST api/v1/settings/<name>": {"value": 600, "reason": "a test"},
    "POST api/v1/loops/<loop_id>/settings": {"name": "upper_limit", "value": 600, "reason": "a test"},
    "POST api/v1/users": {"username": "new", "role": "viewer", "reason": "a test"},
    "POST api/v1/users/<username>/role": {"role": "operator", "reason": "a test"},
    "POST api/v1/users/<username>/queues": {"queues": ["alert"], "reason": "a test"},
    "POST api/v1/passkeys/<passkey_id>/rename": {"name": "new"},
    "POST api/v1/tokens": {"name": "new", "role": "viewer", "days": 5},
    "POST api/v1/tokens/<token_id>/quota": {"events_per_second": 5, "reason": "a test"},
    "POST api/v1/applications": {"text": "name: a test", "reason": "a test"},
    "POST api/v1/applications/<name>/operators/<operator>/tasks": {"tasks": 2, "reason": "a test"},
    "POST api/v1/applications/<name>/criteria/<criterion>": {"value": 0.5, "reason": "a test"},
    "POST api/v1/overrides": {"loop": 1, "name": "upper_limit", "value": 1, "reason": "a test", "minutes": 1},
    "POST api/v1/overrides/<override_id>/extend": {"minutes": 1},
    "POST api/v1/manual-changes/end": {"key": "override/1"},
    "POST api/v1/manual-changes/extend": {"key": "override/1", "minutes": 1},
    "POST api/v1/objectives/<name>": {"fields": {"target": 0.9}, "reason": "a test"},
    "POST api/v1/proposals": {"act": "hold", "arguments": {}, "reason": "a test"},
    "POST api/v1/proposals/<proposal_id>/approve": {"hash": "0" * 64, "reason": "a test"},
}


def address_of(route, things):
    address = route
    for place, value in things.items():
        address = address.replace(place, str(value))
    name = NAMES.get(route.removeprefix("api/v1/").split("/")[0], "alert")
    if "settings/" in route:
        name = "plan.expires_seconds"
    address = address.replace("<plant>", "main")
    return "/" + address.replace("<str:name>", name).replace("<name>", name)


def request_route(browser, door, things, **headers):
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


def taken_back(knocking):
    """The status of a request_route; what it changed in the database is as before."""
    with transaction.atomic():
        status = knocking()
        transaction.set_rollback(True)
    return status
