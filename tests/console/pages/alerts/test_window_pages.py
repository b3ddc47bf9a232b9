"""The pages of planned windows: planned, previewed, imported, shown, and subscribed to."""

from datetime import datetime, timedelta

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone

from console.accounts.access import create_token
from queues.models import Node, Queue
from tests.console.page_form import audited, fetch, form_of, refused, source_of
from tests.console.pages.alerts.checks import REASON
from tests.workers.windows.samples import plan_window
from tests.workers.windows.test_calendars import EVENT, calendar
from workers.windows.models import PlannedWindow

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def plant(db, stored_snapshot):
    Queue.objects.get_or_create(name="alert", defaults={"kind": "jobs"})
    Node.objects.get_or_create(name="n1", defaults={"url": "redis://127.0.0.1:1/0"})


def window_form(**changes):
    """The form as a browser sends it, with an empty row of matchers."""
    return {
        "name": "Patches", "kind": "maintenance", "scope": ["queue/alert", "node/n1"], "loop_mode": "hold",
        "date": f"{timezone.now():%Y}-12-27", "time": "02:00", "time_zone": "Europe/Berlin", "minutes": "120",
        "rrule": "FREQ=WEEKLY;BYDAY=SU", "matcher-label": "queue", "matcher-is": "=", "matcher-value": "",
        **REASON, **changes,
    }  # fmt: skip


def test_a_window_is_planned_on_its_page_and_listed(operator):
    answer = fetch(operator, "/windows/add", window_form())
    made = PlannedWindow.objects.get()
    assert answer.json()["go"] == f"/windows/{made.pk}/"
    assert (made.scope, made.loop_mode, made.expected) == (["queue/alert", "node/n1"], "hold", [])
    page = source_of(operator.get("/windows/"))
    assert "Maintenance: Patches" in page and "queue alert, node n1 · Weekly · 120 min" in page
    assert "Sun " in page and "02:00 Europe/Berlin" in page
    assert audited() == [("operator", "window.set", "maintenance Patches")]


def test_the_form_of_a_new_window_sends_what_a_window_takes(operator):
    filled = form_of(operator.get("/windows/"), "/windows/add")
    assert filled.keys() >= {"name", "kind", "date", "time", "time_zone", "minutes", "rrule", "reason", "loop_mode"}


def test_a_wrong_field_is_named_and_nothing_is_planned(operator):
    assert refused(fetch(operator, "/windows/add", window_form(rrule="FREQ=HOURLY"))) == ["rrule"]
    assert refused(fetch(operator, "/windows/add", window_form(time_zone="Berlin"))) == ["time_zone"]
    answer = operator.post("/windows/add", window_form(minutes="no"))
    assert answer.status_code == 422 and 'value="Patches"' in answer.content.decode(), "typed values stay"
    assert not PlannedWindow.objects.exists()


def test_the_preview_names_the_effect_of_a_clock_change(operator):
    rule = {"date": "2027-03-21", "rrule": "FREQ=WEEKLY;BYDAY=SU"}
    told = fetch(operator, "/windows/preview", window_form(**rule)).json()
    assert told["sentence"] == "The next occurrences:"
    assert told["rows"][:2] == [
        {"title": "Sun 2027-03-21 02:00 Europe/Berlin", "note": "01:00 to 03:00 UTC"},
        {
            "title": "Sun 2027-03-28 03:00 Europe/Berlin",
            "note": "02:00 doesn't exist on this day, so the window starts at 03:00.",
        },
    ]
    wrong = fetch(operator, "/windows/preview", window_form(date="")).json()
    assert wrong["sentence"].startswith("Start must be a local time")


def test_operators_are_not_offered_change_freezes(operator, administrator):
    assert 'value="freeze"' not in operator.get("/windows/").content.decode()
    assert 'value="freeze"' in administrator.get("/windows/").content.decode()
    assert fetch(operator, "/windows/add", window_form(kind="freeze")).status_code == 403


def test_an_occurrence_is_canceled_and_a_window_is_ended(operator):
    fetch(operator, "/windows/add", window_form())
    made = PlannedWindow.objects.get()
    page = operator.get(f"/windows/{made.pk}/")
    posted = form_of(page, f"/windows/{made.pk}/occurrences/end")
    told = fetch(operator, f"/windows/{made.pk}/occurrences/end", posted)
    assert told.json()["message"] == "Occurrence canceled."
    assert "Patches ended." in fetch(operator, f"/windows/{made.pk}/end", REASON).json()["message"]
    assert "No further occurrences." in operator.get(f"/windows/{made.pk}/").content.decode()
    assert [action for _, action, _ in audited()] == ["window.set", "window.end", "window.end"]


def test_an_administrator_overrides_an_active_freeze_on_its_page(administrator, operator):
    now = timezone.now()
    start = f"{now - timedelta(minutes=5):%Y-%m-%dT%H:%M}"
    freeze = plan_window(now, kind="freeze", scope=["queue/alert"], start=start, time_zone="UTC", rrule="")
    pause = {"part": "intake", "minutes": "5", **REASON}
    answer = fetch(operator, "/queues/alert/pause", pause)
    assert answer.status_code == 403 and "The change freeze Patches" in answer.json()["errors"]["form"][0]
    assert fetch(operator, f"/windows/{freeze.pk}/override", {"minutes": "15", **REASON}).status_code == 403
    told = fetch(administrator, f"/windows/{freeze.pk}/override", {"minutes": "15", **REASON}).json()
    assert told["message"].startswith("You can make changes during Patches until")
    assert "can make changes until" in source_of(administrator.get(f"/windows/{freeze.pk}/"))


def test_a_calendar_file_is_previewed_and_imported(operator):
    year = timezone.now().year + 1
    event = EVENT.replace("2026", str(year))
    broken = event.replace("UID:a", "UID:b").replace(f"DTSTART;TZID=Europe/Berlin:{year}0322T020000\n", "")
    file = SimpleUploadedFile("team.ics", calendar(event, broken), "text/calendar")
    shared = {"kind": "maintenance", "scope": ["node/n1"], "loop_mode": "advise"}
    page = operator.post("/windows/import/preview", {**shared, "file": file})
    text = source_of(page)
    assert page.status_code == 200 and "Import 1 window<" in text and "has no DTSTART." in text
    posted = {**form_of(page, "/windows/import/add"), **REASON}
    assert fetch(operator, "/windows/import/add", posted).json()["message"] == "1 window imported."
    made = PlannedWindow.objects.get()
    assert (made.name, made.scope, made.loop_mode) == ("Security patches", ["node/n1"], "advise")
    answer = operator.post("/windows/import/preview", shared)
    assert answer.status_code == 422 and "Choose a file or enter an address" in source_of(answer)


def test_a_calendar_is_not_fetched_from_an_address_that_is_not_permitted(operator):
    answer = operator.post("/windows/import/preview", {"kind": "maintenance", "url": "http://169.254.169.254/a.ics"})
    assert answer.status_code == 422


def test_the_feed_needs_a_token_that_is_valid(people):
    plan_window(timezone.now())
    token, secret = create_token(people["viewer"], "calendar", "viewer", timezone.now() + timedelta(days=1))
    feed = Client().get("/windows/feed.ics", {"token": secret})
    assert feed.status_code == 200 and feed["Content-Type"] == "text/calendar; charset=utf-8"
    assert b"SUMMARY:Maintenance: Patches" in feed.content
    token.revoked_at = timezone.now()
    token.save()
    for wrong in (secret, "weir_none", ""):
        assert Client().get("/windows/feed.ics", {"token": wrong}).status_code == 404


def test_windows_are_read_and_planned_over_the_api(operator):
    body = {"name": "Patches", "scope": ["node/n1"], "start": "2027-03-21T02:00", "minutes": 120, "reason": "a test"}
    body |= {"time_zone": "Europe/Berlin", "rrule": "FREQ=WEEKLY;BYDAY=SU"}
    made = operator.post("/api/v1/windows", body, content_type="application/json")
    assert made.status_code == 201, made.content
    row = operator.get("/api/v1/windows").json()["windows"][0]
    assert (row["name"], row["next"][0]["occurrence"], len(row["next"])) == ("Patches", "2027-03-21T02:00:00", 10)
    assert datetime.fromisoformat(row["next"][0]["starts_at"]).hour == 1
    assert operator.get(f"/api/v1/windows/{row['id']}").json()["silenced"] == []
    assert operator.get("/api/v1/windows/calendar")["Content-Type"].startswith("text/calendar")


def test_a_window_is_changed_on_its_page_and_lists_its_former_version(operator):
    fetch(operator, "/windows/add", window_form())
    made = PlannedWindow.objects.get()
    posted = form_of(operator.get(f"/windows/{made.pk}/edit/"), f"/windows/{made.pk}/change")
    assert (posted["version"], posted["name"], posted["time"]) == ("1", "Patches", "02:00")
    sent = window_form(**{**posted, "scope": ["node/n1"], "minutes": "45", **REASON})
    assert fetch(operator, f"/windows/{made.pk}/change", sent).json()["go"] == f"/windows/{made.pk}/"
    made.refresh_from_db()
    assert (made.scope, made.duration_minutes, made.version) == (["node/n1"], 45, 2)
    page = source_of(operator.get(f"/windows/{made.pk}/"))
    assert "Version 1: Maintenance" in page and "120 min" in page
    assert refused(fetch(operator, f"/windows/{made.pk}/change", sent)) == ["version"], "somebody has changed it"
    assert "Version 1" not in source_of(operator.get("/windows/")), "the list has no former versions"


def test_a_change_freeze_offers_its_controls_to_administrators_and_says_so(administrator, operator):
    now = timezone.now()
    start = f"{now - timedelta(minutes=5):%Y-%m-%dT%H:%M}"
    freeze = plan_window(now, kind="freeze", scope=["queue/alert"], start=start, time_zone="UTC", rrule="")
    controls = [f"/windows/{freeze.pk}/{action}" for action in ("end", "edit/", "occurrences/end")]
    offered = source_of(administrator.get(f"/windows/{freeze.pk}/"))
    shown = source_of(operator.get(f"/windows/{freeze.pk}/"))
    assert all(f'"{control}"' in offered and f'"{control}"' not in shown for control in controls)
    assert "requires the administrator role" in shown
    edit = source_of(operator.get(f"/windows/{freeze.pk}/edit/"))
    assert "Change freezes require the administrator role" in edit and f"/windows/{freeze.pk}/change" not in edit


def test_windows_are_changed_over_the_api(operator):
    made = plan_window(timezone.now())
    path, body = f"/api/v1/windows/{made.pk}/change", {"version": 1, "minutes": 15, "reason": "a test"}
    changed = operator.post(path, body, content_type="application/json").json()
    assert (changed["minutes"], changed["version"], changed["name"]) == (15, 2, "Patches")
    assert operator.post(path, body, content_type="application/json").status_code == 422
    assert [row["id"] for row in operator.get("/api/v1/windows?state=all").json()["windows"]] == [made.pk]
