"""The page opened in test_day_shift.py, two minutes later: the override has ended by itself."""

from contextlib import closing
from typing import Any

import pytest
from playwright.sync_api import expect

from bench.plant.running_plant import RunningPlant

# Slow by waiting: what it shows of an hour is shown of an instant by the forms' tests.
pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.spark, pytest.mark.timeout(1200)]
LOOP = "worker_rate/alert/n1"
POINTS = {"n1": 334, "n2": 333, "n3": 333}


def give_points(plant: RunningPlant) -> None:
    """By hand, as an operator does it: the loop of a container comes back with it."""
    with closing(plant.log_in()) as person:
        headers = {"X-CSRFToken": person.cookies["csrftoken"], "Referer": plant.url}

        def ask(path: str, **body: Any) -> dict[str, Any]:
            content = {**body, "reason": "The night has moved them away."}
            answer = person.post(f"/api/v1/{path}", json=content, headers=headers).raise_for_status().json()
            assert isinstance(answer, dict)
            return answer

        plan = ask("queues/alert/points", points=POINTS)
        ask(f"plans/{plan['id']}/approve", hash=plan["hash"])


def test_the_override_expires_on_the_open_page_and_in_the_loop(plant, shared_page):
    expect(shared_page.locator("#strip-overrides")).to_contain_text("0 manual changes", timeout=150_000)
    expect(shared_page.locator("[data-override]")).to_have_count(0)
    if LOOP not in (plant.snapshot() or {"loops": ()})["loops"]:
        give_points(plant)
    plant.wait_until(lambda s: s["loops"].get(LOOP, {}).get("setpoint") == 1000, 60, "the loop is back at 1000")
