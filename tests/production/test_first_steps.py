"""README's first ten steps on docker-compose.yml as it is shipped, over TLS, but for the eighth (kill
something): that is in test_compose.py, of a node and a process. The base images are stand-ins (stand_ins/).
"""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.production.conftest import HOST, HTTPS_PORT, ON_CONTAINERS, PATIENCE_SECONDS, until
from tests.production.console import Console, first_administrator
from tests.production.engine import PROJECT, Stack

pytestmark = [*ON_CONTAINERS, pytest.mark.browser]
ONE_EVENT = json.dumps({"type": "login", "key": "ann"})


@pytest.fixture(scope="module")
def page(stack, console):
    def ready():
        return console.request("GET", "/readyz").status_code == 200

    until(ready, PATIENCE_SECONDS, "every part of the plant is ready")
    with first_administrator(stack, HOST, HTTPS_PORT) as page:
        yield page


def publish(stack: Stack, count: int) -> None:
    """As step 2 says it, in the container of the console."""
    command = f"podman exec -i {PROJECT}_web_1 python manage.py publish alert --multiply {count} --json"
    assert json.loads(stack.run("sh", "-c", f"echo '{ONE_EVENT}' | {command}"))["published"] == count


def loops_of(console: Console, law: str, **target: str) -> list[dict[str, Any]]:
    rows = console.ask("GET", "/loops")["loops"]
    return [row for row in rows if row["law"] == law and target.items() <= row["target"].items()]


def entries_of(console: Console, loop: dict[str, Any]) -> list[dict[str, Any]]:
    """Its actions, newest first."""
    return console.ask("GET", f"/ledger?loop={loop['id']}&acted=true")["entries"]


def acted(console: Console, loops: list[dict[str, Any]]) -> dict[str, Any] | None:
    return next((rows[0] for loop in loops if (rows := entries_of(console, loop))), None)


def test_1_the_overview_shows_the_hosts_telemetry_on_its_way(page, console):
    def flows():
        snapshot = console.snapshot()
        return bool(snapshot and snapshot["queues"]["telemetry"]["out_per_second"])

    until(flows, PATIENCE_SECONDS, "telemetry goes through the pipeline")
    expect(page.locator('[data-bind="totals.in_per_second"]').first).not_to_have_text("—")
    for node in ("n1", "n2", "n3"):
        expect(page.get_by_text(node, exact=True).first).to_be_visible()


def test_2_published_events_make_loops_start_workers(stack, console):
    publish(stack, 50_000)
    loops = loops_of(console, "worker_rate", queue="alert")
    assert len(loops) == 3
    until(lambda: acted(console, loops), PATIENCE_SECONDS, "a worker rate loop starts workers")

    def empty():
        snapshot = console.snapshot()
        return bool(snapshot) and snapshot["queues"]["alert"]["waiting_events"] == 0

    until(empty, PATIENCE_SECONDS, "the queue is worked off")


def test_3_an_overridden_limit_counts_stands_in_the_strip_and_ends_by_itself(page, console):
    loop = loops_of(console, "worker_rate", queue="alert", node="n1")[0]
    before = loop["effective"]["upper_limit"]
    given = {"loop": loop["id"], "name": "upper_limit", "value": 700, "minutes": 1, "reason": "a report"}
    console.ask("POST", "/overrides", **given)

    def decides_by():
        snapshot = console.snapshot()
        return snapshot and snapshot["loops"][loop["name"]]["setpoint"]

    until(lambda: decides_by() == 700, 60, "the loop decides by 700")
    expect(page.locator("#strip-overrides")).to_contain_text("1 manual change", timeout=20_000)
    until(lambda: decides_by() == before, 120, "the override has ended by itself")
    assert console.ask("GET", "/overrides")["overrides"] == []


def test_4_a_host_loop_explores_under_load_and_shows_its_curve(stack, page, console):
    loop = loops_of(console, "concurrency")[0]
    console.ask("POST", f"/loops/{loop['id']}/mode", mode="auto", reason="let it explore")

    def explores():
        publish(stack, 200_000)
        return bool(entries_of(console, loop))

    until(explores, PATIENCE_SECONDS, "the pool's loop tries other numbers of processes")
    page.goto(f"/loops/{loop['id']}/")
    said = page.locator("#prediction .summary")
    expect(said).to_be_visible()
    expect(said).not_to_contain_text("No estimate")


def test_5_what_if_says_what_other_values_would_have_decided(console):
    loop = loops_of(console, "worker_rate", queue="alert", node="n1")[0]
    found = console.ask("GET", f"/loops/{loop['id']}/what-if?set=upper_limit=1&hours=1")
    assert found["decisions"] > 0 and found["differing"] > 0 and not found["first_error"]


def test_6_a_decision_of_the_ledger_is_decided_again_the_same(stack, console):
    entry = acted(console, loops_of(console, "worker_rate", queue="alert"))
    assert entry and entry["reason"]
    assert console.ask("GET", f"/ledger/{entry['id']}/replay")["same"]
    exported = json.dumps(console.ask("GET", f"/ledger/{entry['id']}")["export"])
    command = f"podman exec -i {PROJECT}_web_1 python manage.py decide worker_rate - --json"
    again = json.loads(stack.run("sh", "-c", f"cat <<'END' | {command}\n{exported}\nEND\n"))
    assert again["decisions"][-1]["action"] == entry["action"]
    assert again["decisions"][-1]["reason"] == entry["reason"]


def test_7_points_move_by_an_approved_plan_and_are_rolled_back(console):
    def points():
        snapshot = console.snapshot() or {"queues": {"alert": {"containers": {}}}}
        containers = snapshot["queues"]["alert"]["containers"]
        return {node: row["points"] for node, row in containers.items()}

    def run(plan):
        address = f"/plans/{plan['id']}"
        console.ask("POST", f"{address}/approve", hash=plan["hash"], reason="the walk")
        until(lambda: console.ask("GET", address)["state"] == "done", 120, "the plan is done")

    before = until(points, 60, "a snapshot")
    wanted = {**before, "n1": before["n1"] - 100, "n2": before["n2"] + 100}
    plan = console.ask("POST", "/queues/alert/points", points=wanted, reason="try n2")
    run(plan)
    until(lambda: points() == wanted, 60, "the points have moved")
    run(console.ask("POST", f"/plans/{plan['id']}/roll-back", reason="it was a try"))
    until(lambda: points() == before, 60, "the points are where they were")


def test_9_a_killed_agent_is_an_alert_that_somebody_takes_with_a_runbook(stack, page, console):
    stack.podman("stop", "--time", "0", f"{PROJECT}_agent-n2_1")

    def alert():
        rows = console.ask("GET", "/alerts")["alerts"]
        return next((row for row in rows if row["labels"].get("node") == "n2"), None)

    found = until(alert, 180, "an alert about n2")
    assert console.ask("POST", f"/alerts/{found['id']}/acknowledge", note="mine")["state"] == "acknowledged"
    page.goto(f"/alerts/{found['id']}/")
    page.goto(page.get_by_role("link", name="Runbook").get_attribute("href") or "")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert "/help/operate/alerts/" in page.url
    stack.podman("start", f"{PROJECT}_agent-n2_1")
    until(lambda: alert() is None, 240, "the alert ends once the agent is back")


def test_10_the_plant_can_be_opened_as_it_was(page, console):
    now = datetime.now(UTC)
    console.ask("POST", "/marks", title="agent 0.9.3")
    past = console.ask("GET", f"/snapshot?at={now.isoformat().replace('+00:00', 'Z')}")
    assert past["at"] <= now.timestamp() and set(past["nodes"]) == {"n1", "n2", "n3"}
    page.goto("/timeline/")
    expect(page.get_by_text("agent 0.9.3").first).to_be_attached()
