"""Alerts about Weir's own integrity are an administrator's: nobody else makes them quiet, in any way."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.utils import timezone

from console.accounts.access import Actor
from console.actions import alerts
from console.actions.proposals import assistant_proposals
from console.models import AuditEntry
from tests.console.rows import an_alert
from workers.alerts.conditions.catalog import CONDITIONS, INTEGRITY
from workers.alerts.lifecycle.models import Alert, AlertRule, Receiver, Silence
from workers.alerts.rules import rules, silences
from workers.alerts.rules.rules import FIRST_RULES

pytestmark = pytest.mark.django_db
NAMES = ["audit-altered", "audit-unchecked"]
BY_RULE = {"label": "rule", "is": "=", "value": "audit-altered"}
BROAD = {"label": "severity", "is": "=", "value": "critical"}


@pytest.fixture(autouse=True)
def shipped(db):
    """The rules that a plant starts with."""
    Receiver.objects.get_or_create(name="consoles", defaults={"channel": "console", "settings": {}})
    Receiver.objects.update(severities=["critical", "warning"])
    for name in ("audit-altered", "audit-unchecked", "node-lost"):
        if not AlertRule.objects.filter(name=name).exists():
            rules.define(name, FIRST_RULES[name], timezone.now())


def fired(name):
    rule = AlertRule.objects.get(name=name)
    given = {"rule": rule, "rule_name": name, "title": rule.title, "threshold": rule.threshold}
    return an_alert(rule.condition, severity=rule.severity, fingerprint=name.ljust(64, "0"), touches={}, **given)


def actor(role):
    user, _ = User.objects.get_or_create(username=f"a-{role}")
    return Actor(f"a-{role}", role, user=user)


def state_of(name):
    return rules.document(AlertRule.objects.get(name=name))


def test_the_conditions_that_guard_integrity_are_declared_on_themselves():
    assert {"audit_altered", "audit_unchecked"} == INTEGRITY
    assert {FIRST_RULES[name]["condition"] for name in NAMES} == INTEGRITY
    assert all(CONDITIONS[name].guards_integrity for name in INTEGRITY)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "change",
    [
        {"enabled": False},
        {"threshold": 1e9, "clear_threshold": 1e9},
        {"for_seconds": 86_400},
        {"severity": "notice"},
        {"escalation": []},
        {"matchers": [{"label": "queue", "is": "=", "value": "none"}]},
        {"condition": "node_lost"},
        {"runbook": "https://example.org/"},
    ],
)
def test_an_operator_changes_no_rule_of_integrity(name, change):
    before = state_of(name)
    with pytest.raises(PermissionDenied, match="requires the role administrator"):
        alerts.define_rule(actor("operator"), name, change, reason="quiet", now=timezone.now())
    assert state_of(name) == before
    alerts.define_rule(actor("administrator"), name, change, reason="a drill", now=timezone.now())
    assert state_of(name) != before


def test_an_operator_makes_no_rule_of_such_a_condition_and_turns_no_other_rule_into_one():
    for name in ("own", "node-lost"):
        with pytest.raises(PermissionDenied):
            alerts.define_rule(actor("operator"), name, {"condition": "audit_altered"}, reason="x", now=timezone.now())
    assert state_of("node-lost")["condition"] == "node_lost"


@pytest.mark.parametrize("name", NAMES)
def test_an_operator_neither_acknowledges_nor_snoozes_their_alerts_but_notes_and_escalates(name):
    alert, now = fired(name), timezone.now()
    with pytest.raises(PermissionDenied):
        alerts.acknowledge(actor("operator"), alert.pk, note="mine", now=now)
    with pytest.raises(PermissionDenied):
        alerts.snooze(actor("operator"), alert.pk, minutes=60, now=now)
    alerts.note(actor("operator"), alert.pk, text="seen", now=now)
    alerts.escalate(actor("operator"), alert.pk, note="", now=now)
    alert.refresh_from_db()
    assert (alert.state, alert.snoozed_until) == (Alert.State.FIRING, None)
    assert alerts.acknowledge(actor("administrator"), alert.pk, note="", now=now).state == "acknowledged"


def test_a_disabled_rule_that_was_changed_to_another_condition_still_guards_its_open_alert():
    alert = fired("audit-altered")
    AlertRule.objects.filter(name="audit-altered").update(condition="node_lost")
    with pytest.raises(PermissionDenied):
        alerts.acknowledge(actor("operator"), alert.pk, note="", now=timezone.now())


@pytest.mark.parametrize(
    "matchers",
    [
        [BY_RULE],
        [BY_RULE, BROAD],
        [{"label": "rule", "is": "~", "value": "audit-*"}],
        [{"label": "rule", "is": "~", "value": "audit-?ltered"}, {"label": "queue", "is": "!=", "value": "x"}],
    ],
)
def test_an_operator_silences_none_of_their_rules_by_name(matchers):
    with pytest.raises(PermissionDenied):
        alerts.silence(actor("operator"), matchers, reason="quiet", minutes=5, now=timezone.now())
    assert not Silence.objects.exists()
    made = alerts.silence(actor("administrator"), matchers, reason="drill", minutes=5, now=timezone.now())
    assert silences.covers(made, fired("audit-altered"))


@pytest.mark.parametrize(
    "matchers",
    [
        [BROAD],
        [{"label": "rule", "is": "~", "value": "*"}],
        [{"label": "queue", "is": "!=", "value": "alert"}],
        [{"label": "rule", "is": "!=", "value": "node-lost"}],
    ],
)
def test_a_broad_silence_of_an_operator_hides_the_others_and_not_these(matchers):
    integrity, other = fired("audit-altered"), fired("node-lost")
    AlertRule.objects.filter(name="node-lost").update(name="node-gone")
    other.rule_name = "node-gone"
    made = alerts.silence(actor("operator"), matchers, reason="works", minutes=5, now=timezone.now())
    assert (silences.covers(made, integrity), silences.covers(made, other)) == (False, True)
    now = timezone.now()
    shown = silences.preview_hidden_alerts(made.matchers, now, covers_integrity=made.covers_integrity)["open"]
    assert integrity not in shown


def test_silences_that_older_versions_made_do_not_hide_them():
    owner, later = User.objects.create(username="before"), timezone.now() + timedelta(days=1)
    older = Silence.objects.create(matchers=[BROAD], reason="x", owner=owner, expires_at=later)
    assert not silences.covers(older, fired("audit-altered"))


def test_pages_api_and_proposals_ask_the_same_place(browsers, client, secrets, control):
    alert = fired("audit-altered")
    before = state_of("audit-altered")
    json = {"Accept": "application/json"}
    page = browsers["operator"]
    asked = [
        page.post(f"/alerts/{alert.pk}/acknowledge", {"note": ""}, headers=json),
        page.post(f"/alerts/{alert.pk}/snooze", {"minutes": "15"}, headers=json),
        page.post(
            "/alerts/silences/add",
            {
                "matcher-label": "rule", "matcher-is": "=", "matcher-value": "audit-altered", "reason": "x",
                "minutes": "5",
            },
            headers=json,
        ),
    ]  # fmt: skip
    bearer = {"Authorization": f"Bearer {secrets['operator']}"}
    for address, body in (
        (f"alerts/{alert.pk}/acknowledge", {"note": ""}),
        (f"alerts/{alert.pk}/snooze", {"minutes": 15}),
        ("silences", {"matchers": [BY_RULE], "reason": "x", "minutes": 5}),
    ):
        asked.append(client.post(f"/api/v1/{address}", body, content_type="application/json", headers=bearer))
    asked.append(
        client.post(
            "/api/v1/alert-rules/audit-altered",
            {"fields": {"enabled": False}, "reason": "x"},
            content_type="application/json",
            headers=bearer,
        )
    )
    assert [answer.status_code for answer in asked] == [403] * 7, [answer.content for answer in asked]
    alert.refresh_from_db()
    assert alert.state == Alert.State.FIRING and not alert.silence_id and state_of("audit-altered") == before
    refused = AuditEntry.objects.filter(action="refused.integrity.manage").order_by("sequence")
    assert [entry.actor for entry in refused] == ["operator", "token:of-operator"]  # equal ones are folded


def test_a_proposal_of_an_assistant_is_carried_out_for_nobody_below_an_administrator():
    carry_out = assistant_proposals.ACTS["silence"].carry_out
    with pytest.raises(PermissionDenied):
        carry_out(actor("operator"), {"matchers": [BY_RULE], "minutes": 5}, "x", None, timezone.now())
    assert not Silence.objects.exists()


def test_the_page_offers_an_operator_no_button_that_is_refused(browsers, control):
    alert = fired("audit-altered")
    seen = {role: browsers[role].get(f"/alerts/{alert.pk}/").content.decode() for role in browsers}
    assert "requires the administrator role, because it monitors" in seen["operator"]
    assert f"/alerts/{alert.pk}/snooze" not in seen["operator"]
    assert f"/alerts/{alert.pk}/snooze" in seen["administrator"]
