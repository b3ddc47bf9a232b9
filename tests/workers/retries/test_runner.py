"""Retry plans are sent once, completely, and no faster than their destination takes them."""

from datetime import timedelta

import pytest

from common.errors import BadInput
from controllers.retries.circuit import DestinationCalls
from tests.workers.retries.samples import (
    NOW,
    PLANT,
    Killed,
    MemoryBroker,
    Worker,
    approve,
    build_failed,
    propose,
    store,
    store_failed,
)
from workers.consumer.destination import SharedLimit, load_states
from workers.retries import plans, runner
from workers.retries.items import PaceLimits, decode_items
from workers.retries.models import RetryPlan
from workers.retries.plans import State
from workers.retries.runner import PlanClock
from workers.retries.selection import IN_PLAN

pytestmark = pytest.mark.django_db(transaction=True)


def advance(control, broker, worker):
    clock = PlanClock(worker.now, lambda: worker.seconds, worker.sleep)
    runner.advance(PLANT, control, broker.open, clock)
    return RetryPlan.objects.get()


def test_an_approved_plan_sends_each_task_once_and_counts_what_became_of_it(control):
    store_failed(250)
    plan = approve(propose())
    broker = MemoryBroker()
    plan = advance(control, broker, Worker(broker, failing=lambda number: number % 20 == 0))
    assert plan.state == State.DONE and plan.ended_at is not None
    assert (plan.sent, plan.succeeded, plan.failed, plan.unheard) == (250, 237, 13, 0)
    assert [task.args for task in broker.sent] == [(number,) for number in range(250)]
    assert len({task.id for task in broker.sent}) == 250
    assert {task.retry_of for task in broker.sent} == {f"task-{number}" for number in range(250)}
    assert broker.stagings == {}


@pytest.mark.parametrize("every", [1, 2, 3, 5, 7, 11])
def test_no_task_is_sent_twice_or_forgotten_however_often_its_process_is_killed(control, every):
    store_failed(90)
    approve(propose())
    broker = MemoryBroker()
    worker, kills = Worker(broker), 0
    plan = RetryPlan.objects.get()
    while plan.state != State.DONE:
        broker.operations, broker.kill_at = 0, every + kills
        try:
            plan = advance(control, broker, worker)
        except Killed:
            kills += 1
        control.flushall()  # the lease of the dead process expires
        plan = RetryPlan.objects.get()
    assert kills
    assert sorted(task.args[0] for task in broker.sent) == list(range(90))
    assert plan.sent == plan.succeeded == 90


def test_a_plan_stops_by_itself_if_tasks_fail_again_and_continues_when_a_person_wants_it(control):
    store_failed(400)
    approve(propose(PaceLimits(20.0, 20.0)))
    broker = MemoryBroker()
    worker = Worker(broker, failing=lambda number: number % 2 == 0)
    plan = advance(control, broker, worker)
    assert plan.state == State.PAUSED and plan.sent < 400
    assert f"Stopped after {plan.sent} of 400: 5" in plan.note and "most frequent error is ConnectionError" in plan.note
    worker.failing = lambda number: False
    plans.resume(plan.pk, None, "The bank is back.")
    while plan.state != State.DONE and worker.seconds < 600:
        plan = advance(control, broker, worker)
    assert [task.args for task in broker.sent] == [(number,) for number in range(400)]


def fail_calls(control, destination, failures=20, **more):
    calls = DestinationCalls(failures=failures, error="HTTP 503", **more)
    SharedLimit(control, "", destination, NOW.timestamp).record(calls)


def test_a_plan_waits_while_the_circuit_of_its_destination_is_open_and_continues_after_test_calls(control):
    store_failed(400)
    approve(propose(PaceLimits(20.0, 20.0, calls="pay.example")))
    fail_calls(control, "pay.example")
    broker = MemoryBroker()
    worker = Worker(broker)
    plan = advance(control, broker, worker)
    assert len(broker.sent) <= 20, "five test calls, one each 10 s, then one task per second"
    assert plan.state == State.SENDING
    while plan.state != State.DONE and worker.seconds < 600:
        plan = advance(control, broker, worker)
    assert [task.args for task in broker.sent] == [(number,) for number in range(400)]


def test_a_waiting_plan_names_the_open_circuit(control):
    store_failed(40)
    plan = approve(propose(PaceLimits(20.0, 20.0, calls="pay.example")))
    fail_calls(control, "pay.example")
    worker = Worker(broker := MemoryBroker())
    pass_time = worker.sleep

    def pause_after_five_seconds(seconds):
        pass_time(seconds)
        if worker.seconds >= 5.0 and not RetryPlan.objects.filter(state=State.PAUSED):
            plan.refresh_from_db()
            plans.pause(plan.pk, None, "Enough.")

    worker.sleep = pause_after_five_seconds
    advance(control, broker, worker)
    assert broker.sent == []
    assert plan.note == "Waiting: the circuit of pay.example is open. Last failure: HTTP 503"


def test_failing_tasks_of_a_plan_open_the_circuit_for_all_who_call_the_same(control):
    store_failed(400)
    approve(propose(PaceLimits(20.0, 20.0, calls="pay.example")))
    broker = MemoryBroker()
    plan = advance(control, broker, Worker(broker, failing=lambda number: True))
    state = load_states(control, ["pay.example"])["pay.example"]
    assert (state.circuit, state.error) == ("open", "ConnectionError")
    assert len(broker.sent) < 60 and plan.sent == len(broker.sent)


def test_a_plan_shares_the_budget_of_a_destination_that_fails_sometimes(control):
    store_failed(400)
    approve(propose(PaceLimits(20.0, 20.0, calls="pay.example")))
    fail_calls(control, "pay.example", failures=10, firsts=40, successes=40)
    broker = MemoryBroker()
    worker = Worker(broker, failing=lambda number: number % 8 == 0)
    advance(control, broker, worker)
    assert worker.seconds >= 60 and 100 <= len(broker.sent) <= 112, "50 tokens, and one per second"


def test_a_paused_plan_sends_nothing_until_it_is_continued(control):
    store_failed(50)
    plan = approve(propose())
    plans.pause(plan.pk, None, "Lunch.")
    broker = MemoryBroker()
    assert advance(control, broker, Worker(broker)).state == State.PAUSED
    assert broker.sent == []
    plans.resume(plan.pk, None, "Go on.")
    assert advance(control, broker, Worker(broker)).state == State.DONE


def test_a_plan_that_is_paused_while_it_is_sent_keeps_the_rest(control):
    store_failed(500)
    plan = approve(propose(PaceLimits(20.0, 20.0)))
    broker = MemoryBroker()
    worker = Worker(broker)
    pass_time = worker.sleep

    def pause_after_ten_seconds(seconds):
        pass_time(seconds)
        if worker.seconds >= 10.0 and not RetryPlan.objects.filter(state=State.PAUSED):
            plans.pause(plan.pk, None, "Enough.")

    worker.sleep = pause_after_ten_seconds
    plan = advance(control, broker, worker)
    assert plan.state == State.PAUSED and 150 <= len(broker.sent) <= 220
    assert sum(map(len, broker.stagings.values())) == 500 - len(broker.sent)


def test_what_a_person_ends_is_not_sent_any_more(control):
    store_failed(30)
    plan = approve(propose())
    plans.end(plan.pk, None, "No longer needed.")
    broker = MemoryBroker()
    plan = advance(control, broker, Worker(broker))
    assert plan.state == State.ENDED and plan.sent == 0 and broker.sent == []
    assert plans.list_planned_ids(PLANT) == set()


def test_a_plan_waits_for_a_broker_that_cannot_be_reached(control):
    store_failed(5)
    approve(propose())
    broker = MemoryBroker()
    broker.is_away = True
    plan = advance(control, broker, Worker(broker))
    assert plan.note == "Waiting: shop can't be reached."
    broker.is_away = False
    assert advance(control, broker, Worker(broker)).state == State.DONE


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (dict.clear, "shop has lost the staged messages"),
        (lambda stagings: next(iter(stagings.values())).clear(), "staged messages have disappeared"),
    ],
)
def test_a_plan_whose_staged_messages_disappear_stops(control, change, said):
    store_failed(3_000)
    approve(propose(PaceLimits(1.0, 1.0)))
    broker = MemoryBroker()
    worker = Worker(broker)
    pass_time = worker.sleep

    def delete_after_five_seconds(seconds):
        pass_time(seconds)
        if worker.seconds >= 5.0:
            change(broker.stagings)

    worker.sleep = delete_after_five_seconds
    plan = advance(control, broker, worker)
    assert plan.state == State.PAUSED and said in plan.note


def test_the_pace_of_a_plan_is_the_one_that_a_person_allows(control):
    store_failed(200)
    approve(propose(PaceLimits(10.0, 10.0)))
    broker = MemoryBroker()
    worker = Worker(broker)
    plan = advance(control, broker, worker)
    assert plan.state == State.DONE and 19.0 <= worker.seconds <= 25.0


def test_a_plan_is_approved_by_its_hash_only_once_and_in_time():
    store_failed(3)
    plan = propose()
    with pytest.raises(BadInput, match="is not the hash of this plan"):
        plans.approve(plan.pk, "other", None, "Agreed.", now=NOW)
    with pytest.raises(BadInput, match="expired"):
        plans.approve(plan.pk, plan.hash, None, "Agreed.", now=NOW + timedelta(days=2))
    approve(plan)
    with pytest.raises(BadInput, match="is already approved"):
        approve(plan)


def test_the_hash_covers_every_message_and_the_pace():
    store_failed(3)
    first = propose()
    assert propose().hash == first.hash
    assert propose(PaceLimits(1.0, 2.0)).hash != first.hash
    store(build_failed(4))
    assert propose().hash != first.hash


def test_a_task_of_an_approved_plan_is_not_selected_by_another():
    store_failed(3)
    plan = approve(propose())
    store(build_failed(7))
    planned = plans.list_planned_ids(PLANT)
    assert planned == {item.id for item in decode_items(plan.items)}
    other = propose(planned=planned)
    assert other.total == 1 and other.skipped == {IN_PLAN: 3}


def test_a_proposal_that_nobody_approves_expires():
    store_failed(1)
    plan = propose()
    plans.tidy(NOW + timedelta(days=2))
    plan.refresh_from_db()
    assert plan.state == State.EXPIRED
