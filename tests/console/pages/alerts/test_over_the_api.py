"""What the pages of alerts do, done with a token."""

from typing import Any

import pytest
from django.test import Client

from tests.console.pages.alerts.checks import REASON, audited

pytestmark = pytest.mark.django_db


def test_a_token_does_all_of_it_over_the_api(secrets, alert, plant_topology):
    def call(role: str, address: str, body: Any = None) -> Any:
        headers = {"HTTP_AUTHORIZATION": f"Bearer {secrets[role]}"}
        if body is None:
            return Client().get(f"/api/v1{address}", **headers)
        return Client().post(f"/api/v1{address}", body, content_type="application/json", **headers)

    assert [each["id"] for each in call("viewer", "/alerts").json()["alerts"]] == [alert.pk]
    assert call("viewer", "/alerts?state=odd").status_code == 422
    shown = call("viewer", f"/alerts/{alert.pk}").json()
    assert shown["events"][0]["kind"] == "fired" and shown["situation"].startswith("Not acknowledged")
    answer = call("operator", f"/alerts/{alert.pk}/acknowledge", {"note": "mine"})
    assert answer.json()["state"] == "acknowledged"
    assert call("operator", f"/alerts/{alert.pk}/snooze", {"minutes": 0}).status_code == 422
    body = {"matchers": [{"label": "node", "is": "=", "value": "n1"}]}
    assert len(call("viewer", "/silences/preview", body).json()["open"]) == 1
    made = call("operator", "/silences", {**body, **REASON, "minutes": 5})
    assert made.status_code == 201
    assert call("operator", f"/silences/{made.json()['id']}/end", {}).json() == {"ended": True}
    assert (
        call("operator", "/alert-rules/node-lost", {"fields": {"threshold": 12}, **REASON, "revision": 1}).json()[
            "revision"
        ]
        == 2
    )
    assert call("operator", "/alert-rules/node-lost", {"fields": {"colour": 1}, **REASON}).status_code == 422
    assert call("viewer", "/alert-rules/node-lost/preview", {"fields": {"threshold": 99}}).status_code == 200
    assert call("administrator", "/receivers/desk/test", {}).json()["state"] == "waiting"
    assert call("administrator", "/receivers/hook", {"channel": "browser", **REASON}).json()["channel"] == "browser"
    assert call("administrator", "/receivers/hook/delete", REASON).json() == {"deleted": "hook"}
    assert call("viewer", "/alerts/review").json()["summary"]["alerts"] == 1
    assert audited()[0][0] == "token:of-operator"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"condition": ["node_lost"]}, "condition"),
        ({"escalation": [{"after_minutes": 0, "receivers": [["desk"]]}]}, "escalation[0].receivers"),
        ({"runbook": "https://[wiki]/nodes"}, "runbook"),
    ],
)
def test_a_rule_of_values_that_are_none_is_refused_at_its_field(secrets, alert, fields, field):
    headers = {"HTTP_AUTHORIZATION": f"Bearer {secrets['operator']}"}
    body = {"fields": fields, **REASON}
    answer = Client().post("/api/v1/alert-rules/node-lost", body, content_type="application/json", **headers)
    assert (answer.status_code, list(answer.json()["errors"])) == (422, [field])
