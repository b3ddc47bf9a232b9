"""Two people act at once: each takes its turn, and neither is refused for the order of the other's locks."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from common.errors import BadInput
from console.accounts.access import Actor
from console.actions import loops, pipelines
from console.actions.proposals import plans
from console.actions.queues import definitions
from console.embedded.seeding import seed
from console.models import AuditEntry
from queues.models import Node, Queue
from tests.races import PausedControl, another_thread, until_another_waits
from tests.waiting import MAX_SECONDS
from workers.models import Override
from workers.pipeline import declaration
from workers.steering.overrides import Expiry

pytestmark = pytest.mark.django_db(transaction=True)
SHIPPED = Path(declaration.__file__).parents[1] / "applications" / "performance.yaml"
Act = Callable[[Actor, Any], object]


@pytest.fixture
def plant(control):
    seed(control, {"WEIR_NODES": "n1=redis://127.0.0.1:1/0 n2=redis://127.0.0.1:1/1"})
    return control


@pytest.fixture
def person(people):
    return Actor("administrator", "administrator", people["administrator"])


def cordon(actor, control):
    plans.cordon(actor, "n1", "a test", timezone.now(), control)


def take_back(actor, control):
    plans.take_back(actor, "n1", "a test", timezone.now(), control)


def set_threshold(actor, control):
    given = {"reason": "a test", "now": timezone.now(), "expiry": Expiry(minutes=5), "control": control}
    loops.override_thresholds(actor, Node.objects.get(name="n1"), {"busy": 0.4}, **given)


def end_threshold(actor, control):
    loops.end_override(actor, Override.objects.get(ended_at=None), now=timezone.now(), control=control)


def change_queue(actor, control):
    shown = definitions.build_queue_change(actor, Queue.objects.get(name="alert"), {"priority": 7})
    given = {"digest": shown.digest, "reason": "a test", "now": timezone.now(), "control": control}
    definitions.change(actor, "alert", {"priority": 7}, **given)


def cordoned(actor, control):
    Node.objects.filter(name="n1").update(cordoned=True)


def threshold_set(actor, control):
    set_threshold(actor, control)
    Override.objects.update(value=0.5)


def nothing(actor, control):
    pass


@pytest.mark.parametrize(
    ("before", "first", "second"),
    [
        (nothing, change_queue, cordon),
        (cordoned, change_queue, take_back),
        (nothing, change_queue, set_threshold),
        (threshold_set, end_threshold, cordon),
        (threshold_set, end_threshold, set_threshold),
    ],
)
def test_of_two_acts_at_once_both_are_done(before, first, second, person, plant):
    before(person, plant)
    noted = AuditEntry.objects.count()
    with another_thread() as call:
        waiting = []

        def meanwhile():
            if not waiting:
                waiting.append(call(second, person, plant))
                until_another_waits()

        first(person, PausedControl(plant, meanwhile))
        waiting[0].result(MAX_SECONDS)
    assert AuditEntry.objects.count() == noted + 2


def make_queue(actor, control):
    given = {"reason": "a test", "now": timezone.now(), "control": control}
    return definitions.create(actor, "orders", "jobs", {"handler": "noop"}, **given)


def declare(actor, control):
    return pipelines.declare(actor, SHIPPED.read_text(), "a test", control, since=0)


@pytest.mark.parametrize(("make", "said"), [(make_queue, "already exists"), (declare, "was created in the meantime")])
def test_of_two_who_make_the_same_at_once_the_later_reads_so(make, said, person, plant):
    with another_thread() as call:
        with transaction.atomic():
            make(person, plant)
            later = call(make, person, plant)
            until_another_waits()
        with pytest.raises(BadInput, match=said):
            later.result(MAX_SECONDS)
