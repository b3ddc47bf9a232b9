"""The ten most frequent incidents, handled on a phone: from the notification's link, in four taps at most."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from playwright.sync_api import Locator, Page, expect

from tests.console.browser.screen import BROWSER, PHONE, Observer, Snapshot, live, overhang
from tests.console.pipeline_sample import DECLARATION
from tests.console.served import ROOT, Served
from workers.pipeline.declaration.declared import Declarations, DeclarationText

pytestmark = [*BROWSER, pytest.mark.slow]
MAX_TAPS = 4
OPEN = """
import json, sys, django
django.setup()
from datetime import timedelta
from django.utils import timezone
from workers.alerts.lifecycle.models import Alert, AlertEvent
from workers.alerts.rules.rules import ensure_rules
from workers.alerts.lifecycle.models import AlertRule
from workers.models import Loop, Override
from django.contrib.auth import get_user_model
now = timezone.now()
ensure_rules(now)
loop = Loop.objects.get(name="worker_rate/alert/n1")
override = Override.objects.create(
    loop=loop, name="upper_limit", value=900, owner=get_user_model().objects.get(username="admin"),
    reason="the database is being backed up", created_at=now - timedelta(hours=1),
    expires_at=now + timedelta(seconds=100),
)
found = {"override": override.pk}
for rule_name, labels in json.loads(sys.argv[1]).items():
    rule = AlertRule.objects.get(name=rule_name)
    labels = {name: str(override.pk) if value == "OVERRIDE" else value for name, value in labels.items()}
    alert = Alert.objects.create(
        rule=rule, rule_name=rule.name, condition=rule.condition, fingerprint=f"phone-{rule.name}",
        labels=labels, severity=rule.severity, title=f"{rule.name} on a phone", threshold=rule.threshold,
        state="firing", began_at=now - timedelta(minutes=3), fired_at=now - timedelta(minutes=2),
    )
    AlertEvent.objects.create(alert=alert, kind="fired", at=alert.fired_at)
    found[rule_name] = alert.pk
print(json.dumps(found))
"""
CLEAR = """
import json, sys, django
django.setup()
from workers.alerts.lifecycle.models import Alert
from workers.models import Override
Alert.objects.filter(fingerprint__startswith="phone-").delete()
Override.objects.all().delete()
"""
LOOP = {"loop": "worker_rate/alert/n1"}
INCIDENTS = {
    "node-lost": {"node": "n3"},
    "node-too-busy": {"node": "n1"},
    "queue-behind": {"queue": "alert"},
    "queue-latency": {"queue": "telemetry"},
    "dead-letters": {"queue": "alert"},
    "pipeline-down": {"pipeline": "pipeline"},
    "pipeline-stalled": {"pipeline": "pipeline"},
    "loop-oscillates": LOOP,
    "loop-harmful": LOOP,
    "override-ending": {**LOOP, "override": "OVERRIDE"},
}


class Phone:
    """A page on which taps are counted. The first one opened it, from the notification."""

    def __init__(self, page: Page) -> None:
        self.page, self.taps = page, 1

    def tap(self, found: Locator) -> None:
        found.tap()
        self.taps += 1

    def press(self, words: str) -> None:
        self.tap(self.page.get_by_role("button", name=words, exact=True))

    def hears(self, words: str) -> None:
        expect(self.page.locator(".toast").filter(has_text=words).first).to_be_visible()


def run(served: Served, script: str, *arguments: str) -> str:
    environment = {**served.environment, "DJANGO_SETTINGS_MODULE": "console.settings"}
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


@pytest.fixture(scope="module")
def incidents(served: Served) -> Iterator[dict[str, int]]:
    """The id of an open alert by its rule."""
    yield json.loads(run(served, OPEN, json.dumps(INCIDENTS)))
    run(served, CLEAR)


@pytest.fixture
def phone(
    open_page: Callable[..., Page], observer: Observer, control: redis.Redis, incidents: dict[str, int]
) -> Callable[[str], Phone]:
    """Opens what the notification of a rule links to, on a plant in which it is true."""

    Declarations(control).note_at_work(DeclarationText("performance", 0, DECLARATION))

    def opened(rule: str) -> Phone:
        observer.publish(troubled)
        page = open_page(f"/alerts/{incidents[rule]}/", viewport=PHONE, has_touch=True)
        live(page, observer)
        assert overhang(page) <= 0
        return Phone(page)

    return opened


def troubled(snapshot: Snapshot) -> None:
    """n1 is full, the others are nearly empty; the pipeline's application has failed."""
    failed: dict[str, Any] = {"state": "failed", "error": "Its driver ended."}
    snapshot["pipeline"]["applications"] = {"performance": failed}
    for name, load, points in (("n1", 0.74, 600), ("n2", 0.02, 200), ("n3", 0.02, 200)):
        state = "TOOBUSY" if name == "n1" else "NORMAL"
        node = {**snapshot["nodes"]["n1"], "state": state, "utilisation": 2 * load, "raw": 2 * load}
        snapshot["nodes"][name] = node
        for queue in snapshot["queues"].values():
            queue["containers"][name] = {**queue["containers"]["n1"], "load": load, "points": points}


def test_a_lost_node_is_acknowledged(phone):
    on = phone("node-lost")
    on.press("Acknowledge")
    on.hears("Acknowledged until")
    assert on.taps <= MAX_TAPS


def test_a_node_that_is_too_busy_is_relieved_by_an_approved_plan(phone):
    on = phone("node-too-busy")
    on.press("Relieve busy nodes")
    approve = on.page.get_by_role("button", name=re.compile("^Approve plan"))
    expect(approve).to_be_visible()
    reason = on.page.get_by_label("Reason").first
    on.tap(reason)
    reason.press_sequentially("n1 is full")
    on.tap(approve)
    on.hears("approved")
    assert on.taps <= MAX_TAPS
