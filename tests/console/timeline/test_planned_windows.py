"""Planned windows on the timeline: their occurrences, changed ones, and the next ones of a live timeline."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone

from console.timeline import happenings
from console.timeline.window import Window
from tests.workers.windows.samples import plan_window
from workers.windows import definitions
from workers.windows.models import PlannedWindow

pytestmark = pytest.mark.django_db
ONCE = {"time_zone": "UTC", "rrule": ""}


def plan(now, minutes_from_now, name="Patches"):
    start = f"{now + timedelta(minutes=minutes_from_now):%Y-%m-%dT%H:%M:%S}"
    return plan_window(now, name=name, start=start, minutes=60, **ONCE)


def test_a_window_that_was_changed_during_an_occurrence_is_two_bars_that_lead_to_it():
    now = timezone.now().replace(microsecond=0)
    planned = plan(now - timedelta(minutes=30), 0)
    row = PlannedWindow.objects.get(pk=planned.pk)
    changed_at = now - timedelta(minutes=15)
    fields = {"name": "Kernel", "scope": ["node/n2"], "start": row.local_start, "minutes": 60, **ONCE}
    definitions.change(row, definitions.read_definition(fields, [], changed_at), User.objects.get(), changed_at)
    before, after = happenings.build_window_bars(Window(now - timedelta(minutes=60), now, 60)).bars
    assert [(bar.label, round(bar.begin, 3), round(bar.end, 3)) for bar in (before, after)] == [
        ("Patches", 0.5, 0.75),
        ("Kernel", 0.75, 1.0),
    ]
    assert before.url == after.url == reverse("window", args=[planned.pk])


def test_a_live_timeline_names_the_next_windows_as_far_ahead_as_it_looks_back(browsers, stored_snapshot):
    now = timezone.now()
    soon, later = plan(now, 20, "Firmware"), plan(now, 90, "Cooling")
    shown = browsers["viewer"].get("/timeline/", {"minutes": "60"})
    lane = next(lane for lane in shown.context["shown"].bars if lane.name == "windows")
    assert [row.window for row in lane.upcoming] == [soon]
    assert f'href="{reverse("window", args=[soon.pk])}"' in shown.content.decode()
    wider = browsers["viewer"].get("/timeline/", {"minutes": "360"}).context["shown"].bars
    assert [row.window for lane in wider for row in lane.upcoming] == [soon, later]


def test_a_fixed_range_names_no_next_windows(browsers, stored_snapshot):
    now = timezone.now()
    plan(now, 20)
    fixed = {"from": f"{now - timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}", "to": f"{now:%Y-%m-%dT%H:%M:%SZ}"}
    shown = browsers["viewer"].get("/timeline/", fixed).context["shown"].bars
    assert not any(lane.upcoming for lane in shown)
