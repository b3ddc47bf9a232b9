"""Answers about plans of moved points, and about assistants' proposals."""

from datetime import datetime
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from console.actions.proposals.assistant_proposals import ACTS
from console.api.answer.schema import (
    ApiAnswer,
    Bytes,
    Document,
    Events,
    Instant,
    Points,
    Seconds,
    Share,
    build_enum_field,
)
from console.models import AssistantProposal
from queues.nodes.node_state import STATES
from workers.models import Plan

# Names that are Python keywords.
_Ends = TypedDict(
    "_Ends",
    {
        "from": Annotated[str, Field(description="The node that loses points.")],
        "to": Annotated[str, Field(description="The node that gains points.")],
    },
)


class PlannedMove(_Ends):
    """A move of points, and its progress."""

    queue: str
    points: Points
    state: Annotated[str, build_enum_field(("pending", "moved", "transferring", "done"))]
    points_moved: Points
    blocks: Annotated[int, Field(description="Number of transferred blocks.")]
    blocks_total: int
    events: Events
    bytes: Bytes


class PlannedNode(ApiAnswer):
    """A node before or after a plan."""

    utilisation: Share | None
    state: Annotated[str, build_enum_field(STATES)] | None
    points: Points


class PlanApproval(ApiAnswer):
    by: str
    reason: str
    at: Instant


class PlanSummary(ApiAnswer):
    """A plan in the snapshot."""

    id: int
    hash: Annotated[str, Field(description="64 hexadecimal digits. Send the hash to approve the plan.")]
    kind: Annotated[str, build_enum_field(Plan.Kind.values)]
    title: str
    state: Annotated[str, build_enum_field(Plan.State.values)]
    moves: list[PlannedMove]
    points: Points
    progress_share: Share
    note: Annotated[str, Field(description="Why the plan is waiting, or why it ended.")]
    empties: Annotated[str | None, Field(description="The node that the plan empties; null: none.")]
    expires_at: Instant


class PlanRow(PlanSummary):
    """A plan with its effect on the nodes."""

    short_hash: str
    reason: str
    before: dict[str, PlannedNode]
    after: dict[str, PlannedNode]
    estimated_seconds: Seconds | None
    estimated_bytes: Bytes
    owner: str
    approvals: list[PlanApproval]
    law: str | None
    entry: Annotated[int | None, Field(description="The ledger entry that proposed it.")]
    undoes: Annotated[int | None, Field(description="The plan that it rolls back.")]
    created_at: Instant
    started_at: Instant | None
    ended_at: Instant | None
    can_approve: bool
    can_stop: bool
    can_roll_back: bool


class PlanList(ApiAnswer):
    plans: list[PlanRow]


class NodeUse(ApiAnswer):
    node: str
    plan: Annotated[PlanRow | None, Field(description="The plan that drains the node.")]


class ProposalRow(ApiAnswer):
    """One action that an assistant proposes."""

    id: int
    act: Annotated[str, build_enum_field(tuple(ACTS))]
    arguments: Document
    reason: str
    proposed_by: Annotated[str, Field(description="The token that made the proposal.")]
    snapshot_seq: int
    snapshot_at: Annotated[float, Field(description="Unix time of the underlying snapshot.")]
    hash: Annotated[str, Field(description="Hash of the proposal. Send the hash to approve the proposal.")]
    created_at: datetime
    expires_at: Annotated[datetime, Field(description="When the proposal expires if it is undecided.")]
    state: Annotated[str, build_enum_field(AssistantProposal.State.values)]
    decided_by: str | None
    decided_at: datetime | None
    note: str
    outcome: Annotated[str, Field(description="The result, in a sentence.")]


class ProposalList(ApiAnswer):
    proposals: list[ProposalRow]
