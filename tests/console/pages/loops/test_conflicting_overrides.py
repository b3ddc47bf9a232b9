"""Overrides that contradict each other, or a loop's own values, do not count, and nothing says they do."""

import pytest
from django.utils import timezone

from tests.console.rows import held
from workers.models import LedgerEntry, Loop
from workers.snapshot.control_record import control_record
from workers.steering import overrides

pytestmark = pytest.mark.django_db
OWN = {"minimum_rate": 5.0}


@pytest.fixture
def loop(people):
    """A loop with a maximum that somebody has overridden, and an own minimum above it since."""
    target = {"queue": "alert", "node": "n1"}
    made = Loop.objects.create(name="worker_rate/alert/n1", law="worker_rate", target=target)
    for name, value in {"maximum_rate": 2, "guard.maximum": 3, "mode": "hold"}.items():
        held(people["operator"], name, value, minutes=480, loop=made)
    Loop.objects.filter(pk=made.pk).update(parameters=OWN)
    made.refresh_from_db()
    return made


def test_its_page_says_so_and_shows_what_the_loop_works_with(browsers, loop, stored_snapshot):
    answer = browsers["operator"].get(f"/loops/{loop.pk}/")
    page = " ".join(answer.content.decode().split())
    assert "Overrides of parameters and guard settings are ignored" in page and "minimum_rate" in page
    bench = answer.context["bench"]
    rows = {row.name: row for row in [*bench.main, *(row for topic in bench.topics for row in topic.rows)]}
    assert rows["maximum_rate"].effective != 2 and rows["maximum_rate"].override is None
    assert answer.context["loop"].mode == "hold", "the mode is no value of the law"


def test_the_api_says_why_and_gives_what_the_loop_works_with(browsers, loop, stored_snapshot):
    found = browsers["operator"].get(f"/api/v1/loops/{loop.pk}").json()
    assert "minimum_rate" in found["conflict"] and found["effective"]["maximum_rate"] != 2
    assert found["guard"]["maximum"] != 3 and len(found["overrides"]) == 3


def test_the_snapshot_shows_no_value_that_does_not_count(loop):
    entry = {"mode": "auto", "parameters": {"upper_limit": 700}, "reason": "a test"}
    LedgerEntry.objects.create(loop=loop, **entry)
    assert control_record(timezone.now()).loops[loop.name].overrides == 1


def test_they_count_again_once_the_one_that_contradicts_has_ended(browsers, loop, stored_snapshot):
    overrides.list_active(timezone.now()).filter(name="maximum_rate").update(ended_at=timezone.now())
    found = browsers["operator"].get(f"/api/v1/loops/{loop.pk}").json()
    assert found["conflict"] == "" and found["guard"]["maximum"] == 3
