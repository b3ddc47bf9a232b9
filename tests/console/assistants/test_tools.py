"""Tools of assistants, whatever a model sends them, and their door; `test_clients` asks as real clients do."""

import asyncio
import json
import logging
import re
import threading
from datetime import timedelta

import orjson
import pytest
from django.db import OperationalError
from django.utils import timezone

from console.accounts import authentication
from console.accounts.access import create_token, find_token_actor
from console.api.request.calls import Calls, InProcess, RequestRejected
from console.assistants import endpoint
from console.assistants import server as server_module
from console.assistants.endpoint import AssistantEndpoint
from console.assistants.server import ToolError, build_server
from console.assistants.tools import Tools
from console.models import AssistantProposal
from console.web.refusal import RequestRefused
from queues import keys
from tests.waiting import MAX_SECONDS
from tests.workers.snapshots import judged_document
from workers.models import LedgerEntry, Loop, Override

pytestmark = pytest.mark.django_db

LOOP = "worker_rate/alert/n1"


@pytest.fixture
def assistant(people):
    _, secret = create_token(people["operator"], "assistant", "viewer", timezone.now() + timedelta(days=1))
    found = find_token_actor(secret, timezone.now())
    assert found is not None
    return found


@pytest.fixture
def tools(assistant, control, stored_snapshot):
    control.set(keys.SNAPSHOT, json.dumps(judged_document(stored_snapshot)))
    return Tools(InProcess(assistant), lambda: stored_snapshot["at"] + 3.0)


@pytest.fixture
def loop(db):
    found = Loop.objects.create(name=LOOP, law="worker_rate", target={"queue": "alert", "node": "n1"})
    for number in range(3):
        LedgerEntry.objects.create(loop=found, mode="auto", parameters={}, reason=f"No action: {number}.")
    return found


def test_a_state_names_what_is_not_well_and_a_subject_has_its_figures(tools, stored_snapshot):
    state = tools.plant_state()
    assert state["at"] == stored_snapshot["at"] and "node/n1" in state["subjects"]
    assert all(each["severity"] != "well" for each in state["not_well"])
    node = tools.subject("node", "n1")
    assert node["state"]["name"] == "n1"
    assert node["figures"]["utilisation"] == stored_snapshot["nodes"]["n1"]["utilisation"]
    with pytest.raises(RequestRejected, match="node/n9 is unknown"):
        tools.subject("node", "n9")


def test_a_state_says_how_old_it_is_and_an_old_one_is_not_given_for_the_plant(tools, assistant, stored_snapshot):
    assert tools.plant_state()["age_seconds"] == tools.subject("node", "n1")["age_seconds"] == 3.0
    late = Tools(InProcess(assistant), lambda: stored_snapshot["at"] + 120.0)
    for ask in (late.plant_state, lambda: late.subject("node", "n1")):
        with pytest.raises(RequestRejected, match="last observed 120 s ago"):
            ask()


def test_why_gives_the_last_decisions_with_their_reasons(tools, loop):
    found = tools.why(LOOP, 2)["decisions"]
    assert [each["reason"] for each in found] == ["No action: 2.", "No action: 1."]
    with pytest.raises(RequestRejected, match="no-loop"):
        tools.why("no-loop")


def test_the_ledger_is_searched_and_changes_are_listed(tools, loop):
    assert len(tools.search_ledger(text="No action", queue="alert")["decisions"]) == 3
    assert tools.search_ledger(acted=True)["decisions"] == []
    changed = tools.what_changed(hours=1)
    assert set(changed) == {"marks", "overrides", "plans", "decisions"}


@pytest.mark.parametrize("hours", [0, -1, 1e12, float("inf"), float("nan")])
def test_hours_that_lead_out_of_the_calendar_are_refused_by_name(hours, tools):
    for ask in (tools.search_ledger, tools.what_changed):
        with pytest.raises(RequestRejected, match="hours: must be more than 0"):
            ask(hours=hours)


def test_text_that_no_database_stores_is_refused_by_its_field(tools):
    with pytest.raises(RequestRejected, match="text: must be UTF-8 text without NUL"):
        tools.search_ledger(text="a\0b")


def test_a_database_that_is_away_is_a_sentence_of_the_tool():
    class Away(Calls):
        def get_unix_time(self):
            return 0.0

        def send(self, *asked):
            raise OperationalError("connection to 10.0.0.5 failed for user weir_application")

    tool = server_module._wrap_tool(Tools(Away()).plant_state)
    with pytest.raises(server_module.ToolError, match="The database is not responding") as answered:
        asyncio.run(tool())
    assert "10.0.0.5" not in str(answered.value)


def test_a_proposal_does_nothing_and_a_token_can_not_approve_it(tools, loop, assistant):
    made = tools.propose("hold", {"loop": LOOP, "minutes": 10}, "its last actions did harm")
    assert made["page"] == f"/proposals/{made['id']}/" and tools.proposal(made["id"])["state"] == "proposed"
    body = {"hash": made["hash"], "reason": "I am sure"}
    with pytest.raises(RequestRejected, match="not permitted for token:assistant"):
        InProcess(assistant).ask("POST", f"/api/v1/proposals/{made['id']}/approve", body=body)
    with pytest.raises(RequestRejected, match=r"arguments\.minutes"):
        tools.propose("hold", {"loop": LOOP, "minutes": -1}, "wrong")
    assert not Override.objects.exists() and AssistantProposal.objects.count() == 1


async def asked(method="POST", headers=(), body=({"type": "http.request"},)):
    """What is sent back."""
    sent = []
    messages = iter(body)

    async def receive():
        return next(messages)

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "path": "/mcp", "method": method, "headers": list(headers)}
    await AssistantEndpoint(None)(scope, receive, send)
    return sent


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", [(b"authorization", b"Bearer x")], 405),  # it would wait for ever, in a place of its own
        ("DELETE", [], 405),
        ("POST", [(b"origin", b"http://elsewhere")], 403),
        ("POST", [(b"cookie", b"sessionid=1")], 401),
    ],
)
def test_what_is_no_post_with_a_token_is_refused(method, headers, status):
    assert asyncio.run(asked(method, headers))[0]["status"] == status


@pytest.mark.django_db(transaction=True)
def test_while_the_database_does_not_answer_it_says_so(monkeypatch):
    def away(*asked):
        raise OperationalError("the connection is lost")

    monkeypatch.setattr(authentication, "find_token_actor", away)
    start, body = asyncio.run(asked(headers=[(b"authorization", b"Bearer weir_x")]))
    assert (start["status"], dict(start["headers"])[b"retry-after"]) == (503, b"2")
    assert "database" in orjson.loads(body["body"])["detail"]


def test_one_that_takes_long_keeps_no_other_waiting(monkeypatch):
    """Each works in a thread of its own: with one for all, the second would wait for the first."""
    is_other_served = threading.Event()

    def actor(scope):
        if scope["headers"]:
            assert is_other_served.wait(MAX_SECONDS)
        else:
            is_other_served.set()
        raise RequestRefused(401, "is missing", field="authorization")

    monkeypatch.setattr(endpoint, "_authenticate_caller", actor)

    async def both():
        slow = asyncio.create_task(asked(headers=[(b"x", b"slow")]))
        await asyncio.sleep(0)
        return [*await asked(), *await slow]

    assert [each["status"] for each in asyncio.run(both()) if "status" in each] == [401, 401]


def test_who_has_left_is_not_answered(monkeypatch):
    monkeypatch.setattr(endpoint, "_authenticate_caller", lambda scope: None)
    assert asyncio.run(asked(body=[{"type": "http.disconnect"}])) == []


MANY = 20_000


def nested(levels):
    value = 1
    for _ in range(levels):
        value = {"value": value}
    return value


SILENCE = {"minutes": 5, "matchers": [{"label": "queue", "is": "=", "value": "alert"}] * MANY}
HOSTILE = {
    "what_if of many values": ("what_if", {"loop": LOOP, "values": {f"v{n}": 1.0 for n in range(MANY)}}),
    "what_if of a long name": ("what_if", {"loop": LOOP, "values": {"v" * 200_000: 1.0}}),
    "what_if of no number": ("what_if", {"loop": LOOP, "values": {"upper_limit": "NaN"}}),
    "what_if of depth": ("what_if", {"loop": LOOP, "values": nested(500)}),
    "propose many values": (
        "propose",
        {"act": "override", "arguments": {f"v{n}": n for n in range(MANY)}, "reason": "x"},
    ),
    "propose many matchers": ("propose", {"act": "silence", "arguments": SILENCE, "reason": "x"}),
    "propose depth": ("propose", {"act": "override", "arguments": nested(500), "reason": "x"}),
    "propose a huge number": ("propose", {"act": "hold", "arguments": {"minutes": 10**400}, "reason": "x"}),
    "propose a long reason": ("propose", {"act": "hold", "arguments": {"loop": LOOP}, "reason": "x" * 3_000_000}),
    "a huge number": ("proposal", {"number": 10**400}),
    "a long number": ("proposal", {"number": "9" * 5_000}),
    "a surrogate": ("subject", {"kind": "node", "name": "\ud800"}),
    "no rows": ("search_ledger", {"rows": 10**400}),
    "an alert of a size": ("what_changed", {"alert": 10**400}),
    "a tool that is none": ("x" * 1_000, {}),
    "what_if of a name that no database stores": ("what_if", {"loop": LOOP, "values": {"\ud800": 1.0}}),
    "an argument that is none": ("plant_state", {f"v{n}": n for n in range(MANY)}),
}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_argument_is_answered_by_a_sentence(case, tools, loop, caplog):
    name, arguments = HOSTILE[case]
    with caplog.at_level(logging.WARNING):
        try:
            answer = asyncio.run(build_server(tools).call_tool(name, arguments))
            said = str(answer)
        except ToolError as error:
            said = str(error)
    assert not [record for record in caplog.records if record.exc_info]
    # A library that hides an error of ours says no more than "Error executing tool NAME".
    assert not re.fullmatch(r"Error executing tool \w+", said)
    assert "Traceback" not in said and len(said) < 3_000


@pytest.mark.django_db(transaction=True)
def test_too_many_values_are_refused_by_the_field_with_both_numbers(tools, loop):
    with pytest.raises(RequestRejected, match="values: must have at most 100 values, not 20,000"):
        tools.what_if(LOOP, {f"v{number}": 1.0 for number in range(MANY)})


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("path", ["/api/v1/loops", "/login/", "/nowhere/", "/mcp/x"])
def test_an_address_with_too_many_parameters_is_refused_without_a_traceback(path, client, caplog):
    with caplog.at_level(logging.WARNING):
        answer = client.get(f"{path}?{'&'.join(['a=1'] * 1_001)}")
    assert answer.status_code == 400 and b"must have at most 1,000 parameters" in answer.content
    assert not [record for record in caplog.records if record.exc_info]
