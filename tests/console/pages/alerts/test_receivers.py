"""Receivers of alerts on their page: made, tried, retained while a rule names them."""

import html

import pytest

from console.models import AuditEntry
from tests.console.page_form import form_of
from tests.console.pages.alerts.checks import REASON, fetch
from workers.alerts.lifecycle.models import Message, OnCallFeed, Receiver

pytestmark = pytest.mark.django_db


def test_a_receiver_is_made_tested_and_kept_while_a_rule_names_it(browsers, alert):
    administrator = browsers["administrator"]
    form = {"name": "hook", "channel": "webhook", "url": "https://desk/hook", "enabled": "on", **REASON}
    assert fetch(administrator, "/alerts/receivers/change", form).status_code == 200
    hook = Receiver.objects.get(name="hook")
    assert fetch(administrator, f"/alerts/receivers/{hook.pk}/test").status_code == 200
    assert Message.objects.get().content["kind"] == "test"
    page = administrator.get("/alerts/receivers/").content.decode()
    assert "Receiver test" in page and "Signature verification key" in page
    assert "Signature verification key" not in browsers["operator"].get("/alerts/receivers/").content.decode()
    desk = Receiver.objects.get(name="desk")
    refused = fetch(administrator, f"/alerts/receivers/{desk.pk}/delete", REASON)
    assert "is used by node-lost" in refused.json()["errors"]["receiver"][0]
    assert fetch(administrator, f"/alerts/receivers/{hook.pk}/delete", REASON).status_code == 200
    assert not Receiver.objects.filter(name="hook").exists()


def test_the_key_in_an_address_is_shown_to_those_alone_who_may_change_it_and_is_not_in_the_audit(browsers, alert):
    administrator = browsers["administrator"]
    form = {"name": "hook", "channel": "webhook", "enabled": "on", **REASON}
    for key in ("key-of-one", "key-of-two"):
        sent = fetch(administrator, "/alerts/receivers/change", {**form, "url": f"https://chat.example/{key}"})
        assert sent.status_code == 200
        form = form_of(administrator.get("/alerts/receivers/?edit=hook"), "/alerts/receivers/change") | REASON

    def seen_by(role):
        page = browsers[role].get("/alerts/receivers/?edit=hook").content.decode()
        return page, browsers[role].get("/api/v1/receivers").content.decode()

    assert all("https://chat.example/key-of-two" in text for text in seen_by("administrator"))
    for role in ("viewer", "operator"):
        for text in seen_by(role):
            assert "https://chat.example/" in text and "key-of-" not in text
    audited = [entry.after for entry in AuditEntry.objects.filter(action="receiver.change").order_by("pk")]
    assert {each["url"] for each in audited} == {"https://chat.example/…"}
    assert audited[0]["url_fingerprint"] != audited[1]["url_fingerprint"]


ADDRESS = "desk@example.org"


def test_a_new_receiver_does_not_take_the_place_of_another(browsers, alert):
    posted = {"name": "desk", "channel": "browser", "enabled": "on", **REASON}
    answer = fetch(browsers["administrator"], "/alerts/receivers/change", posted)
    assert answer.status_code == 422 and "is already taken" in answer.json()["errors"]["name"][0]
    assert Receiver.objects.get(name="desk").channel == "email"


def test_a_receiver_that_somebody_changed_meanwhile_is_not_switched_on_again(browsers, alert):
    administrator = browsers["administrator"]
    form = form_of(administrator.get("/alerts/receivers/?edit=desk"), "/alerts/receivers/change")
    form |= {"addresses": ADDRESS, **REASON}
    assert fetch(administrator, "/alerts/receivers/change", form).status_code == 200
    assert not Receiver.objects.get(name="desk").enabled
    answer = fetch(administrator, "/alerts/receivers/change", {**form, "enabled": "on"})
    assert (answer.status_code, list(answer.json()["errors"])) == (422, ["digest"])
    assert not Receiver.objects.get(name="desk").enabled


def test_a_receiver_keeps_over_the_api_what_a_body_leaves_out(browsers, alert):
    Receiver.objects.filter(name="desk").update(enabled=False, tells_resolved=False)

    def post(name, **body):
        given = {"channel": "email", "settings": {"addresses": [ADDRESS]}, **REASON, **body}
        return browsers["administrator"].post(f"/api/v1/receivers/{name}", given, content_type="application/json")

    kept = post("desk").json()
    assert (kept["enabled"], kept["tells_resolved"], kept["gets_reports"]) == (False, False, False)
    assert post("desk", enabled=True, digest=kept["digest"]).json()["enabled"]
    assert list(post("desk", digest=kept["digest"]).json()["errors"]) == ["digest"]
    made = post("night").json()
    assert (made["enabled"], made["tells_resolved"], made["gets_reports"]) == (True, True, False)


@pytest.mark.parametrize(
    ("form", "field"),
    [
        ({"channel": "email", "addresses": "not an address"}, "addresses"),
        ({"channel": "email", "addresses": ""}, "addresses"),
        ({"channel": "webhook", "url": "ftp://x"}, "url"),
        ({"channel": "webhook", "url": "https://me:secret@desk/"}, "url"),
        ({"channel": "webhook", "url": "https://desk/", "secret_environment": "a b"}, "secret_environment"),
        ({"channel": "pigeon"}, "channel"),
        ({"channel": "browser", "name": "a b"}, "name"),
    ],
)
def test_a_receiver_that_cannot_be_is_refused_at_its_field(form, field, browsers, alert):
    answer = fetch(browsers["administrator"], "/alerts/receivers/change", {"name": "mine", **REASON, **form})
    assert (answer.status_code, list(answer.json()["errors"])) == (422, [field])
    assert Receiver.objects.count() == 1


@pytest.mark.parametrize(
    "broken", [[], ["event 2 “Night” has no start"], ["event 1 ends before it begins", "event 3 <b>x</b> has no end"]]
)
def test_broken_events_of_a_calendar_are_named_on_the_page_and_by_the_api(broken, browsers):
    settings = {"secret_environment": "WEIR_SECRET_ROTA", "otherwise": "desk"}
    rota = Receiver.objects.create(name="rota", channel="schedule", settings=settings)
    OnCallFeed.objects.create(receiver=rota, broken=broken)
    page = html.unescape(browsers["viewer"].get("/alerts/receivers/").content.decode())
    assert page.count("Skipped calendar entry:") == len(broken)
    assert all(sentence in page for sentence in broken)
    rows = browsers["viewer"].get("/api/v1/receivers").json()["receivers"]
    assert [row["broken_events"] for row in rows if row["name"] == "rota"] == [broken]
    assert not any("broken_events" in row for row in rows if row["channel"] != "schedule")
