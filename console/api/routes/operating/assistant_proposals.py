"""Proposals of assistants: made by a token; approved by hash or rejected by a logged-in user."""

from typing import Any

from django.http import Http404, HttpRequest
from django.utils import timezone
from ninja import Status

from console.actions.proposals import assistant_proposals
from console.api.answer.router import Router
from console.api.request.authentication import actor_for
from console.api.request.bodies import Reason, RequestBody
from console.api.schemas.plans import ProposalList, ProposalRow
from console.connections.control_server import load_latest_snapshot
from console.input.row_id import Id
from console.models import AssistantProposal

router = Router(tags=["control"])
MAX_ROWS = 200


class NewProposal(RequestBody):
    """act: override, hold, silence, or plan; arguments: of that act."""

    act: str
    arguments: dict[str, Any] = {}
    reason: str


class ProposalApproval(RequestBody):
    """`hash` is that of the proposal as it was read."""

    hash: str
    reason: str


@router.get("/proposals", response=ProposalList, summary="List proposals of assistants and their results")
def list_proposals(request: HttpRequest) -> ProposalList:
    """Return the proposals, the newest first, at most 200."""
    actor_for(request, "plant.view")
    rows = AssistantProposal.objects.select_related("token", "decided_by").order_by("-pk")[:MAX_ROWS]
    return {"proposals": [_document(row) for row in rows]}


@router.get("/proposals/{proposal_id}", response=ProposalRow, summary="Get a proposal of an assistant")
def get_proposal(request: HttpRequest, proposal_id: Id) -> ProposalRow:
    actor_for(request, "plant.view")
    return _document(_find_proposal(proposal_id))


@router.post("/proposals", response={201: ProposalRow}, summary="Propose an action for approval")
def add_proposal(request: HttpRequest, body: NewProposal) -> Status[ProposalRow]:
    """Propose an action with a token; a person approves it within five minutes, or it is void."""
    actor, now = actor_for(request, "proposal.make"), timezone.now()
    made = assistant_proposals.propose(
        actor, body.act, body.arguments, reason=body.reason, snapshot=load_latest_snapshot(), now=now
    )
    return Status(201, _document(made))


@router.post("/proposals/{proposal_id}/approve", response=ProposalRow, summary="Approve a proposal and carry it out")
def approve_proposal(request: HttpRequest, proposal_id: Id, body: ProposalApproval) -> ProposalRow:
    """Approve a proposal with the rights of the approver: for logged-in users, never for a token."""
    actor, proposal = actor_for(request, "proposal.decide"), _find_proposal(proposal_id)
    snapshot, now = load_latest_snapshot(), timezone.now()
    return _document(
        assistant_proposals.approve(actor, proposal, body.hash, reason=body.reason, snapshot=snapshot, now=now)
    )


@router.post("/proposals/{proposal_id}/reject", response=ProposalRow, summary="Reject a proposal")
def reject_proposal(request: HttpRequest, proposal_id: Id, body: Reason) -> ProposalRow:
    actor, proposal = actor_for(request, "proposal.decide"), _find_proposal(proposal_id)
    return _document(assistant_proposals.reject(actor, proposal, reason=body.reason, now=timezone.now()))


def _find_proposal(proposal_id: int) -> AssistantProposal:
    rows = AssistantProposal.objects.select_related("token", "decided_by")
    proposal = rows.filter(pk=proposal_id).first()
    if proposal is None:
        raise Http404(f"Proposal {proposal_id} is unknown; GET /api/v1/proposals lists the proposals.")
    return proposal


def _document(proposal: AssistantProposal) -> ProposalRow:
    return {
        "id": proposal.pk,
        "act": proposal.act,
        "arguments": proposal.arguments,
        "reason": proposal.reason,
        "proposed_by": proposal.token.name,
        "snapshot_seq": proposal.snapshot_seq,
        "snapshot_at": proposal.snapshot_at,
        "hash": proposal.hash,
        "created_at": proposal.created_at,
        "expires_at": proposal.expires_at,
        "state": assistant_proposals.compute_proposal_state(proposal, timezone.now()),
        "decided_by": proposal.decided_by.get_username() if proposal.decided_by else None,
        "decided_at": proposal.decided_at,
        "note": proposal.note,
        "outcome": proposal.outcome,
    }
