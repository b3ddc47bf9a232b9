"""Recording: updates become records, blocks, groups of failures, and gaps."""

from dataclasses import replace

import pytest
from django.db import DatabaseError

from tests.workers.task_history.samples import NOON, TRACEBACK, Clock, HeldLease, begin_recorder, make_life
from workers.task_history import blocks, failures, recorder, search
from workers.task_history.blocks import seal_settled
from workers.task_history.gaps import find_gap_of
from workers.task_history.models import FailureGroup, RecentTask, TaskBlock, TaskFeed, TaskGap
from workers.task_history.query import parse_query
from workers.task_history.record import FAILED, RETRIED, STARTED, SUCCEEDED, TaskRecord, TaskUpdate
from workers.task_history.recorder import NO_BEAT, OVERFLOW, RECONNECT, RESTART, STALL, record_finished

pytestmark = pytest.mark.django_db
LATER = NOON + 2 * 86_400


def hear(recorder, count, at=NOON, first=0, **fields):
    for number in range(first, first + count):
        for update in make_life(number, at + number / 100, **fields):
            recorder.hear(update)


def record(count, **fields):
    made = begin_recorder()
    hear(made, count, **fields)
    made.flush()
    return made


def texts_of(query):
    found = search.find(["shop"], parse_query(query, LATER), limit=1_000)
    return [task.args for task in found.records]


def list_gaps():
    return list(TaskGap.objects.order_by("since").values_list("since", "until", "reason", "worker"))


QUERIES = (
    "customer7",
    "customer7@example.com",
    'customer7 "tomer7@ex"',
    '"tomer7@ex"',
    "state:succeeded queue:pay (7,)",
)


@pytest.mark.parametrize("query", QUERIES)
def test_a_task_is_found_by_what_is_known_of_it_before_and_after_it_is_in_a_block(query):
    record(20)
    assert texts_of(query) == ["(7,)"]
    assert seal_settled("shop", LATER, partly=True) == 20
    assert (RecentTask.objects.count(), TaskBlock.objects.count()) == (0, 1)
    assert texts_of(query) == ["(7,)"]


def test_a_whole_word_is_no_part_of_a_word():
    record(20)
    assert texts_of("customer1") == ["(1,)"]
    assert len(texts_of('"customer1"')) == 11


def test_a_block_of_today_is_made_when_it_is_full(monkeypatch):
    monkeypatch.setattr(blocks, "MAX_ROWS", 10)
    record(15)
    assert seal_settled("shop", NOON + 30) == 0  # its tasks may still change
    assert seal_settled("shop", NOON + 100) == 10
    assert seal_settled("shop", NOON + 100) == 0
    assert len(texts_of("name:shop.pay")) == 15


def test_a_task_that_changed_while_its_block_was_built_stays_recent(monkeypatch):
    record(3)
    build = blocks.build_block

    def change_meanwhile(*given):
        RecentTask.objects.filter(task_id=RecentTask.objects.first().task_id).update(record=b'{"id":"x"}')
        return build(*given)

    monkeypatch.setattr(blocks, "build_block", change_meanwhile)
    assert seal_settled("shop", LATER, partly=True) == 0
    assert TaskBlock.objects.count() == 0


def test_a_task_that_continues_replaces_its_row_in_the_block():
    made = record(20)
    seal_settled("shop", LATER, partly=True)
    [task] = search.find(["shop"], parse_query("customer7", LATER)).records
    made.hear(TaskUpdate(id=task.id, state=RETRIED, at=LATER, time=LATER, worker="w2@shop", error="Busy()"))
    made.flush()
    assert search.get("shop", task.id).state == RETRIED
    assert texts_of("customer7") == ["(7,)"]
    assert len(texts_of("name:shop.pay")) == 20
    assert texts_of("state:succeeded customer7") == []


def test_failures_are_counted_in_groups():
    made = begin_recorder()
    error = {"error": "KeyError('a')", "traceback": TRACEBACK.format(line=7)}
    hear(made, 3, **error)
    hear(made, 2, first=10, at=NOON + 7_200, **error)
    hear(made, 1, first=20, error="ValueError('order 4711')", worker="w2@shop")
    hear(made, 5, first=30)
    made.flush()
    key, value = FailureGroup.objects.order_by("-count")
    assert (key.name, key.error, key.count, key.queues, key.workers) == (
        "shop.pay", "KeyError(a)", 5, {"pay": 5}, {"w1@shop": 5},
    )  # fmt: skip
    assert (value.error, value.workers) == ("ValueError(order …)", {"w2@shop": 1})
    assert failures.count_per_hour(key, NOON + 7_200, 3) == [3, 0, 2]
    assert [group.error for group in failures.list_groups(["shop"], new_since=NOON)] == [key.error, value.error]
    assert texts_of(f"failure:{value.fingerprint}") == ["(20,)"]
    # All failures of a new plant are new; those after an hour are news.
    assert failures.list_new_groups(NOON) == []
    FailureGroup.objects.filter(pk=value.pk).update(first_seen=NOON + 3_700)
    assert [group.pk for group in failures.list_new_groups(NOON)] == [value.pk]


def test_a_failure_that_is_heard_twice_counts_once():
    made = begin_recorder()
    life = list(make_life(1, error="KeyError('a')"))
    for update in (*life, life[-1]):
        made.hear(update)
    made.flush()
    made.hear(life[-1])
    made.flush()
    assert FailureGroup.objects.get().count == 1


def test_a_transaction_that_fails_is_repeated_and_counts_once(monkeypatch):
    made = begin_recorder()
    write, calls = recorder.count_failures, []

    def fail_once(*given):
        calls.append(given)
        write(*given)
        if len(calls) == 1:
            raise DatabaseError("the server is away")

    monkeypatch.setattr(recorder, "count_failures", fail_once)
    monkeypatch.setattr(recorder, "close_old_connections", lambda: None)  # it would close the test's own
    hear(made, 2, error="KeyError('a')")
    made.flush()
    assert RecentTask.objects.count() == 0
    hear(made, 1, first=2)
    made.flush()
    assert (RecentTask.objects.count(), FailureGroup.objects.get().count) == (3, 2)


def test_a_reconnection_leaves_a_gap():
    made = begin_recorder()
    made.touch(NOON + 1)
    made.connect(NOON + 6)
    made.flush()
    assert list_gaps() == [(NOON + 1, NOON + 6, RECONNECT, "")]


def test_a_listener_that_was_suspended_leaves_a_gap():
    made = begin_recorder()
    for at in (NOON + 1, NOON + 2, NOON + 20):
        made.touch(at)
    made.flush()
    assert list_gaps() == [(NOON + 2, NOON + 20, STALL, "")]


def test_a_worker_without_heartbeats_leaves_a_gap_unless_it_restarted():
    made = begin_recorder()
    for at in (0, 2, 30):
        made.hear_worker("w1", NOON + at, NOON + at)
        made.hear_worker("w2", NOON + at, NOON + at, is_new=at == 30)
        made.hear_worker("w3", NOON + at, NOON + at, allowed_seconds=60.0)
    made.hear_worker("w4", NOON, NOON)
    made.forget_worker("w4")
    made.hear_worker("w4", NOON + 30, NOON + 30)
    made.touch(NOON + 1)
    made.flush()
    assert list_gaps() == [(NOON + 2, NOON + 30, NO_BEAT, "w1")]


def test_a_full_buffer_leaves_a_gap(monkeypatch):
    monkeypatch.setattr(recorder, "MAX_WAITING", 30)
    clock = Clock()
    made = begin_recorder(clock=clock)
    hear(made, 20)
    clock.now = NOON + 9
    made.flush()
    made.flush()
    [(since, until, reason, _)] = list_gaps()
    assert (since, until, reason) == (pytest.approx(NOON + 0.1), NOON + 9, OVERFLOW)
    assert RecentTask.objects.count() == 10


def test_a_recorder_after_a_killed_one_notes_the_gap():
    hear(made := begin_recorder(), 3)
    made.touch(NOON + 3)
    made.flush()
    hear(made, 1, first=3, at=NOON + 6)  # killed before it stores this
    successor = recorder.TaskRecorder("shop", HeldLease(2), Clock(NOON + 30))
    successor.connect(NOON + 20)
    successor.touch(NOON + 21)
    successor.flush()
    assert list_gaps() == [(NOON + 3, NOON + 20, RESTART, "")]
    assert RecentTask.objects.count() == 3


def test_a_recorder_stores_nothing_before_it_is_connected():
    record(3).touch(NOON + 1)
    clock = Clock(NOON + 10)
    successor = recorder.TaskRecorder("shop", HeldLease(2), clock)
    successor.flush()
    successor.connect(NOON + 30)
    successor.flush()
    [(_, until, reason, _)] = list_gaps()
    assert (until, reason) == (NOON + 30, RESTART)


def test_a_task_that_was_silent_for_days_is_found_once_when_it_continues():
    made = begin_recorder()
    received, started, ended = make_life(7)
    made.hear(received)
    made.flush()
    assert seal_settled("shop", LATER, partly=True) == 1
    made.touch(LATER)
    for update in (started, ended):
        made.hear(replace(update, at=LATER))
    made.flush()
    [task] = search.find(["shop"], parse_query("", LATER)).records
    assert (task.state, task.args) == (SUCCEEDED, "(7,)")


def test_an_error_of_the_archive_loses_no_change(monkeypatch):
    made = begin_recorder()

    def fail(*_):
        raise OSError("the disk is away")

    with monkeypatch.context() as broken:
        broken.setattr(recorder, "find_rows", fail)
        hear(made, 3)
        made.flush()
    assert RecentTask.objects.count() == 0
    made.flush()
    assert len(texts_of("state:succeeded")) == 3


def test_a_second_recorder_continues_without_a_gap_and_counts_nothing_twice():
    first, clock = begin_recorder(), Clock(NOON + 8)
    lease = HeldLease(2, is_free=False)
    second = begin_recorder(lease=lease, clock=clock)
    for made in (first, second):
        hear(made, 3, error="KeyError('a')")
        made.touch(NOON + 2)
        made.flush()
    hear(second, 1, first=3, at=NOON + 3, error="KeyError('a')")
    hear(second, 1, first=4, at=NOON + 4, error="KeyError('a')")  # the first one doesn't store this
    hear(first, 1, first=3, at=NOON + 3, error="KeyError('a')")
    first.flush()
    lease.is_free = True
    second.flush()
    assert RecentTask.objects.count() == 5
    assert FailureGroup.objects.get().count == 5
    assert list_gaps() == []


def test_a_recorder_that_lost_its_lease_unnoticed_stores_nothing():
    first = begin_recorder(lease=HeldLease(1))
    first.touch(NOON + 1)
    first.flush()
    second = begin_recorder(lease=HeldLease(7))
    second.touch(NOON + 2)
    second.flush()
    hear(first, 3)
    first.flush()
    assert RecentTask.objects.count() == 0
    assert TaskFeed.objects.get().heard_until == NOON + 2


def test_the_end_of_a_task_across_a_gap_is_not_seen():
    made = record(0)
    [received, started, _] = make_life(1)
    for update in (received, started):
        made.hear(update)
    made.touch(NOON + 1)
    made.connect(NOON + 9)
    made.flush()
    [task] = search.find(["shop"], parse_query("state:open", LATER)).records
    assert task.state == STARTED
    gap = find_gap_of(task)
    assert (gap.since, gap.until) == (NOON + 1, NOON + 9)
    assert find_gap_of(TaskRecord(id="b", state=SUCCEEDED, at=NOON, plant="shop")) is None


def test_how_far_an_idle_plant_was_heard_is_stored_every_few_seconds():
    made = begin_recorder()
    stored = []
    for second in range(1, 12):
        made.touch(NOON + second)
        made.flush()
        stored.append(TaskFeed.objects.get().heard_until - NOON)
    assert stored == [1, 1, 1, 1, 1, 6, 6, 6, 6, 6, 11]


def test_own_work_is_stored_once():
    row = TaskRecord(id="run-1-2", state=FAILED, at=NOON, name="retention", ended=NOON, failure="a" * 16)
    for _ in range(2):
        record_finished("main", [row])
    assert FailureGroup.objects.get().count == 1
    assert [task.name for task in search.find(["main"], parse_query("", LATER)).records] == ["retention"]
