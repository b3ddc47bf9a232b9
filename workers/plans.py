"""A plan's life: proposed, shown, approved by its hash, executed (`workers.execution`), stopped, rolled back.

    proposed → approved → running → done → rolled-back
             ↘ rejected          ↘ stopped, failed
             ↘ void (expired, or the plant has drifted away from what it was computed for)

Whoever approves has seen a hash: SHA-256 over the moves and the revision they were computed from. Nothing
else is ever executed under it. Every function here that refuses raises `BadInput` naming the field and
changes nothing. `user` is None where a loop acts; `snapshot` is the newest one (`PublishedPlant.observe`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import redis
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import Q, QuerySet

from controllers import catalog, request
from queues import points as thousand
from queues import projection
from queues.errors import BadInput
from queues.models import Node
from queues.topology import Topology
from workers import forecast, moves, overrides, plant_settings, sensors
from workers.models import LedgerEntry, Loop, Plan
from workers.moves import Move

REBALANCING = "rebalancing"
OPEN = (Plan.State.PROPOSED, Plan.State.APPROVED, Plan.State.RUNNING)
ENDED_WITH_MOVES = (Plan.State.DONE, Plan.State.STOPPED, Plan.State.FAILED)
GOALS = {"below-busy": Plan.Kind.REBALANCE, "band": Plan.Kind.BAND}
User = AbstractBaseUser | None
Snapshot = Mapping[str, Any]


def propose_rebalance(goal: str, user: User, *, snapshot: Snapshot, now: datetime, reason: str = "") -> Plan:
    """A plan for a goal of the rebalancing law: "below-busy", or "band" ("balance now").

    Raises `BadInput` for another goal, on measurements that can't be used, and when there is nothing to move.
    """
    if goal not in GOALS:
        raise BadInput("goal", f"takes {' or '.join(GOALS)}, not {goal!r}.")
    decision = _decision(snapshot, now, {"goal": goal})
    if decision["action"] is None:
        raise BadInput("goal", f"{goal}: {decision['reason']}")
    found = moves.read(decision["action"]["moves"])
    why = f"{reason.strip()} {decision['reason']}".strip()
    return _propose(GOALS[goal], found, user, why, snapshot, now, law=REBALANCING)


def propose_drain(node: str, user: User, reason: str, *, snapshot: Snapshot, now: datetime) -> Plan:
    """A plan that empties a node: its points go to the others, what waits on it is transferred or consumed.

    Once it runs the node is drained and takes nothing until `return_to_use`. Raises `BadInput` for an
    unknown, drained or OFFLINE node, and when the others can't take its containers (the reason says why).
    """
    why = overrides.read_reason(reason)
    topology = projection.read_database()
    spec = topology.node(node)
    if spec.drained:
        raise BadInput("node", f"{node} is drained already.")
    if node in offline_nodes(snapshot):
        raise BadInput("node", f"{node} is OFFLINE; its points are restored on live nodes by themselves.")
    found = _emptying(node, topology, snapshot, now)
    return _propose(Plan.Kind.DRAIN, found, user, why, snapshot, now, law=REBALANCING, empties=node)


def propose_hand(
    queue: str,
    points: Mapping[str, int],
    user: User,
    *,
    snapshot: Snapshot,
    now: datetime,
    reason: str = "",
) -> Plan:
    """A plan from a person's own division of a queue's 1000 points. Nodes with 0 may be named or left out.

    Raises `BadInput`: points that don't sum to 1000, unknown, drained, cordoned or OFFLINE nodes, too few
    containers, or no change at all.
    """
    topology = projection.read_database()
    before = topology.queue(queue).live_points
    wanted = {node: value for node, value in thousand.checked(points, least=0).items() if value}
    for node in points:
        if node not in topology.nodes:
            raise BadInput(
                f"points.{node}", f"is no node; the nodes are {', '.join(sorted(topology.nodes))}."
            )
    if wanted == before:
        raise BadInput("points", f"are those that {queue} has already.")
    found = moves.between(queue, before, wanted)
    title = f"Points of {queue} by hand"
    return _propose(Plan.Kind.HAND, found, user, reason.strip(), snapshot, now, title=title)


def approve(
    plan: Plan | int,
    hash: str,
    user: User,
    reason: str,
    *,
    snapshot: Snapshot,
    now: datetime,
    needed: int = 1,
) -> Plan:
    """Approve a plan as shown: it runs within about a second, once `needed` persons have.

    Of two the second is neither the first nor who proposed it. The first begins the plan's time anew.
    Raises `BadInput`: another hash, a plan that is not proposed any more (approved twice, rejected, void),
    expired, the points of its queues changed, or a node was drained, cordoned or lost meanwhile.
    """
    why = overrides.read_reason(reason)
    with transaction.atomic():
        row = _locked(plan)
        _check_approval(row, hash, now)
        _check_another(row, user)
        _check_drift(row, snapshot)
        if len(row.approvals) + 1 >= needed:
            return _approved(row, _name(user), why, now)
        row.approvals = [*row.approvals, _approval(_name(user), why, now)]
        row.expires_at = now + _patience()
        row.note = f"{_name(user)} has approved it; somebody else has to agree."
        row.save(update_fields=["approvals", "expires_at", "note"])
        return row


def reject(plan: Plan | int, user: User, reason: str, *, now: datetime) -> Plan:
    """Turn a proposed plan down, for good. Raises `BadInput` when it is not proposed any more."""
    why = overrides.read_reason(reason)
    with transaction.atomic():
        row = _locked(plan)
        if row.state != Plan.State.PROPOSED:
            raise BadInput("plan", f"is {row.state}; only a proposed plan can be rejected.")
        return _end(row, Plan.State.REJECTED, f"Rejected by {_name(user)}: {why}", now)


def stop(plan: Plan | int, user: User, reason: str, *, now: datetime) -> Plan:
    """Stop an approved or running plan: what has moved stays moved, nothing more is begun.

    A node that was being drained stays drained until `return_to_use`. Raises `BadInput` unless it is
    approved or running.
    """
    why = overrides.read_reason(reason)
    with transaction.atomic():
        row = _locked(plan)
        if row.state not in (Plan.State.APPROVED, Plan.State.RUNNING):
            raise BadInput("plan", f"is {row.state}; only an approved or running plan can be stopped.")
        return _end(row, Plan.State.STOPPED, f"Stopped by {_name(user)}: {why}", now)


def roll_back(plan: Plan | int, user: User, reason: str, *, snapshot: Snapshot, now: datetime) -> Plan:
    """A new plan, to be approved, with the inverse of what an ended plan has moved.

    Raises `BadInput` when nothing was moved, it was rolled back already, or it is not possible any more
    (points moved on, a node is gone, drained or OFFLINE).
    """
    why = overrides.read_reason(reason)
    with transaction.atomic():
        row = _locked(plan)
        if row.state not in ENDED_WITH_MOVES:
            raise BadInput("plan", f"is {row.state}; only what has ended can be rolled back.")
        if row.undone_by.filter(state__in=(*OPEN, Plan.State.DONE)).exists():
            raise BadInput("plan", "is being rolled back already, or was.")
        made = [move for move, step in zip(moves.read(row.moves), row.progress, strict=True) if _moved(step)]
        if not made:
            raise BadInput("plan", "has moved no points; there is nothing to roll back.")
        found = [move.inverse for move in reversed(made)]
        title = f"Roll back: {row.title}"
        # A node that this plan drained takes its points back: it is in use again when the roll-back begins.
        return _propose(
            Plan.Kind.ROLL_BACK, found, user, why, snapshot, now, title=title, undoes=row, reopens=row.empties
        )


def cordon(node: str, on: bool, user: User, reason: str, *, control: redis.Redis, now: datetime) -> Topology:
    """Let a node take no new points (on) or take them again (off); it keeps what it has. Projected.

    Raises `BadInput` for an unknown node, or when it is so already.
    """
    overrides.read_reason(reason)
    with transaction.atomic():
        projection.read_database().node(node)
        if not Node.objects.filter(name=node, cordoned=not on).update(cordoned=on):
            raise BadInput("node", f"{node} is {'cordoned already' if on else 'not cordoned'}.")
        return projection.project(control, overrides.node_thresholds(now))


def return_to_use(node: str, user: User, reason: str, *, control: redis.Redis, now: datetime) -> Topology:
    """End a node's drain: a plan may give it points again. Raises `BadInput` when it is not drained."""
    overrides.read_reason(reason)
    with transaction.atomic():
        projection.read_database().node(node)
        busy = Plan.objects.filter(empties=node, state__in=(Plan.State.APPROVED, Plan.State.RUNNING))
        if busy.exists():
            raise BadInput("node", f"{node} is being emptied; stop plan {busy.first().pk} first.")
        if not Node.objects.filter(name=node, drained=True).update(drained=False):
            raise BadInput("node", f"{node} is not drained.")
        return projection.project(control, overrides.node_thresholds(now))


def open_plans(now: datetime | None = None) -> list[Plan]:
    """Plans that wait for approval (not expired at `now`), are approved or run, the oldest first."""
    rows = Plan.objects.filter(state__in=OPEN).order_by("created_at", "pk")
    if now is not None:
        rows = rows.exclude(state=Plan.State.PROPOSED, expires_at__lte=now)
    return list(rows.select_related("owner"))


def plan_document(plan: Plan) -> dict[str, Any]:
    """A plan as plain JSON, for a page and the snapshot (ARCHITECTURE.md, "Moving points")."""
    return {
        "id": plan.pk,
        "hash": plan.hash,
        "short_hash": plan.hash[:8],
        "kind": plan.kind,
        "title": plan.title,
        "state": plan.state,
        "reason": plan.reason,
        "moves": [{**move, **step} for move, step in zip(plan.moves, plan.progress, strict=True)],
        "points": sum(move["points"] for move in plan.moves),
        "progress_share": progress_share(plan),
        "before": plan.before,
        "after": plan.after,
        "estimated_seconds": plan.estimated_seconds,
        "estimated_bytes": plan.estimated_bytes,
        "empties": plan.empties or None,
        "note": plan.note,
        "owner": plan.owner.get_username() if plan.owner else plan.law or "recovery",
        "approvals": plan.approvals,
        "law": plan.law or None,
        "entry": plan.entry_id,
        "undoes": plan.undoes_id,
        "created_at": plan.created_at.timestamp(),
        "expires_at": plan.expires_at.timestamp(),
        "started_at": plan.started_at.timestamp() if plan.started_at else None,
        "ended_at": plan.ended_at.timestamp() if plan.ended_at else None,
        "can_approve": plan.state == Plan.State.PROPOSED,
        "can_stop": plan.state in (Plan.State.APPROVED, Plan.State.RUNNING),
        "can_roll_back": plan.state in ENDED_WITH_MOVES and any(map(_moved, plan.progress)),
    }


def summary(plan: Plan) -> dict[str, Any]:
    """A plan as the snapshot carries it each second."""
    whole = plan_document(plan)
    keys = ("id", "hash", "kind", "title", "state", "moves", "points", "progress_share", "note", "empties")
    return {key: whole[key] for key in (*keys, "expires_at")}


def progress_share(plan: Plan) -> float:
    """How far it is, 0 to 1: moved points count half where events are transferred too, else all."""
    if plan.state == Plan.State.DONE:
        return 1.0
    if not plan.progress:
        return 0.0
    return round(sum(_share(step, bool(plan.empties)) for step in plan.progress) / len(plan.progress), 3)


def from_decision(entry: LedgerEntry, snapshot: Snapshot, now: datetime, *, approved: bool) -> Plan | None:
    """The plan of a loop's decision: approved by the loop itself (auto), or proposed (advise).

    The same entry gives the same plan, however often it is asked. Proposals of the same loop that nobody
    answered are void with a newer one; one with the same moves stays as it is, and nothing is made.
    """
    if (made := Plan.objects.filter(entry=entry).first()) is not None:
        return made
    wish = _wished(entry, snapshot, now)
    found = wish.moves
    with transaction.atomic():
        waiting = Plan.objects.filter(state=Plan.State.PROPOSED, law=entry.loop.law, owner=None)
        if not approved and any(row.moves == [move.to_json() for move in found] for row in waiting):
            return None
        for row in waiting:
            _end(row, Plan.State.VOID, "A newer decision took its place.", now)
        plan = _propose(
            wish.kind,
            found,
            None,
            entry.reason,
            snapshot,
            now,
            law=entry.loop.law,
            entry=entry,
            empties=wish.empties,
        )
        return _approved(plan, "loop", entry.reason, now) if approved else plan


def restore(found: Sequence[Move], reason: str, snapshot: Snapshot, now: datetime) -> Plan:
    """The plan of recovery, approved by itself: points that were lost with a node go to live ones."""
    with transaction.atomic():
        plan = _propose(Plan.Kind.RESTORE, found, None, reason, snapshot, now)
        return _approved(plan, "recovery", reason, now)


def void_due(now: datetime) -> int:
    """Note on proposals that nobody approved in time, or that no longer fit the plant, that they are void;
    answers how many."""
    gone = 0
    for row in Plan.objects.filter(state=Plan.State.PROPOSED):
        why = "Nobody approved it in time." if row.expires_at <= now else drift(row)
        if why is not None:
            with transaction.atomic():
                fresh = Plan.objects.select_for_update().filter(pk=row.pk, state=Plan.State.PROPOSED).first()
                if fresh is not None:
                    _end(fresh, Plan.State.VOID, why, now)
                    gone += 1
    return gone


def drift(plan: Plan) -> str | None:
    """How the plant has changed since the plan was computed so that it no longer holds, or None."""
    topology = projection.read_database()
    for queue, points in plan.base.items():
        if queue not in topology.queues or topology.queues[queue].live_points != points:
            return f"The points of queue {queue} have changed since."
    closed = {target: moves.closed(topology.nodes[target]) for target in _targets(plan, topology)}
    return next((f"Node {node} {why} by now." for node, why in closed.items() if why), None)


def offline_nodes(snapshot: Snapshot) -> set[str]:
    """Nodes that are OFFLINE in the snapshot, or have never been heard."""
    return {name for name, node in snapshot["nodes"].items() if node["state"] in ("OFFLINE", None)}


def _targets(plan: Plan, topology: Topology) -> list[str]:
    """Where its points go, but for the node that its own beginning opens again."""
    reopened = plan.undoes.empties if plan.undoes else ""
    names = {move["to"] for move in plan.moves}
    return sorted(name for name in names if name != reopened and name in topology.nodes)


def _decision(snapshot: Snapshot, now: datetime, parameters: dict[str, Any]) -> dict[str, Any]:
    """What the rebalancing law says now, with its loop's parameters, overrides included, and its memory."""
    loop = Loop.objects.filter(law=REBALANCING).first()
    sensed = sensors.rebalancing({}, snapshot, None, now.timestamp())
    if sensed.measured.unfit is not None:
        raise BadInput("plant", f"can't be planned for now: {sensed.measured.unfit}.")
    given = {} if loop is None else loop.parameters
    own = overrides.effective_parameters(catalog.law(REBALANCING), given, _in_force(loop, now), now)
    state = ((loop.state or {}) if loop else {}).get("law")
    document = {
        "parameters": {**own, **parameters},
        "state": state,
        "observations": [sensed.observation],
    }
    return dict(request.answer(REBALANCING, document)["decisions"][0])


def _in_force(loop: Loop | None, now: datetime) -> list[Any]:
    return overrides.on(loop, now) if loop else []


def _emptying(node: str, topology: Topology, snapshot: Snapshot, now: datetime) -> list[Move]:
    """The moves that take every point off a node, as the law chooses them."""
    if not topology.has_points(node):
        return []
    drained = {**snapshot["nodes"][node], "drained": True}
    wanted = {**snapshot, "nodes": {**snapshot["nodes"], node: drained}}
    decision = _decision(wanted, now, {"goal": "below-busy"})
    found = moves.read((decision["action"] or {"moves": []})["moves"])
    left = moves.after(moves.division(topology), found)
    for queue, points in left.items():
        if node in points:
            raise BadInput(
                "node", f"{node} can't be drained: {queue} has nowhere to go. {decision['reason']}"
            )
    return found


def _propose(
    kind: str,
    found: Sequence[Move],
    user: User,
    reason: str,
    snapshot: Snapshot,
    now: datetime,
    *,
    title: str = "",
    law: str = "",
    entry: LedgerEntry | None = None,
    empties: str = "",
    undoes: Plan | None = None,
    reopens: str = "",
) -> Plan:
    """Write a proposal, checked against the plant as it is."""
    topology = projection.read_database()
    offline = offline_nodes(snapshot)
    if found or not empties:
        moves.check(found, _reopened(topology, reopens), offline)
    look = forecast.of(found, topology, snapshot, empties)
    return Plan.objects.create(
        kind=kind,
        title=title or _title(kind, found, empties),
        reason=reason,
        moves=[move.to_json() for move in found],
        base=moves.division(topology, (move.queue for move in found)),
        base_revision=topology.revision,
        hash=moves.digest(found, topology.revision),
        before=look.before,
        after=look.after,
        estimated_seconds=look.seconds,
        estimated_bytes=look.bytes,
        empties=empties,
        law=law,
        entry=entry,
        undoes=undoes,
        owner=user,
        created_at=now,
        expires_at=now + _patience(),
        progress=[dict(forecast.NOTHING_YET) for _ in found],
    )


def _reopened(topology: Topology, node: str) -> Topology:
    """The topology as it will be once a drained node is in use again."""
    if not node or node not in topology.nodes:
        return topology
    return forecast.with_node(topology, node, drained=False)


def _title(kind: str, found: Sequence[Move], empties: str) -> str:
    if empties:
        return f"{str(kind).capitalize()} {empties}"
    points = sum(move.points for move in found)
    names = {
        Plan.Kind.REBALANCE: "Bring every node below BUSY",
        Plan.Kind.BAND: "Balance all nodes",
        Plan.Kind.USE: f"Take {', '.join(sorted({move.target for move in found}))} into use",
        Plan.Kind.RESTORE: "Restore lost points",
    }
    count = f"{len(found)} move{'s' if len(found) != 1 else ''}"
    return f"{names.get(kind, str(kind).capitalize())}: {count}, {points:,} points"


@dataclass(frozen=True)
class _Wish:
    """What a decision comes down to: a kind of plan, its moves, and the node to be emptied."""

    kind: str
    moves: list[Move]
    empties: str = ""


def _wished(entry: LedgerEntry, snapshot: Snapshot, now: datetime) -> _Wish:
    """A loop's decision as moves. Of node scaling one thing at a time: what was lost, then use, then release.

    Nodes to be used get their share by the law of the band, among them and those in use; of the nodes to be
    released the first is emptied.
    """
    action = entry.action
    if "moves" in action:
        goal = entry.parameters.get("goal", "")
        return _Wish(GOALS.get(goal, Plan.Kind.REBALANCE), moves.read(action["moves"]))
    if action["restore"]:
        return _Wish(Plan.Kind.RESTORE, moves.read(action["restore"]))
    if action["use"]:
        return _Wish(Plan.Kind.USE, _spreading(action["use"], snapshot, now))
    node = action["release"][0]
    return _Wish(Plan.Kind.RELEASE, _emptying(node, projection.read_database(), snapshot, now), node)


def _spreading(nodes: Sequence[str], snapshot: Snapshot, now: datetime) -> list[Move]:
    """The moves that give idle nodes their share; other idle nodes stay idle."""
    others = {
        name: {**row, "cordoned": True}
        for name, row in snapshot["nodes"].items()
        if row["state"] == "IDLE" and name not in nodes
    }
    decision = _decision({**snapshot, "nodes": {**snapshot["nodes"], **others}}, now, {"goal": "band"})
    return moves.read((decision["action"] or {"moves": []})["moves"])


def _locked(plan: Plan | int) -> Plan:
    number = plan.pk if isinstance(plan, Plan) else plan
    row = Plan.objects.select_for_update().filter(pk=number).first()
    if row is None:
        raise BadInput("plan", f"{number} is not known.")
    return row


def _check_approval(plan: Plan, hash: str, now: datetime) -> None:
    if plan.state != Plan.State.PROPOSED:
        raise BadInput(
            "plan", f"is {plan.state} already; only a proposed plan can be approved. {plan.note}".strip()
        )
    if hash != plan.hash:
        raise BadInput("hash", "is not that of this plan; look at it again and approve what you see.")
    if now >= plan.expires_at:
        raise BadInput("plan", f"has expired at {plan.expires_at:%H:%M:%S} UTC; propose it again.")


def _check_another(plan: Plan, user: User) -> None:
    if refusal := another_refusal(plan, user):
        raise BadInput("plan", refusal)


def another_refusal(plan: Plan, user: User) -> str:
    """Why an approval of this person can't be the next one, else "": two approvals are two persons', and the
    second is not who wanted the plan.
    """
    name = _name(user)
    if any(each["by"] == name for each in plan.approvals):
        return "is approved by you already; somebody else has to agree."
    if plan.approvals and plan.owner is not None and plan.owner.get_username() == name:
        return "was proposed by you; the second approval has to be somebody else's."
    return ""


def _patience() -> timedelta:
    """How long a proposal waits for an approval."""
    return timedelta(seconds=plant_settings.value("plan.expires_seconds"))


def _check_drift(plan: Plan, snapshot: Snapshot) -> None:
    why = drift(plan)
    if why is None:
        lost = offline_nodes(snapshot) & {move["to"] for move in plan.moves}
        why = f"Node {sorted(lost)[0]} is OFFLINE by now." if lost else None
    if why is not None:
        raise BadInput("plan", f"no longer fits the plant: {why} Propose it again.")


def _approved(plan: Plan, by: str, reason: str, now: datetime) -> Plan:
    plan.approvals = [*plan.approvals, _approval(by, reason, now)]
    plan.state, plan.note = Plan.State.APPROVED, ""
    plan.save(update_fields=["approvals", "state", "note"])
    return plan


def _approval(by: str, reason: str, now: datetime) -> dict[str, Any]:
    return {"by": by, "reason": reason, "at": now.timestamp()}


def _end(plan: Plan, state: str, note: str, now: datetime) -> Plan:
    plan.state, plan.note, plan.ended_at = state, note, now
    plan.save(update_fields=["state", "note", "ended_at"])
    return plan


def _name(user: User) -> str:
    return user.get_username() if user is not None else "loop"


def _moved(step: Mapping[str, Any]) -> bool:
    return step["points_moved"] > 0


def _share(step: Mapping[str, Any], transfers: bool) -> float:
    if step["state"] == "done":
        return 1.0
    if not _moved(step):
        return 0.0
    if not transfers:
        return 1.0
    total = step["blocks_total"] or 0
    return 0.5 + (0.5 * min(1.0, step["blocks"] / total) if total else 0.0)


def running() -> QuerySet[Plan]:
    """Plans that are being executed, or are about to be."""
    return Plan.objects.filter(Q(state=Plan.State.APPROVED) | Q(state=Plan.State.RUNNING))
