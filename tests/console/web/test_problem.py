"""What the console says where it can't do what was asked for."""

from collections.abc import Iterator
from html import unescape

import pytest
from django.db.models.signals import pre_save
from django.utils import timezone

from console.accounts.submissions import Submission
from queues import keys
from workers.objectives.models import Objective

pytestmark = pytest.mark.django_db
GIVEN = {
    "fields": {"kind": "queue", "subject": "alert", "condition": "wait_seconds <= 30", "target": 0.99},
    "reason": "a test",
}
KEY = {"Idempotency-Key": "one-and-the-same"}


@pytest.fixture
def overtaken() -> Iterator[None]:
    """Whoever makes an objective finds, as it is written, that somebody else has made one of its name."""

    def first(sender: type[Objective], instance: Objective, **_: object) -> None:
        pre_save.disconnect(first, Objective)
        Objective.objects.bulk_create(
            [Objective(name=instance.name, target=0.9, window_days=30, changed_at=timezone.now())]
        )

    pre_save.connect(first, Objective)
    yield
    pre_save.disconnect(first, Objective)


def make(browser, name="fast", **headers):
    return browser.post(f"/api/v1/objectives/{name}", GIVEN, content_type="application/json", headers=headers)


def test_who_makes_what_somebody_else_makes_at_once_is_refused_and_may_send_it_again(browsers, overtaken):
    answer = make(browsers["operator"], **KEY)
    assert answer.status_code == 409
    assert answer.json()["detail"].startswith("Another user made a conflicting change at the same time")
    assert not Submission.objects.exists() and not Objective.objects.exists()
    assert make(browsers["operator"], **KEY).status_code == 200


@pytest.mark.parametrize("page", ["/", "/nodes/", "/queues/", "/pipeline/", "/loops/", "/alerts/"])
def test_pages_say_that_a_snapshot_of_another_version_can_not_be_read(browsers, control, page):
    control.set(keys.SNAPSHOT, b'{"seq": "of another version"}')
    answer = browsers["viewer"].get(page)
    assert answer.status_code == 200
    said = unescape(answer.content.decode())
    assert (
        "The snapshot can't be read by this version" in said and "not yet" not in said and "No report yet" not in said
    )


def test_while_the_snapshot_is_of_another_version_programs_get_a_refusal(browsers, control):
    control.set(keys.SNAPSHOT, b'{"seq": "of another version"}')
    assert browsers["viewer"].get("/api/v1/live").status_code == 503
    assert browsers["viewer"].get("/api/v1/queues").status_code == 200
    assert browsers["viewer"].get("/readyz").status_code == 503
