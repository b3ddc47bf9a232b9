"""A loop that advises earns auto: after a day, its advice is evaluated, proposed, and approved by hash, or not."""

from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied

from common.errors import BadInput
from console.accounts.access import Actor
from console.actions import loops
from console.display.plant_words import find_mode_proposal
from console.models import AuditEntry
from workers.control.advice import DAY, WEEK, propose_due
from workers.control.ledger.folds import SLOT
from workers.models import LedgerEntry, Loop, ModeProposal
from workers.steering import plant_settings

pytestmark = pytest.mark.django_db
BEGAN = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
NOW = BEGAN + DAY


@pytest.fixture
def loop():
    return Loop.objects.create(
        name="concurrency/worker-1", law="concurrency", target={"host": "worker-1"}, mode="advise",
        interval_seconds=300.0, parameters={}, guard={"minimum": 1, "maximum": 16},
    )  # fmt: skip


@pytest.fixture
def operator():
    return Actor("olga", "operator", User.objects.create(username="olga"))


def advise(loop, threads=8, advice=4, hours=24):
    LedgerEntry.objects.bulk_create(
        LedgerEntry(
            loop=loop,
            at=BEGAN + timedelta(minutes=5 * tick),
            mode="advise",
            parameters={},
            observation={"threads": threads, "unfit": None},
            action={"threads": advice} if advice != threads else None,
            reason="",
        )
        for tick in range(int(hours * 12))
    )


def propose(loop, **advice):
    propose_due(BEGAN)
    advise(loop, **advice)
    return propose_due(NOW)


def test_after_a_day_of_advice_that_saves_hours_auto_is_proposed_with_the_saving(loop):
    plant_settings.change("price.worker_hour", 2.0, None, BEGAN)
    assert propose(loop) is not None
    shown = find_mode_proposal(loop)
    assert shown.sentences[0] == "The loop would use 4 workers."
    assert shown.effect.saved_cost == pytest.approx(4 * 24 * 2.0, rel=0.01)
    assert "saved 95.7 worker-hours (cost: 191.33), with 1 change" in shown.sentences[1]


@pytest.mark.parametrize("advice", [{"advice": 8}, {"advice": 12}, {"hours": 12}])
def test_no_proposal_without_savings_or_enough_measurements(loop, advice):
    assert propose(loop, **advice) is None
    assert find_mode_proposal(loop) is None
    assert ModeProposal.objects.get().state == "observing"


def test_advice_is_evaluated_after_a_day_and_then_once_a_day(loop, django_assert_max_num_queries):
    propose_due(BEGAN)
    advise(loop)
    assert propose_due(NOW - SLOT) is None
    assert propose_due(NOW) is not None
    with django_assert_max_num_queries(2):
        assert propose_due(NOW + SLOT) is None


def test_an_approval_sets_auto_within_the_advised_range_and_is_audited(loop, operator):
    proposal = propose(loop)
    loops.approve_mode_proposal(operator, loop, proposal.hash, reason="it saves half", now=NOW)
    loop.refresh_from_db()
    assert (loop.mode, loop.guard) == ("auto", {"minimum": 4.0, "maximum": 4.0})
    assert {entry.action for entry in AuditEntry.objects.all()} == {"loop.mode", "settings.change"}
    assert find_mode_proposal(loop) is None
    with pytest.raises(BadInput, match="has no open proposal"):
        loops.approve_mode_proposal(operator, loop, proposal.hash, reason="again", now=NOW)


@pytest.mark.parametrize(
    ("change", "hash", "field"),
    [({}, "0" * 64, "hash"), ({"guard": {"maximum": 2}}, "", "proposal"), ({"mode": "hold"}, "", "proposal")],
)
def test_another_hash_or_a_changed_loop_is_rejected_and_changes_nothing(loop, operator, change, hash, field):
    proposal = propose(loop)
    Loop.objects.update(**change)
    with pytest.raises(BadInput) as rejected:
        loops.approve_mode_proposal(operator, loop, hash or proposal.hash, reason="it saves half", now=NOW)
    assert rejected.value.field == field
    loop.refresh_from_db()
    assert loop.mode != "auto" and not AuditEntry.objects.exists()


def test_a_rejected_loop_advises_for_a_week_before_it_is_evaluated_again(loop, operator):
    propose(loop)
    loops.reject_mode_proposal(operator, loop, reason="not in this season", now=NOW)
    assert find_mode_proposal(loop) is None
    assert propose_due(NOW + WEEK - SLOT) is None and ModeProposal.objects.get().state == "rejected"
    propose_due(NOW + WEEK)
    assert ModeProposal.objects.get().state == "observing"  # that day has no ticks


def test_a_viewer_cannot_approve(loop, operator):
    proposal = propose(loop)
    with pytest.raises(PermissionDenied):
        loops.approve_mode_proposal(
            Actor("vera", "viewer", operator.user), loop, proposal.hash, reason="let it", now=NOW
        )


def test_no_proposal_while_another_law_sets_the_same_tasks():
    for law, mode in (("parallelism_queueing", "advise"), ("parallelism_joint", "auto")):
        Loop.objects.create(name=f"{law}/shop", law=law, target={"application": "shop"}, mode=mode)
    loop = Loop.objects.get(law="parallelism_queueing")
    propose_due(BEGAN)
    LedgerEntry.objects.create(loop=loop, at=BEGAN, mode="advise", parameters={}, observation={}, reason="")
    assert propose_due(NOW) is None and ModeProposal.objects.get().figures is None
