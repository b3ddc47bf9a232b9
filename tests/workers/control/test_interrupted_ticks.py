"""Ticks that are paused, frozen, killed, overtaken: what was decided is done once, or not at all."""

import pytest

from tests.workers.control.test_loops import fresh, override, submitted, tick
from workers.control import engine
from workers.control import tick as ticks
from workers.control.ledger import ledger
from workers.coordination.leases import Lease, LeaseGroup
from workers.models import LedgerEntry, Loop, Override

pytestmark = pytest.mark.django_db


def test_a_second_tick_while_one_has_the_lease_does_nothing(loop, plant, clock, control):
    plant.put("alert", "n1", 1_200)
    with Lease(control, f"loop:{loop.pk}", 30):
        assert tick(loop, plant, clock, control) is None
    assert not LedgerEntry.objects.exists()
    assert submitted(plant) == 0


def test_a_loop_read_before_another_tick_was_there_is_not_ticked_again(loop, plant, clock, control):
    plant.put("alert", "n1", 1_200)
    read_before = fresh(loop)
    tick(loop, plant, clock, control)
    assert engine.tick(read_before, plant, clock.now, control) is None
    assert submitted(plant) == 2


def test_a_paused_tick_that_goes_on_after_its_successor_leaves_no_trace(loop, plant, clock, control, monkeypatch):
    plant.put("alert", "n1", 1_200)
    acquire = LeaseGroup.acquire

    def pause_while_a_successor_comes_and_goes(leases):
        fences = acquire(leases)
        Loop.objects.filter(pk=loop.pk).update(fence=max(fences.values()) + 1)
        return fences

    monkeypatch.setattr(LeaseGroup, "acquire", pause_while_a_successor_comes_and_goes)
    assert engine.tick(fresh(loop), plant, clock.now, control) is None
    assert not LedgerEntry.objects.exists()
    assert submitted(plant) == 0


def tick_that_dies(loop, plant, clock, control, monkeypatch, acts=False):
    """When it has recorded, before it acts or behind; its lease runs out."""
    start_workers = plant.start_workers

    def killed(*arguments):
        if acts:
            start_workers(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(plant, "start_workers", killed)
        tick(loop, plant, clock, control)
    control.delete(f"weir:lease:loop:{loop.pk}")


@pytest.mark.parametrize("acts", [False, True])
def test_a_tick_that_died_has_its_action_applied_exactly_once_by_the_next(
    loop, plant, clock, control, monkeypatch, acts
):
    """Before the action or after it: the successor can't know, so it repeats, and the ids keep it single."""
    plant.put("alert", "n1", 2_000)
    tick_that_dies(loop, plant, clock, control, monkeypatch, acts)
    assert submitted(plant) == (2 if acts else 0)
    plant.run("alert", "n1", 100)
    clock.pass_seconds(5)
    tick(loop, plant, clock, control)
    plant.run("alert", "n1", 100)
    first, second = LedgerEntry.objects.order_by("pk")
    assert first.applied and second.applied
    assert sorted(plant.ran) == [f"e{each.pk}-{number}" for each in (first, second) for number in range(2)]


def test_an_open_action_that_is_too_old_is_not_repeated_and_says_so(loop, plant, clock, control, monkeypatch):
    plant.put("alert", "n1", 1_200)
    tick_that_dies(loop, plant, clock, control, monkeypatch)
    clock.pass_seconds(60)
    tick(loop, plant, clock, control)
    first = LedgerEntry.objects.order_by("pk").first()
    assert not first.applied
    assert "it is 60 s old" in first.error
    assert submitted(plant) == 2


def test_what_a_tick_that_died_had_recorded_is_not_applied_once_a_person_holds_the_loop(
    loop, plant, clock, control, owner, monkeypatch
):
    plant.put("alert", "n1", 2_000)
    tick_that_dies(loop, plant, clock, control, monkeypatch)
    override(loop, owner, clock, "mode", "hold")
    assert tick(loop, plant, clock, control).mode == "hold"
    assert submitted(plant) == 0
    first = LedgerEntry.objects.order_by("pk").first()
    assert not first.applied and "is now in mode hold" in first.error


def test_what_a_tick_that_died_had_recorded_is_not_applied_once_a_person_has_set_another_value(
    loop, plant, clock, control, owner, monkeypatch
):
    override(loop, owner, clock, "mode", "manual")
    override(loop, owner, clock, "start", 3)
    tick_that_dies(loop, plant, clock, control, monkeypatch)
    Override.objects.filter(name="start").update(value=1)
    assert tick(loop, plant, clock, control).action == {"start": 1}
    assert submitted(plant) == 1
    first = LedgerEntry.objects.order_by("pk").first()
    assert not first.applied and "the manual value has changed" in first.error


def test_a_tick_that_froze_before_it_acted_does_nothing_once_a_later_one_was_there(
    loop, plant, clock, control, owner, monkeypatch
):
    plant.put("alert", "n1", 2_000)
    apply, frozen = ticks.apply, []

    def freezes(*arguments):
        if not frozen:
            frozen.append(arguments)
            control.delete(f"weir:lease:loop:{loop.pk}")  # it runs out meanwhile
            clock.pass_seconds(60)
            override(loop, owner, clock, "mode", "hold")
            assert engine.tick(fresh(loop), plant, clock.now, control).mode == "hold"
        return apply(*arguments)

    monkeypatch.setattr(ticks, "apply", freezes)
    engine.tick(fresh(loop), plant, clock.now, control, clock)
    assert submitted(plant) == 0
    first = LedgerEntry.objects.order_by("pk").first()
    assert not first.applied and "not repeated" in first.error


def test_a_tick_asks_the_database_once_whether_a_later_one_was_there(loop, plant, clock, control, monkeypatch):
    """Its record was written only because there was none."""
    plant.put("alert", "n1", 2_000)
    monkeypatch.setattr(ledger, "find_current_ids", lambda entries: pytest.fail("asked again"))
    assert tick(loop, plant, clock, control).applied
    assert submitted(plant) == 2


def test_an_action_that_was_given_up_and_came_late_all_the_same_says_both(loop, plant, clock, control):
    plant.put("alert", "n1", 2_000)
    entry = tick(loop, plant, clock, control)
    ledger.fail(entry, "The action was not confirmed and is not repeated: it is 60 s old.")
    ledger.confirm(entry)
    entry.refresh_from_db()
    assert entry.applied and entry.error.startswith("Applied late")


def test_of_two_ticks_that_read_the_same_state_one_acts_also_where_the_elder_records_late(
    loop, plant, clock, control, monkeypatch
):
    """It waited for the database until its lease had run out, and the younger had read by then."""
    plant.put("alert", "n1", 2_000)
    name = f"loop:{loop.pk}"
    elder = Lease(control, name, 30).acquire()
    control.delete(f"weir:lease:{name}")
    record, waited = ledger.record, []

    def waits(found, now):
        if not waited:
            waited.append(found)
            with monkeypatch.context() as patch:
                patch.setattr(LeaseGroup, "acquire", lambda leases: {name: elder})
                assert engine.tick(fresh(loop), plant, now, control).applied
        return record(found, now)

    monkeypatch.setattr(ledger, "record", waits)
    assert engine.tick(fresh(loop), plant, clock.now, control) is None
    assert LedgerEntry.objects.count() == 1
    assert submitted(plant) == 2  # 4 before
