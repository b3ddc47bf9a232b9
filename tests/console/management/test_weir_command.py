"""manage.py weir: what the pages do, in words, by the same services and with the same refusals."""

import io
import json
import re
import shlex

import httpx
import pytest
from django.core.management import call_command
from django.test import Client

from common.errors import BadInput
from console import release
from console.accounts import access
from console.accounts.access import ACTIONS
from console.api.v1 import api
from console.management.commands import publish, weir
from console.management.commands.weir import format_answer
from console.management.operations import find_operation, list_operations
from console.models import AuditEntry
from queues.models import Queue
from tests.console.accounts.route_permissions import API_BODIES, ROUTE_PERMISSIONS, request_route
from tests.console.accounts.things import things
from workers.models import Loop, Override
from workers.steering import overrides

__all__ = ["things"]  # a fixture of these tests too
pytestmark = pytest.mark.django_db


@pytest.fixture
def loop(people, control):
    Queue.objects.create(name="alert", kind="jobs")
    target = {"queue": "alert", "node": "n1"}
    return Loop.objects.create(name="worker_rate/alert/n1", law="worker_rate", target=target)


def found():
    """Every operation of the API."""
    return list_operations(api.get_openapi_schema(path_prefix="/api/"))


def run(line):
    """What the command prints, as JSON."""
    output = io.StringIO()
    call_command("weir", *shlex.split(line), stdout=output)
    return json.loads(output.getvalue())


def refusal(line):
    """The exit status and what stands on standard error."""
    errors = io.StringIO()
    with pytest.raises(SystemExit) as left:
        call_command("weir", *shlex.split(line), stdout=io.StringIO(), stderr=errors)
    return left.value.code, errors.getvalue().strip()


def test_an_override_is_put_in_force_extended_and_ended(loop):
    made = run(
        f"overrides create --loop {loop.name} --name upper_limit --value 500 --minutes 30"
        " --reason 'the owner'\\''s sale'"
    )
    assert (made["value"], made["reason"], made["owner"]) == (500, "the owner's sale", "administrator")
    assert [row["id"] for row in run("overrides")["overrides"]] == [made["id"]]
    run(f"overrides {made['id']} extend --minutes=30")
    assert run(f"overrides {made['id']} end --reason 'the sale is over'")["ended"] is True
    assert AuditEntry.objects.latest("id").reason == "the sale is over"
    noted = [(each.actor, each.action) for each in AuditEntry.objects.order_by("id")]
    assert noted == [
        ("manage.py:administrator", action) for action in ("override.set", "override.extend", "override.end")
    ]
    assert all(len(each.request_id) == 32 for each in AuditEntry.objects.all())


def test_a_choice_and_many_loops_at_once(loop):
    run("overrides create --queue alert --name guard.direction --value 'up only' --minutes 5 --reason x")
    run("overrides create --law worker_rate --name mode --value hold --endless true --reason x")
    now = Override.objects.latest("pk").created_at
    held = {each.name: each.value for each in overrides.list_for_loop(loop, now)}
    assert held == {"guard.direction": "up only", "mode": "hold"}


def noted(actor):
    """Whether the audit has one change, by that actor, beside what was refused."""
    changes = AuditEntry.objects.exclude(action__startswith="refused.")
    return [each.actor for each in changes] == [actor]


def test_it_acts_as_a_user_with_no_more_than_that_users_role(loop):
    line = f"--as viewer loops {loop.pk} mode --mode advise --reason x"
    status, said = refusal(line)
    assert status == 2 and said.startswith("role: loop.mode requires the role operator")
    assert run(line.replace("viewer", "operator"))["mode"] == "advise"
    assert noted("manage.py:operator")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("loops 999", "path:"),
        ("overrides create --queue alert --name upper_limit --value -1 --minutes 5 --reason x", "value:"),
        ("overrides create --colour red", "--colour: is unknown. The command overrides create accepts --name"),
        ("overrides create --minutes soon", "--minutes: must be a number"),
        ("overrides create --endless perhaps", "--endless: must be true or false"),
        ("overrides create --name a --name b", "--name: is given twice"),
        ("overrides create --name", "--name: requires a value"),
        ("overrides create --name a b", "b: is not an option"),
        ("overrides 5 forget", "command: 'overrides 5 forget' is unknown. Similar commands: overrides;"),
        ("ledger --verdict good", "verdict: must be"),
        ("--as nobody loops", "--as: nobody is not an active user"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_with_status_2_and_changes_nothing(line, said, loop):
    status, text = refusal(line)
    assert status == 2 and text.startswith(said) and "\n" not in text
    assert not Override.objects.exists() and not AuditEntry.objects.exists()


def test_a_price_is_set_and_taken_back(loop):
    assert run("settings price.node_hour change --value 0.25 --reason x")["value"] == 0.25
    assert run("settings price.node_hour change --value null --reason x")["value"] is None


def test_without_words_it_lists_every_command():
    output = io.StringIO()
    call_command("weir", stdout=output)
    lines = output.getvalue().splitlines()
    assert len(lines) == len(found()) == len({each.words for each in found()})
    assert any(line.startswith("loops {loop_id} mode ") for line in lines)


def test_an_export_is_written_as_it_comes(loop, monkeypatch):
    for number in range(3):
        loop.entries.create(mode="auto", parameters={}, reason=f"tick {number}")
    output = io.StringIO()
    call_command("weir", "ledger", "export", "--format", "csv", "--text", "tick", "--ticks", "all", stdout=output)
    assert len(output.getvalue().strip().splitlines()) == 4


def test_over_http_it_says_the_same(loop, secrets, monkeypatch):
    """The request that would travel is handed to the console as it is."""

    def handed(request):
        path = request.url.raw_path.decode()
        headers = {name: value for name, value in request.headers.items() if name != "host"}
        answer = Client().generic(
            request.method, path, request.content, request.headers["Content-Type"], headers=headers
        )
        return httpx.Response(answer.status_code, content=answer.content, headers=dict(answer.headers))

    client, transport = httpx.Client, httpx.MockTransport(handed)
    monkeypatch.setattr(httpx, "Client", lambda **given: client(**given, transport=transport))
    there = f"--url http://elsewhere/ --token {secrets['operator']}"
    assert run(f"{there} loops {loop.pk} mode --mode advise --reason x")["mode"] == "advise"
    status, said = refusal(f"{there} settings plan.expires_seconds change --value 90 --reason x")
    assert status == 2 and said.startswith("role:")
    assert noted("token:of-operator")


def test_a_console_elsewhere_steers_no_terminal():
    hostile = "\x1b]0;owned\x07\x9b2J\u202eb"
    said = format_answer(json.dumps({"a": hostile}, ensure_ascii=False).encode(), True)
    assert json.loads(said) == {"a": "\x1b]0;owned\x07?2J?b"} and "\x1b" not in said  # escaped by JSON
    assert format_answer(f"a,b\r\n{hostile}\xff\n".encode(), True) == "a,b?\n?]0;owned??2J?bÿ\n"
    assert format_answer(b"\xff", False) == "\ufffd" and format_answer(hostile, False) == hostile
    deep = b'{"a":' * 5_000 + b"1" + b"}" * 5_000
    assert format_answer(deep, True) == deep.decode()


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (302, b"", "The console returned 302 (redirect). Use the address that it redirects to."),
        (422, b'{"errors": {"\\u001b[2J": "x\\ny"}}', "?[2J: x y"),
    ],
)
def test_what_a_console_elsewhere_refuses_is_a_plain_line(status, body, said, monkeypatch):
    client, transport = httpx.Client, httpx.MockTransport(lambda _: httpx.Response(status, content=body))
    monkeypatch.setattr(httpx, "Client", lambda **given: client(**given, transport=transport))
    assert refusal("--url http://elsewhere loops") == (2, said)


# What pages post, as commands.
COMMANDS = """
alerts 1 acknowledge, alerts 1 snooze, alerts 1 escalate, alerts 1 notes, alerts 1 incident create, alerts 1 review
create, alerts 1 follow-ups, alerts 1 follow-ups 1 change, silences create, silences preview, silences 1 end,
alert-rules lag preview, alert-rules lag change, receivers desk change, receivers desk delete, receivers desk test,
dead-letters requeue, dead-letters alert n1 1-0 fix, tasks create, tasks retention run, tasks retention change,
experiments create, experiments 1 cancel, experiments 1 apply, experiments 1 plan, runs 1 cancel, runs 1 resume, marks
create, applications create, applications performance operators watch tasks, applications performance criteria slow
change, applications performance criteria slow release, marks 1 remove, shared-links create, shared-links 1 end,
plants create, plants inspect, plants main tasks, plants main release, plants main resume, plants east interventions
create, plants east interventions undo, plants east start-task, plants
main pause-queues, plants main resume-queues, schedules pause, schedules resume, passkeys 1 rename, passkeys 1 remove,
users desk passkeys 1 remove, plants east remove, overrides create, overrides 1 end, overrides 1 undo,
overrides 1 extend, nodes n1 use, queues alert points, queues alert cap, queues alert pause, queues alert definition
create, queues new create, workers jobs@here drain, processes beat restart, applications performance restart, loops 1
mode, objectives late change, objectives late remove, plans create, plans 1 approve, plans 1
reject, plans 1 stop, plans 1 roll-back, settings plan.expires_seconds change, loops 1 settings, users create, users
desk role, users desk reset, sessions 1 end, tokens create, tokens 1 revoke
"""


def test_what_a_page_posts_has_a_command():
    operations = found()
    for command in " ".join(COMMANDS.split()).split(", "):
        assert find_operation(operations, command.split()).method == "POST", command


def test_each_command_that_a_form_offers_to_copy_changes_something():
    operations = found()
    pages = "".join(page.read_text(encoding="utf-8") for page in (release.ROOT / "templates").rglob("*.html"))
    commands = set(re.findall(r'data-command="([^"%]+)"', pages))
    assert len(commands) > 20
    for command in sorted(commands):
        words = re.sub(r"\{\{.*?\}\}", "1", command).partition(" --")[0].split()
        assert find_operation(operations, words).method != "GET", command


def test_every_action_of_the_table_has_a_command(browsers, things, stored_snapshot, monkeypatch):
    """Each operation is called, and what it asks the table for is noted."""
    asked = set()
    real = access.Actor.may

    def may(actor, action):
        asked.add(action)
        return real(actor, action)

    monkeypatch.setattr(access.Actor, "may", may)
    browser = browsers["administrator"]
    for door in ROUTE_PERMISSIONS:
        if "api/v1" in door and not door.endswith("/events"):
            request_route(browser, door, things)
    body = {**API_BODIES["POST api/v1/overrides"], "loop": None, "node": "n1", "name": "busy", "value": 0.5}
    for more in ({"minutes": 5}, {"minutes": None, "endless": True, "node": None, "queue": "alert", "name": "mode"}):
        Client.post(browsers["administrator"], "/api/v1/overrides", {**body, **more}, content_type="application/json")
    silence = {"matchers": [{"label": "rule", "is": "=", "value": "audit-altered"}]}
    Client.post(browser, "/api/v1/silences", {**silence, "reason": "a test", "minutes": 1}, "application/json")
    freeze = {**API_BODIES["POST api/v1/windows"], "kind": "freeze", "scope": ["queue/alert"]}
    Client.post(browser, "/api/v1/windows", freeze, "application/json")
    own = {"events.publish": publish.Command}  # a command of its own: it reads files of millions of events
    assert set(ACTIONS) - asked - set(own) == set()


def test_a_word_that_is_a_place_does_not_hide_one_of_its_own():
    assert find_operation(found(), ["ledger", "export"]).path.endswith("/ledger/export")
    assert find_operation(found(), ["ledger", "17"]).path.endswith("/ledger/{entry_id}")
    with pytest.raises(BadInput):
        find_operation(found(), ["ledger", "17", "burn"])
    assert weir.split(["a", "--b=c=d"]) == (["a"], [("b", "c=d")])


def test_a_name_with_signs_means_the_same_in_an_address(loop):
    status, said = refusal("workers jobs@here drain --minutes 5 --reason x")
    assert status == 2 and said.startswith("host: jobs@here is not reporting")
    run("users create --username ann@example.org --role viewer --reason new")
    assert run("users ann@example.org role --role operator --reason x")["role"] == "operator"
