"""`manage.py shop`: the shop of `./run --demo`. Orders, payments, and logins follow a day that lasts 24 minutes.

It creates its queues and its application once, lets all of its loops act, and publishes until it is stopped.
"""

import signal
import threading

from django.conf import settings
from django.db import connection
from django.utils import timezone

from common.errors import WeirError
from console.accounts.access import Actor
from console.actions import loops, pipelines
from console.actions.queues import definitions
from console.connections.control_server import control
from console.management.commands.weir import find_acting_user
from console.management.one_line import OneLineCommand
from console.storage.database_limits import hold_work_limits
from controllers.concurrency.law import LAW as CONCURRENCY
from controllers.rebalancing.law import LAW as REBALANCING
from queues import projection
from queues.models import Node, Queue
from queues.publishing.streams import EventStream, StreamPublisher
from workers.coordination.connections import repeat_until_stopped
from workers.models import Loop, PipelineVersion
from workers.steering import enforcing

REASON = "The demo shop exercises all loops."
DAY_SECONDS = 1_440.0  # 60 times as fast as a real day
CHECK_SECONDS = 5.0
PLANT_LAWS = (REBALANCING.name, CONCURRENCY.name)
LOGINS, APPLICATION = "logins", "shop"
# Seconds of a worker for each event: at noon, orders and payments need more than two worker slots.
QUEUES = {
    "orders": {"handler": "emulate", "handler_options": {"seconds": 0.01}, "events_per_worker": 200, "priority": 5},
    "payments": {"handler": "emulate", "handler_options": {"seconds": 0.02}, "events_per_worker": 200, "priority": 3},
}
# Two thirds of the logins come to one node, whose capacity is small enough that it is busy at noon.
NODE_EVENTS_PER_SECOND = 6_000.0
UNEVEN_SHARE = 600
DECLARATION = f"""
# Account takeover: failed logins of an account, and then a login.
name: {APPLICATION}
queues: [{LOGINS}]
sink: alert
replicas: 2
lateness_seconds: 1
operators:
  - name: accounts
    key: key
    patterns:
      - name: takeover
        pattern: SEQ(failed; login)
        within_seconds: 10
        quiet_seconds: 600
        emits: takeover
"""


def build_streams() -> list[EventStream]:
    """Return what the shop's producers send; rates are those of the morning and the evening."""
    rates = (
        ("web", "orders", "order", 40.0, 40),
        ("app", "orders", "order", 30.0, 40),
        ("web", "payments", "payment", 30.0, 40),
        ("accounts", LOGINS, "failed", 5_000.0, 5_000),
        ("accounts", LOGINS, "login", 500.0, 5_000),
    )
    return [
        EventStream(producer, queue, type, rate, day_seconds=DAY_SECONDS, keys=keys)
        for producer, queue, type, rate, keys in rates
    ]


def open_shop(actor: Actor) -> None:
    """Create the queues and the application that are missing; existing ones stay as people changed them."""
    server, now = control(), timezone.now()
    nodes = list(Node.objects.order_by("name").values_list("name", flat=True))
    for name, fields in QUEUES.items():
        if not Queue.objects.filter(name=name).exists():
            definitions.create(actor, name, "jobs", fields, reason=REASON, now=now, control=server)
    if not Queue.objects.filter(name=LOGINS).exists():
        others = (1000 - UNEVEN_SHARE) // (len(nodes) - 1) if len(nodes) > 1 else 0
        points = dict.fromkeys(nodes[1:], others)
        points[nodes[0]] = 1000 - sum(points.values())
        definitions.create(actor, LOGINS, "pipeline", {}, points=points, reason=REASON, now=now, control=server)
        Node.objects.update(capacity_events_per_second=NODE_EVENTS_PER_SECOND)
        projection.project(server, enforcing.get_node_thresholds(now))
    if not PipelineVersion.objects.filter(application=APPLICATION).exists():
        pipelines.declare(actor, DECLARATION, REASON, server)


class LoopStarter:
    """Sets each loop of the shop to auto once, so that a mode that people choose later stays."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._seen: set[int] = set()

    def step(self) -> None:
        for loop in Loop.objects.exclude(pk__in=self._seen).exclude(target__has_key="retired_at"):
            self._seen.add(loop.pk)
            is_of_shop = loop.target.get("queue") in (*QUEUES, LOGINS) or loop.target.get("application") == APPLICATION
            if (is_of_shop or loop.law in PLANT_LAWS) and loop.mode == Loop.Mode.ADVISE:
                loops.set_mode(self._actor, loop, Loop.Mode.AUTO, reason=REASON, now=timezone.now())


class Command(OneLineCommand):
    help = "Publish the events of the demo shop until it is stopped. ./run --demo starts it."
    requires_system_checks = []  # as for `JsonCommand`

    def handle(self, *arguments: object, **options: object) -> None:
        hold_work_limits(connection.settings_dict, settings.WEIR_DATABASE_LIMITS)
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        actor = find_acting_user(None)
        starter = LoopStarter(actor)
        while not stop.is_set():
            try:
                open_shop(actor)
                break
            except WeirError as error:  # the plant is starting
                self.stderr.write(str(error))
                stop.wait(CHECK_SECONDS)
        with StreamPublisher(settings.REDIS_URL, build_streams()):
            repeat_until_stopped(stop, CHECK_SECONDS, starter.step, "Loops of the shop can't be started")
