"""Proposals of assistants: approved by hash, or rejected."""

from typing import Annotated, Any, TypedDict

from django.http import HttpRequest
from django.utils import timezone

from common.stored_document import Time, describe
from console.actions.proposals import assistant_proposals
from console.actions.proposals.assistant_proposals import ACTS
from console.api.request.answers import Created, Document, Router, build_answer, get_or_404
from console.api.request.authentication import actor_for
from console.api.request.input import Reason, RequestBody
from console.connections.control_server import load_latest_snapshot
from console.input.form_values import Id
from console.models import AssistantProposal

router = Router(tags=["control"])
MAX_ROWS = 200


class ProposalRow(TypedDict):
    """One action that an assistant proposes."""

    id: int
    act: Annotated[str, describe(values=tuple(ACTS))]
    arguments: Document
    reason: str
    proposed_by: Annotated[str, describe("The token that made the proposal.")]
    snapshot_seq: int
    snapshot_at: Annotated[float, describe("Unix time of the underlying snapshot.")]
    hash: Annotated[str, describe("Hash of the proposal. Send the hash to approve the proposal.")]
    created_at: Time
    expires_at: Annotated[Time, describe("Time when an undecided proposal expires.")]
    state: Annotated[str, describe(values=AssistantProposal.State.values)]
    decided_by: str | None
    decided_at: Time | None
    note: str
    outcome: Annotated[str, describe("The result, in a sentence.")]


class ProposalList(TypedDict):
    proposals: list[ProposalRow]


class NewProposal(RequestBody):
    """act: override, hold, silence, or plan; arguments: of that act."""

    act: str
    arguments: dict[str, Any] = {}
    reason: str


class ProposalApproval(RequestBody):
    """`hash` is that of the proposal as it was read."""

    hash: str
    reason: str


@router.get("/proposals", summary="List proposals of assistants and their results")
def list_proposals(request: HttpRequest) -> ProposalList:
    """Return the proposals, the newest first, at most 200."""
    actor_for(request, "plant.view")
    rows = AssistantProposal.objects.select_related("token", "decided_by").order_by("-pk")[:MAX_ROWS]
    return {"proposals": [_build_proposal_row(row) for row in rows]}


@router.get("/proposals/{proposal_id}", summary="Get a proposal of an assistant")
def get_proposal(request: HttpRequest, proposal_id: Id) -> ProposalRow:
    actor_for(request, "plant.view")
    return _build_proposal_row(_find_proposal(proposal_id))


@router.post("/proposals", summary="Propose an action for approval")
def add_proposal(request: HttpRequest, body: NewProposal) -> Created[ProposalRow]:
    """Propose an action with a token; a person approves it within five minutes, or it is void."""
    actor, now = actor_for(request, "proposal.make"), timezone.now()
    made = assistant_proposals.propose(
        actor, body.act, body.arguments, reason=body.reason, snapshot=load_latest_snapshot(), now=now
    )
    return _build_proposal_row(made)


@router.post("/proposals/{proposal_id}/approve", summary="Approve a proposal and carry it out")
def approve_proposal(request: HttpRequest, proposal_id: Id, body: ProposalApproval) -> ProposalRow:
    """Approve a proposal with the rights of the approver: for logged-in users, never for a token."""
    actor, proposal = actor_for(request, "proposal.decide"), _find_proposal(proposal_id)
    snapshot, now = load_latest_snapshot(), timezone.now()
    return _build_proposal_row(
        assistant_proposals.approve(actor, proposal, body.hash, reason=body.reason, snapshot=snapshot, now=now)
    )


@router.post("/proposals/{proposal_id}/reject", summary="Reject a proposal")
def reject_proposal(request: HttpRequest, proposal_id: Id, body: Reason) -> ProposalRow:
    actor, proposal = actor_for(request, "proposal.decide"), _find_proposal(proposal_id)
    return _build_proposal_row(assistant_proposals.reject(actor, proposal, reason=body.reason, now=timezone.now()))


def _build_proposal_row(proposal: AssistantProposal) -> ProposalRow:
    return build_answer(
        ProposalRow,
        proposal,
        proposed_by=proposal.token.name,
        state=assistant_proposals.compute_proposal_state(proposal, timezone.now()),
        decided_by=proposal.decided_by.get_username() if proposal.decided_by else None,
    )


def _find_proposal(proposal_id: int) -> AssistantProposal:
    message = f"Proposal {proposal_id} is unknown. GET /api/v1/proposals lists the proposals."
    return get_or_404(AssistantProposal.objects.select_related("token", "decided_by"), message, pk=proposal_id)
