"""Reports as Alertmanagers send them: large ones, odd ones, and some with an alert that can't be read."""

from copy import deepcopy
from datetime import UTC, datetime

import orjson
import pytest
from django.test import Client

from console.api.ingestion.body_limit import load_allowance
from console.input import boundary
from tests.workers.alerts.test_alertmanager import REPORT
from workers.alerts.lifecycle.models import ReportedAlert
from workers.alerts.lifecycle.reported import MAX_ALERTS

pytestmark = pytest.mark.django_db
ADDRESS = "/api/v1/alerts/reported"


def alert(number=0, **fields):
    return {**deepcopy(REPORT["alerts"][0]), "fingerprint": f"{number:016x}", **fields}


@pytest.fixture
def report(secrets):
    def send(*alerts, content_type="application/json", **fields):
        body = orjson.dumps({**REPORT, **fields, "alerts": list(alerts)})
        headers = {"authorization": f"Bearer {secrets['operator']}"}
        return Client().post(ADDRESS, body, content_type, headers=headers)

    return send


BAD = {
    "alerts[1]": "DiskFull",
    "alerts[1].startsAt": alert(1, startsAt="yesterday"),
    "alerts[1].fingerprint": alert(1, fingerprint=None),
    "alerts[1].labels": alert(1, labels={"alertname": 5}),
    "alerts[1].annotations": alert(1, annotations=["x"]),
    "alerts[1].endsAt": alert(1, status="resolved", endsAt="soon"),
}


@pytest.mark.parametrize("field", BAD)
def test_an_alert_that_cannot_be_read_is_named_and_the_others_are_kept(report, field):
    answer = report(alert(0), BAD[field], alert(2))
    assert answer.status_code == 200, answer.content
    taken = answer.json()
    assert (taken["stored"], taken["own"]) == (2, 0)
    assert [each["field"] for each in taken["refused"]] == [field]
    message = taken["refused"][0]["message"]
    assert "takes" in message or "must be" in message
    assert ReportedAlert.objects.count() == 2


@pytest.mark.parametrize(
    "alerts",
    [
        [],
        [alert(endsAt="0001-01-01T00:00:00Z")],
        [alert(startsAt="2026-11-24T08:58:11.123456789-02:00")],
        [alert(1), alert(2, status="resolved", endsAt="2026-11-24T09:03:00.987654321Z")],
        [alert(labels={"alertname": "Диск", "größe": "voll", "路径": "/var"})],
        [alert(1, generatorURL=""), alert(2, annotations={})],
    ],
    ids=["none", "no-end", "nine-digits-and-zone", "firing-and-resolved", "utf-8-labels", "left-out"],
)
def test_the_shapes_of_reports_are_all_taken(report, alerts):
    answer = report(*alerts, truncatedAlerts=4_800)
    assert answer.status_code == 200, answer.content
    assert answer.json() == {"stored": len(alerts), "own": 0}
    ended = [each.ended_at for each in ReportedAlert.objects.exclude(ended_at=None)]
    assert ended in ([], [datetime(2026, 11, 24, 9, 3, 0, 987654, tzinfo=UTC)])


@pytest.mark.parametrize("letter", ["x", "ж", "磁"], ids=["one-byte", "two-bytes", "three-bytes"])
def test_as_many_alerts_as_a_report_may_have_fit_with_long_annotations(report, letter):
    long = {"summary": "s" * 600, "description": letter * 9_000}
    answer = report(*(alert(number, annotations=long) for number in range(MAX_ALERTS)))
    assert answer.status_code == 200, answer.content
    assert answer.json()["stored"] == MAX_ALERTS
    assert {len(each.description) for each in ReportedAlert.objects.all()} == {2_000}


@pytest.mark.parametrize(
    ("path", "role", "most_bytes"),
    [
        (ADDRESS, "operator", boundary.MAX_REPORT_BYTES),
        (ADDRESS + "/", "operator", boundary.MAX_REPORT_BYTES),
        (ADDRESS, "producer", 64 * 2**10),
        ("/api/v1/alert-rules", "operator", 2**20),
    ],
)
@pytest.mark.django_db(transaction=True)
async def test_only_who_reports_alerts_may_send_a_large_body(secrets, path, role, most_bytes):
    headers = [(b"authorization", f"Bearer {secrets[role]}".encode())]
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "client": ("127.0.0.1", 1)}
    assert (await load_allowance(scope)).most_bytes == most_bytes


def test_a_large_report_of_very_many_values_is_refused_before_it_is_read(report, monkeypatch):
    monkeypatch.setattr(boundary, "document_of", lambda body: pytest.fail("it was read"))
    answer = report(alert(labels={}, more=[0] * 1_200_000))
    assert answer.status_code == 413
    assert "values" in answer.json()["errors"]["body"][0]
    assert report(alert(annotations={"description": "x" * boundary.MAX_REPORT_BYTES})).status_code == 413
    assert not ReportedAlert.objects.exists()
