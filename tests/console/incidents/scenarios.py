"""Seeded incidents on synthetic records of a plant: its rows in the database as the console writes them, its
snapshots in memory, a cause that is known, and what else happened. No plant runs.

A scenario draws: the plant's month of changes before, its last three hours with innocent changes and actions of loops,
earlier incidents with what came before them, the cause, where it shows and after how long.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from django.contrib.auth.models import User

from console.models import AuditEntry, Mark
from queues.models import Node
from tests.workers.snapshots import snapshot_of
from workers.alerts.lifecycle.models import Alert, Incident
from workers.models import LedgerEntry, Loop, Override, PipelineVersion, Plan

ONSET = datetime(2026, 11, 20, 3, 0, tzinfo=UTC)
QUEUES = {"orders": "pipeline", "payments": "pipeline", "clicks": "pipeline", "alert": "jobs", "audit": "jobs"}
PLACES = {"orders": "n1 n2", "payments": "n2 n3", "clicks": "n3 n4", "alert": "n1 n4", "audit": "n2"}
READS = {"fraud": ("orders", "payments"), "visits": ("clicks",)}
SINKS = {"fraud": {"suspicion": ["alert"]}, "visits": {"visit": ["audit"]}}
PRODUCERS = {"shop": "orders", "bank": "payments", "web": "clicks", "batch": "audit", "desk": "alert"}
HOSTS = ("jobs@h1", "jobs@h2")
BACKGROUND_KINDS = ("override", "deploy", "declaration", "setting", "plan", "queue")
Write = Callable[["World", datetime], str]


@dataclass
class World:
    """One scenario while it is made. gone, rates: what snapshots show from an instant on."""

    draw: random.Random
    owner: User
    gone: dict[str, datetime] = field(default_factory=dict)  # part → since when
    rates: dict[str, tuple[datetime, float]] = field(default_factory=dict)  # producer → since when, events/s
    restarted: dict[str, datetime] = field(default_factory=dict)
    sequence: int = 0

    def snapshot(self, data, at):
        """In place of `workers.history.snapshot_archive.snapshot_at`."""
        moment = datetime.fromtimestamp(at, UTC)

        def is_gone(part):
            return part in self.gone and moment >= self.gone[part]

        nodes = {
            name: {"state": "OFFLINE", "stale": True} if is_gone(f"node/{name}") else {"state": "NORMAL"}
            for name in ("n1", "n2", "n3", "n4")
        }
        producers = {
            name: {"in_per_second": self._rate(name, moment), "queues": {queue: 1.0}, "age_seconds": 1.0}
            for name, queue in PRODUCERS.items()
        }
        queues = {
            name: {"kind": kind, "in_per_second": 50.0, "containers": {node: {} for node in PLACES[name].split()}}
            for name, kind in QUEUES.items()
        }
        applications = {
            name: {
                "state": "running",
                "queues": list(reads),
                "sinks": SINKS[name],
                "restarts": {"count": int(name in self.restarted and moment >= self.restarted[name])},
            }
            for name, reads in READS.items()
        }
        hosts = {
            name: {"role": "jobs", "slots": 4, "age_seconds": 120.0 if is_gone(f"host/{name}") else 1.0}
            for name in HOSTS
        }
        loops = {loop.name: {"law": loop.law, "target": loop.target} for loop in Loop.objects.all()}
        return snapshot_of(
            {
                "at": at, "nodes": nodes, "producers": producers, "queues": queues, "hosts": hosts, "loops": loops,
                "pipeline": {"state": "running", "applications": applications},
            },
        )  # fmt: skip

    def _rate(self, name, moment):
        since, rate = self.rates.get(name, (ONSET, 100.0))
        return rate if moment >= since else 100.0


@dataclass(frozen=True)
class Scenario:
    """causes: the refs, of which each must be found; labels: of the alert; delay_seconds: the longest of a
    cause.
    """

    name: str
    alert: Alert
    world: World
    causes: tuple[str, ...]


def loops():
    """Of the plant's laws, as they are named."""
    rows = [("flow", {"application": name}, f"flow/{name}") for name in READS]
    rows += [("rebalancing", {}, "rebalancing")]
    for queue, kind in QUEUES.items():
        rows.append(("ladder", {"queue": queue}, f"ladder/{queue}"))
        if kind == "jobs":
            for node in PLACES[queue].split():
                rows.append(("worker_rate", {"queue": queue, "node": node}, f"worker_rate/{queue}/{node}"))
    Loop.objects.bulk_create(Loop(name=name, law=law, target=target) for law, target, name in rows)


def override(world, at, loop=""):
    found = Loop.objects.get(name=loop) if loop else world.draw.choice(list(Loop.objects.order_by("pk")))
    name = world.draw.choice(("upper_limit", "start", "mode", "setpoint"))
    made = Override.objects.create(
        loop=found, name=name, value=1, owner=world.owner, reason="a reason", created_at=at,
        expires_at=at + timedelta(hours=world.draw.choice((1, 8, 24))),
    )  # fmt: skip
    return f"override:{made.pk}"


def deploy(world, at, *parts):
    world.sequence += 1
    made = Mark.objects.create(kind="deploy", title=f"release {world.sequence}", at=at, author="ci", parts=list(parts))
    return f"mark:{made.pk}"


def declaration(world, at, application=""):
    application = application or world.draw.choice(list(READS))
    number = PipelineVersion.objects.filter(application=application).count() + 1
    PipelineVersion.objects.create(
        application=application, number=number, text="…", reason="a reason", owner=world.owner, created_at=at
    )
    return f"declaration:{application}:{number}"


def audited(world, at, action, target, before=1, after=2):
    world.sequence += 1
    made = AuditEntry.objects.create(
        sequence=world.sequence, previous="", digest=str(world.sequence), at=at, actor="operator", action=action,
        target=target, before=before, after=after,
    )  # fmt: skip
    return f"audit:{made.pk}"


def setting(world, at):
    return audited(world, at, "settings.change", "quota.events_per_second")


def queue_change(world, at, queue=""):
    return audited(world, at, "queue.change", queue or world.draw.choice(list(QUEUES)), {}, {})


def plan(world, at, queue=""):
    queue = queue or world.draw.choice(list(QUEUES))
    here = PLACES[queue].split()
    made = Plan.objects.create(
        kind="rebalance", state="done", title="moves points", reason="",
        moves=[{"queue": queue, "from": here[0], "to": here[-1], "points": 200}], base={}, base_revision=1,
        hash="0" * 64, owner=world.owner, created_at=at, started_at=at, expires_at=at + timedelta(hours=1),
    )  # fmt: skip
    return f"plan:{made.pk}"


INNOCENT = {
    "override": override, "deploy": deploy, "declaration": declaration, "setting": setting, "plan": plan,
    "queue": queue_change,
}  # fmt: skip


def background(world):
    """A month as a busy plant has it (about two changes a day), three hours with four to sixteen innocent
    changes (far more than usual), the half of them within the last, and loops that act all the time.
    """
    for _ in range(world.draw.randint(40, 70)):
        ago = timedelta(hours=world.draw.uniform(4, 30 * 24))
        INNOCENT[world.draw.choice(BACKGROUND_KINDS)](world, ONSET - ago)
    for _ in range(world.draw.randint(4, 16)):
        ago = timedelta(minutes=world.draw.uniform(0.2, world.draw.choice((55, 175))))
        INNOCENT[world.draw.choice(BACKGROUND_KINDS)](world, ONSET - ago)
    if world.draw.random() < 0.3:  # a producer elsewhere becomes busy
        ago = timedelta(minutes=world.draw.uniform(5, 170))
        world.rates[world.draw.choice(("web", "batch"))] = (ONSET - ago, 260.0)
    entries = []
    for loop in Loop.objects.all():
        for hours in range(24):
            at = ONSET - timedelta(minutes=60 * hours + world.draw.uniform(0.2, 40))
            entries.append(
                LedgerEntry(
                    loop=loop, at=at, mode="auto", parameters={}, action={"start": 1}, acted=True,
                    reason="acts", verdict=world.draw.choice(("effective", "ineffective", "effective")),
                )
            )  # fmt: skip
    LedgerEntry.objects.bulk_create(entries)


def earlier_incidents(world, condition, kind):
    """Up to eight of this condition: half of them after a change of the cause's kind, all with others."""
    for at in range(world.draw.randint(0, 8)):
        kinds = {world.draw.choice(("deploy", "override start", "queue.change", "loop flow", "loop ladder"))}
        if world.draw.random() < 0.5:
            kinds.add(kind)
        began = ONSET - timedelta(days=at + 1)
        made = an_alert(condition, {"queue": "orders"}, began, resolved=began + timedelta(minutes=9))
        kept = [{"kind": each, "steps": 1, "at": began.isoformat(), "ref": ""} for each in sorted(kinds)]
        Incident.objects.create(alert=made, changes=kept, changes_at=began)


def an_alert(condition, labels, began, resolved=None):
    return Alert.objects.create(
        rule_name="a-rule", condition=condition, fingerprint=f"{condition}{labels}{began}", labels=labels,
        severity="warning", title=f"{condition} {labels}", threshold=1.0,
        state="resolved" if resolved else "firing", began_at=began, fired_at=began + timedelta(seconds=30),
        resolved_at=resolved,
    )  # fmt: skip


def _wild(world, at):
    world.rates["shop"] = (at, world.draw.choice((300.0, 900.0)))
    return "part:producer/shop"


def _node_dies(world, at):
    world.gone["node/n2"] = at
    return "part:node/n2"


def _host_leaves(world, at):
    world.gone["host/jobs@h1"] = at
    return "part:host/jobs@h1"


def _restarts(world, at):
    world.restarted["fraud"] = at
    return "part:application/fraud"


def _harmful(world, at):
    loop = Loop.objects.get(name="ladder/orders")
    made = LedgerEntry.objects.create(
        loop=loop, at=at, mode="auto", parameters={}, action={"level": 3}, acted=True, reason="acts",
        verdict="harmful",
    )  # fmt: skip
    return f"entry:{made.pk}"


@dataclass(frozen=True)
class Cause:
    """kind: as it is counted; delay: of the onset, seconds from and to; shows: condition, labels."""

    write: Write
    kind: str
    delay: tuple[float, float]
    shows: tuple[tuple[str, dict[str, str]], ...]


WAITS = "queue_wait"
CAUSES = {
    "a bad deploy of an application": Cause(
        lambda world, at: deploy(world, at, "application/fraud"), "deploy", (60, 1_800),
        ((WAITS, {"queue": "orders"}), ("pipeline_lag", {"pipeline": "pipeline"})),
    ),
    "a bad deploy that names nothing": Cause(
        deploy, "deploy", (60, 1_200), ((WAITS, {"queue": "orders"}), ("queue_latency", {"queue": "alert"}))
    ),
    "a producer gone wild": Cause(_wild, "producer rose", (20, 240), ((WAITS, {"queue": "orders"}),)),
    "a slow handler": Cause(
        lambda world, at: queue_change(world, at, "alert"), "queue.change", (30, 900),
        ((WAITS, {"queue": "alert"}), ("queue_latency", {"queue": "alert"})),
    ),
    "a dying node": Cause(
        _node_dies, "node left", (10, 60), ((WAITS, {"queue": "orders"}),)
    ),
    "a wrong override": Cause(
        lambda world, at: override(world, at, "worker_rate/alert/n1"), "override start", (20, 600),
        ((WAITS, {"queue": "alert"}), ("workers_saturated", {"queue": "alert"})),
    ),
    "a bad declaration": Cause(
        lambda world, at: declaration(world, at, "fraud"), "declaration", (30, 1_200),
        ((WAITS, {"queue": "payments"}), ("pipeline_lag", {"pipeline": "pipeline"})),
    ),
    "a plan onto a weak node": Cause(
        lambda world, at: plan(world, at, "clicks"), "plan rebalance", (60, 900),
        ((WAITS, {"queue": "clicks"}), ("node_toobusy", {"node": "n4"})),
    ),
    "a setting": Cause(setting, "settings.change", (20, 600), ((WAITS, {"queue": "audit"}),)),
    "a worker host gone": Cause(_host_leaves, "host left", (20, 120), ((WAITS, {"queue": "audit"}),)),
    "an application that restarts": Cause(
        _restarts, "application restarted", (10, 90), (("pipeline_lag", {"pipeline": "pipeline"}),)
    ),
    "a loop that does harm": Cause(_harmful, "harmful ladder", (10, 120), ((WAITS, {"queue": "orders"}),)),
}  # fmt: skip
TWO_AT_ONCE = (("a producer gone wild", "a bad deploy of an application"), ("a dying node", "a bad declaration"))


def scenario(seed, owner):
    """The seed decides all of it; its cause is the next of CAUSES, every seventh time two at once."""
    draw = random.Random(seed)
    world = World(draw, owner)
    loops()
    for name in ("n1", "n2", "n3", "n4"):
        Node.objects.create(name=name, url=f"redis://{name}")
    background(world)
    names = TWO_AT_ONCE[seed % 2] if seed % 7 == 6 else (list(CAUSES)[seed % len(CAUSES)],)
    condition, labels = draw.choice(CAUSES[names[0]].shows) if len(names) == 1 else (WAITS, {"queue": "orders"})
    earlier_incidents(world, condition, CAUSES[names[0]].kind)
    causes = []
    for name in names:
        cause = CAUSES[name]
        causes.append(cause.write(world, ONSET - timedelta(seconds=draw.uniform(*cause.delay))))
    return Scenario(" and ".join(names), an_alert(condition, labels, ONSET), world, tuple(causes))
