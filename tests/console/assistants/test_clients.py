"""Real clients of the Model Context Protocol: every tool answers them, and nothing gets past the approval."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import pytest

import queues
from queues import keys
from tests.console.browser.furnished import recorded
from tests.console.conftest import sample_snapshot
from tests.console.served import ROOT
from tests.workers.snapshots import judged_document

queues.let_opentelemetry_be_found()  # for the client
pytestmark = pytest.mark.slow
LOOP = "worker_rate/alert/n1"
HOLD = {"loop": LOOP, "minutes": 10}
TOOLS = {"plant_state", "subject", "why", "search_ledger", "what_changed", "what_if", "propose", "proposal"}


@pytest.fixture
def observe(control):
    """Makes the plant one that was observed just now."""

    def observe_now():
        found = judged_document({**sample_snapshot(), "at": time.time()})
        control.set(keys.SNAPSHOT, json.dumps(found))

    return observe_now


def token_of(served, role):
    """Made as a person would."""
    name = f"assistant-{os.urandom(4).hex()}"
    command = [sys.executable, "manage.py", "token", name, "--role", role, "--days", "1"]
    made = subprocess.run(command, cwd=ROOT, env=served.environment, check=True, capture_output=True)
    return str(json.loads(made.stdout)["token"])


@pytest.fixture
def token(served):
    return token_of(served, "viewer")


@pytest.fixture
def person(served):
    """The administrator in a browser."""
    cookie = served.log_in()
    csrf = next(part.split("=")[1] for part in cookie.split("; ") if part.startswith("csrftoken="))
    headers = {"Cookie": cookie, "X-CSRFToken": csrf}
    with httpx.Client(base_url=served.address, headers=headers, timeout=30) as client:
        yield client


@asynccontextmanager
async def over_http(url, token):
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    headers = {"Authorization": f"Bearer {token}"}
    async with (
        create_mcp_http_client(headers=headers) as client,
        streamable_http_client(url, http_client=client) as ends,
    ):
        yield ends


def over_standard_input(served, token):
    from mcp import StdioServerParameters
    from mcp.client.stdio import stdio_client

    command = StdioServerParameters(
        command=sys.executable, args=["manage.py", "assistant", "--url", served.address],
        env={**served.environment, "WEIR_TOKEN": token}, cwd=ROOT,
    )  # fmt: skip
    return stdio_client(command)


Ask = Callable[..., Any]


async def with_client(streams, observe, work):
    """What `work` makes of a client and of `ask(tool, **arguments)`, which gives the answer's document.
    However long a program takes to start here, the plant is observed at each call.
    """
    from mcp import ClientSession

    async with streams as ends, ClientSession(ends[0], ends[1]) as client:
        await client.initialize()

        async def ask(tool, **arguments):
            observe()
            answer = await client.call_tool(tool, arguments)
            assert not answer.is_error, answer.content[0].text
            return json.loads(answer.content[0].text)

        return await work(client, ask)


async def use_every_tool(client, ask):
    """The tools' names, what each answered, and what is said of a subject that is not there."""
    names = {each.name for each in (await client.list_tools()).tools}
    state = await ask("plant_state")
    wrong = await client.call_tool("subject", {"kind": "node", "name": "n9"})
    made = await ask("propose", act="hold", arguments=HOLD, reason="its last actions did harm")
    return {
        "names": names, "wrong": wrong, "plant_state": state,
        "subject": await ask("subject", kind="node", name="n1"), "why": await ask("why", loop=LOOP, decisions=2),
        "search_ledger": await ask("search_ledger", text="furnished", queue="alert", rows=3),
        "what_changed": await ask("what_changed", hours=1),
        "what_if": await ask("what_if", loop=LOOP, values={"upper_limit": 2}), "propose": made,
        "proposal": await ask("proposal", number=made["id"]),
    }  # fmt: skip


@pytest.mark.parametrize("way", ["streamable HTTP", "standard input"])
def test_a_client_uses_every_tool(served, token, observe, person, way):
    http = way == "streamable HTTP"
    streams = over_http(f"{served.address}/mcp", token) if http else over_standard_input(served, token)
    loops = person.get("/api/v1/loops").json()["loops"]
    number = next(each["id"] for each in loops if each["name"] == LOOP)
    with recorded(served, number):
        found = anyio.run(with_client, streams, observe, use_every_tool)
    try:
        check(found)
    finally:
        reject(person, found["propose"]["id"])


def check(found):
    assert found["names"] == TOOLS
    assert found["wrong"].is_error and "node/n9 is unknown" in found["wrong"].content[0].text
    assert "node/n1" in found["plant_state"]["subjects"]
    assert found["subject"]["figures"]["utilisation"] == sample_snapshot()["nodes"]["n1"]["utilisation"]
    reasons = [each["reason"] for each in found["why"]["decisions"]]
    assert reasons == ["of a furnished record"] * 2
    assert len(found["search_ledger"]["decisions"]) == 3
    assert set(found["what_changed"]) == {"marks", "overrides", "plans", "decisions"}
    assert found["what_if"]["decisions"] == 100
    assert found["propose"]["page"] == f"/proposals/{found['propose']['id']}/"
    assert found["proposal"]["state"] == "proposed"
    assert found["proposal"]["hash"] == found["propose"]["hash"]


def reject(person, proposal):
    answer = person.post(f"/api/v1/proposals/{proposal}/reject", json={"reason": "a test"})
    assert answer.status_code in (200, 422), answer.text
