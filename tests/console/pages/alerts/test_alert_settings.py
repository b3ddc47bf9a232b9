"""Rules, silences and receivers of alerts: previewed, changed, refused at their field; and all of it over the API."""

import html
import re

import pytest
from django.test import Client

from console.models import AuditEntry
from tests.console.page_form import audited, fetch, form_of
from tests.console.pages.alerts.checks import REASON, look, matcher, opened
from workers.alerts.lifecycle.models import AlertRule, Message, OnCallFeed, Receiver, Silence

pytestmark = pytest.mark.django_db


def rule_form(**changes):
    """The form of node-lost as its page fills it."""
    return {
        "name": "node-lost", "revision": "1", "title": "Node {node} is lost", "condition": "node_lost",
        "severity": "critical", "threshold": "20", "clear_threshold": "3", "for_seconds": "0", "keep_seconds": "10",
        "receivers-0": ["desk"], "after-0": "0", "enabled": "on", "group_by": ["rule"], **REASON, **changes,
    }  # fmt: skip


def test_a_rule_is_changed_and_the_audit_keeps_what_differs(operator, alert):
    assert fetch(operator, "/alerts/rules/change", rule_form()).status_code == 200
    assert AlertRule.objects.get().threshold == 20
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.before, entry.after) == ("alert_rule.change", {"threshold": 10.0}, {"threshold": 20})


def test_a_rule_follows_the_default_route_or_has_its_own(operator, administrator, alert):
    posted = {"name": "pager", "channel": "email", "addresses": "p@b.example", "critical": "on", "enabled": "on"}
    answer = fetch(administrator, "/alerts/receivers/change", {**posted, "team": "payments", **REASON})
    assert answer.status_code == 200, answer.content
    without = {"receivers-0": [], "route": "default", "team": "payments"}
    assert fetch(operator, "/alerts/rules/change", rule_form(**without)).status_code == 200
    rule = AlertRule.objects.get()
    assert (rule.escalation, rule.team) == (None, "payments")
    page = " ".join(operator.get("/alerts/receivers/?rule=node-lost").content.decode().split())
    assert 'Team payments <span class="push">pager at once</span>' in page
    assert "<b>node-lost</b> (critical, team payments): pager at once, through the default route." in page
    assert "1 rule follows the default route" in page
    assert "Notifies pager at once (the default route)." in operator.get(f"/alerts/{alert.pk}/").content.decode()
    shown = operator.get("/api/v1/alert-rules/node-lost/route").json()
    assert (shown["own"], shown["words"]) == (False, "pager at once")
    both = rule_form(route="default", revision=str(rule.revision))
    assert "route" in fetch(operator, "/alerts/rules/change", both).json()["errors"]
    own = rule_form(route="own", revision=str(rule.revision))
    assert fetch(operator, "/alerts/rules/change", own).status_code == 200
    page = " ".join(operator.get("/alerts/receivers/?rule=node-lost").content.decode().split())
    assert "desk at once, through the rule\u2019s own route." in page


def test_who_is_notified_names_a_silence_of_the_subject(operator, people, alert):
    fetch(operator, "/alerts/silences/add", {**matcher("alert", "queue"), "reason": "known", "minutes": "30"})
    page = "/alerts/receivers/?rule=node-lost&label=queue&value={}"
    assert "Now silenced by operator" in " ".join(operator.get(page.format("alert")).content.decode().split())
    assert "Now silenced" not in operator.get(page.format("other")).content.decode()


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
        ({"clear_threshold": "30"}, "clear_threshold"),
        ({"condition": "weather"}, "condition"),
        ({"severity": "grave"}, "severity"),
        ({"runbook": "javascript:alert(1)"}, "runbook"),
        ({"receivers-0": ["nobody"]}, "escalation[0].receivers"),
        ({"receivers-1": ["desk"], "after-1": "0"}, "escalation"),
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


def test_a_silence_is_previewed_then_set_then_ended(operator, alert):
    posted = matcher("n*", operator="~")
    said = fetch(operator, "/alerts/silences/preview", posted).json()
    assert (
        said["sentence"].startswith("The silence would suppress 1 open alert")
        and said["rows"][0]["title"] == alert.title
    )
    assert not Silence.objects.exists()
    assert fetch(operator, "/alerts/silences/add", {**posted, **REASON, "minutes": "60"}).status_code == 200
    look(2)
    alert.refresh_from_db()
    assert alert.silence is not None
    assert "Node n1 is lost" in operator.get("/alerts/silences/").content.decode()
    silence = Silence.objects.get()
    assert f'value="silence/{silence.pk}"' in operator.get("/alerts/silences/").content.decode()
    longer = fetch(operator, "/manual-changes/extend", {"key": f"silence/{silence.pk}", "minutes": "30"})
    assert longer.status_code == 200 and Silence.objects.get().expires_at > silence.expires_at
    assert fetch(operator, f"/alerts/silences/{silence.pk}/end").json()["message"] == "Silence ended."
    assert "had already ended" in fetch(operator, f"/alerts/silences/{silence.pk}/end").json()["message"]
    assert [action for _, action, _ in audited()] == ["silence.set", "silence.extend", "silence.end"]


def as_filled(page):
    """What a browser posts of the matchers as the page has filled them in."""
    chosen = r'<select name="matcher-{}".*?</select>'
    form = {"matcher-value": re.findall(r'name="matcher-value" value="([^"]*)"', page)}
    for name in ("label", "is"):
        lists = re.findall(chosen.format(name), page, re.DOTALL)
        options = [re.findall(r"<option( selected)?>([^<]*)", each) for each in lists]
        form[f"matcher-{name}"] = [max(each, key=lambda option: option[0])[1] for each in options]
    return form


def test_a_silence_that_is_filled_in_for_an_alert_hides_it(operator, alert):
    about = opened("override_ending", override="3", what="Override of cap of all flow loops", law="flow")
    page = operator.get(f"/alerts/silences/?alert={about.pk}").content.decode()
    said = fetch(operator, "/alerts/silences/preview", as_filled(page)).json()
    assert said["sentence"].startswith("The silence would suppress 1 open alert"), as_filled(page)
    assert said["rows"][0]["url"] == f"/alerts/{about.pk}/"


@pytest.mark.parametrize(
    ("posted", "field"),
    [
        ({**REASON, "minutes": "60"}, "matchers"),
        ({**matcher(), "minutes": "60"}, "reason"),
        ({**matcher(), **REASON}, "minutes"),
        ({**matcher(), **REASON, "minutes": "10081"}, "minutes"),
        ({**matcher(label="colour"), **REASON, "minutes": "60"}, "matchers[0].label"),
        ({**matcher(operator="<"), **REASON, "minutes": "60"}, "matchers[0].is"),
    ],
)
def test_a_silence_without_a_matcher_a_reason_or_an_end_is_refused(posted, field, operator, alert):
    answer = fetch(operator, "/alerts/silences/add", posted)
    assert (answer.status_code, list(answer.json()["errors"])) == (422, [field])
    assert not Silence.objects.exists() and audited() == []


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


def test_a_token_does_all_of_it_over_the_api(secrets, alert, plant_topology):
    def call(role, address, body=None):
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
