"""A plan as a document: for a page, the API, and each second's snapshot."""

from collections.abc import Mapping
from typing import Any

from common.stored_document import convert, copy_shared_values
from workers.documents.plans import NodeForecast, PlanDocument, PlanMove, PlanStatus
from workers.models import Plan
from workers.placement.plans import ENDED_WITH_MOVES, has_moved


def build_plan_document(plan: Plan) -> PlanDocument:
    """Return a plan with all its stored details (docs/understand/how/placement.md)."""
    return PlanDocument(
        **copy_shared_values(build_plan_status(plan), PlanStatus),
        short_hash=plan.hash[:8],
        reason=plan.reason,
        before={name: convert(NodeForecast, node) for name, node in plan.before.items()},
        after={name: convert(NodeForecast, node) for name, node in plan.after.items()},
        estimated_seconds=plan.estimated_seconds,
        estimated_bytes=plan.estimated_bytes,
        owner=plan.owner.get_username() if plan.owner else plan.law or "recovery",
        approvals=plan.approvals,
        law=plan.law or None,
        entry=plan.entry_id,
        undoes=plan.undoes_id,
        created_at=plan.created_at.timestamp(),
        started_at=plan.started_at.timestamp() if plan.started_at else None,
        ended_at=plan.ended_at.timestamp() if plan.ended_at else None,
        can_approve=plan.state == Plan.State.PROPOSED,
        can_stop=plan.state in (Plan.State.APPROVED, Plan.State.RUNNING),
        can_roll_back=can_roll_back(plan),
    )


def can_roll_back(plan: Plan) -> bool:
    """Return whether it has ended and moved something."""
    return plan.state in ENDED_WITH_MOVES and any(map(has_moved, plan.progress))


def build_plan_status(plan: Plan) -> PlanStatus:
    """Return a plan as the snapshot carries it each second."""
    steps = zip(plan.moves, plan.progress, strict=True)
    return PlanStatus(
        id=plan.pk,
        hash=plan.hash,
        kind=plan.kind,
        title=plan.title,
        state=plan.state,
        points=sum(move["points"] for move in plan.moves),
        progress_share=compute_progress_share(plan),
        note=plan.note,
        empties=plan.empties or None,
        expires_at=plan.expires_at.timestamp(),
        moves=[convert(PlanMove, {**move, **step}) for move, step in steps],
    )


def compute_progress_share(plan: Plan) -> float:
    """Return its progress, 0 to 1: moved points count half if events are transferred, too, else fully."""
    if plan.state == Plan.State.DONE:
        return 1.0
    if not plan.progress:
        return 0.0
    return round(sum(_share(step, bool(plan.empties)) for step in plan.progress) / len(plan.progress), 3)


def _share(step: Mapping[str, Any], transfers: bool) -> float:
    if step["state"] == "done":
        return 1.0
    if not has_moved(step):
        return 0.0
    if not transfers:
        return 1.0
    total = step["blocks_total"] or 0
    return 0.5 + (0.5 * min(1.0, step["blocks"] / total) if total else 0.0)
