"""Proposals of assistants: those that wait, with everything that their hash covers, and the decided ones."""

import json
from dataclasses import dataclass
from datetime import datetime

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone

from console.accounts.access import actor_of
from console.actions.proposals import assistant_proposals
from console.connections.control_server import load_latest_snapshot
from console.models import AssistantProposal
from console.pages.frame.page import ActionResult, FormPage, declare_action, declare_page, read_reason, render_page

MAX_DECIDED = 50


@dataclass(frozen=True, kw_only=True)
class ShownProposal:
    """One proposal. about: what its action does; arguments: of the action, in words.

    snapshot_at: time of the plant snapshot it was made on.
    """

    row: AssistantProposal
    about: str
    arguments: dict[str, str]
    snapshot_at: datetime
    state: str


@dataclass(frozen=True, kw_only=True)
class AssistantProposalsPage(FormPage):
    """Waiting proposals, the oldest first, and decided ones."""

    TEMPLATE, NAME = "plant/assistant_proposals.html", "plans"

    waiting: list[ShownProposal]
    decided: list[ShownProposal]  # the newest first
    opened: int | None  # the number in the address


@declare_page("plant.view")
def proposals_page(request: HttpRequest, proposal_id: int | None = None) -> HttpResponse:
    """Show all proposals; one that the address names is highlighted."""
    if proposal_id is not None:
        get_object_or_404(AssistantProposal, pk=proposal_id)
    now = timezone.now()
    rows = AssistantProposal.objects.select_related("token__owner", "decided_by").order_by("-pk")
    waiting = assistant_proposals.open_proposals(now).select_related("token__owner")
    numbers = {proposal.pk for proposal in waiting}
    page = AssistantProposalsPage(
        waiting=[_build_row(proposal, now) for proposal in waiting],
        decided=[_build_row(row, now) for row in rows.exclude(pk__in=numbers)[:MAX_DECIDED]],
        opened=proposal_id,
    )
    return render_page(request, page, "frame")


@declare_action("proposal.decide", proposals_page)
def decide(request: HttpRequest, proposal_id: int) -> ActionResult:
    """Decide on a proposal. Posted: decision (approve, reject), hash, reason."""
    proposal = get_object_or_404(AssistantProposal, pk=proposal_id)
    actor, now, url = actor_of(request), timezone.now(), reverse("proposals")
    reason = read_reason(request)
    if request.POST.get("decision") == "reject":
        assistant_proposals.reject(actor, proposal, reason=reason, now=now)
        return ActionResult(
            f"Proposal {proposal.pk} was rejected. Nothing was changed.", url, {"proposal": proposal.pk}
        )
    hash, snapshot = request.POST.get("hash", ""), load_latest_snapshot()
    made = assistant_proposals.approve(actor, proposal, hash, reason=reason, snapshot=snapshot, now=now)
    return ActionResult(made.outcome, url, {"proposal": made.pk})


def _build_row(proposal: AssistantProposal, now: datetime) -> ShownProposal:
    return ShownProposal(
        row=proposal,
        about=assistant_proposals.ACTS[proposal.act].about,
        arguments={name: _format_value(value) for name, value in proposal.arguments.items()},
        snapshot_at=datetime.fromtimestamp(proposal.snapshot_at, proposal.created_at.tzinfo),
        state=assistant_proposals.compute_proposal_state(proposal, now),
    )


def _format_value(value: object) -> str:
    """Return the value exactly as it is approved, with all digits."""
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return value if isinstance(value, str) else json.dumps(value)
