"""What the tools of assistants answer; `test_clients` asks as real clients do."""

import asyncio
import json
from datetime import timedelta

import httpx
import pytest
from django.db import OperationalError
from django.utils import timezone

from console.accounts.access import Actor, create_token, find_token_actor
from console.api.request.calls import Calls, InProcess, RequestRejected
from console.assistants import server as server_module
from console.assistants.tools import Tools
from console.models import AssistantProposal
from queues import keys
from tests.workers.snapshots import judged_document
from workers.models import LedgerEntry, Loop, Override

LOOP = "worker_rate/alert/n1"


@pytest.fixture
def assistant(people) -> Actor:
    _, secret = create_token(people["operator"], "assistant", "viewer", timezone.now() + timedelta(days=1))
    found = find_token_actor(secret, timezone.now())
    assert found is not None
    return found


@pytest.fixture
def tools(assistant, control, stored_snapshot) -> Tools:
    control.set(keys.SNAPSHOT, json.dumps(judged_document(stored_snapshot)))
    return Tools(InProcess(assistant), lambda: stored_snapshot["at"] + 3.0)


@pytest.fixture
def loop(db) -> Loop:
    found = Loop.objects.create(name=LOOP, law="worker_rate", target={"queue": "alert", "node": "n1"})
    for number in range(3):
        LedgerEntry.objects.create(loop=found, mode="auto", parameters={}, reason=f"No action: {number}.")
    return found


@pytest.mark.django_db
def test_a_state_names_what_is_not_well_and_a_subject_has_its_figures(tools, stored_snapshot):
    state = tools.plant_state()
    assert state["at"] == stored_snapshot["at"] and "node/n1" in state["subjects"]
    assert all(each["severity"] != "well" for each in state["not_well"])
    node = tools.subject("node", "n1")
    assert node["state"]["name"] == "n1"
    assert node["figures"]["utilisation"] == stored_snapshot["nodes"]["n1"]["utilisation"]
    with pytest.raises(RequestRejected, match="node/n9 is unknown"):
        tools.subject("node", "n9")


@pytest.mark.django_db
def test_a_state_says_how_old_it_is_and_an_old_one_is_not_given_for_the_plant(tools, assistant, stored_snapshot):
    assert tools.plant_state()["age_seconds"] == tools.subject("node", "n1")["age_seconds"] == 3.0
    late = Tools(InProcess(assistant), lambda: stored_snapshot["at"] + 120.0)
    for ask in (late.plant_state, lambda: late.subject("node", "n1")):
        with pytest.raises(RequestRejected, match="last observed 120 s ago"):
            ask()


@pytest.mark.django_db
def test_why_gives_the_last_decisions_with_their_reasons(tools, loop):
    found = tools.why(LOOP, 2)["decisions"]
    assert [each["reason"] for each in found] == ["No action: 2.", "No action: 1."]
    with pytest.raises(RequestRejected, match="no-loop"):
        tools.why("no-loop")


@pytest.mark.django_db
def test_the_ledger_is_searched_and_changes_are_listed(tools, loop):
    assert len(tools.search_ledger(text="No action", queue="alert")["decisions"]) == 3
    assert tools.search_ledger(acted=True)["decisions"] == []
    changed = tools.what_changed(hours=1)
    assert set(changed) == {"marks", "overrides", "plans", "decisions"}


@pytest.mark.django_db
@pytest.mark.parametrize("hours", [0, -1, 1e12, float("inf"), float("nan")])
def test_hours_that_lead_out_of_the_calendar_are_refused_by_name(hours, tools):
    for ask in (tools.search_ledger, tools.what_changed):
        with pytest.raises(RequestRejected, match="hours: must be more than 0"):
            ask(hours=hours)


@pytest.mark.django_db
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


@pytest.mark.django_db
def test_a_proposal_does_nothing_and_a_token_can_not_approve_it(tools, loop, assistant):
    made = tools.propose("hold", {"loop": LOOP, "minutes": 10}, "its last actions did harm")
    assert made["page"] == f"/proposals/{made['id']}/" and tools.proposal(made["id"])["state"] == "proposed"
    body = {"hash": made["hash"], "reason": "I am sure"}
    with pytest.raises(RequestRejected, match="not permitted for token:assistant"):
        InProcess(assistant).ask("POST", f"/api/v1/proposals/{made['id']}/approve", body=body)
    with pytest.raises(RequestRejected, match=r"arguments\.minutes"):
        tools.propose("hold", {"loop": LOOP, "minutes": -1}, "wrong")
    assert not Override.objects.exists() and AssistantProposal.objects.count() == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer weir_wrong"}, 401),
        ({"Authorization": "Bearer weir_wrong", "Origin": "http://elsewhere"}, 403),
        ({"Cookie": "sessionid=1"}, 401),
    ],
)
def test_without_a_token_nobody_is_served(served, headers, status):
    answer = httpx.post(f"{served.address}/mcp", json={}, headers=headers)
    assert answer.status_code == status and answer.json()["errors"]
