"""The page of the weekly report, and its answer over the API."""

import pytest
from django.contrib.auth.models import User

from tests.workers.reports.weeks import eventful_week

pytestmark = pytest.mark.django_db
WEEK = "?until=2026-01-05T07:00:00Z"


def test_a_report_s_page_and_the_api_say_the_same(browsers, stored_snapshot):
    eventful_week(User.objects.get(username="operator"))
    viewer = browsers["viewer"]
    page = viewer.get(f"/reports/{WEEK}").content.decode()
    document = viewer.get(f"/api/v1/reports{WEEK}").json()
    assert document["objectives"][0]["missed"] and document["incidents"][0]["title"] == "Node n1 is lost"
    for part in ("Node n1 is lost", "the sale begins at nine", "12 % lower cost"):
        assert part in page and part in document["text"], part
    assert "98.00" in page and "data since" not in page
    assert document["objectives"][0]["known_from"] is None
    earlier = "?until=2025-12-29T07:00:00Z"
    assert "data since" in viewer.get(f"/reports/{earlier}").content.decode()
    assert viewer.get(f"/api/v1/reports{earlier}").json()["objectives"][0]["known_from"]
    assert "must be" in viewer.get("/reports/?until=never").content.decode()
