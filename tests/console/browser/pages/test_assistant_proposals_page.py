"""What an assistant proposes, read on its page and approved from there, on a desk and on a phone."""

import json
import secrets
import subprocess
import sys

import httpx
import pytest
from playwright.sync_api import expect

from console import release
from tests.console.browser.screen import BROWSER, DESKTOP, PHONE, live, overhang, violations
from tests.waiting import MAX_SECONDS

pytestmark = [*BROWSER, pytest.mark.slow]
HOLD = {
    "act": "hold",
    "arguments": {"loop": "worker_rate/alert/n1", "minutes": 10},
    "reason": "its last five actions made the wait longer: 4.1 s before, 9.7 s now",
}


@pytest.fixture
def token(served) -> str:
    """A viewer's."""
    name = f"night-assistant-{secrets.token_hex(4)}"
    command = [sys.executable, "manage.py", "token", name, "--role", "viewer", "--days", "1"]
    made = subprocess.run(command, cwd=release.ROOT, env=served.environment, check=True, capture_output=True)
    return str(json.loads(made.stdout)["token"])


@pytest.mark.parametrize(
    ("viewport", "theme"), [(DESKTOP, "light"), (DESKTOP, "dark"), (PHONE, "light")], ids=("light", "dark", "phone")
)
def test_a_proposal_is_read_and_approved_by_its_hash(open_page, observer, served, token, tmp_path, viewport, theme):
    observer.publish(lambda snapshot: None)
    headers = {"Authorization": f"Bearer {token}"}
    made = httpx.post(f"{served.address}/api/v1/proposals", json=HOLD, headers=headers, timeout=MAX_SECONDS).json()
    page = open_page(f"/proposals/{made['id']}/", viewport=viewport, color_scheme=theme)
    live(page, observer)
    card = page.locator("section.card.at")
    expect(card.get_by_text("9.7 s now")).to_be_visible()
    page.screenshot(path=tmp_path / f"proposals-{viewport['width']}-{theme}.png", full_page=True)
    assert violations(page) == [] and overhang(page) <= 0
    card.get_by_label("Reason").fill("I have read its ledger")
    card.get_by_role("button", name=f"Approve {made['hash'][:8]}").click()
    row = page.locator("#decided tbody tr").first
    expect(row).to_contain_text("is on hold for 10 min")
    expect(row).to_contain_text("Approved by admin")
