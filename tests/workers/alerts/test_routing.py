"""Who is notified: a default route by severity and team, and rules that override it."""

import importlib

import pytest
from django.apps import apps

from common.errors import BadInput
from tests.workers.alerts.checks import Looks, fire, the_alert
from workers.alerts.delivery import receivers
from workers.alerts.lifecycle.models import AlertRule, Delivery, Receiver
from workers.alerts.lifecycle.routing import describe_steps, find_rule_steps
from workers.alerts.rules import rules

pytestmark = pytest.mark.django_db


def receiver(name, **more):
    return receivers.define(name, "email", {"addresses": ["a@b.example"]}, **more)


def a_rule(name="node-lost", now=None, **more):
    fields = {"condition": "node_lost", "title": "Node {node} is lost", "threshold": 10, "severity": "critical"}
    return rules.define(name, {**fields, **more}, Looks().at)


def words(rule, severity=None):
    return describe_steps(find_rule_steps(rule, severity or rule.severity))


def test_a_new_receiver_gets_alerts_without_a_change_of_any_rule(looks):
    a_rule()
    receiver("desk")
    fire(looks)
    (delivery,) = Delivery.objects.all()
    assert (delivery.receiver.name, delivery.alert) == ("desk", the_alert())


def test_the_default_route_is_by_severity_team_and_delay():
    receiver("desk")
    receiver("manager", severities=["critical"], route_minutes=15)
    receiver("payments", team="payments")
    receiver("off", enabled=False)
    everyone, payments = a_rule("one"), a_rule("two", team="payments")
    assert words(everyone) == "desk at once; manager after 15 min"
    assert words(payments) == "desk, payments at once; manager after 15 min"
    assert words(payments, "warning") == "desk, payments at once"
    assert words(everyone, "notice") == "nobody"


def test_a_rule_overrides_it_also_with_nobody():
    receiver("desk")
    receiver("night", severities=[])
    assert words(a_rule("own", escalation=[{"after_minutes": 5, "receivers": ["night"]}])) == "night after 5 min"
    assert words(a_rule("none", escalation=[])) == "nobody"
    assert words(a_rule("none", escalation=None)) == "desk at once"


@pytest.mark.parametrize(
    ("field", "value"),
    [("severities", ["loud"]), ("severities", "critical"), ("team", "x" * 41), ("route_minutes", -1)],
)
def test_what_a_receiver_can_not_take_is_refused_by_field(field, value):
    with pytest.raises(BadInput) as error:
        receiver("desk", **{field: value})
    assert error.value.field == field and not Receiver.objects.exists()


def test_configurations_of_an_earlier_version_notify_the_same_receivers():
    consoles = Receiver.objects.create(name="consoles", channel="browser")
    desk = Receiver.objects.create(name="desk", channel="email", settings={"addresses": ["a@b.example"]})
    shipped, own = ([{"after_minutes": 0, "receivers": [name]}] for name in ("consoles", "desk"))
    before = {
        ("shipped", "critical"): (shipped, "consoles at once"),
        ("own", "warning"): (own, "desk at once"),
        ("muted", "warning"): ([], "nobody"),
        ("quiet", "notice"): ([], "nobody"),
        ("told", "notice"): (shipped, "consoles at once"),
    }
    for (name, severity), (escalation, _) in before.items():
        AlertRule.objects.create(
            name=name, title="t", condition="node_lost", threshold=1, clear_threshold=1, severity=severity,
            escalation=escalation,
        )  # fmt: skip
    importlib.import_module("workers.migrations.0041_default_route").follow(apps, None)
    made = {rule.name: rule for rule in AlertRule.objects.all()}
    assert {name: words(made[name]) for name, _ in before} == {name: said for (name, _), (_, said) in before.items()}
    assert made["shipped"].escalation is None and made["own"].escalation == own
    consoles.refresh_from_db(), desk.refresh_from_db()
    assert (consoles.severities, desk.severities) == (["critical", "warning"], [])
