"""An incident: its timeline, roles and severity, a review drafted from what is recorded, and follow-ups."""

from datetime import datetime, timedelta

import pytest

from console.incidents.incident_timeline import draft, list_timeline_events
from console.models import AuditEntry, Mark
from tests.console.incidents.test_changes import MINUTE, NOW, an_alert, an_override
from workers.alerts import actions, incidents, review
from workers.alerts.lifecycle.models import Alert, AlertEvent, FollowUp, Incident
from workers.control.ledger.ledger import select_due_entries
from workers.models import Keep, LedgerEntry, Loop
from workers.steering.kept import is_kept

pytestmark = pytest.mark.django_db
HOUR = 60 * MINUTE
HEADINGS = [
    "## Impact",
    "## Times",
    "## Changes before the incident",
    "## Actions of the control loops",
    "## Effective actions",
    "## Timeline",
    "## What went well, what went wrong, where we got lucky",
    "## Follow-ups",
]


@pytest.fixture
def night(people, loop):
    """An alert that began 10 min ago, was acknowledged after 4, and ended a minute ago; a loop helped."""
    alert = an_alert(9 * MINUTE, began_at=NOW - 10 * MINUTE, labels={"queue": "alert", "node": "n1"})
    actions.acknowledge(alert.pk, people["operator"], "I have it", NOW - 5 * MINUTE)
    change = {"kind": "deploy", "at": (NOW - 12 * MINUTE).isoformat(), "words": "Deploy: alert handler 4.2"}
    more = {"by": "ci", "ref": "mark:1", "steps": 1, "delay_seconds": 120.0, "weight": 1.0, "before": 3}
    kept = [{**change, **more, "incidents": 4}]
    Incident.objects.create(alert=alert, changes=kept, changes_at=NOW)
    LedgerEntry.objects.create(
        loop=loop, at=NOW - 6 * MINUTE, mode="auto", parameters={}, action={"start": 2},
        reason="Start 2 workers: 900 events wait", verdict="effective",
    )  # fmt: skip
    an_override(people["operator"], loop, 3 * MINUTE, reason="more of them")
    alert.refresh_from_db()
    alert.state, alert.resolved_at = Alert.State.RESOLVED, NOW - MINUTE
    alert.save()
    return alert


def post(browser, address, **posted):
    return browser.post(address, posted, headers={"accept": "application/json"})


def test_its_timeline_has_what_changed_what_loops_did_and_what_people_did_in_order(night, tmp_path):
    rows = list_timeline_events(night, tmp_path)
    assert [row.kind for row in rows] == ["change", "alert", "loop", "alert", "person"]
    assert [row.at for row in rows] == sorted(row.at for row in rows)
    assert "(effective)" in rows[2].words and rows[4].by == "operator"


def test_its_times_are_those_of_its_events(night):
    incidents.mitigate(night.pk, None, NOW - 2 * MINUTE)
    night = Alert.objects.get(pk=night.pk)
    assert incidents.compute_incident_times(night) == incidents.IncidentTimes(60.0, 240.0, 420.0, 480.0)


def test_the_draft_has_times_changes_what_helped_and_asks_for_the_rest(night, tmp_path):
    text = draft(night, tmp_path)
    assert [line for line in text.splitlines() if line.startswith("## ")] == HEADINGS
    assert "| acknowledged | 4 min |" in text and "| mitigated | not recorded |" in text
    assert "1. Deploy: alert handler 4.2 (2 min before, by ci; a similar change preceded 3 of 4" in text
    assert "1 of 1 action had an effect" in text and "(did it help?)" in text
    assert "_To be written._" in text


def helped(alert, data):
    (section,) = [each for each in draft(alert, data).split("## ") if each.startswith("Effective actions")]
    return section


def acted(loop, ago, reason, verdict="effective"):
    LedgerEntry.objects.create(
        loop=loop, at=NOW - ago, mode="auto", parameters={}, action={}, reason=reason, verdict=verdict
    )


def test_what_helped_is_all_that_had_an_effect_before_it_was_over_and_nothing_after(people, loop, tmp_path):
    given = {"began_at": NOW - 90 * MINUTE, "state": "resolved", "resolved_at": NOW - MINUTE}
    alert = an_alert(90 * MINUTE, labels={"queue": "alert", "node": "n1"}, **given)
    for number in range(13):
        acted(loop, (80 - number) * MINUTE, f"Start {number} early")
    for number in range(14):
        acted(loop, (40 - 2 * number) * MINUTE, f"Start {number} in vain", "ineffective")
    acted(loop, MINUTE / 2, "Stop 1 worker")
    said = helped(alert, tmp_path)
    assert said.count("early") == 12 and "1 earlier effective action by loops" in said
    assert "in vain" not in said and "Stop 1 worker" not in said
    incidents.mitigate(alert.pk, None, NOW - 78 * MINUTE)
    said = helped(Alert.objects.get(pk=alert.pk), tmp_path)
    assert [f"Start {number} early" in said for number in range(4)] == [True, True, True, False]


def test_of_too_many_changes_the_newest_of_every_kind_are_there_and_how_many_more_there_were(people, loop, tmp_path):
    """Sixty overrides filled the timeline, and the deploy after them that helped stood nowhere."""
    given = {"began_at": NOW - 90 * MINUTE, "state": "resolved", "resolved_at": NOW - MINUTE}
    alert = an_alert(90 * MINUTE, labels={"queue": "alert", "node": "n1"}, **given)
    for number in range(62):
        an_override(people["operator"], loop, (80 - number) * MINUTE, reason=f"try {number}")
    Mark.objects.create(kind="deploy", title="the fix", at=NOW - 3 * MINUTE, author="ci")
    rows = list_timeline_events(alert, tmp_path)
    assert rows[-1].words == "Deploy: the fix" and sum(row.kind == "person" for row in rows) == 60
    assert [row.words for row in rows[:2]][1] == "Omitted here: 3 changes."
    assert "ci: Deploy: the fix" in helped(alert, tmp_path)
    incidents.mitigate(alert.pk, None, NOW - 79.5 * MINUTE)
    assert "try 0" in helped(Alert.objects.get(pk=alert.pk), tmp_path)


def test_of_too_many_events_the_first_and_the_newest_are_in_the_timeline(tmp_path):
    alert = an_alert(10 * MINUTE)
    kinds = ["fired", *["came back"] * 250, "resolved"]
    AlertEvent.objects.bulk_create(
        AlertEvent(alert=alert, kind=kind, at=alert.fired_at + timedelta(seconds=number))
        for number, kind in enumerate(kinds)
    )
    words = [row.words for row in list_timeline_events(alert, tmp_path)]
    assert words[0].startswith("Onset") and words[1] == "Fired" and words[-1] == "Resolved"
    assert "Omitted here: 52 events." in words and len(words) == 202


def test_who_ended_an_override_is_named_and_of_one_that_ran_out_nobody(people, loop, tmp_path):
    given = {"began_at": NOW - 30 * MINUTE, "state": "resolved", "resolved_at": NOW - MINUTE}
    alert = an_alert(30 * MINUTE, labels={"queue": "alert", "node": "n1"}, **given)
    ran_out = {"expires_at": NOW - 10 * MINUTE, "ended_at": NOW - 9 * MINUTE}
    an_override(people["operator"], loop, 120 * MINUTE, **ran_out)
    ended = {"ended_at": NOW - 8 * MINUTE, "ended_by": people["administrator"]}
    an_override(people["operator"], loop, 119 * MINUTE, name="lower_limit", **ended)
    rows = [each for each in list_timeline_events(alert, tmp_path) if each.words.startswith("Override")]
    assert [(each.kind, each.by, each.words.split()[-1]) for each in rows] == [
        ("change", "", "expired"),
        ("person", "administrator", "ended"),
    ]
    said = helped(alert, tmp_path)
    assert "administrator: Override lower limit" in said and "upper limit" not in said


def test_words_from_outside_make_no_heading_and_no_link_in_it(night, tmp_path):
    actions.note(night.pk, None, "# a heading\n[a](javascript:b) <script>", NOW)
    text = draft(Alert.objects.get(pk=night.pk), tmp_path)
    assert r"\# a heading \[a\](javascript:b) \<script\>" in text
    assert [line for line in text.splitlines() if line.startswith("#")][1:] == HEADINGS


def test_severity_and_roles_are_said_noted_and_audited(browsers, night):
    address = f"/alerts/{night.pk}/incident/change"
    posted = {"severity": "critical", "role-lead": "operator", "role-scribe": ""}
    assert post(browsers["operator"], address, **posted).status_code == 200
    kept = Incident.objects.get()
    assert (kept.severity, kept.roles) == ("critical", {"lead": "operator"})
    noted = AlertEvent.objects.filter(kind__in=("graded", "role")).order_by("pk")
    assert [(each.kind, each.text) for each in noted] == [("graded", "critical"), ("role", "lead: operator")]
    assert AuditEntry.objects.filter(action="incident.change").count() == 1


@pytest.mark.parametrize(
    ("posted", "field"),
    [
        ({"severity": "dire"}, "severity"),
        ({"severity": "", "role-lead": "nobody-here"}, "lead"),
        ({"severity": "", "role-cook": "operator"}, "roles"),
        ({}, "severity"),
    ],
)
def test_what_is_wrong_is_named_and_changes_nothing(browsers, night, posted, field):
    answer = post(browsers["operator"], f"/alerts/{night.pk}/incident/change", **posted)
    assert answer.status_code == 422 and field in answer.json()["errors"]
    assert not Incident.objects.exclude(severity="", roles={}).exists()


def test_mitigated_is_said_once(browsers, night):
    address = f"/alerts/{night.pk}/incident/change"
    answers = [post(browsers["operator"], address, mitigated="1").status_code for _ in range(2)]
    assert answers == [200, 422]
    assert AlertEvent.objects.filter(kind="mitigated").count() == 1


def test_retention_leaves_its_data_until_somebody_lets_them_go(browsers, night, stored_snapshot):
    def due():
        later = select_due_entries(NOW + timedelta(days=400))
        return later.filter(at__gte=night.began_at - 3 * HOUR, at__lte=night.resolved_at).count()

    before = LedgerEntry.objects.create(
        loop=Loop.objects.get(), at=night.began_at - 2 * HOUR, mode="auto", parameters={}, reason="Before"
    )
    assert due() == 2
    address = f"/alerts/{night.pk}/incident/change"
    assert post(browsers["viewer"], address, retained="1").status_code == 403
    assert post(browsers["operator"], address, retained="0").status_code == 422
    assert post(browsers["operator"], address, retained="1").status_code == 200
    assert due() == 0 and is_kept(before.at.date().isoformat(), "alert")
    page = " ".join(browsers["operator"].get(f"/alerts/{night.pk}/incident/").content.decode().split())
    assert "Release data" in page and "Retain data" not in page
    detail = browsers["viewer"].get(f"/api/v1/alerts/{night.pk}/incident").json()
    assert detail["retained_since"] and datetime.fromisoformat(detail["retained_until"]) == night.resolved_at
    assert AuditEntry.objects.get(action="incident.change").after == {"retained": True}
    assert post(browsers["operator"], address, retained="0").status_code == 200
    assert due() == 2 and not Keep.objects.exists()


def test_a_review_that_somebody_changed_meanwhile_is_not_overwritten(browsers, night):
    address = f"/alerts/{night.pk}/incident/review"
    assert post(browsers["operator"], address, text="# Ours", revision="0").status_code == 200
    answer = post(browsers["administrator"], address, text="# Theirs", revision="0")
    assert answer.status_code == 422 and "revision" in answer.json()["errors"]
    exported = browsers["viewer"].get(f"/alerts/{night.pk}/incident/review.md")
    assert exported.content.decode() == "# Ours"
    assert exported["Content-Type"].startswith("text/markdown")
    assert post(browsers["operator"], address, text="", revision="1").status_code == 200
    assert browsers["viewer"].get(f"/alerts/{night.pk}/incident/review.md").content.startswith(b"# Review")


def test_a_follow_up_is_kept_done_and_opened_again(browsers, night, stored_snapshot):
    address = f"/alerts/{night.pk}/incident/follow-ups"
    assert post(browsers["operator"], address, text="a limit", owner="operator", due_on="2026-12-01").status_code == 200
    made = FollowUp.objects.get()
    page = browsers["viewer"].get(f"/alerts/{night.pk}/incident/").content.decode()
    assert "a limit" in page and "operator, due 2026-12-01" in " ".join(page.split())
    listed = browsers["viewer"].get("/api/v1/follow-ups").json()["follow_ups"]
    assert [(row["id"], row["due_on"]) for row in listed] == [(made.pk, "2026-12-01")]
    assert [post(browsers["operator"], f"{address}/{made.pk}", done="1").status_code for _ in range(2)] == [200, 422]
    assert browsers["viewer"].get("/api/v1/follow-ups").json()["follow_ups"] == []
    assert post(browsers["operator"], f"{address}/{made.pk}", done="0").status_code == 200
    assert post(browsers["operator"], address, text="x", due_on="soon").status_code == 422


def test_an_explained_alert_leads_to_its_incident(browsers, night, stored_snapshot):
    below = an_alert(labels={"queue": "b"}, under=night)
    assert browsers["viewer"].get(f"/alerts/{below.pk}/incident/").context["alert"].pk == night.pk
    answer = post(browsers["operator"], f"/alerts/{below.pk}/incident/change", mitigated="1")
    assert answer.status_code == 422 and "explained" in answer.json()["errors"]["alert"][0]


def test_what_was_said_of_an_incident_that_became_explained_can_be_brought_to_its_end(browsers, night, stored_snapshot):
    cause, address, browser = (an_alert(labels={"queue": "b"}), f"/alerts/{night.pk}/incident", browsers["operator"])
    for path, posted in (
        ("review", {"text": "# Ours", "revision": "0"}),
        ("follow-ups", {"text": "a limit"}),
        ("change", {"retained": "1"}),
    ):
        assert post(browser, f"{address}/{path}", **posted).status_code == 200
    Alert.objects.filter(pk=night.pk).update(under=cause)
    page = browser.get(f"{address}/").content.decode()
    assert "# Ours" in page and "This alert is explained by" in page and "Mark as mitigated" not in page
    for path, posted in (
        ("review", {"text": "# Ours, in full", "revision": "1"}),
        (f"follow-ups/{FollowUp.objects.get().pk}", {"done": "1"}),
        ("change", {"retained": "0"}),
    ):
        assert post(browser, f"{address}/{path}", **posted).status_code == 200
    assert not Keep.objects.exists() and FollowUp.objects.get().done_at
    for path, posted in (
        ("follow-ups", {"text": "one more"}),
        ("change", {"retained": "1"}),
        ("change", {"severity": "critical"}),
    ):
        assert post(browser, f"{address}/{path}", **posted).status_code == 422


def test_of_an_explained_alert_no_first_review_is_written(browsers, night):
    below = an_alert(labels={"queue": "b"}, under=night)
    answer = post(browsers["operator"], f"/alerts/{below.pk}/incident/review", text="# Ours", revision="0")
    assert answer.status_code == 422 and not Incident.objects.filter(alert=below).exists()


def test_the_api_has_all_of_it(browsers, night):
    address = f"/api/v1/alerts/{night.pk}"
    send = {"content_type": "application/json"}
    answer = browsers["operator"].post(f"{address}/incident", {"roles": {"lead": "viewer"}}, **send)
    assert answer.status_code == 200, answer.content
    assert (answer.json()["roles"], answer.json()["severity"]) == ({"lead": "viewer"}, "warning")
    review = browsers["viewer"].get(f"{address}/review").json()
    assert (review["is_draft"], review["revision"]) == (True, 0)
    edited = browsers["operator"].post(f"{address}/review", {"text": "# Ours", "revision": 0}, **send).json()
    assert (edited["is_draft"], edited["text"], edited["revision"]) == (False, "# Ours", 1)


def test_of_an_incident_during_which_the_clock_was_set_back_no_time_is_made_up(people):
    alert = an_alert(state="resolved", resolved_at=NOW - HOUR)
    alert.events.create(kind="acknowledged", at=NOW - HOUR, by=people["operator"])
    incidents.mitigate(alert.pk, None, NOW - HOUR)
    assert incidents.compute_incident_times(Alert.objects.get(pk=alert.pk)) == incidents.IncidentTimes(
        0.0, None, None, None
    )
    (row,) = review.iterate_review_rows(NOW - 3 * HOUR, NOW)
    assert row.acknowledged_by == "operator" and row.acknowledged_after_seconds is None
