"""The events of a task, in each order that Celery can produce, lead to the same record."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.task_history.fingerprint import normalize_message
from workers.task_history.record import (
    FAILED,
    RECEIVED,
    RETRIED,
    REVOKED,
    SENT,
    STARTED,
    SUCCEEDED,
    TaskRecord,
    TaskUpdate,
    apply_update,
)


def event(state, time, worker="w1", **fields):
    return TaskUpdate(id="a", state=state, at=time, time=time, worker="" if state == SENT else worker, **fields)


def merge(updates):
    record = None
    for update in updates:
        record = apply_update(record, update)
    return record


def interleave(draw, streams):
    """Events of one connection keep their order; those of several are mixed."""
    streams, mixed = [list(stream) for stream in streams], []
    while streams := [stream for stream in streams if stream]:
        mixed.append(draw(st.sampled_from(streams)).pop(0))
    return mixed


@given(st.data())
def test_the_sender_may_be_heard_at_any_time(data):
    sent = [event(SENT, 1.0, queue="pay", args="(1,)", kwargs="{}", are_exact=True, parent="p", root="r")]
    life = [event(RECEIVED, 2.0, name="shop.pay"), event(STARTED, 3.0), event(SUCCEEDED, 5.0, result="7")]
    record = merge(interleave(data.draw, [sent, life]))
    assert (record.state, record.queue, record.args, record.result) == (SUCCEEDED, "pay", "(1,)", "7")
    assert (record.sent, record.received, record.started, record.ended) == (1.0, 2.0, 3.0, 5.0)
    assert (record.run_seconds, record.wait_seconds, record.parent, record.root) == (2.0, 1.0, "p", "r")


@given(st.data())
def test_the_end_of_an_attempt_may_be_overtaken_by_the_next_attempt(data):
    """The worker that retries sends the message first, and then says so."""
    first = [event(RECEIVED, 1.0, retries=0), event(STARTED, 2.0), event(RETRIED, 3.0, error="Busy()")]
    second = [event(RECEIVED, 2.9, "w2", retries=1), event(STARTED, 3.1, "w2"), event(SUCCEEDED, 4.0, "w2")]
    begun, late = first[:2], first[2:]
    record = merge([*begun, *interleave(data.draw, [late, second])])
    assert (record.state, record.worker, record.retries, record.retried) == (SUCCEEDED, "w2", 1, 1)
    assert (record.started, record.ended) == (3.1, 4.0)


def test_a_task_that_waits_for_its_next_attempt_is_retried():
    record = merge([event(RECEIVED, 1.0, retries=0), event(STARTED, 2.0), event(RETRIED, 3.0, error="Busy()")])
    assert (record.state, record.error, record.is_finished) == (RETRIED, "Busy()", False)


@pytest.mark.parametrize("state", [SUCCEEDED, FAILED, REVOKED])
def test_the_last_event_decides_the_state(state):
    record = merge([event(RECEIVED, 1.0), event(STARTED, 2.0), event(state, 3.0)])
    assert record.state == state
    assert record.is_finished


def test_a_task_that_is_delivered_again_runs_again():
    first = [event(RECEIVED, 1.0), event(STARTED, 2.0), event(SUCCEEDED, 3.0)]
    again = merge([*first, event(RECEIVED, 9.0, "w2")])
    assert (again.state, again.worker, again.started, again.ended) == (RECEIVED, "w2", None, None)


def test_failures_of_one_cause_have_one_fingerprint_and_others_have_others():
    def fail(name="shop.pay", error="KeyError('a1')", line=7, function="pay"):
        traceback = f'Traceback:\n  File "/srv/release-{line}/shop/pay.py", line {line}, in {function}\n'
        life = [event(RECEIVED, 1.0, name=name), event(STARTED, 2.0)]
        return merge([*life, event(FAILED, 3.0, error=error, traceback=traceback)]).failure

    assert fail() == fail(error="KeyError('b2')", line=99)
    others = [fail(), fail(name="shop.ship"), fail(error="ValueError('a1')"), fail(function="charge")]
    assert all(one != other for one, other in itertools.combinations(others, 2))


@pytest.mark.parametrize(
    ("error", "normalized"),
    [
        ("KeyError('a1')", "KeyError(…)"),
        ("shop.errors.Refused(\"order 4711 of 'anna'\")", "shop.errors.Refused(order … of …)"),
        ("ValueError: block 0 is bad", "ValueError: block … is bad"),
        ("ValueError: 'x' (at 7) is bad", "ValueError: … (at …) is bad"),
        ("Busy()", "Busy()"),
        ("", ""),
    ],
)
def test_a_message_is_compared_without_what_differs(error, normalized):
    assert normalize_message(error) == normalized


@pytest.mark.parametrize(
    ("args", "kwargs", "are_exact", "parsed"),
    [
        ("(1, 'a')", "{'b': None}", True, ((1, "a"), {"b": None})),
        ("[1]", "", True, ((1,), {})),
        ("", "{1: 2}", True, None),
        ("(Decimal('1'),)", "{}", True, None),
        ("(1,)", "{}", False, None),
        ("1", "{}", True, None),
    ],
)
def test_arguments_are_known_only_if_they_are_exact(args, kwargs, are_exact, parsed):
    record = TaskRecord(id="a", state=FAILED, at=0.0, args=args, kwargs=kwargs, are_exact=are_exact)
    assert record.parse_arguments() == parsed
