"""Proposals of assistants and tunings learned from the record of loops: approved by hash, or rejected."""

from typing import Annotated, Any, TypedDict

from django.http import HttpRequest
from django.utils import timezone

from common.stored_document import Share, Time, describe
from console.actions.proposals import assistant_proposals, tunings
from console.actions.proposals.assistant_proposals import ACTS
from console.api.request.answers import Created, Document, Router, build_answer, get_or_404
from console.api.request.authentication import actor_for
from console.api.request.input import GivenTime, Reason, RequestBody
from console.api.routes.control import OverrideList, build_override
from console.connections.control_server import load_latest_snapshot
from console.input.form_values import Id
from console.models import AssistantProposal
from workers.models import Tuning
from workers.steering.overrides import Expiry

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
    expires_at: Annotated[Time, describe("When the proposal expires if it is undecided.")]
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


class TunedDay(TypedDict):
    """The cost of one validation day on the model of the plant, without a unit."""

    day: str
    before: float
    after: float


class TuningRow(TypedDict):
    """Values of a loop's parameters learned from its record, and how they performed on the following days."""

    id: int
    loop: Annotated[str, describe("Name of the loop.")]
    state: Annotated[str, describe(values=Tuning.State.values)]
    values: Document
    instead_of: Annotated[Document, describe("Values in force when it was proposed.")]
    days: list[TunedDay]
    improvement: Annotated[float, describe("Cost savings, as a share.")]
    confidence: Share
    hash: str
    created_at: Time
    decided_at: Time | None
    decided_by: str | None
    note: Annotated[str, describe("The reason for the decision.")]


class TuningList(TypedDict):
    tunings: list[TuningRow]


class TuningApproval(RequestBody):
    """hash: of the tuning as it was read.

    Its values expire after `minutes`, at `expires_at`, or (`endless`, for administrators) never.
    """

    hash: str
    reason: str
    minutes: float | None = None
    expires_at: GivenTime | None = None
    endless: bool = False


class TuningRejection(RequestBody):
    """The reason."""

    reason: str


@router.get("/tunings", summary="List tunings learned from loop records")
def list_tunings(request: HttpRequest) -> TuningList:
    """Return the tunings, the newest first, at most 200."""
    actor_for(request, "plant.view")
    rows = Tuning.objects.select_related("loop", "decided_by").order_by("-pk")[:MAX_ROWS]
    return {"tunings": [_build_tuning_row(row) for row in rows]}


@router.post("/tunings/{tuning_id}/approve", summary="Approve a tuning")
def approve_tuning(request: HttpRequest, tuning_id: Id, body: TuningApproval) -> OverrideList:
    """Override its loop with its values. Rejected for another hash, and if the loop has changed."""
    actor, tuning = actor_for(request, "override.set"), _find_tuning(tuning_id)
    made = tunings.approve(
        actor,
        tuning,
        body.hash,
        reason=body.reason,
        now=timezone.now(),
        expiry=Expiry(body.minutes, body.expires_at, body.endless),
    )
    return {"overrides": [build_override(override) for override in made]}


@router.post("/tunings/{tuning_id}/reject", summary="Reject a tuning")
def reject_tuning(request: HttpRequest, tuning_id: Id, body: TuningRejection) -> TuningRow:
    actor, tuning = actor_for(request, "override.set"), _find_tuning(tuning_id)
    return _build_tuning_row(tunings.reject(actor, tuning, body.reason, timezone.now()))


def _build_tuning_row(tuning: Tuning) -> TuningRow:
    decided_by = tuning.decided_by.get_username() if tuning.decided_by else None
    return build_answer(TuningRow, tuning, loop=tuning.loop.name, decided_by=decided_by)


def _find_proposal(proposal_id: int) -> AssistantProposal:
    message = f"Proposal {proposal_id} is unknown; GET /api/v1/proposals lists the proposals."
    return get_or_404(AssistantProposal.objects.select_related("token", "decided_by"), message, pk=proposal_id)


def _find_tuning(tuning_id: int) -> Tuning:
    message = f"Tuning {tuning_id} is unknown; GET /api/v1/tunings lists the tunings."
    return get_or_404(Tuning.objects.select_related("loop", "decided_by"), message, pk=tuning_id)
