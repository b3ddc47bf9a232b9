"""Tasks set by hand on a loop of the joint law until they expire; the other tasks are planned around them."""

from collections.abc import Sequence
from datetime import datetime

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone

from common.errors import BadInput
from console.accounts.access import actor_of
from console.actions import loops
from console.display.override_words import describe_end, describe_replaced_overrides
from console.input.form_values import is_untouched, parse_expiry, parse_number
from console.pages.frame.action import ActionResult, declare_action
from console.pages.loops.loops import loop_page
from console.pages.loops.parallelism_view import JOINT, list_manual_tasks
from controllers import catalog
from workers.models import Loop
from workers.steering import overrides
from workers.steering.overrides import Expiry
from workers.steering.scope import Scope

FIELD = "tasks-"


@declare_action("override.set", loop_page)
def set_tasks(request: HttpRequest, loop_id: int) -> ActionResult:
    """Set tasks of operators.

    Posted: `tasks-OPERATOR` (empty: left to the law), each with `was-tasks-OPERATOR`; reason, expiry.
    """
    loop, now = get_object_or_404(Loop, pk=loop_id, law=JOINT), timezone.now()
    before, expiry = list_manual_tasks(loop, now), parse_expiry(request.POST)
    wanted = {**before, **_read_fields(request)}
    tasks = {name: count for name, count in wanted.items() if count is not None}
    others = [name for name in before if before[name] == tasks.get(name)]
    _check_expiry(loop, others, expiry, now)
    made = loops.override(
        actor_of(request),
        Scope(loop),
        {"tasks_of": tasks} if tasks != before else {},
        reason=request.POST.get("reason", ""),
        now=now,
        expiry=expiry,
    )
    what = ", ".join(f"{name.rpartition('/')[2]} {count}" for name, count in tasks.items())
    message = f"Manual tasks: {what or 'none'} {describe_end(made[0])}.{describe_replaced_overrides(made)}"
    return ActionResult(message, reverse("loop", args=[loop_id]), {"overrides": [override.pk for override in made]})


def _check_expiry(loop: Loop, others: Sequence[str], expiry: Expiry, now: datetime) -> None:
    """Reject an expiry earlier than that of tasks already set.

    One override contains all operators of a loop, so an earlier expiry would end the others' tasks too.
    """
    held = overrides.list_active(now).filter(loop=loop, name="tasks_of").select_related("owner").last()
    asked = expiry.compute(now)
    if held is None or not others or asked is None:
        return
    if held.expires_at is None or asked < held.expires_at:
        names = ", ".join(name.rpartition("/")[2] for name in others)
        by = f"{describe_end(held)} by {held.owner.get_username()}"
        said = (
            f"is too early: the manual tasks of {names} are set {by}. "
            "Choose a later expiry, or end that override first."
        )
        raise BadInput("minutes" if expiry.expires_at is None else "expires_at", said)


def _read_fields(request: HttpRequest) -> dict[str, int | None]:
    """Return the changed fields. Raises `BadInput` that names the field."""
    parameter = catalog.get_parameter(catalog.get_law(JOINT), "tasks_of").items[0]
    numbers: dict[str, int | None] = {}
    for field, text in request.POST.items():
        if not field.startswith(FIELD) or is_untouched(request.POST, field):
            continue
        name, value = field.removeprefix(FIELD), str(text).strip()
        try:
            numbers[name] = parameter.check(parse_number(value, field), "form") if value else None
        except BadInput as error:
            raise BadInput(field, error.message) from None
    return numbers
