"""The what-if page and its command: a question in the address, answered from the record."""

import io
import json
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.utils import timezone

from workers.models import Loop

pytestmark = pytest.mark.django_db
OBSERVED = {"removed": 0, "started": 0, "waiting_to_run": 0, "age_seconds": 0.2, "unfit": None}


@pytest.fixture
def loop(people, stored_snapshot):
    """A loop that started 5 workers at each of its last ten ticks."""
    loop = Loop.objects.create(name="worker_rate/alert/n1", law="worker_rate", target={"queue": "alert", "node": "n1"})
    for number in range(10):
        loop.entries.create(
            at=timezone.now() - timedelta(seconds=100 - 5 * number), mode="auto",
            parameters={"events_per_worker": 100, "guard": {}}, observation={**OBSERVED, "queue_length": 3_000},
            action={"start": 5}, reason="3,000 events wait.",
        )  # fmt: skip
    return loop


def test_the_address_asks_and_the_page_answers(browsers, loop):
    address = f"/loops/{loop.pk}/what-if/?would-guard.maximum=2&would-upper_limit=1000&hours=1"
    page = browsers["viewer"].get(address)
    found = page.context["rerun"]
    assert page.context["changed"] == {"guard.maximum": 2}
    assert (len(found.steps), found.did.total, found.would.total <= 20) == (10, 50.0, True)
    assert "Open loop:" in page.content.decode() and "<path" in page.content.decode()
    row = next(row for row in page.context["rows"] if row.name == "guard.maximum")
    assert row.would == "2"


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("would-upper_limit=-1", "would-upper_limit"),
        ("would-upper_limit=5&hours=0", "hours"),
        ("would-upper_limit=5&hours=inf", "hours"),
        ("would-guard.direction=sideways", "would-guard.direction"),
    ],
)
def test_a_question_that_can_not_be_read_names_its_field_and_keeps_what_was_typed(query, field, browsers, loop):
    page = browsers["viewer"].get(f"/loops/{loop.pk}/what-if/?{query}")
    assert (list(page.context["errors"]), page.context["rerun"]) == ([field], None)
    typed = next(row for row in page.context["rows"] if f"would-{row.name}={row.would}" in query)
    assert str(typed.would) in page.content.decode()


def test_the_command_asks_the_same(loop):
    output = io.StringIO()
    line = ["loops", str(loop.pk), "what-if", "--set", "guard.maximum=2", "--set", "upper_limit=900"]
    call_command("weir", *line, stdout=output)
    answer = json.loads(output.getvalue())
    assert (answer["decisions"], answer["did"]["total"]) == (10, 50.0)
    assert answer["would"]["total"] <= 20 and "do not respond" in answer["open_loop"]


@pytest.mark.parametrize("text", ["upper_limit", "=5", "upper_limit=", "upper_limit=x", "speed=5"])
def test_a_bad_assignment_is_refused(text, browsers, loop):
    answer = browsers["viewer"].get(f"/api/v1/loops/{loop.pk}/what-if", {"set": text})
    assert answer.status_code == 422
