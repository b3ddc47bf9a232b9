"""Times between completions on a host, and how busy its pool is: what counts, and what is not known yet."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queues import keys
from tests.workers.pool.simulated_host import SimulatedHost, SimulatedService, Work
from workers.pool.departures import (
    BEGAN,
    DONE,
    ENDED,
    LEARNING_SECONDS,
    RETAINED_SAMPLES,
    WARM_UP_SECONDS,
    BusyTime,
    CompletionReporter,
    Departures,
    ServiceTimes,
    WorkerNote,
    add_worker_note,
)

START = 1_000.0


class Workers:
    """Slots whose workers handle calls of `events` events, each in `seconds`, one after the other."""

    def __init__(self, slots: int, size: int | None = None) -> None:
        self.slots = tuple(range(1, slots + 1))
        self.departures = Departures(slots if size is None else size, START)

    def work(self, slot: int, begin: float, calls: int, seconds: float, events: int) -> float:
        """A worker from begin on; gives its end."""
        done = [WorkerNote(begin + (at + 1) * seconds, slot, DONE, events) for at in range(calls)]
        end = begin + calls * seconds
        self.departures.add([WorkerNote(begin, slot, BEGAN)], begin, slot)
        self.departures.add(done, end, slot)
        self.departures.add([WorkerNote(end, slot, ENDED)], end, slot)
        return end

    def settled(self, at: float) -> dict:
        self.departures.settle(at, self.slots)
        return self.departures.to_json()


def test_a_full_pool_completes_what_its_slots_complete_together():
    workers = Workers(4)
    for slot in workers.slots:
        workers.work(slot, START + 0.01 * slot, 100, 0.1, 5)
    found = workers.settled(START + 20)
    assert found["per_second"] == pytest.approx(4 * 5 / 0.1, rel=0.02)
    assert found["full_seconds"] == pytest.approx(10.0 - WARM_UP_SECONDS, rel=0.02)
    # Cut after some rounds of the slots, and not at each completion.
    assert 25 <= found["seq"] <= 100


@pytest.mark.parametrize(("slots", "call_seconds"), [(4, 5.0), (7, 0.3), (3, 1.0)])
def test_samples_of_calls_that_take_about_as_long_are_about_alike(slots, call_seconds):
    """So few of them are enough: whole rounds of the slots are counted, and no parts of one."""
    host = SimulatedHost(slots, slots, call_seconds, calls=2)
    host.run(100 * call_seconds)
    found = list(host.departures.recent)
    assert len(found) >= 20
    assert statistics.pstdev(found) <= 0.12 * statistics.mean(found)


def test_slots_that_are_all_stuck_show_it_before_any_of_them_reports():
    """The throughput is at most one report per slot since they began, as if each slot reported now."""
    workers = Workers(20)
    for slot in workers.slots:
        at = START + 0.01 * slot
        for _ in range(50):
            at = workers.work(slot, at, 1, 0.1, 5)
        workers.departures.add([WorkerNote(at, slot, BEGAN)], at, slot)
    found = workers.settled(START + 20)
    assert found["open_seconds"] > 9.0 and found["open_events"] / found["open_seconds"] < 100
    # Slots without work are not stuck.
    workers.departures.add([WorkerNote(START + 20, 1, ENDED)], START + 20, 1)
    found = workers.settled(START + 25)
    assert (found["open_seconds"], found["open_events"]) == (0.0, 0.0)


def test_a_change_of_the_mix_of_work_does_not_change_the_throughput():
    """Slots that are all busy do as much work, whether their events take 10 ms or a second."""
    slow = SimulatedService(100, 1.0)
    host = SimulatedHost(8, 0, 0.0, service=slow)
    fast = SimulatedService(100, 0.01, clock=slow.clock)
    kinds = [Work(slow, 2, 1, "slow"), Work(fast, 100, 1, "fast")]
    found, mixes = [], []
    for share in (0.5, 0.0, 1.0, 0.2, 0.8):
        host.choose = lambda share=share: kinds[0 if slow.clock.chance.random() < share else 1]
        host.run(30)
        found.append(host.departures.to_json()["per_second"])
        mixes.append(host.departures.to_json()["mix"])
    assert max(found) <= 1.1 * min(found)
    assert mixes[1]["fast"] >= 0.99 and mixes[2]["slow"] >= 0.99


def test_the_weights_of_events_stay_when_the_reference_is_no_longer_processed():
    times = ServiceTimes()
    assert times.learn("orders", 10, 1.0) == pytest.approx(10.0)
    assert times.learn("images", 10, 5.0) == pytest.approx(50.0)
    times.learn("images", 1_000_000, 500_000.0)
    times.forget(9 * LEARNING_SECONDS)
    assert times.learn("images", 10, 5.0) == pytest.approx(50.0)


def test_time_in_which_a_slot_has_nothing_to_do_counts_for_nothing():
    workers = Workers(2)
    end = workers.work(1, START, 20, 0.1, 1)
    workers.work(2, START, 20, 0.1, 1)
    workers.work(1, end + 1.0, 20, 0.1, 1)  # the other slot has no work any more
    workers.work(1, end + 10.0, 20, 0.1, 1)
    workers.work(2, end + 10.0, 20, 0.1, 1)
    found = workers.settled(end + 60.0)
    assert found["full_seconds"] == pytest.approx(4.0 - WARM_UP_SECONDS, abs=0.05)
    assert found["per_second"] == pytest.approx(20.0, rel=0.1)


def test_nothing_is_settled_beyond_the_begin_of_the_longest_call_under_way():
    workers = Workers(2)
    workers.departures.add([WorkerNote(START + 1, 2, BEGAN)], START + 1, 2)
    workers.work(1, START, 100, 0.1, 1)
    assert workers.settled(START + 30)["seq"] == 0
    workers.departures.add([WorkerNote(START + 9, 2, DONE, 7)], START + 9, 2)
    assert workers.settled(START + 31)["full_seconds"] == pytest.approx(8.0 - WARM_UP_SECONDS, abs=0.1)


def test_a_slot_that_was_killed_in_the_middle_holds_nobody_up():
    workers = Workers(2)
    workers.departures.add([WorkerNote(START + 1, 9, BEGAN)], START + 1, 9)
    for slot in workers.slots:
        workers.work(slot, START, 50, 0.1, 1)
    assert workers.settled(START + 30)["full_seconds"] == pytest.approx(5.0 - WARM_UP_SECONDS, abs=0.1)


def test_what_was_measured_before_a_change_of_size_is_gone_and_numbers_go_on():
    workers = Workers(1)
    workers.work(1, START, 50, 0.1, 1)
    before = workers.settled(START + 10)
    workers.departures.resize(2, START + 10)
    assert workers.settled(START + 11)["recent_seconds"] == []
    workers.slots = (1, 2)
    for slot in workers.slots:
        workers.work(slot, START + 12, 50, 0.1, 1)
    after = workers.settled(START + 30)
    assert after["seq"] > before["seq"] and after["per_second"] == pytest.approx(20.0, rel=0.1)
    assert len(after["recent_seconds"]) <= min(RETAINED_SAMPLES, after["seq"] - before["seq"])


@given(
    st.integers(1, 5),
    st.lists(st.tuples(st.integers(1, 40), st.floats(0.01, 2.0), st.integers(1, 500)), min_size=1, max_size=8),
)
def test_samples_are_positive_and_never_of_more_time_than_has_passed(size, rounds):
    workers = Workers(size)
    ends = dict.fromkeys(workers.slots, START)
    for calls, seconds, events in rounds:
        for slot in workers.slots:
            ends[slot] = workers.work(slot, ends[slot] + 0.001, calls, seconds, events)
    end = max(ends.values())
    found = workers.settled(end + 10)
    assert all(each > 0 for each in found["recent_seconds"])
    assert 0 <= found["full_seconds"] <= end - START + 1e-6


@given(st.lists(st.floats(0.5, 5.0), min_size=1, max_size=6))
def test_it_does_not_matter_how_often_it_is_settled(pauses):
    once, often = Workers(2), Workers(2)
    for workers in (once, often):
        for slot in workers.slots:
            workers.work(slot, START, 60, 0.1, 3)
    at = START
    for pause in pauses:
        often.settled(at := at + pause)
    assert often.settled(START + 60) == once.settled(START + 60)


def test_what_workers_report_to_their_host_is_read_back(control):
    times = iter([10.0, 11.5, 12.0])
    line = CompletionReporter("jobs@here", 77, lambda: next(times))
    line.record_start(control)
    line.record_completions(control, [(10.5, 4), (11.0, 5)])
    line.record_completions(control, [])
    line.record_end(control)
    assert 0 < control.ttl(keys.DONE.build("jobs@here")) <= 3_600
    departures = Departures(1, 9.0)
    for _, fields in control.xrange(keys.DONE.build("jobs@here")):
        add_worker_note(departures, fields)
    departures.settle(20.0, [77])
    assert departures.to_json()["full_seconds"] == pytest.approx(2.0 - WARM_UP_SECONDS)


def test_a_call_that_takes_for_ever_does_not_let_notes_pile_up():
    workers = Workers(2)
    workers.departures.add([WorkerNote(START, 2, BEGAN)], START, 2)
    workers.departures.add([WorkerNote(START, 1, BEGAN)], START, 1)
    for second in range(1, 60):
        at = START + second
        done = [WorkerNote(at - 1 + each / 1_000, 1, DONE, 1) for each in range(1, 1_000)]
        workers.departures.add(done, at, 1)
        workers.departures.settle(at, workers.slots)
    assert workers.departures.to_json()["per_second"] == pytest.approx(1_000, rel=0.05)


def test_a_pool_that_has_just_changed_warms_up_before_it_is_measured():
    workers = Workers(2)
    for slot in workers.slots:
        end = workers.work(slot, START, 5, 0.2, 1)  # a process that loads what it needs is slow
        workers.work(slot, end, 100, 0.1, 1)
    assert workers.settled(START + 20)["per_second"] == pytest.approx(20.0, rel=0.03)


def test_one_that_works_on_counts_each_second_once():
    busy = BusyTime(0.0)
    busy.begin(7, 0.5)
    assert [busy.compute_mean(at, {7}) for at in (1.0, 2.0, 3.0)] == [0.5, 1.0, 1.0]
    busy.end(7, 2.5)  # which is known late
    assert busy.compute_mean(4.0, {7}) == -0.5


def test_a_process_that_was_killed_is_at_work_no_more():
    busy = BusyTime(0.0)
    busy.begin(7, 0.0)
    assert busy.compute_mean(1.0, {8}) == 0.0 and busy.compute_mean(2.0, {7, 8}) == 0.0


@given(
    works=st.lists(st.tuples(st.integers(0, 3), st.floats(0, 20), st.floats(0.01, 5)), max_size=30),
    every=st.floats(0.3, 3),
)
def test_over_time_the_means_are_what_was_worked(works, every):
    """However often it is asked, and also where a begin is known late."""
    busy, free_at, events = BusyTime(0.0), dict.fromkeys(range(4), 0.0), []
    for slot, pause, length in works:
        begin = free_at[slot] + pause
        free_at[slot] = begin + length
        events += [(begin, True, slot), (begin + length, False, slot)]
    worked = sum(length for _, _, length in works)
    asked, at = 0.0, 0.0
    for when, begins, slot in [*sorted(events), (max(free_at.values()) + 1.0, True, None)]:
        while at + every < when:
            at += every
            asked += busy.compute_mean(at, range(4)) * every
        if slot is not None:
            (busy.begin if begins else busy.end)(slot, when)
    end = max(free_at.values()) + 10.0
    asked += busy.compute_mean(end, range(4)) * (end - at)
    assert asked == pytest.approx(worked, abs=1e-6)
