"""Proposals of assistants, which people approve: an override, a hold, a silence, a plan.

A proposal contains one action with its exact arguments, the reason, the token that proposes it, and the snapshot it was
made on. Its hash is the SHA-256 of all that (`hash_of`). A logged-in person approves that very hash within
PROPOSAL_SECONDS; then the action is done by the function that pages and the API call, with that person's rights, and
the audit log records both. A token may never decide (`proposal.decide` is for sessions only). A proposal that was
decided or has expired can't be decided again, and neither can one that would replace an override that was set after it
was proposed.

All functions raise `PermissionDenied`, and `BadInput` that names the field; then nothing has changed.
"""

import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet

from common import checks
from common.errors import BadInput
from common.parameter import Parameter, read_values
from console.accounts.access import Actor, is_valid, require_permission
from console.actions import alerts, loops
from console.actions.proposals import plans
from console.audit import audit_log
from console.connections.control_server import LIVE_SECONDS
from console.models import AssistantProposal
from workers.documents.snapshot import Snapshot
from workers.models import Loop
from workers.steering import overrides
from workers.steering.overrides import Expiry
from workers.steering.scope import Scope

PROPOSAL_SECONDS = 300.0
# Hosts' clocks differ by some seconds. A proposal from further in the future dates from before a clock was
# set back, and may have been void already.
CLOCKS_DIFFER = timedelta(seconds=30)
RETAINED = timedelta(days=400)
MAX_OPEN = 20  # of one token
MAX_MINUTES = 7 * 24 * 60
State = AssistantProposal.State
# actor, arguments, the assistant's reason, the snapshot now, now → what was done, in a sentence
CarryOut = Callable[[Actor, Mapping[str, Any], str, Snapshot | None, datetime], str]


def _build_minutes_parameter(what: str) -> Parameter:
    return Parameter("minutes", "min", what, None, 1, MAX_MINUTES, required=True)


LOOP = Parameter("loop", "name", "Name of the loop.", None, kind="text", required=True)
MATCHERS = Parameter(
    "matchers",
    "labels",
    "Matchers, all of which must match.",
    None,
    kind="rows",
    required=True,
    most=10,
    items=(
        Parameter("label", "name", "Label of alerts.", None, kind="text", required=True),
        Parameter("is", "", "Comparison operator.", "=", kind="choice", choices=("=", "!=", "~")),
        Parameter("value", "text", "Value of the label.", None, kind="text", required=True),
    ),
)
GOAL = Parameter("goal", "", "Goal of the rebalancing.", "below-busy", kind="choice", choices=("below-busy", "band"))


@dataclass(frozen=True)
class Proposable:
    """An action that can be proposed. permission: what the approver needs."""

    about: str
    permission: str
    arguments: tuple[Parameter, ...]
    carry_out: CarryOut


def _apply_override(
    actor: Actor, arguments: Mapping[str, Any], reason: str, snapshot: Snapshot | None, now: datetime
) -> str:
    scope, name = Scope(get_loop_by_name(arguments["loop"])), arguments["name"]
    expiry = Expiry(minutes=arguments["minutes"])
    made = loops.override(actor, scope, {name: arguments["value"]}, reason=reason, now=now, expiry=expiry)
    return f"Override {made[0].pk} is in force for {arguments['minutes']:g} min."


def _hold(actor: Actor, arguments: Mapping[str, Any], reason: str, snapshot: Snapshot | None, now: datetime) -> str:
    loop, expiry = get_loop_by_name(arguments["loop"]), Expiry(minutes=arguments["minutes"])
    loops.set_mode(actor, loop, Loop.Mode.HOLD, reason=reason, now=now, expiry=expiry)
    return f"{loop.name} is on hold for {arguments['minutes']:g} min."


def _silence(actor: Actor, arguments: Mapping[str, Any], reason: str, snapshot: Snapshot | None, now: datetime) -> str:
    minutes = arguments["minutes"]
    made = alerts.silence(actor, arguments["matchers"], reason=reason, minutes=minutes, now=now)
    return f"Silence {made.pk} is in force for {minutes:g} min."


def _plan(actor: Actor, arguments: Mapping[str, Any], reason: str, snapshot: Snapshot | None, now: datetime) -> str:
    made = plans.propose_rebalance(actor, arguments["goal"], snapshot, now)
    return f"Plan {made.pk} was created. It must also be approved before it moves points."


VALUE = Parameter("value", "", "New value of the parameter.", None, -1e12, 1e12, required=True)
ACTS: Mapping[str, Proposable] = {
    "override": Proposable(
        "Temporarily override one parameter or guard setting of a loop.",
        "override.set",
        (
            LOOP,
            Parameter("name", "name", "Name of the parameter.", None, kind="text", required=True),
            VALUE,
            _build_minutes_parameter("Duration of the override."),
        ),
        _apply_override,
    ),
    "hold": Proposable(
        "Temporarily hold a loop.", "loop.mode", (LOOP, _build_minutes_parameter("Duration of the hold.")), _hold
    ),
    "silence": Proposable(
        "Temporarily silence matching alerts.",
        "silence.set",
        (MATCHERS, _build_minutes_parameter("Duration of the silence.")),
        _silence,
    ),
    "plan": Proposable(
        "Create a plan that moves points between nodes; the plan needs its own approval by hash.",
        "plan.propose",
        (GOAL,),
        _plan,
    ),
}


@transaction.atomic
def propose(
    actor: Actor, act: str, arguments: object, *, reason: object, snapshot: Snapshot | None, now: datetime
) -> AssistantProposal:
    """Propose an action to people; nothing is done. Only a token proposes: people act themselves."""
    require_permission(actor, "proposal.make")
    if actor.token is None:
        raise BadInput("authorization", "must be an API token. Logged-in users don't need a proposal.")
    cleaned, text = validate_arguments(act, arguments), overrides.read_reason(reason)
    if snapshot is None or snapshot.at is None:
        raise BadInput("plant", "is not observed yet. Wait for its first snapshot.")
    plans.require_fresh_snapshot(snapshot, now, LIVE_SECONDS)
    if open_proposals(now).filter(token=actor.token).count() >= MAX_OPEN:
        raise BadInput(
            "proposals", f"exceed the limit of {MAX_OPEN} open proposals per token. Wait until some are decided."
        )
    made = AssistantProposal(
        act=act,
        arguments=cleaned,
        reason=text,
        token=actor.token,
        snapshot_seq=snapshot.seq,
        snapshot_at=snapshot.at,
        created_at=now,
        expires_at=now + timedelta(seconds=PROPOSAL_SECONDS),
    )
    made.hash = compute_proposal_hash(made)
    made.save()
    AssistantProposal.objects.filter(token=actor.token, created_at__lt=now - RETAINED).delete()
    after = {"proposal": made.pk, "act": act, "hash": made.hash[:8], **cleaned}
    audit_log.record(actor, "proposal.make", _format_target(made), reason=text, after=after)
    return made


@transaction.atomic
def approve(
    actor: Actor, proposal: AssistantProposal, hash: object, *, reason: object, snapshot: Snapshot | None, now: datetime
) -> AssistantProposal:
    """Do what was proposed, with the rights of the person who approves."""
    _require_login_session(actor)
    row, text = _open(proposal, now), overrides.read_reason(reason)
    shown = hash if isinstance(hash, str) and hash.isascii() else ""
    # Neither another hash was shown, nor has the row changed.
    if not (hmac.compare_digest(shown, row.hash) and hmac.compare_digest(row.hash, compute_proposal_hash(row))):
        raise BadInput("hash", "does not match this proposal. Open the proposal again and approve the version shown.")
    if not is_valid(row.token, now):
        raise BadInput(
            "proposal", f"was made by {row.token.name}, a token that is no longer valid. Reject the proposal."
        )
    act = ACTS[row.act]
    require_permission(actor, act.permission, list_proposal_queues(row))
    if why := _describe_drift(row, now):
        raise BadInput("proposal", f"is no longer valid: {why}. Request a new proposal.")
    row.outcome = act.carry_out(actor, row.arguments, _reason_of_both(row, text), snapshot, now)
    return _record_decision(actor, row, State.APPROVED, text, now)


@transaction.atomic
def reject(actor: Actor, proposal: AssistantProposal, *, reason: object, now: datetime) -> AssistantProposal:
    """Reject a proposal permanently."""
    _require_login_session(actor)
    return _record_decision(actor, _open(proposal, now), State.REJECTED, overrides.read_reason(reason), now)


def _require_login_session(actor: Actor) -> None:
    """Raise `PermissionDenied` unless a logged-in person decides.

    A command has a person's rights without a password, and an assistant may have a shell.
    """
    require_permission(actor, "proposal.decide")
    if actor.confirmed_at is None:
        raise PermissionDenied("Only a logged-in user can decide a proposal, on the proposal's page.")


def validate_arguments(act: object, arguments: object) -> dict[str, Any]:
    """Return the arguments of an action with their values. Raises `BadInput`."""
    if not isinstance(act, str) or act not in ACTS:
        raise BadInput("act", f"must be one of {', '.join(ACTS)}, not {checks.shorten_for_message(act)}.")
    cleaned = read_values(ACTS[act].arguments, arguments, "arguments")
    if "loop" in cleaned:
        get_loop_by_name(cleaned["loop"])
    return cleaned


def get_loop_by_name(name: str) -> Loop:
    """Return a loop by its name. Raises `BadInput`."""
    loop = Loop.objects.filter(name=name).first()
    if loop is None:
        raise BadInput(
            "arguments.loop", f"{checks.shorten_for_message(name)} is not a loop. List the loops and use a loop's name."
        )
    return loop


def compute_proposal_hash(proposal: AssistantProposal) -> str:
    """Return the SHA-256 in hex of what a person approves: act, arguments, reason, token, snapshot, and time."""
    parts = {
        "act": proposal.act,
        "arguments": proposal.arguments,
        "reason": proposal.reason,
        "token": proposal.token_id,
        "snapshot": [proposal.snapshot_seq, proposal.snapshot_at],
        "created_at": proposal.created_at.isoformat(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def open_proposals(now: datetime) -> QuerySet[AssistantProposal]:
    """Return the proposals that wait at `now`, the oldest first, whatever their rows say."""
    waiting = AssistantProposal.objects.filter(
        state=State.PROPOSED, expires_at__gt=now, created_at__lte=now + CLOCKS_DIFFER
    )
    return waiting.select_related("token", "decided_by").order_by("pk")


def compute_proposal_state(proposal: AssistantProposal, now: datetime) -> str:
    """Return the state: a proposal that was not approved in time is void from then on."""
    is_open = proposal.expires_at > now and proposal.created_at <= now + CLOCKS_DIFFER
    return str(State.VOID if proposal.state == State.PROPOSED and not is_open else proposal.state)


def list_proposal_queues(proposal: AssistantProposal) -> list[str] | None:
    """Return the queues that its action concerns; None: the whole plant."""
    if proposal.act in ("override", "hold"):
        return loops.list_scope_queues(Scope(get_loop_by_name(proposal.arguments["loop"])))
    return alerts.list_matcher_queues(proposal.arguments["matchers"]) if proposal.act == "silence" else None


def _open(proposal: AssistantProposal, now: datetime) -> AssistantProposal:
    """Return its row, locked until the transaction ends."""
    rows = AssistantProposal.objects.select_for_update(of=("self",)).select_related("token")
    row = rows.get(pk=proposal.pk)
    state = compute_proposal_state(row, now)
    if state != State.PROPOSED:
        raise BadInput("proposal", f"is already {state}. Request a new proposal.")
    return row


def _reason_of_both(row: AssistantProposal, note: str) -> str:
    """Return the assistant's reason and the person's, each shortened so that both are visible."""
    by = f" (proposed by {row.token.name}, approved: "
    room = overrides.MAXIMUM_REASON_LENGTH - len(by) - len(")")
    agreed = note[: room // 2]
    return f"{row.reason[: room - len(agreed)]}{by}{agreed})"


def _describe_drift(row: AssistantProposal, now: datetime) -> str:
    """Return why it is out of date: who set the same since it was proposed; "" if nobody."""
    name = row.arguments["name"] if row.act == "override" else "mode" if row.act == "hold" else ""
    if not name:
        return ""
    held = overrides.list_for_loop(get_loop_by_name(row.arguments["loop"]), now)
    later = [loop for loop in held if loop.name == name and loop.created_at > row.created_at]
    if not later:
        return ""
    newest = later[-1]
    at = f"{newest.created_at.astimezone(UTC):%H:%M:%S} UTC"
    return f"{newest.owner.get_username()} set {name} to {newest.value} at {at}, after it was proposed"


def _record_decision(
    actor: Actor, row: AssistantProposal, state: AssistantProposal.State, note: str, now: datetime
) -> AssistantProposal:
    row.state, row.decided_by, row.decided_at, row.note = state, actor.user, now, note
    row.save(update_fields=["state", "decided_by", "decided_at", "note", "outcome"])
    action = "proposal.approve" if state == State.APPROVED else "proposal.reject"
    after = {"hash": row.hash[:8], "proposed by": row.token.name, "act": row.act, "outcome": row.outcome}
    audit_log.record(actor, action, _format_target(row), reason=note, after=after)
    return row


def _format_target(proposal: AssistantProposal) -> str:
    return f"proposal {proposal.pk}"
