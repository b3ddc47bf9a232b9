"""A plan sends its tasks in their order, as far as the retry budgets of what they call allow it."""

import pytest

from controllers.retries.circuit import DestinationCalls
from queues.models import Queue
from tests.workers.retries.samples import NOW
from workers.consumer.destination import NoLimit, SharedLimit
from workers.retries.budget import PlanBudget, get_called, open_budget
from workers.retries.models import RetryPlan
from workers.retries.pacing import RetryOutcome


class Tokens(NoLimit):
    """A limit with some tokens, which records the calls."""

    def __init__(self, tokens):
        self.tokens, self.calls = tokens, []

    def take_retries(self, wanted):
        granted = min(wanted, self.tokens)
        self.tokens -= granted
        return granted

    def explain_wait(self):
        return "Waiting."

    def record(self, calls):
        self.calls.append(calls)


def test_tasks_wait_behind_one_that_its_budget_does_not_pay_for():
    mail, pay = Tokens(2), Tokens(100)
    budget = PlanBudget({"mail": mail, "pay": pay}, reports=False)
    assert budget.take(["pay", "mail", "mail", "mail", "pay", "pay"]) == 3
    assert (mail.tokens, pay.tokens) == (0, 99), "tokens are taken only for what is sent"
    assert budget.explain_wait() == "Waiting."
    mail.tokens = 1
    assert budget.take(["mail", "pay", "pay"]) == 3
    assert budget.explain_wait() == ""


def test_a_queue_whose_handler_calls_nothing_has_no_limit():
    assert PlanBudget({}, reports=False).take(["alert"] * 5) == 5


@pytest.mark.parametrize("reports", [True, False])
def test_outcomes_are_reported_once_as_retries_unless_workers_report_them(reports):
    limit = Tokens(0)
    budget = PlanBudget({"pay": limit, "refund": limit}, reports)
    budget.record([RetryOutcome(), RetryOutcome("TimeoutError"), RetryOutcome()])
    assert limit.calls == ([DestinationCalls(0, 2, 1, "TimeoutError")] if reports else [])


@pytest.mark.django_db
def test_a_plan_of_dead_letters_draws_on_the_budget_of_what_the_handler_calls(control):
    options = {"url": "https://shop.example:8443/orders"}
    Queue.objects.create(name="orders", kind="jobs", handler="webhook", handler_options=options)
    limit = SharedLimit(control, "orders", "shop.example:8443", NOW.timestamp)
    limit.record(DestinationCalls(failures=20, error="HTTP 503"))
    plan = RetryPlan(kind="dead-letters", plant="main", queues={"orders": 3, "gone": 1})
    budget = open_budget(plan, control, NOW.timestamp)
    assert budget.take(["gone", "orders", "orders"]) == 1
    assert budget.explain_wait() == "Waiting: the circuit of shop.example:8443 is open. Last failure: HTTP 503"


def test_a_plan_that_does_not_name_what_its_tasks_call_has_the_budget_of_its_plant():
    assert get_called(RetryPlan(plant="shop")) == "shop"
    assert get_called(RetryPlan(plant="shop", calls="pay.example")) == "pay.example"
