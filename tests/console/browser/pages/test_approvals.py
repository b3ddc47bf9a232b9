"""What people approve: plans, proposals of assistants, dead letters; on a desk and on a phone."""

import json
import re
import secrets
import subprocess
import sys

import httpx
import pytest
from playwright.sync_api import expect

from console import release
from queues.segments.segment import Segment
from tests.console.browser.screen import BROWSER, DESKTOP, PHONE, live, overhang, violations
from tests.console.conftest import dead_letter
from tests.console.served import ROOT
from tests.queues.samples import blocks_of
from tests.waiting import MAX_SECONDS

pytestmark = [*BROWSER, pytest.mark.slow]


def test_points_that_are_dragged_come_from_the_nodes_that_may_change(open_page, observer):
    page = open_page("/queues/alert/")
    live(page, observer)
    form = page.locator("form[data-points]")
    form.locator("[data-drag=n1]").fill("500")
    fields = [form.locator(f"#points-{node}") for node in ("n1", "n2", "n3")]
    would = [int(field.input_value()) for field in fields]
    assert would[0] == 500
    assert sum(would) == 1000
    for field, points in zip(fields[1:], would[1:], strict=True):
        is_now = int(field.get_attribute("data-is") or 0)
        assert points == is_now if field.get_attribute("data-closed") else points < is_now
    expect(form.get_by_role("button", name="Create plan, move 166 points")).to_be_enabled()


def test_a_proposal_is_counted_on_the_rail_as_it_comes(open_page, observer):
    page = open_page("/loops/")
    live(page, observer)
    count = page.locator(".rail .count[data-derived=open_proposals]")
    expect(count).to_have_text("")
    plan = {"id": 7, "state": "proposed", "title": "a plan", "progress_share": 0.0}
    observer.publish(lambda snapshot: snapshot.update(plans=[plan]))
    expect(count).to_have_text("1")


HOLD = {
    "act": "hold",
    "arguments": {"loop": "worker_rate/alert/n1", "minutes": 10},
    "reason": "its last five actions made the wait longer: 4.1 s before, 9.7 s now",
}


@pytest.fixture
def token(served):
    """A viewer's."""
    name = f"night-assistant-{secrets.token_hex(4)}"
    command = [sys.executable, "manage.py", "token", name, "--role", "viewer", "--days", "1"]
    made = subprocess.run(command, cwd=release.ROOT, env=served.environment, check=True, capture_output=True)
    return str(json.loads(made.stdout)["token"])


@pytest.mark.parametrize(("viewport", "theme"), [(DESKTOP, "dark"), (PHONE, "light")], ids=("desktop", "phone"))
def test_a_proposal_is_read_and_approved_by_its_hash(open_page, observer, served, token, viewport, theme):
    observer.publish(lambda snapshot: None)
    headers = {"Authorization": f"Bearer {token}"}
    made = httpx.post(f"{served.address}/api/v1/proposals", json=HOLD, headers=headers, timeout=MAX_SECONDS).json()
    page = open_page(f"/proposals/{made['id']}/", viewport=viewport, color_scheme=theme)
    live(page, observer)
    card = page.locator("section.card.at")
    expect(card.get_by_text("9.7 s now")).to_be_visible()
    assert violations(page) == [] and overhang(page) <= 0
    card.get_by_label("Reason").fill("I have read its ledger")
    card.get_by_role("button", name=f"Approve {made['hash'][:8]}").click()
    row = page.locator("#decided tbody tr").first
    expect(row).to_contain_text("is on hold for 10 min")
    expect(row).to_contain_text("Approved by admin")


def test_all_that_fit_a_filter_are_counted_on_the_button_before_they_are_put_in_again(open_page, observer, nodes):
    segment = Segment(nodes["n1"].client(), "alert")
    segment.publish(blocks_of(240))
    for each in segment.claim("w", 1_000, 60):
        segment.move_to_dead_letters(each, "w", [(each.block().build_explicit_batch(), "the shop does not answer")])
    page = open_page("/dead-letters/?error=shop")
    live(page, observer)
    page.get_by_label("All 60 that match the filter").check()
    page.locator("#letters").get_by_label("Reason").fill("the shop is back")
    page.get_by_role("button", name="Requeue 60 dead letters").click()
    expect(page.locator(".toast").last).to_have_text("60 dead letters (240 events) requeued.")
    expect(page.locator("#letters")).to_contain_text("No dead letters match this filter.")


@pytest.mark.parametrize(("viewport", "scheme"), [(DESKTOP, "dark"), (PHONE, "light")], ids=["desktop", "phone"])
def test_an_event_is_mended_beside_its_error(viewport, scheme, open_page, observer, nodes):
    dead_letter(nodes["n1"], "n1")
    page = open_page("/dead-letters/", viewport=viewport, color_scheme=scheme)
    live(page, observer)
    assert violations(page) == [] and overhang(page) <= 0
    page.locator("#letters").get_by_role("link", name="a", exact=True).click()
    live(page, observer)
    assert violations(page) == [] and overhang(page) <= 0
    page.get_by_label("Value").fill("much")
    page.locator("form[action$=fix]").get_by_label("Reason").fill("a unit too many")
    page.get_by_role("button", name="Save event").click()
    expect(page.locator(".error")).to_contain_text("must be a number")
    page.get_by_label("Value").fill("2.5")
    page.get_by_role("button", name="Save event").click()
    expect(page.get_by_text("Edited", exact=True)).to_be_visible()
    expect(page.get_by_label("Value")).to_have_value("2.5")
    page.locator("form[action$=act]").get_by_label("Reason").fill("mended")
    page.get_by_role("button", name="Requeue 1 event").click()
    expect(page.get_by_role("heading", name="Dead letters", level=1)).to_be_visible()


# An open alert of the rule node-too-busy; gone again with the argument "clear".
ALERT = """
import json, sys, django
django.setup()
from django.utils import timezone
from workers.alerts.lifecycle.models import Alert, AlertRule
from workers.alerts.rules.rules import ensure_rules
now = timezone.now()
ensure_rules(now)
rule = AlertRule.objects.get(name="node-too-busy")
Alert.objects.filter(fingerprint="phone").delete()
if sys.argv[1] != "clear":
    alert = Alert.objects.create(
        rule=rule, rule_name=rule.name, condition=rule.condition, fingerprint="phone", labels={"node": "n1"},
        severity=rule.severity, title="on a phone", threshold=rule.threshold, state="firing", began_at=now,
        fired_at=now,
    )
    print(json.dumps(alert.pk))
"""


@pytest.fixture
def alert(served):
    def run(word):
        environment = {**served.environment, "DJANGO_SETTINGS_MODULE": "console.settings"}
        command = [sys.executable, "-c", ALERT, word]
        return subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE).stdout

    yield json.loads(run("open"))
    run("clear")


def troubled(snapshot):
    """n1 is full, the others are nearly empty."""
    for name, load, points in (("n1", 0.74, 600), ("n2", 0.02, 200), ("n3", 0.02, 200)):
        state = "TOOBUSY" if name == "n1" else "NORMAL"
        node = {**snapshot["nodes"]["n1"], "state": state, "utilisation": 2 * load, "raw": 2 * load}
        snapshot["nodes"][name] = node
        for queue in snapshot["queues"].values():
            queue["containers"][name] = {**queue["containers"]["n1"], "load": load, "points": points}


def test_a_node_that_is_too_busy_is_relieved_by_an_approved_plan_in_five_taps(open_page, observer, alert):
    """The first tap opens the page, from the notification."""
    observer.publish(troubled)
    page = open_page(f"/alerts/{alert}/", viewport=PHONE, has_touch=True)
    live(page, observer)
    assert overhang(page) <= 0
    page.get_by_role("link", name="Relieve busy nodes", exact=True).tap()
    page.get_by_role("button", name="Relieve busy nodes", exact=True).tap()
    approve = page.get_by_role("button", name=re.compile("^Approve plan"))
    expect(approve).to_be_visible()
    reason = page.get_by_label("Reason").first
    reason.tap()
    reason.press_sequentially("n1 is full")
    approve.tap()
    expect(page.locator(".toast").filter(has_text="approved").first).to_be_visible()
