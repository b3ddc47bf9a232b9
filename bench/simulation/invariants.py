"""The promises that every run is checked for, by Weir's records and by what was observed outside of Weir.

`check` runs every few virtual seconds; `list_unhealed` once the faults are over, until nothing is left or the time for
the recovery is over. Each violation is one sentence.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from bench.simulation.errors import describe_error
from bench.simulation.names import QUEUES, SHOP_QUEUE
from bench.simulation.plant import Installation
from queues import keys, pausing
from queues.lua.script import load_script
from queues.models import Container, Node, TopologyRevision
from queues.topology import Topology
from workers.alerts.lifecycle.automaton import FLAPS
from workers.alerts.lifecycle.models import Alert, AlertWatch, Delivery, Message
from workers.control.engine import compute_min_seconds
from workers.models import LedgerEntry, Loop, Override, Plan
from workers.placement import plans
from workers.retries.items import build_new_id, decode_items
from workers.retries.models import RetryPlan
from workers.retries.plans import ACTIVE

TOTAL_POINTS = 1000
# An override that a person ended may still be read by a tick that began before.
READ_SECONDS = 60.0
MAX_PLAN_SECONDS = 150.0
NODE_LOST, END_SECONDS = "node-lost", 60.0
# A step that was complete may transfer again: an event arrived late.
STEP_ORDER = {"pending": 0, "moved": 1, "transferring": 1, "done": 1}
ENDED = (Plan.State.DONE, Plan.State.STOPPED, Plan.State.FAILED, Plan.State.VOID, Plan.State.REJECTED)
LEASE_PREFIX = keys.LEASE.build("")
ACQUIRE = load_script("lease/acquire").encode()


class LeaseRecord:
    """Every number that a control server has granted under a lease, and who got it."""

    def __init__(self) -> None:
        self.granted: dict[str, dict[int, str]] = {}
        self.last: dict[tuple[str, str], float] = {}

    def note(self, words: Sequence[bytes], reply: object, process: str, at: float) -> None:
        """Note the reply of the script that acquires leases."""
        if words[0].upper() != b"EVAL" or words[1] != ACQUIRE or not isinstance(reply, list):
            return
        for place, number in enumerate(reply):
            name = words[3 + 2 * place].decode().removeprefix(LEASE_PREFIX)
            if number:
                self.granted.setdefault(name, {})[int(number)] = process
                self.last[name, process] = at

    def is_granted(self, name: str, fence: int) -> bool:
        return fence in self.granted.get(name, {})


class Invariants:
    """The checks of one run. violations: what was found, each once."""

    def __init__(self, plant: Installation) -> None:
        self._plant, self.violations = plant, list[str]()
        self.leases = LeaseRecord()
        self._entry = 0
        self._fences: dict[int, int] = {}
        # loop → time and mode of its last decision, and a virtual time before it was recorded
        self._decided: dict[int, tuple[datetime, str, float]] = {}
        self._checked_at = 0.0
        self._progress: dict[int, list[tuple[int, int]]] = {}
        self._ended: dict[int, str] = {}
        self._recovery_fence = self._alert_fence = self._revision = 0
        self.clock_stepped_at = 0.0

    @property
    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._plant.scheduler.now, UTC)

    def check(self) -> None:
        """Check what has to be true at every instant."""
        for problem in self._iterate_problems():
            if problem not in self.violations:
                self.violations.append(problem)
        self._checked_at = self._plant.scheduler.now

    def list_unhealed(self) -> list[str]:
        """Return what is not yet as it has to be again after the faults."""
        return list(self._iterate_unhealed())

    def _iterate_problems(self) -> Iterator[str]:
        yield from self._plant.seen.problems
        yield from (f"{name} ended with {describe_error(error)}" for name, error in self._plant.scheduler.errors)
        yield from self._check_ledger()
        yield from self._check_workers()
        yield from self._check_retries()
        yield from self._check_points()
        yield from self._check_plans()
        yield from self._check_fences()
        yield from self._check_messages()

    def _check_ledger(self) -> Iterator[str]:
        """No two ticks decide for one interval, each under a number of its own, and none by an ended override."""
        rows = LedgerEntry.objects.filter(pk__gt=self._entry).order_by("pk").select_related("loop")
        for entry in rows.only(
            "pk",
            "at",
            "fence",
            "mode",
            "reason",
            "loop__id",
            "loop__name",
            "loop__mode",
            "loop__interval_seconds",
            "loop__target",
        ):
            loop, before = entry.loop, self._fences.get(entry.loop_id)
            if before is not None and entry.fence <= before:
                yield f"{loop.name} was ticked under the number {entry.fence} after {before}."
            if not self.leases.is_granted(f"loop:{loop.pk}", entry.fence):
                yield f"{loop.name} was ticked under the number {entry.fence}, which no lease had."
            decided_at, mode, recorded_after = self._decided.get(loop.pk, (None, "", 0.0))
            # A loop whose hold has ended decides at once.
            if decided_at is not None and mode not in Loop.HANDED_OVER and not self._has_stepped_clock():
                since = abs((entry.at - decided_at).total_seconds())
                is_early = since < compute_min_seconds(loop.interval_seconds) - 1e-3
                # The remedy ladder may request one decision at once.
                if is_early and self._plant.seen.requested.pop(loop.name, -1.0) < recorded_after:
                    yield f"{loop.name} decided twice within {loop.interval_seconds} s ({decided_at}, {entry.at})."
            if why := self._explain_outlived(entry, loop):
                yield why
            self._entry, self._fences[loop.pk] = entry.pk, entry.fence
            self._decided[loop.pk] = entry.at, entry.mode, self._checked_at

    def _explain_outlived(self, entry: LedgerEntry, loop: Loop) -> str:
        """Return how a tick used an override that had ended; "" if it did not."""
        if entry.mode == loop.mode or "on hold, " in entry.reason or self._has_stepped_clock():
            return ""
        since = entry.at - timedelta(seconds=READ_SECONDS)
        rows = Override.objects.filter(loop=loop, name="mode", value=entry.mode)
        if any(
            (row.expires_at is None or row.expires_at > entry.at) and (row.ended_at is None or row.ended_at >= since)
            for row in rows
        ):
            return ""
        return f"{loop.name} ran in mode {entry.mode} at {entry.at}, which no override in force says."

    def _has_stepped_clock(self) -> bool:
        """Return whether two times may be by two clocks that differ."""
        return self._plant.scheduler.now - self.clock_stepped_at < READ_SECONDS

    def _check_retries(self) -> Iterator[str]:
        for task, count in self._plant.seen.retried.items():
            if count > 1:
                yield f"The retried task {task} was sent {count} times."

    def _check_retry_plans(self) -> Iterator[str]:
        """A plan that is done has sent all of its tasks."""
        arrived = set(self._plant.seen.retried)
        arrived |= {
            json.loads(text)["headers"]["id"] for text in self._plant.broker.ask("LRANGE", SHOP_QUEUE, "0", "-1")
        }
        for plan in RetryPlan.objects.filter(state=RetryPlan.State.DONE):
            created_at = plan.created_at.timestamp()
            ids = {build_new_id(plan.pk, created_at, item.id) for item in decode_items(plan.items)}
            if missing := len(ids - arrived):
                yield f"Retry plan {plan.pk} is done, and {missing} of its {plan.total} tasks were never sent."
        for plan in RetryPlan.objects.filter(state__in=ACTIVE):
            age = (self._now - plan.created_at).total_seconds()
            if age > MAX_PLAN_SECONDS and plan.sent < plan.total:
                state = f"{plan.state}, has sent {plan.sent} of {plan.total} tasks ({plan.note})"
                yield f"Retry plan {plan.pk} is {state} after {age:.0f} s."

    def _check_workers(self) -> Iterator[str]:
        for worker, count in self._plant.seen.started.items():
            if count > 1:
                yield f"Worker {worker} began its work {count} times."

    def _check_points(self) -> Iterator[str]:
        sums: Counter[str] = Counter()
        for queue, points in Container.objects.values_list("queue__name", "points"):
            sums[queue] += points
        for queue, total in sums.items():
            if total != TOTAL_POINTS:
                yield f"The points of {queue} sum to {total}."
        revision = TopologyRevision.objects.values_list("number", flat=True).first() or 0
        if revision < self._revision:
            yield f"The topology's revision fell from {self._revision} to {revision}."
        self._revision = revision

    def _check_plans(self) -> Iterator[str]:
        """Each step of a plan is made once, and an ended plan stays as it ended."""
        for plan in Plan.objects.filter(pk__gt=max(self._ended, default=0) - 50).only(
            "pk", "state", "progress", "moves", "fence"
        ):
            steps = [(STEP_ORDER.get(step["state"], 0), int(step["points_moved"])) for step in plan.progress]
            before = self._progress.get(plan.pk, [(0, 0)] * len(steps))
            if any(new < old or moved < had for (new, moved), (old, had) in zip(steps, before, strict=True)):
                yield f"Plan {plan.pk} took a step back: {before} → {steps}."
            if any(moved not in (0, move["points"]) for (_, moved), move in zip(steps, plan.moves, strict=True)):
                yield f"Plan {plan.pk} moved other points than it says: {steps}."
            ended = self._ended.get(plan.pk)
            if (
                ended is not None
                and plan.state != ended
                and (ended, plan.state) != (Plan.State.DONE, Plan.State.ROLLED_BACK)
            ):
                yield f"Plan {plan.pk} was {ended} and is {plan.state}."
            if plan.fence and not self.leases.is_granted(f"plan:{plan.pk}", plan.fence):
                yield f"Plan {plan.pk} was advanced under the number {plan.fence}, which no lease had."
            self._progress[plan.pk] = steps
            if plan.state in ENDED:
                self._ended[plan.pk] = plan.state

    def _check_fences(self) -> Iterator[str]:
        recovery = TopologyRevision.objects.values_list("recovery_fence", flat=True).first() or 0
        alerts = AlertWatch.objects.values_list("fence", flat=True).first() or 0
        for what, name, before, fence in (
            ("recovery", "recovery", self._recovery_fence, recovery),
            ("alerter", "alerter", self._alert_fence, alerts),
        ):
            if fence < before:
                yield f"The number of the {what} fell from {before} to {fence}."
            if fence and not self.leases.is_granted(name, fence):
                yield f"The {what} wrote under the number {fence}, which no lease had."
        self._recovery_fence, self._alert_fence = recovery, alerts

    def _check_messages(self) -> Iterator[str]:
        """One message starts an alert at a receiver, and each that arrives was recorded before."""
        delivered = self._plant.seen.delivered
        known = set(Message.objects.values_list("key", flat=True)) if delivered else set()
        for message in delivered:
            if message.key not in known:
                yield f"A message arrived that is not recorded: {message.key}."
        columns = "alert_id", "receiver_id", "kind", "round", "step"
        rows = Delivery.objects.exclude(state=Delivery.State.DROPPED).values_list(*columns)
        for row, count in Counter(rows).items():
            if count > 1:
                yield f"{count} deliveries for alert {row[0]}, {row[2]}, round {row[3]}, step {row[4]}."

    def _iterate_unhealed(self) -> Iterator[str]:
        now = self._now
        for loop in Loop.objects.exclude(target__has_key="retired_at"):
            late = None if loop.ticked_at is None else (now - loop.ticked_at).total_seconds()
            if late is None or late > 3 * loop.interval_seconds + 5:
                yield f"{loop.name} has not ticked for {late} s after the faults."
        for plan in Plan.objects.filter(state__in=plans.BEING_EXECUTED):
            age = (now - (plan.started_at or plan.created_at)).total_seconds()
            if age > 90:
                yield f"Plan {plan.pk} is still {plan.state} after {age:.0f} s: {plan.note}"
        yield from self._check_retry_plans()
        yield from self._check_projection()
        yield from self._check_pauses(now)
        lost = sorted(set(self._plant.seen.published) - self._plant.seen.handled.keys() - self._list_stored_blocks())
        if lost:
            yield f"{len(lost)} acknowledged blocks are lost, such as {lost[0]}."

    def _check_projection(self) -> Iterator[str]:
        stored = self._plant.control.ask("GET", keys.TOPOLOGY)
        if stored is None:
            yield "The control server has no topology after the faults."
            return
        revision = Topology.from_json(stored).revision
        number = TopologyRevision.objects.values_list("number", flat=True).first()
        if revision != number:
            yield f"The control server has revision {revision} of the topology; the database has {number}."

    def _check_pauses(self, now: datetime) -> Iterator[str]:
        rows = Override.objects.filter(name__in=pausing.PARTS, ended_at=None, expires_at__gt=now)
        allowed = {keys.PAUSE.build(row.queue, row.name) for row in rows}
        wanted = {
            keys.PAUSE.build(row.queue, row.name) for row in rows.filter(expires_at__gt=now + timedelta(seconds=1))
        }
        for queue in QUEUES:
            for part in pausing.PARTS:
                key = keys.PAUSE.build(queue, part)
                there = bool(self._plant.control.ask("EXISTS", key))
                if there and key not in allowed:
                    yield f"{key} outlives its override."
                if key in wanted and not there:
                    yield f"{key} is missing, though its override is in force."

    def _list_stored_blocks(self) -> set[str]:
        """Return the ids of the blocks that are on a node."""
        stored: set[str] = set()
        for server in self._plant.nodes.values():
            for queue in QUEUES:
                for _, fields in server.ask("XRANGE", keys.SEGMENT.build(queue), "-", "+"):
                    stored.add(fields[fields.index(b"i") + 1].decode())
        return stored

    def check_lost(self, node: str) -> None:
        """Check that the alert of a node that has been lost for a while fires, and was delivered."""
        if Node.objects.filter(name=node, drained=True).exists():
            return  # it was stopped on purpose
        alerts = [alert for alert in _list_open_alerts() if alert.labels.get("node") == node]
        if not any(alert.state in (Alert.State.FIRING, Alert.State.ACKNOWLEDGED) for alert in alerts):
            self.violations.append(f"No alert fires for the lost node {node}.")
        for alert in alerts:
            if alert.under_id is None and not alert.explanation and not self._list_deliveries(alert.pk, "firing"):
                self.violations.append(f"The alert of the lost node {node} did not reach its receiver.")

    def check_returned(self, node: str) -> None:
        """Check that the alert of a node ends after its return, and that receivers of its start also get its end."""
        for alert in _list_open_alerts():
            if alert.labels.get("node") == node and alert.came_back < FLAPS:
                self.violations.append(f"The alert of {node} is {alert.state} after the node's return.")
        until = self._now - timedelta(seconds=END_SECONDS)
        # The end of an incident waits for its members, which stay for some minutes.
        leading = Alert.objects.filter(resolved_at=None).exclude(under=None).values("under")
        for alert in Alert.objects.filter(resolved_at__lt=until, under=None).exclude(pk__in=leading):
            started, ended = (self._list_deliveries(alert.pk, kind) for kind in ("firing", "resolved"))
            if started and (not ended or max(ended) < max(started)):
                self.violations.append(f"The end of alert {alert.pk} ({alert.title}) did not reach its receiver.")

    def _list_deliveries(self, alert: int, kind: str) -> list[float]:
        """Return when messages about an alert arrived."""
        delivered = self._plant.seen.delivered
        return [
            message.at
            for message in delivered
            if message.kind == kind and any(row["id"] == alert for row in message.alerts)
        ]


def _list_open_alerts() -> list[Alert]:
    return list(Alert.objects.filter(rule_name=NODE_LOST, resolved_at=None))
