"""Alerts to an Alertmanager, and an Alertmanager's reports as evidence on ours; both against a real one."""

from copy import deepcopy
from datetime import UTC, datetime, timedelta
from functools import partial

import httpx
import orjson
import pytest
from django.test import Client
from django.utils import timezone

from common.errors import BadInput
from console.accounts.access import create_token
from tests.prometheus import alertmanager as running_alertmanager
from tests.waiting import until
from tests.workers.alerts.checks import Looks, deliver, fire, plant, rule, the_alert
from workers.alerts import review
from workers.alerts.delivery import alertmanager, dispatcher, outbox, receivers, webhook
from workers.alerts.delivery.message_text import Failed
from workers.alerts.lifecycle import reported
from workers.alerts.lifecycle.models import Message, ReportedAlert

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 24, 9, 0, tzinfo=UTC)
REPORT = {
    "version": "4",
    "groupKey": '{}:{alertname="DiskFull"}',
    "status": "firing",
    "receiver": "weir",
    "externalURL": "http://alerts.example:9093",
    "alerts": [
        {
            "status": "firing",
            "labels": {"alertname": "DiskFull", "severity": "critical", "instance": "n1"},
            "annotations": {"summary": "The disk of n1 is full", "description": "0 bytes are left."},
            "startsAt": "2026-11-24T08:58:11.123456789Z",
            "endsAt": "0001-01-01T00:00:00Z",
            "generatorURL": "http://prometheus.example/graph?g0.expr=disk",
            "fingerprint": "3fd1b2c4d5e6f708",
        }
    ],
}


def to(url, **settings):
    made = receivers.define("am", "alertmanager", {"url": url, **settings})
    rule(escalation=[{"after_minutes": 0, "receivers": ["am"]}])
    return made


# To an Alertmanager


def test_an_alert_is_posted_with_its_labels_its_words_and_an_end_that_lies_ahead(looks, settings):
    settings.WEIR_PUBLIC_URL = "https://weir.example"
    to("http://alerts.example:9093/")
    fire(looks)
    (message,) = outbox.bundle(looks.at)
    sent = []
    transport = httpx.MockTransport(lambda request: sent.append(request) or httpx.Response(200))
    alertmanager.send(message, looks.now, transport)
    [request] = sent
    assert str(request.url) == "http://alerts.example:9093/api/v2/alerts"
    [posted] = orjson.loads(request.content)
    alert = the_alert()
    assert posted["labels"] == {
        "alertname": alert.rule_name,
        "severity": "critical",
        "plant": "main",
        "node": "n1",
        "weir_alert": str(alert.pk),
    }
    assert posted["annotations"]["summary"] == "Node n1 is lost"
    assert posted["generatorURL"] == f"https://weir.example/alerts/{alert.pk}/"
    assert posted["startsAt"] == alert.fired_at.isoformat()
    assert datetime.fromisoformat(posted["endsAt"]) - looks.at == timedelta(days=7)


def test_its_end_has_the_same_labels(looks):
    to("http://alerts.example:9093")
    fire(looks)
    (begun,) = outbox.bundle(looks.at)
    outbox.mark_delivered(begun, looks.at)
    looks.snapshot = plant()
    looks.pass_seconds(120, 6)
    looks.now += 6
    (over,) = outbox.bundle(looks.at)
    [first], [last] = (alertmanager.build_payload(each.content, looks.now) for each in (begun, over))
    assert over != begun and first["labels"] == last["labels"]
    assert last["endsAt"] == the_alert().resolved_at.isoformat()


def test_it_ends_there_too_where_the_clock_was_set_back_meanwhile(looks):
    to("http://alerts.example:9093")
    fire(looks)
    (begun,) = outbox.bundle(looks.at)
    outbox.mark_delivered(begun, looks.at)
    looks.now -= 3_600
    looks.snapshot = plant()
    looks.pass_seconds(30)
    assert the_alert().resolved_at < the_alert().fired_at
    outbox.bundle(looks.at)
    (end,) = alertmanager.build_payload(Message.objects.latest("pk").content, looks.now)
    assert end["endsAt"] == the_alert().resolved_at.isoformat()
    assert end["startsAt"] <= end["endsAt"], "it refuses an end before the beginning for good"


@pytest.mark.parametrize(("status", "for_good"), [(400, True), (422, True), (404, False), (503, False)])
def test_what_it_refuses_is_said_and_tried_again_where_that_may_help(looks, status, for_good):
    to("http://alerts.example:9093")
    fire(looks)
    (message,) = outbox.bundle(looks.at)
    answer = httpx.MockTransport(lambda _: httpx.Response(status, text="bad label name"))
    with pytest.raises(Failed, match=f"returned HTTP {status}: bad label name") as failed:
        alertmanager.send(message, looks.now, answer)
    assert failed.value.for_good is for_good


def page(content_type):
    return httpx.Response(200, text="<!doctype html><title>Log in</title>", headers={"Content-Type": content_type})


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (page("text/html; charset=utf-8"), "returned a web page"),
        (page("Application/XHTML+xml"), "returned a web page"),
        (httpx.Response(503, content=b"not\0now"), "returned HTTP 503: not now"),
    ],
)
def test_a_page_in_place_of_its_answer_and_an_answer_with_a_nul_are_failed_tries_like_any_other(looks, answer, error):
    """A login stands before it, or another server there answers every path with its start page."""
    to("http://alerts.example:9093")
    fire(looks)
    channels = {"alertmanager": partial(alertmanager.send, transport=httpx.MockTransport(lambda _: answer))}
    assert dispatcher.deliver(lambda: looks.at, lambda: True, channels) == 0
    message = Message.objects.get()
    assert message.error.startswith(f"alerts.example:9093 {error}")
    assert message.tries == 1 and message.due_at > looks.at


@pytest.mark.parametrize("answers", [503, None])
def test_what_fails_names_the_server_and_nothing_else_of_its_address(answers, looks):
    def answer(_):
        if answers is None:
            raise httpx.ConnectError("refused")
        return httpx.Response(answers)

    fire(looks)
    for channel, send in (("webhook", webhook.send), ("alertmanager", alertmanager.send)):
        made = receivers.define(channel, channel, {"url": "https://x.example:9093/hunter2?key=hunter2"})
        with pytest.raises(Failed, match=r"x\.example:9093 ") as failed:
            send(outbox.test_message(made, "chief", looks.at), looks.now, httpx.MockTransport(answer))
        assert "hunter2" not in str(failed.value)


def test_its_token_is_named_and_comes_from_the_environment(looks, monkeypatch):
    receiver = to("http://alerts.example:9093", secret_environment="WEIR_SECRET_AM")
    assert "WEIR_SECRET_AM is not set" in alertmanager.setup_error(receiver)
    monkeypatch.setenv("WEIR_SECRET_AM", "hunter2")
    assert alertmanager.setup_error(receiver) == ""
    sent = []
    transport = httpx.MockTransport(lambda request: sent.append(request) or httpx.Response(200))
    alertmanager.send(outbox.test_message(receiver, "chief", looks.at), looks.now, transport)
    assert sent[0].headers["authorization"] == "Bearer hunter2"
    assert orjson.loads(sent[0].content)[0]["labels"]["alertname"] == "WeirTest"


def test_a_token_that_no_header_takes_is_not_quoted(looks, monkeypatch):
    receiver = to("http://alerts.example:9093", secret_environment="WEIR_SECRET_AM")
    monkeypatch.setenv("WEIR_SECRET_AM", "hunter2\n")
    error = alertmanager.setup_error(receiver)
    assert "names WEIR_SECRET_AM, whose value cannot be sent" in error and "hunter2" not in error
    with pytest.raises(Failed, match="cannot be sent"):
        alertmanager.send(outbox.test_message(receiver, "chief", looks.at), looks.now)


def test_ends_are_always_sent_to_it_and_its_address_is_checked():
    with pytest.raises(BadInput, match="tells_resolved"):
        receivers.define("am", "alertmanager", {"url": "http://x:9093"}, tells_resolved=False)
    with pytest.raises(BadInput, match="url"):
        receivers.define("am", "alertmanager", {"url": "http://169.254.169.254/"})


# From an Alertmanager


def test_a_report_is_kept_once_and_its_end_ends_it():
    assert reported.take(REPORT, "token:am", NOW) == reported.StoredReport(1, 0)
    assert reported.take(REPORT, "token:am", NOW + timedelta(minutes=1)).stored == 1
    [row] = ReportedAlert.objects.all()
    assert (row.name, row.severity, row.summary) == ("DiskFull", "critical", "The disk of n1 is full")
    assert (row.ended_at, row.reported_at) == (None, NOW + timedelta(minutes=1))
    over = deepcopy(REPORT)
    over["alerts"][0] |= {"status": "resolved", "endsAt": "2026-11-24T09:03:00Z"}
    reported.take(over, "token:am", NOW + timedelta(minutes=4))
    [row] = ReportedAlert.objects.all()
    assert row.ended_at == datetime(2026, 11, 24, 9, 3, tzinfo=UTC)


def test_our_own_alerts_that_come_back_are_no_evidence():
    own = deepcopy(REPORT)
    own["alerts"][0]["labels"]["weir_alert"] = "7"
    assert reported.take(own, "token:am", NOW) == reported.StoredReport(0, 1)
    assert not ReportedAlert.objects.exists()


def changed(**more):
    document = deepcopy(REPORT)
    document["alerts"][0] |= more
    return document


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({**REPORT, "version": "5"}, "version"),
        ({"version": "4"}, "alerts"),
        ({**REPORT, "alerts": REPORT["alerts"] * 201}, "alerts"),
        ({**REPORT, "alerts": ["x"]}, "alerts[0]"),
        (changed(labels=None), "alerts[0].labels"),
        (changed(labels={"alertname": 5}), "alerts[0].labels"),
        (changed(fingerprint=""), "alerts[0].fingerprint"),
        (changed(fingerprint="x" * 65), "alerts[0].fingerprint"),
        (changed(startsAt="yesterday"), "alerts[0].startsAt"),
        (changed(startsAt="0001-01-01T00:00:00+01:00"), "alerts[0].startsAt"),
        (changed(status="resolved", endsAt="9999-12-31T23:59:59-01:00"), "alerts[0].endsAt"),
        (changed(status="resolved", endsAt="soon"), "alerts[0].endsAt"),
    ],
)
def test_a_report_that_is_none_is_refused_by_name_and_nothing_is_kept(document, field):
    with pytest.raises(BadInput) as refused:
        reported.take(document, "token:am", NOW)
    assert refused.value.field == field
    assert not ReportedAlert.objects.exists()


def test_what_is_long_is_cut_and_a_link_that_is_none_of_the_web_is_dropped():
    long = {"alertname": "x" * 500, "text": "y" * 5_000, **{f"l{n}": "z" for n in range(100)}}
    reported.take(changed(labels=long, generatorURL="javascript:alert(1)"), "a" * 200, NOW)
    [row] = ReportedAlert.objects.all()
    assert (len(row.name), len(row.source), len(row.labels), row.link) == (120, 80, 40, "")


def test_only_so_many_are_kept_the_newest(monkeypatch):
    monkeypatch.setattr(reported, "MAX_KEPT", 5)
    for number in range(12):
        reported.take(changed(fingerprint=str(number)), "token:am", NOW + timedelta(seconds=number))
    assert [row.fingerprint for row in ReportedAlert.objects.order_by("pk")] == ["7", "8", "9", "10", "11"]
    reported.take(changed(fingerprint="new"), "token:am", NOW + timedelta(days=40))
    assert ReportedAlert.objects.count() == 1


def test_what_is_about_the_same_stands_first_beside_an_alert(looks):
    rule()
    fire(looks)
    at = looks.at
    for name, labels, began, ended in (
        ("Other", {"instance": "web"}, -600, None),
        ("Same", {"instance": "n1"}, -60, None),
        ("Before", {"instance": "n1"}, -9_000, -8_000),
        ("Later", {"instance": "n1"}, 9_000, None),
    ):
        ReportedAlert.objects.create(
            source="am",
            fingerprint=name,
            name=name,
            labels=labels,
            began_at=at + timedelta(seconds=began),
            ended_at=None if ended is None else at + timedelta(seconds=ended),
            reported_at=at,
        )
    alert = the_alert()
    found = reported.list_concurrent_reports(alert, *review.find_response_range(alert), at)
    assert [row.name for row in found if row.name != "Later"] == ["Same", "Other"]


def token(django_user_model, actions=("alert.report",)):
    owner = django_user_model.objects.create_superuser("chief", password="x")
    end = timezone.now() + timedelta(days=1)
    return create_token(owner, "am", "operator", end, actions=list(actions))[1]


def test_the_webhook_takes_a_token_of_its_action_and_no_other(django_user_model, settings, tmp_path):
    settings.STATIC_ROOT = tmp_path
    secret = token(django_user_model)

    def post(document, secret):
        login = {"HTTP_AUTHORIZATION": f"Bearer {secret}"} if secret else {}
        return Client().post("/api/v1/alerts/reported", orjson.dumps(document), "application/json", **login)

    assert post(REPORT, "").status_code == 401
    assert post(REPORT, "weir_wrong").status_code == 401
    assert not ReportedAlert.objects.exists()
    answer = post(REPORT, secret)
    assert (answer.status_code, answer.json()) == (200, {"stored": 1, "own": 0})
    assert ReportedAlert.objects.get().source == "token:am"
    assert post({**REPORT, "version": "3"}, secret).status_code == 422
    login = {"HTTP_AUTHORIZATION": f"Bearer {secret}"}
    assert Client().get("/api/v1/alerts/reported", **login).status_code == 403  # it may report, not read


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:No directory at")  # the server of this test has no static files
@pytest.mark.django_db(transaction=True)
def test_alerts_go_to_a_real_alertmanager_and_others_come_back_as_evidence(
    tmp_path, live_server, django_user_model, settings
):
    looks = Looks()
    looks.now = timezone.now().timestamp() - 600.0  # what ends in it has ended by the clock, too
    secret = token(django_user_model)
    with running_alertmanager(tmp_path, f"{live_server.url}/api/v1/alerts/reported", secret) as url:

        def alerts():
            return {each["labels"]["alertname"]: each for each in httpx.get(f"{url}/api/v2/alerts").json()}

        to(url)
        fire(looks)
        assert deliver(looks) == 1
        name = the_alert().rule_name
        until(lambda: name in alerts(), every_seconds=0.2)
        ours = alerts()[name]
        assert ours["status"]["state"] == "active" and ours["labels"]["node"] == "n1"
        assert ours["annotations"]["summary"] == "Node n1 is lost"

        # Somebody else's alert on the same node, as their Prometheus would post it.
        theirs = {"labels": {"alertname": "DiskFull", "severity": "page", "instance": "n1"}}
        httpx.post(f"{url}/api/v2/alerts", json=[theirs]).raise_for_status()
        until(lambda: ReportedAlert.objects.filter(name="DiskFull", ended_at=None).exists(), every_seconds=0.2)
        assert not ReportedAlert.objects.filter(name=name).exists()  # our own came by, too
        alert = the_alert()
        [row] = reported.list_concurrent_reports(alert, *review.find_response_range(alert), timezone.now())
        assert (row.name, row.severity, row.source) == ("DiskFull", "page", "token:am")

        over = {**theirs, "endsAt": timezone.now().isoformat()}
        httpx.post(f"{url}/api/v2/alerts", json=[over]).raise_for_status()
        until(lambda: ReportedAlert.objects.filter(name="DiskFull", ended_at__isnull=False).exists(), every_seconds=0.2)

        looks.snapshot = plant()
        looks.pass_seconds(120, 6)
        looks.now += 6
        assert deliver(looks) == 1
        until(lambda: name not in alerts(), every_seconds=0.2)  # those that are over are not listed
