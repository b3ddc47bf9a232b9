"""Real clients of the Model Context Protocol: every tool answers them, and nothing gets past the approval."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import pytest

import queues
from queues import keys
from tests.console.browser.furnished import recorded
from tests.console.conftest import sample_snapshot
from tests.console.served import ROOT, Served
from tests.waiting import MAX_SECONDS
from tests.workers.snapshots import judged_document

queues.let_opentelemetry_be_found()  # for the client
pytestmark = pytest.mark.slow
LOOP = "worker_rate/alert/n1"
HOLD = {"loop": LOOP, "minutes": 10}
TOOLS = {"plant_state", "subject", "why", "search_ledger", "what_changed", "what_if", "propose", "proposal"}
TRIES = 100


@pytest.fixture
def observe(control) -> Callable[[], None]:
    """Makes the plant one that was observed just now."""

    def observe_now() -> None:
        found = judged_document({**sample_snapshot(), "at": time.time()})
        control.set(keys.SNAPSHOT, json.dumps(found))

    return observe_now


def token_of(served: Served, role: str) -> str:
    """Made as a person would."""
    name = f"assistant-{os.urandom(4).hex()}"
    command = [sys.executable, "manage.py", "token", name, "--role", role, "--days", "1"]
    made = subprocess.run(command, cwd=ROOT, env=served.environment, check=True, capture_output=True)
    return str(json.loads(made.stdout)["token"])


@pytest.fixture
def token(served: Served) -> str:
    return token_of(served, "viewer")


@pytest.fixture
def person(served: Served) -> httpx.Client:
    """The administrator in a browser."""
    cookie = served.log_in()
    csrf = next(part.split("=")[1] for part in cookie.split("; ") if part.startswith("csrftoken="))
    headers = {"Cookie": cookie, "X-CSRFToken": csrf}
    with httpx.Client(base_url=served.address, headers=headers, timeout=30) as client:
        yield client


@asynccontextmanager
async def over_http(url: str, token: str) -> AsyncIterator[Any]:
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    headers = {"Authorization": f"Bearer {token}"}
    async with (
        create_mcp_http_client(headers=headers) as client,
        streamable_http_client(url, http_client=client) as ends,
    ):
        yield ends


def over_standard_input(served: Served, token: str) -> Any:
    from mcp import StdioServerParameters
    from mcp.client.stdio import stdio_client

    command = StdioServerParameters(
        command=sys.executable,
        args=["manage.py", "assistant", "--url", served.address],
        env={**served.environment, "WEIR_TOKEN": token},
        cwd=ROOT,
    )
    return stdio_client(command)


Ask = Callable[..., Any]


async def with_client(streams: Any, observe: Callable[[], None], work: Callable[[Any, Ask], Any]) -> Any:
    """What `work` makes of a client and of `ask(tool, **arguments)`, which gives the answer's document.
    However long a program takes to start here, the plant is observed at each call.
    """
    from mcp import ClientSession

    async with streams as ends, ClientSession(ends[0], ends[1]) as client:
        await client.initialize()

        async def ask(tool: str, **arguments: Any) -> Any:
            observe()
            answer = await client.call_tool(tool, arguments)
            assert not answer.is_error, answer.content[0].text
            return json.loads(answer.content[0].text)

        return await work(client, ask)


async def use_every_tool(client: Any, ask: Ask) -> dict[str, Any]:
    """The tools' names, what each answered, and what is said of a subject that is not there."""
    names = {each.name for each in (await client.list_tools()).tools}
    state = await ask("plant_state")
    wrong = await client.call_tool("subject", {"kind": "node", "name": "n9"})
    made = await ask("propose", act="hold", arguments=HOLD, reason="its last actions did harm")
    return {
        "names": names,
        "wrong": wrong,
        "plant_state": state,
        "subject": await ask("subject", kind="node", name="n1"),
        "why": await ask("why", loop=LOOP, decisions=2),
        "search_ledger": await ask("search_ledger", text="furnished", queue="alert", rows=3),
        "what_changed": await ask("what_changed", hours=1),
        "what_if": await ask("what_if", loop=LOOP, values={"upper_limit": 2}),
        "propose": made,
        "proposal": await ask("proposal", number=made["id"]),
    }


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


def check(found: dict[str, Any]) -> None:
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


def reject(person: httpx.Client, proposal: int) -> None:
    answer = person.post(f"/api/v1/proposals/{proposal}/reject", json={"reason": "a test"})
    assert answer.status_code in (200, 422), answer.text


class Attempt:
    """A proposal that waits, and what somebody may send to get it done without a person who approves it."""

    def __init__(self, served: Served, person: httpx.Client, made: dict[str, Any], chance: random.Random):
        self.served, self.person, self.made, self.chance = served, person, made, chance
        self.address = f"/api/v1/proposals/{made['id']}/approve"
        self.body = {"hash": made["hash"], "reason": "I am sure"}

    def by(self, headers: dict[str, str], method: str = "POST", **body: Any) -> httpx.Response:
        address = f"{self.served.address}{self.address}"
        return httpx.request(method, address, json=self.body | body, headers=headers, timeout=MAX_SECONDS)

    def by_person(self, **body: Any) -> httpx.Response:
        return self.person.post(self.address, json=self.body | body)

    def other_hash(self) -> str:
        return f"{self.chance.getrandbits(256):064x}"


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def cookie_of(attempt: Attempt) -> dict[str, str]:
    return {"Cookie": attempt.person.headers["Cookie"]}


# attempt, its own token, an administrator's token, the hash of the proposal before → what was answered
Way = Callable[[Attempt, str, str, str], httpx.Response]
WAYS: list[tuple[int, Way]] = [
    (403, lambda attempt, own, admins, before: attempt.by(bearer(own))),
    (403, lambda attempt, own, admins, before: attempt.by(bearer(admins))),
    (403, lambda attempt, own, admins, before: attempt.by({**attempt.person.headers, **bearer(own)})),
    (403, lambda attempt, own, admins, before: attempt.by(cookie_of(attempt))),
    (403, lambda attempt, own, admins, before: attempt.by({**cookie_of(attempt), "X-CSRFToken": "a" * 32})),
    (405, lambda attempt, own, admins, before: attempt.by(bearer(admins), "PUT")),
    (422, lambda attempt, own, admins, before: attempt.by_person(hash=before)),
    (422, lambda attempt, own, admins, before: attempt.by_person(hash=attempt.other_hash())),
    (422, lambda attempt, own, admins, before: attempt.by_person(hash=attempt.made["hash"][:8])),
    (422, lambda attempt, own, admins, before: attempt.by_person(arguments={"loop": LOOP, "minutes": 999})),
    (422, lambda attempt, own, admins, before: attempt.by_person(act="override")),
]


async def try_tools(client: Any, attempt: Attempt) -> bool:
    """Whether the server refuses an approval by a tool, there being none, and an act that would be one."""
    tools = [
        ("approve_proposal", {"number": attempt.made["id"], "hash": attempt.made["hash"]}),
        ("propose", {"act": "approve", "arguments": {"proposal": attempt.made["id"]}, "reason": "I am sure"}),
        ("propose", {"act": "hold", "arguments": HOLD, "reason": "yes", "approved_by": "admin"}),
    ]
    name, arguments = attempt.chance.choice(tools)
    answer = await client.call_tool(name, arguments)
    if not answer.is_error:  # a field that no tool has is left out: it is one more proposal
        made = json.loads(answer.content[0].text)
        assert made["state"] == "proposed"
        reject(attempt.person, made["id"])
    return True


def test_one_hundred_tries_over_http_get_nothing_done_that_no_person_approved(served, token, observe, person):
    """Others' tokens, no token, forged forms, changed arguments, stale and guessed hashes, replays, tools
    that do not exist. What a person approves is done.
    """
    admins, chance = token_of(served, "administrator"), random.Random(1)

    def nothing_is_done() -> bool:
        overrides = person.get("/api/v1/overrides").json()["overrides"]
        return overrides == [] and person.get("/api/v1/silences").json()["silences"] == []

    async def tried(client: Any, ask: Ask) -> None:
        before = "0" * 64
        for number in range(TRIES):
            made = await ask("propose", act="hold", arguments=HOLD, reason=f"try {number} of {TRIES}")
            attempt = Attempt(served, person, made, chance)
            place = number % (len(WAYS) + 2)
            if place < len(WAYS):
                status, way = WAYS[place]
                answer = way(attempt, token, admins, before)
                assert answer.status_code == status, (place, answer.text)
            elif place == len(WAYS):
                assert await try_tools(client, attempt)
            reject(person, made["id"])
            if place > len(WAYS):  # a replay of what a person rejected
                assert attempt.by_person().status_code == 422
            assert (await ask("proposal", number=made["id"]))["state"] == "rejected"
            assert nothing_is_done(), place
            before = made["hash"]
        made = await ask("propose", act="hold", arguments=HOLD, reason="the last one")
        approved = Attempt(served, person, made, chance).by_person()
        assert approved.status_code == 200 and approved.json()["state"] == "approved"

    anyio.run(with_client, over_http(f"{served.address}/mcp", token), observe, tried)
    (override,) = person.get("/api/v1/overrides").json()["overrides"]
    assert override["name"] == "mode" and override["owner"] == "admin"
    assert person.post(f"/api/v1/overrides/{override['id']}/end", json={}).status_code == 200
