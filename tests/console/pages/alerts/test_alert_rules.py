"""Rules of alerts on their pages: changed, previewed, refused at their field."""

from typing import Any

import pytest

from console.models import AuditEntry
from tests.console.page_form import form_of
from tests.console.pages.alerts.checks import REASON, audited, fetch, matcher
from workers.alerts.lifecycle.models import AlertRule

pytestmark = pytest.mark.django_db


def rule_form(**changes: Any) -> dict[str, Any]:
    """The form of node-lost as its page fills it."""
    return {
        "name": "node-lost",
        "revision": "1",
        "title": "Node {node} is lost",
        "condition": "node_lost",
        "severity": "critical",
        "threshold": "20",
        "clear_threshold": "3",
        "for_seconds": "0",
        "keep_seconds": "10",
        "receivers-0": ["desk"],
        "after-0": "0",
        "enabled": "on",
        "group_by": ["rule"],
        **REASON,
        **changes,
    }


def test_a_rule_is_changed_and_the_audit_keeps_what_differs(operator, alert):
    assert fetch(operator, "/alerts/rules/change", rule_form()).status_code == 200
    assert AlertRule.objects.get().threshold == 20
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.before, entry.after) == ("alert_rule.change", {"threshold": 10.0}, {"threshold": 20})


def test_a_number_that_is_emptied_is_previewed_as_it_would_be_saved(operator, alert, plant_topology):
    rule = alert.rule
    AlertRule.objects.filter(pk=rule.pk).update(for_seconds=60)
    form = rule_form(revision=str(rule.revision), for_seconds="")
    said = fetch(operator, "/alerts/rules/preview", form).json()["sentence"]
    assert "for 60 s" in said
    assert fetch(operator, "/alerts/rules/change", form).status_code == 200
    assert AlertRule.objects.get(pk=rule.pk).for_seconds == 60


def test_a_rule_that_somebody_else_changed_meanwhile_is_refused(operator, alert):
    fetch(operator, "/alerts/rules/change", rule_form())
    answer = fetch(operator, "/alerts/rules/change", rule_form(threshold="30"))
    assert (answer.status_code, list(answer.json()["errors"])) == (422, ["revision"])
    assert AlertRule.objects.get().threshold == 20


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"threshold": "many"}, "threshold"),
        ({"threshold": "inf"}, "threshold"),
        ({"clear_threshold": "30"}, "clear_threshold"),
        ({"condition": "weather"}, "condition"),
        ({"severity": "grave"}, "severity"),
        ({"runbook": "javascript:alert(1)"}, "runbook"),
        ({"runbook": "https://[wiki]/nodes"}, "runbook"),
        ({"title": " "}, "title"),
        ({"receivers-0": ["nobody"]}, "escalation[0].receivers"),
        ({"receivers-1": ["desk"], "after-1": "0"}, "escalation"),
        ({"keep_seconds": "-1"}, "keep_seconds"),
        ({"reason": ""}, "reason"),
        ({"group_by": ["colour"]}, "group_by"),
        ({**matcher(" x ", label="colour")}, "matchers[0].label"),
        ({"name": "node-lost", "revision": ""}, "name"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_at_its_field(change, field, operator, alert):
    answer = fetch(operator, "/alerts/rules/change", rule_form(**change))
    assert (answer.status_code, list(answer.json()["errors"])) == (422, [field])
    assert AlertRule.objects.get().revision == 1 and audited() == []


@pytest.mark.parametrize("name", ["mine", "node-lost", ""])
def test_a_new_rule_that_is_refused_without_scripts_is_typed_once(name, operator, alert):
    typed = {"title": "Orders behind", "threshold": "20", "clear_threshold": "many", "severity": "critical"}
    form = rule_form(name=name, revision="", **typed, **{"receivers-0": ["desk"]})
    answer = operator.post("/alerts/rules/change", form)
    assert answer.status_code == 422
    again = form_of(answer, "rule-form")
    assert (again["name"], again["title"], again["severity"]) == (name, "Orders behind", "critical")
    assert (again["threshold"], again.get("revision")) == ("20", None)
    assert answer.context["form"].steps[0].receivers == ["desk"]
    assert AlertRule.objects.count() == 1


def test_a_rule_whose_condition_is_known_no_more_is_opened_and_gets_another(operator, alert):
    AlertRule.objects.filter(pk=alert.rule.pk).update(condition="of_another_version")
    assert "this version does not support" in operator.get("/alerts/rules/").content.decode()
    answer = operator.get("/alerts/rules/node-lost/")
    assert answer.status_code == 200
    posted = {**form_of(answer, "/alerts/rules/change"), "condition": "node_lost", **REASON}
    assert fetch(operator, "/alerts/rules/change", posted).status_code == 200
    assert AlertRule.objects.get().condition == "node_lost"


def test_a_new_rule_is_opened_and_a_preview_changes_nothing(operator, alert, plant_topology):
    said = fetch(operator, "/alerts/rules/preview", rule_form(name="mine", revision="")).json()
    assert "node lost ≥ 20 s; clear below 3" in said["sentence"] and AlertRule.objects.count() == 1
    assert (
        "Threshold must be a number"
        in fetch(operator, "/alerts/rules/preview", rule_form(threshold="x")).json()["sentence"]
    )
    answer = fetch(operator, "/alerts/rules/change", rule_form(name="mine", revision=""))
    assert answer.json()["go"] == "/alerts/rules/mine/"
    for name in ("mine", "new"):
        assert operator.get(f"/alerts/rules/{name}/").status_code == 200
    assert operator.get("/alerts/rules/nobodys/").status_code == 404
