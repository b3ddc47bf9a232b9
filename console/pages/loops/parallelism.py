"""Tasks set by hand on a loop of the joint law, for some time; the others are planned around them."""

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone

from console.accounts.access import actor_of
from console.actions import loops
from console.display.override_words import ending_of
from console.input.form_values import expiry_of, is_untouched, number_of
from console.pages.frame.action import Done, action
from console.pages.loops.loops import loop_page
from console.pages.loops.parallelism_view import JOINT, by_hand
from controllers import catalog
from queues.errors import BadInput
from workers.models import Loop
from workers.steering.scope import Scope

FIELD = "tasks-"


@action("override.set", loop_page)
def set_tasks(request: HttpRequest, loop_id: int) -> Done:
    """Posted: `tasks-OPERATOR` (empty: left to the law), each with `was-tasks-OPERATOR`; reason, expiry."""
    loop, now = get_object_or_404(Loop, pk=loop_id, law=JOINT), timezone.now()
    before = by_hand(loop, now)
    wanted = {**before, **_typed(request)}
    tasks = {name: count for name, count in wanted.items() if count is not None}
    made = loops.override(
        actor_of(request),
        Scope(loop),
        {"tasks_of": tasks} if tasks != before else {},
        reason=request.POST.get("reason", ""),
        now=now,
        expiry=expiry_of(request.POST),
    )
    what = ", ".join(f"{name.rpartition('/')[2]} has {count}" for name, count in tasks.items())
    message = f"By hand: {what or 'nothing'} {ending_of(made[0])}."
    return Done(message, reverse("loop", args=[loop_id]), {"overrides": [each.pk for each in made]})


def _typed(request: HttpRequest) -> dict[str, int | None]:
    """What each field says that somebody touched. Raises BadInput naming the field."""
    parameter = catalog.parameter(catalog.law(JOINT), "tasks_of").items[0]
    found: dict[str, int | None] = {}
    for field, text in request.POST.items():
        if not field.startswith(FIELD) or is_untouched(request.POST, field):
            continue
        name, value = field.removeprefix(FIELD), str(text).strip()
        try:
            found[name] = parameter.check(number_of(value, field), "form") if value else None
        except BadInput as error:
            raise BadInput(field, error.message) from None
    return found
