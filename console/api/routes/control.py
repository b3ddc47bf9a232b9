"""Control: loops and overrides."""

from typing import Annotated, Any, TypedDict, get_args

from django.http import Http404, HttpRequest
from django.utils import timezone

from common.errors import BadInput
from common.parameter import Parameter
from common.stored_document import Instant, Seconds, Time, copy_shared_values, describe
from console.actions import loops
from console.api.request.answers import Created, Document, Json, Router, build_answer, get_or_404
from console.api.request.authentication import actor_for
from console.api.request.input import GivenTime, RequestBody
from console.api.request.refusals import RETRY_AFTER_SECONDS, RefusedError
from console.api.routes.plant import get_node_or_404
from console.connections.control_server import control
from console.display import loops as loop_view
from console.display.loops import DescribedLoop, build_parameter_rows, describe_loops
from console.display.plant_words import ShownModeProposal, ShownReport, find_mode_proposal, report_of
from console.input.form_values import Id, parse_row_id
from controllers import catalog
from workers.control.loops import NothingDesired, compute_desired
from workers.documents.loops import OverrideFields
from workers.models import Loop, Override
from workers.steering import overrides
from workers.steering.overrides import Expiry

router = Router(tags=["control"])


KINDS = get_args(Parameter.__annotations__["kind"])


class OverrideRow(OverrideFields, frozen=True, kw_only=True):
    """An override."""

    created_at: Time
    expires_at: Annotated[Time | None, describe("Time when the value expires; null: no expiry.")]
    ended_at: Time | None


class OverrideEnd(OverrideRow, frozen=True, kw_only=True):
    """An override that was ended."""

    ended: Annotated[bool, describe("false: already ended.")]


class OverrideList(TypedDict):
    overrides: list[OverrideRow]


class OverrideUndo(TypedDict):
    """The reverted changes; empty if the intervention had already ended."""

    ended: list[OverrideRow]
    again: Annotated[list[OverrideRow], describe("Earlier overrides that are in force again until their own expiry.")]


class LoopRow(TypedDict):
    """A loop with what is in force."""

    id: int
    name: str
    law: str
    summary: Annotated[str, describe("Description of its law.")]
    target: Annotated[
        dict[str, str], describe("The queue, node, application, or other subject that the loop controls.")
    ]
    base_mode: Annotated[Annotated[str, describe(values=Loop.Mode.values)], describe("The mode without overrides.")]
    mode: Annotated[str, describe(values=Loop.Mode.values)]
    parameters: Annotated[Document, describe("The parameters without overrides.")]
    effective: Annotated[Document, describe("The parameters in force.")]
    overrides: list[OverrideRow]
    conflict: Annotated[str, describe("Why overrides of parameters and guard settings are ignored; empty: they apply.")]
    actuator: Annotated[str | None, describe("The value that the loop sets; null: several values at once.")]
    interval_seconds: Seconds
    ticked_at: Time | None


class LoopList(TypedDict):
    loops: list[LoopRow]


class LoopParameter(TypedDict):
    """A parameter of a loop's law as declared, and its values."""

    name: str
    label: str
    value: Json
    effective: Annotated[Json, describe("The value in force.")]
    default: Json
    minimum: float
    maximum: float
    unit: str
    help: str
    kind: Annotated[str, describe(values=KINDS)]
    choices: list[str]
    override: int | None


class LoopDetail(LoopRow):
    declared: list[LoopParameter]
    guard: Annotated[Document, describe("The guard's settings in force.")]
    first_report: Annotated[ShownReport | None, describe("First report of a loop in advise mode; null: no report yet.")]
    mode_proposal: Annotated[ShownModeProposal | None, describe("Open proposal to set the loop to auto; null: none.")]


class LoopMode(TypedDict):
    mode: Annotated[str, describe(values=Loop.Mode.values)]
    override: Annotated[OverrideRow | None, describe("Override of the mode.")]
    overrides: Annotated[list[OverrideRow], describe("All overrides that were set, for the mode and the actuator.")]


class DesiredValue(TypedDict):
    """The desired value of a loop, as numbers that an external autoscaler polls."""

    loop: int
    name: str
    mode: Annotated[str, describe(values=Loop.Mode.values)]
    at: Annotated[Instant, describe("Time of the decision.")]
    entry: Annotated[int, describe("The decision's number in the ledger.")]
    desired: Annotated[float, describe("Sum of all values, such as tasks or processes.")]
    values: Annotated[dict[str, float], describe("Keyed by operator, or by another output of the law.")]
    reason: str


class NewOverride(RequestBody):
    """A value on one loop, on a node, or on several loops.

    `loop` is an id or a name. A node has `busy` and `toobusy`. Several loops are all loops of a law, a queue, a node,
    or several of these. The override expires after `minutes`, at `expires_at`, or (`endless`, for administrators)
    never.
    """

    name: str
    value: bool | int | float | str
    reason: str
    loop: int | str | None = None
    law: str = ""
    queue: str = ""
    node: str | None = None
    minutes: float | None = None
    expires_at: GivenTime | None = None
    endless: bool = False


class ExpiryExtension(RequestBody):
    """`minutes` more, or a new expiry."""

    minutes: float | None = None
    expires_at: GivenTime | None = None


class OverrideEnding(RequestBody):
    """The reason, which is optional, since ending an override restores the usual value."""

    reason: str = ""


class NewMode(RequestBody):
    """hold and manual need an expiry; `value` is what manual applies."""

    mode: str
    reason: str
    minutes: float | None = None
    expires_at: GivenTime | None = None
    endless: bool = False
    value: float | None = None


@router.get("/loops", summary="List loops with their values in force")
def list_loops(request: HttpRequest) -> LoopList:
    actor_for(request, "plant.view")
    return {"loops": [_build_loop_row(loop) for loop in describe_loops(timezone.now())]}


@router.get("/loops/{loop_id}", summary="Get a loop, its parameters, and its guard")
def get_loop(request: HttpRequest, loop_id: Id) -> LoopDetail:
    actor_for(request, "plant.view")
    now = timezone.now()
    loop = get_loop_or_404(loop_id)
    law = catalog.get_law(loop.law)
    held = overrides.list_for_loop(loop, now)
    counted = overrides.select_effective(loop, held, now)
    rows = build_parameter_rows(law, loop.parameters, counted, now)
    return {
        **_build_loop_row(loop_view.describe(loop, held, now)),
        "declared": [build_answer(LoopParameter, row, override=row.override and row.override.pk) for row in rows],
        "guard": overrides.get_effective_guard(law, loop.guard, counted, now),
        "first_report": report_of(loop.pk),
        "mode_proposal": find_mode_proposal(loop),
    }


@router.get(
    "/loops/{loop_id}/desired", summary="Get a loop's desired value for external autoscalers (KEDA); 503 if unknown"
)
def get_desired(request: HttpRequest, loop_id: Id) -> DesiredValue:
    actor_for(request, "plant.view")
    return compute_desired_value(get_loop_or_404(loop_id))


class ModeProposalDecision(RequestBody):
    """hash: the hash of the proposal to approve. Omit it to reject the proposal."""

    approve: bool
    hash: str = ""
    reason: str


@router.post("/loops/{loop_id}/mode-proposal", summary="Approve or reject the proposal to set a loop to auto")
def decide_mode_proposal(request: HttpRequest, loop_id: Id, body: ModeProposalDecision) -> LoopDetail:
    actor, loop, now = actor_for(request, "loop.mode"), get_loop_or_404(loop_id), timezone.now()
    if body.approve:
        loops.approve_mode_proposal(actor, loop, body.hash, reason=body.reason, now=now)
    else:
        loops.reject_mode_proposal(actor, loop, reason=body.reason, now=now)
    return get_loop(request, loop_id)


@router.post("/loops/{loop_id}/mode", summary="Change a loop's mode")
def change_mode(request: HttpRequest, loop_id: Id, body: NewMode) -> LoopMode:
    actor = actor_for(request, "loop.mode")
    loop = get_loop_or_404(loop_id)
    expiry = Expiry(body.minutes, body.expires_at, body.endless)
    made = loops.set_mode(
        actor, loop, body.mode, reason=body.reason, now=timezone.now(), expiry=expiry, value=body.value
    )
    rows = [build_override(row) for row in made]
    return {"mode": body.mode, "override": rows[0] if rows else None, "overrides": rows}


@router.get("/overrides", summary="List overrides in force")
def list_overrides(request: HttpRequest) -> OverrideList:
    actor_for(request, "plant.view")
    rows = overrides.list_active(timezone.now()).select_related("loop", "node", "owner")
    rows_of_overrides = overrides.sort_by_expiry(rows)
    return {"overrides": [build_override(override) for override in rows_of_overrides]}


@router.post("/overrides", summary="Override a value")
def create_override(request: HttpRequest, body: NewOverride) -> Created[OverrideRow]:
    now = timezone.now()
    if body.node is not None and body.name in (*loops.THRESHOLDS, *loops.THRESHOLDS.values()):
        actor = actor_for(request, "node.thresholds")
        for field in ("loop", "law", "queue"):
            if getattr(body, field) not in (None, ""):
                raise BadInput(field, f"must be omitted: {body.name} applies to the whole node.")
        wanted = {body.name.removesuffix("_threshold"): body.value}
        made = loops.override_thresholds(
            actor,
            get_node_or_404(body.node),
            wanted,
            reason=body.reason,
            now=now,
            control=control(),
            expiry=Expiry(body.minutes, body.expires_at, body.endless),
        )
    else:
        actor = actor_for(request, "override.set")
        made = loops.override_by_name(
            actor,
            body.name,
            body.value,
            loop=get_loop_or_404(body.loop) if body.loop is not None else None,
            law=body.law,
            queue=body.queue,
            node=body.node or "",
            reason=body.reason,
            now=now,
            expiry=Expiry(body.minutes, body.expires_at, body.endless),
        )
    return build_override(made[0])


def _refuse_beside_a_node(body: NewOverride) -> None:
    """Reject another scope next to a node's own value: ignoring it could change the wrong thing."""
    for field in ("loop", "law", "queue"):
        if getattr(body, field) not in (None, ""):
            raise BadInput(field, f"must be omitted: {body.name} applies to the whole node.")


@router.post("/overrides/{override_id}/end", summary="End an override now")
def end_override(request: HttpRequest, override_id: Id, body: OverrideEnding | None = None) -> OverrideEnd:
    actor = actor_for(request, "override.end")
    override = get_override_or_404(override_id)
    reason = "" if body is None else body.reason
    ended = loops.end_override(actor, override, now=timezone.now(), control=control(), reason=reason)
    return build_override_end(override, ended)


@router.post("/overrides/{override_id}/undo", summary=("Undo an override and the overrides set with it"))
def undo_override(request: HttpRequest, override_id: Id) -> OverrideUndo:
    """Undo an override and those set with it; what they ended is in force again until its own expiry."""
    actor = actor_for(request, "override.undo")
    override = get_override_or_404(override_id)
    undone = loops.undo_override(actor, override, now=timezone.now(), control=control())
    return {
        "ended": [build_override(ended) for ended, _ in undone],
        "again": [build_override(again) for _, again in undone if again is not None],
    }


@router.post("/overrides/{override_id}/extend", summary="Extend an override")
def extend_override(request: HttpRequest, override_id: Id, body: ExpiryExtension) -> OverrideRow:
    actor = actor_for(request, "override.extend")
    override = get_override_or_404(override_id)
    expiry = Expiry(**body.dict())
    return build_override(loops.extend_override(actor, override, expiry, now=timezone.now(), control=control()))


def get_loop_or_404(id_or_name: int | str) -> Loop:
    """Return a loop by id or name, or 404."""
    number = id_or_name if isinstance(id_or_name, int) else parse_row_id(id_or_name)
    loop = Loop.objects.filter(**({"name": id_or_name} if number is None else {"pk": number})).first()
    if loop is None:
        raise Http404(f"Loop {id_or_name} is unknown. GET /api/v1/loops lists the loops.")
    return loop


def compute_desired_value(loop: Loop) -> DesiredValue:
    """Return the desired value. Raises `RefusedError` 503 if there is none: 0 would mean that nothing is needed."""
    now = timezone.now()
    try:
        desired_number = compute_desired(loop, now)
    except NothingDesired as error:
        raise RefusedError(503, "loop", str(error), RETRY_AFTER_SECONDS) from None
    return {
        "loop": loop.pk,
        "name": loop.name,
        "mode": loop_view.describe(loop, overrides.list_for_loop(loop, now), now).mode,
        "desired": desired_number.total,
        "values": dict(desired_number.values),
        "reason": desired_number.reason,
        "at": desired_number.at,
        "entry": desired_number.entry,
    }


def _build_loop_row(loop: DescribedLoop) -> LoopRow:
    return build_answer(LoopRow, loop, overrides=[build_override(override) for override in loop.overrides])


def build_override(override: Override) -> OverrideRow:
    return OverrideRow(**_get_override_values(override))


def build_override_end(override: Override, ended: bool) -> OverrideEnd:
    return OverrideEnd(**_get_override_values(override), ended=ended)


def _get_override_values(override: Override) -> dict[str, Any]:
    times = {name: getattr(override, name) for name in ("created_at", "expires_at", "ended_at")}
    return copy_shared_values(overrides.build_status(override), OverrideFields) | times


def get_override_or_404(override_id: int) -> Override:
    rows = Override.objects.select_related("loop", "node", "owner")
    return get_or_404(rows, f"Override {override_id} does not exist.", pk=override_id)
