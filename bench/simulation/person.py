"""The person of the simulated installation: overrides values, pauses queues, drains nodes, and approves plans."""

import random
import time
from contextlib import suppress
from typing import Any

from django.contrib.auth.models import User

from bench.simulation import context
from bench.simulation.errors import EXPECTED
from bench.simulation.names import NODES, PERSON, QUEUES, SHOP, SHOP_QUEUE
from bench.simulation.plant import Installation
from queues.models import Node
from workers.coordination.connections import control_server
from workers.models import Loop, Override, Plan
from workers.placement import plans, proposals
from workers.plants.steered import open_published_plant
from workers.retries import plans as retry_plans
from workers.retries.items import PaceLimits, RetryItem
from workers.retries.models import RetryPlan
from workers.steering import overrides

REASON = "The simulation does this."
PAUSE_SECONDS = 2.0
APPROVED_AT_ONCE = 0.8


def run_person(plant: Installation) -> None:
    numbers = random.Random(plant.random.random())
    acts = (
        *(_override_mode, _override_parameter, _pause_queue, _end_override, _drain_node, _return_node),
        *(_approve, _stop, _retry, _pause_retry, _resume_retry),
    )
    weights = (3, 2, 4, 2, 10, 8, 6, 0.5, 1.5, 0.5, 2)
    while True:
        time.sleep(numbers.expovariate(1 / PAUSE_SECONDS))
        if not plant.is_load_on and numbers.random() < 0.9:
            continue
        [act] = numbers.choices(acts, weights) if plant.is_load_on else [numbers.choice([_return_node, _resume_retry])]
        with suppress(*EXPECTED):
            act(User.objects.get(username=PERSON), numbers)


def _override_mode(user: Any, numbers: random.Random) -> None:
    loop = numbers.choice(list(Loop.objects.order_by("pk")))
    _override(loop, "mode", numbers.choice([Loop.Mode.HOLD, Loop.Mode.ADVISE, Loop.Mode.AUTO]), user, numbers)


def _override_parameter(user: Any, numbers: random.Random) -> None:
    loop = numbers.choice(list(Loop.objects.filter(law="worker_rate").order_by("pk")))
    _override(loop, "maximum_rate", float(numbers.randint(10, 500)), user, numbers)


def _override(loop: Loop, name: str, value: object, user: Any, numbers: random.Random) -> None:
    minutes = numbers.uniform(0.05, 1.0)
    overrides.set_override(
        name=name,
        value=value,
        owner=user,
        reason=REASON,
        now=context.get_time(),
        loop=loop,
        minutes=minutes,
        control=control_server(),
    )


def _pause_queue(user: Any, numbers: random.Random) -> None:
    overrides.set_override(
        name=numbers.choice(["intake", "consumption"]),
        value="paused",
        owner=user,
        reason=REASON,
        now=context.get_time(),
        queue=numbers.choice(QUEUES),
        minutes=numbers.uniform(0.05, 1.0),
        control=control_server(),
    )


def _end_override(user: Any, numbers: random.Random) -> None:
    rows = list(Override.objects.filter(ended_at=None).exclude(name__in=["drained", "cordoned"]).order_by("pk"))
    if rows:
        overrides.end(numbers.choice(rows), by=user, now=context.get_time(), control=control_server())


def _drain_node(user: Any, numbers: random.Random) -> None:
    """Propose to drain a node, and most often approve it at once: few faults would hit a transfer otherwise."""
    if Node.objects.filter(drained=True).exists():
        return
    snapshot = open_published_plant(control_server()).observe()
    proposals.propose_drain(numbers.choice(NODES), user, REASON, snapshot=snapshot, now=context.get_time())
    if numbers.random() < APPROVED_AT_ONCE:
        _approve(user, numbers)


def _return_node(user: Any, numbers: random.Random) -> None:
    for node in Node.objects.filter(drained=True).order_by("name"):
        if not Plan.objects.filter(state__in=plans.BEING_EXECUTED).exists():
            plans.return_to_use(node.name, user, REASON, control=control_server(), now=context.get_time())
            return


def _approve(user: Any, numbers: random.Random) -> None:
    for plan in Plan.objects.filter(state=Plan.State.PROPOSED).order_by("pk"):
        snapshot = open_published_plant(control_server()).observe()
        plans.approve(plan, plan.hash, user, REASON, snapshot=snapshot, now=context.get_time())


def _stop(user: Any, numbers: random.Random) -> None:
    for plan in Plan.objects.filter(state__in=plans.BEING_EXECUTED).order_by("pk")[:1]:
        plans.stop(plan, user, REASON, now=context.get_time())


def _retry(user: Any, numbers: random.Random) -> None:
    """Propose a retry plan, and approve it."""
    if RetryPlan.objects.filter(state__in=retry_plans.OPEN).count() >= 2:
        return
    first, count = numbers.randrange(10**9), numbers.randint(1, 30)
    items = [
        RetryItem(f"task-{number}", "shop.pay", SHOP_QUEUE, f"({number},)", "{}")
        for number in range(first, first + count)
    ]
    limits = PaceLimits(1.0, float(numbers.choice([2, 10, 100])))
    new = retry_plans.NewPlan("tasks", SHOP, "state:failed", items, {}, {SHOP_QUEUE: count}, limits)
    plan = retry_plans.propose(new, user, REASON, context.get_time())
    retry_plans.approve(plan.pk, plan.hash, user, REASON, now=context.get_time())


def _pause_retry(user: Any, numbers: random.Random) -> None:
    for plan in RetryPlan.objects.filter(state__in=retry_plans.PAUSABLE).order_by("pk")[:1]:
        retry_plans.pause(plan.pk, user, REASON)


def _resume_retry(user: Any, numbers: random.Random) -> None:
    for plan in RetryPlan.objects.filter(state=RetryPlan.State.PAUSED).order_by("pk")[:1]:
        retry_plans.resume(plan.pk, user, REASON)
