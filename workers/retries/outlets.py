"""The outlet of a retry plan at the plant that it is about."""

from common.errors import BadInput
from workers.plants.foreign import adapters
from workers.plants.foreign.retry_outlet import RetryOutlet
from workers.plants.models import RegisteredPlant
from workers.plants.registry import UnknownPlant
from workers.retries.dead_letter_outlet import DeadLetterOutlet
from workers.retries.items import decode_items
from workers.retries.models import RetryPlan


def open_plan_outlet(plan: RetryPlan, name: str) -> RetryOutlet:
    """Return the outlet of a plan; name: of what is staged there.

    Raises UnknownPlant, PlantUnavailable, and BadInput.
    """
    if plan.kind == RetryPlan.Kind.DEAD_LETTERS:
        return DeadLetterOutlet(decode_items(plan.items), plan.sent)
    plant = plan.plant
    row = RegisteredPlant.objects.filter(name=plant).first()
    if row is None:
        raise UnknownPlant("plant", f"{plant} is not registered.")
    open_outlet = adapters.get_kind(row.kind).open_retry_outlet
    if open_outlet is None:
        raise BadInput("plant", f"{plant} has no tasks that can be sent again. Choose an attached Celery app.")
    return open_outlet(adapters.build_address(row), name)
