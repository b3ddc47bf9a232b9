"""The readiness of the plant: each part with its age, and whether it is needed."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import redis
from django.db import DatabaseError, connection
from django.db.models import Max, Min

from console.connections.control_server import control, load_latest_snapshot
from queues.nodes.node_state import SILENT
from workers.alerts.lifecycle.models import AlertRule, AlertWatch
from workers.batch.task_managers import ROLE_OF
from workers.documents.hosts import HostStatus
from workers.documents.nodes import NodeStatus
from workers.documents.pipeline import PipelineStatus
from workers.documents.snapshot import NOTHING_SEEN, Snapshot
from workers.models import Task
from workers.steering.scope import list_active_loops

OBSERVER_SECONDS = 5.0
HOST_SECONDS = 10.0
PIPELINE_SECONDS = 15.0
ALERTER_SECONDS = 30.0
BEAT_INTERVALS, BEAT_SECONDS = 6, 12.0  # time without ticks after which the clock counts as stopped
NO_SNAPSHOT = "no snapshot that this version can read; start this version's manage.py observe"
ROLES = ("control", "jobs")  # and the roles that scheduled tasks need
RETAINED_SECONDS = 1.0  # anybody may ask, and each answer takes queries


@dataclass(frozen=True)
class ReadinessPart:
    """One part: `age_seconds` since it was last heard (None: never, or it has no age)."""

    ok: bool
    age_seconds: float | None
    message: str

    def document(self, in_words: bool) -> dict[str, Any]:
        """Return the part as JSON, with its message only if `in_words`. Errors name addresses and versions."""
        age = None if self.age_seconds is None else round(self.age_seconds, 1)
        document = {"ok": self.ok, "age_seconds": age}
        return {**document, "message": self.message} if in_words else document


class SharedReadiness:
    """The result of `find`, read once in RETAINED_SECONDS for all callers; concurrent callers wait for it."""

    def __init__(
        self,
        find: Callable[[datetime], dict[str, ReadinessPart]],
        clock: Callable[[], float] = time.monotonic,
        retained_seconds: float | None = None,
    ) -> None:
        self._find, self._clock, self._retained_seconds = find, clock, retained_seconds
        self._lock = threading.Lock()
        self._found: tuple[float, dict[str, ReadinessPart]] | None = None

    def list_parts(self, now: datetime) -> dict[str, ReadinessPart]:
        """Return every part as it was within the last RETAINED_SECONDS."""
        with self._lock:
            retained_seconds = RETAINED_SECONDS if self._retained_seconds is None else self._retained_seconds
            if self._found is None or self._clock() - self._found[0] >= retained_seconds:
                self._found = (self._clock(), self._find(now))
            return self._found[1]


def check_parts(now: datetime) -> dict[str, ReadinessPart]:
    """Return every part that this plant needs; it is ready if all are ok."""
    snapshot = load_latest_snapshot()
    seen = snapshot or NOTHING_SEEN
    checks = {
        "database": _check_database(),
        "control": _control(),
        "observer": _check_observer(snapshot, now.timestamp()),
        "nodes": _check_nodes(seen.nodes),
    }
    roles = {*ROLES, *(_list_scheduled_roles() if checks["database"].ok else ())}
    checks |= {f"workers.{role}": _check_workers(role, seen.hosts.values()) for role in sorted(roles)}
    if checks["database"].ok:
        checks |= _beat(now) | _check_alerter(now)
    if any(queue.kind == "pipeline" for queue in seen.queues.values()):
        checks["pipeline"] = _check_pipeline(seen.pipeline)
    return checks


def _check_database() -> ReadinessPart:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        return ReadinessPart(False, None, f"is not responding: {error}")
    return ReadinessPart(True, 0.0, "answers")


def _control() -> ReadinessPart:
    try:
        control().ping()
    except redis.RedisError as error:
        return ReadinessPart(False, None, f"is not responding: {error}")
    return ReadinessPart(True, 0.0, "answers")


def _check_observer(snapshot: Snapshot | None, now_seconds: float) -> ReadinessPart:
    if snapshot is None or snapshot.at is None:
        return ReadinessPart(False, None, NO_SNAPSHOT)
    age_seconds = max(0.0, now_seconds - snapshot.at)
    return _check_age(age_seconds, OBSERVER_SECONDS, "observes")


def _check_nodes(nodes: Mapping[str, NodeStatus]) -> ReadinessPart:
    """Return the part of the nodes: one reachable node is enough to accept events. The message counts them."""
    online = [node for node in nodes.values() if node.state not in SILENT]
    age_seconds = max((node.age_seconds for node in online if node.age_seconds is not None), default=None)
    return ReadinessPart(bool(online), age_seconds, f"{len(online)} of {len(nodes)} online")


def _check_workers(role: str, hosts: Iterable[HostStatus]) -> ReadinessPart:
    ages = [host.age_seconds for host in hosts if host.role == role and host.age_seconds is not None]
    if not ages:
        return ReadinessPart(False, None, f"no worker host of role {role} has reported")
    return _check_age(min(ages), HOST_SECONDS, "reports")


def _list_scheduled_roles() -> set[str]:
    """Return the roles of separate workers that scheduled tasks need; without them runs wait unnoticed."""
    due = Task.objects.filter(enabled=True, periodic__enabled=True)
    needed = {role_name for row in due.values_list("requirements", flat=True) for role_name in row}
    return {role for requirement, role in ROLE_OF.items() if requirement in needed}


def _beat(now: datetime) -> dict[str, ReadinessPart]:
    """Return the part of the clock, judged by the newest tick of any loop. The most frequent loop sets the limit."""
    newest = list_active_loops().aggregate(newest=Max("ticked_at"), interval=Min("interval_seconds"))
    if newest["interval"] is None:
        return {}
    if newest["newest"] is None:
        return {"beat": ReadinessPart(False, None, "no loop has run yet")}
    # The absolute distance: after the clock was set back, an earlier tick is no sign of life.
    age_seconds = abs((now - newest["newest"]).total_seconds())
    return {"beat": _check_age(age_seconds, max(BEAT_INTERVALS * newest["interval"], BEAT_SECONDS), "ticks")}


def _check_alerter(now: datetime) -> dict[str, ReadinessPart]:
    """Return the part of the alerter, which is needed if there is a rule to evaluate."""
    if not AlertRule.objects.filter(enabled=True).exists():
        return {}
    watch = AlertWatch.objects.exclude(looked_at=None).first()
    if watch is None or watch.looked_at is None:
        return {"alerter": ReadinessPart(False, None, "has not evaluated any rules yet; start manage.py alert")}
    age_seconds = max(0.0, (now - watch.looked_at).total_seconds())
    return {"alerter": _check_age(age_seconds, ALERTER_SECONDS, "checks")}


def _check_pipeline(pipeline: PipelineStatus) -> ReadinessPart:
    if pipeline.age_seconds is None:
        return ReadinessPart(False, None, "has not reported; start workers.pipeline.runtime.application")
    if pipeline.state != "running":
        return ReadinessPart(False, pipeline.age_seconds, pipeline.error or f"is {pipeline.state}")
    return _check_age(pipeline.age_seconds, PIPELINE_SECONDS, "runs")


def _check_age(age_seconds: float, limit_seconds: float, does: str) -> ReadinessPart:
    if age_seconds <= limit_seconds:
        return ReadinessPart(True, age_seconds, does)
    return ReadinessPart(False, age_seconds, f"no report for {age_seconds:.0f} s, limit {limit_seconds:.0f} s")


SHARED = SharedReadiness(check_parts)  # one for each process
