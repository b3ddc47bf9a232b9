"""`python -m workers.alerts.delivery.schedule_process`: reads one calendar, and ends.

A calendar comes from outside, and a few lines of it can ask for a year of arithmetic: so it is read by a
process of its own, with a bound on time and memory, and never by the one that notifies.

Standard input: {"calendar", "now"}; standard output: {"shifts", "error"}.
"""

from datetime import datetime
from typing import Any

from queues.errors import BadInput
from workers.alerts.delivery import schedule
from workers.alerts.delivery.schedule import Shift
from workers.host import bounded_process
from workers.host.bounded_process import ProcessFailed

MODULE = "workers.alerts.delivery.schedule_process"
MOST_MEMORY_BYTES = 1 << 29
MOST_CORE_SECONDS = 10
PROCESS_SECONDS = 60.0


def read(text: bytes, now: datetime) -> list[Shift]:
    """`schedule.shifts`, bounded. Raises BadInput as it does."""
    order = {"calendar": text.decode("utf-8-sig", "replace"), "now": now.isoformat()}
    try:
        answer = bounded_process.answer_of(MODULE, order, PROCESS_SECONDS)
    except ProcessFailed as error:
        raise BadInput("calendar", f"can't be read: the process that reads it {error}.") from None
    if answer["error"]:
        raise BadInput("calendar", answer["error"])
    return [schedule.shift_of(each) for each in answer["shifts"]]


def _answer(order: dict[str, Any]) -> dict[str, Any]:
    now = datetime.fromisoformat(order["now"])
    try:
        found = schedule.shifts(order["calendar"].encode(), now)
    except BadInput as error:
        return {"shifts": [], "error": error.message}
    return {"shifts": [each.document() for each in found], "error": ""}


if __name__ == "__main__":
    bounded_process.serve(_answer, MOST_MEMORY_BYTES, MOST_CORE_SECONDS)
