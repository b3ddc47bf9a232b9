"""`manage.py shop`: the shop of `./run --demo`. Orders, payments, and logins follow a day that lasts 24 minutes.

It creates its queues and its application once, lets all of its loops act, and publishes until it is stopped.

Each day, bots try passwords for some minutes. They send more failed logins than the application can process, whatever
the speed of the host, and don't wait while the queue is throttled. Load shedding is then the only remedy.
"""

import signal
import threading
import timeit

import redis
from django.conf import settings
from django.db import connection
from django.utils import timezone

from common.errors import WeirError
from console.accounts.access import Actor
from console.actions import alerts, loops, pipelines
from console.actions.queues import definitions
from console.connections.control_server import control
from console.management.commands.weir import find_acting_user
from console.management.one_line import OneLineCommand
from console.storage.database_limits import hold_work_limits
from controllers.concurrency.law import LAW as CONCURRENCY
from controllers.rebalancing.law import LAW as REBALANCING
from controllers.shedding.law import LAW as SHEDDING
from queues import keys, projection
from queues.models import Node, Queue
from queues.publishing.streams import EventStream, StreamPublisher
from workers.coordination.connections import repeat_until_stopped
from workers.documents.snapshot import Snapshot
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
# Nearly half of the logins come to one node, which an attack makes busy.
NODE_EVENTS_PER_SECOND = 13_000.0
UNEVEN_SHARE = 450
OPERATOR = "accounts"
ACCOUNTS, ATTACKED_ACCOUNTS = 500, 100
# A fast host gets more patterns, so that an attack that the nodes can store overloads the application on each host.
MIN_GRADES, MAX_GRADES, GRADE_SECONDS = 4, 24, 0.06
SPEED_TEST = "sum(number for number in range(200_000))"
DECLARATION = f"""
# Account takeover: failed logins of an account, and then a login. More failures are stronger evidence.
name: {APPLICATION}
queues: [{LOGINS}]
sink: alert
replicas: 2
lateness_seconds: 1
operators:
  - name: {OPERATOR}
    key: key
    patterns:
"""
# The optional reset makes the matcher work event by event.
PATTERN = """      - name: takeover-{failures}
        pattern: SEQ(failed{{{failures}}}; reset?; login)
        within_seconds: 1
        quiet_seconds: 600
        weight: {failures}
"""
# Seconds of the day, and the load as a share of what the operator can process.
ATTACK_BEGINS, ATTACK_ENDS, OVERLOAD = 300.0, 480.0, 1.5
MIN_ATTACK_PER_SECOND, MAX_ATTACK_PER_SECOND = 1_000.0, 20_000.0
# Shedding is an emergency on a real plant, and a daily event here.
SHEDDING_SEVERITY = "warning"


def build_streams() -> list[EventStream]:
    """Return what the shop's producers send; rates are those of the morning and the evening."""
    rates = (
        ("web", "orders", "order", 40.0, 40),
        ("app", "orders", "order", 30.0, 40),
        ("web", "payments", "payment", 30.0, 40),
        ("accounts", LOGINS, "session", 2_900.0, ACCOUNTS),
        ("accounts", LOGINS, "failed", 60.0, ACCOUNTS),
        ("accounts", LOGINS, "login", 40.0, ACCOUNTS),
    )
    return [
        EventStream(producer, queue, type, rate, day_seconds=DAY_SECONDS, keys=keys)
        for producer, queue, type, rate, keys in rates
    ]


def choose_grades() -> int:
    """Return the number of patterns for the speed of this host."""
    seconds = min(timeit.repeat(SPEED_TEST, number=1, repeat=5))
    return min(max(round(GRADE_SECONDS / seconds), MIN_GRADES), MAX_GRADES)


def build_declaration(grades: int) -> str:
    """Return the application with this number of patterns."""
    return DECLARATION + "".join(PATTERN.format(failures=failures) for failures in range(1, grades + 1))


def build_attack() -> EventStream:
    """Return the stream of the bots, which sends nothing yet."""
    return EventStream("bots", LOGINS, "failed", 0.0, keys=ATTACKED_ACCOUNTS, when_throttled="ignore")


def is_attack_due(seconds: float) -> bool:
    """Return whether the bots attack at this time, in seconds since the start."""
    return ATTACK_BEGINS <= seconds % DAY_SECONDS < ATTACK_ENDS


def compute_attack_rate(snapshot: Snapshot) -> float:
    """Return the failed logins per second that overload the application; 0 while it is not known."""
    row = snapshot.pipeline.applications.get(APPLICATION)
    operator = row.operators.get(OPERATOR) if row else None
    if row is None or operator is None:
        return 0.0
    seconds = sum(row.patterns[name].seconds or 0.0 for name in operator.patterns)
    if not seconds:
        return 0.0
    return min(max(OVERLOAD * operator.parallelism / seconds, MIN_ATTACK_PER_SECOND), MAX_ATTACK_PER_SECOND)


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
        alerts.define_rule(actor, SHEDDING.name, {"severity": SHEDDING_SEVERITY}, reason=REASON, now=now)
    if not PipelineVersion.objects.filter(application=APPLICATION).exists():
        pipelines.declare(actor, build_declaration(choose_grades()), REASON, server)


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


class Attack:
    """Follows the speed of the host during an attack, and calms the bots after it."""

    def __init__(self, stream: EventStream, control_server: redis.Redis) -> None:
        self._stream, self._control = stream, control_server

    def step(self, seconds: float) -> None:
        if not is_attack_due(seconds):
            self._stream.calm()
        elif stored := self._control.get(keys.SNAPSHOT):
            self._stream.per_second = compute_attack_rate(Snapshot.from_json(stored)) or self._stream.per_second


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
        bots = build_attack()
        attack = Attack(bots, control())
        with StreamPublisher(settings.REDIS_URL, [*build_streams(), bots]) as publisher:

            def step() -> None:
                attack.step(publisher.seconds)
                starter.step()

            repeat_until_stopped(stop, CHECK_SECONDS, step, "The shop can't be steered")
