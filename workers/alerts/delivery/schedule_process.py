"""`python -m workers.alerts.delivery.schedule_process`: reads one calendar, and ends.

A calendar comes from outside, and a few lines of it can take a year of arithmetic. A separate process with a bound on
time and memory therefore reads it, never the one that notifies.

Standard input: {"calendar", "now"}; standard output: {"shifts", "broken", "error"}. An event that takes too much time
is reported, and the others count. If all of them together take too much, the calendar is refused.
"""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import Any

from common.documents import decode_text
from common.errors import BadInput
from workers.alerts.delivery import schedule
from workers.alerts.delivery.schedule import Rota
from workers.alerts.delivery.schedule_events import BrokenEvent
from workers.host import bounded_process
from workers.host.bounded_process import ProcessFailed

MODULE = "workers.alerts.delivery.schedule_process"
MAX_MEMORY_BYTES = 1 << 29
MAX_CORE_SECONDS = 10
PROCESS_SECONDS = 60.0
MAX_EVENT_CORE_SECONDS = 1.5
MAX_EVENTS_CORE_SECONDS = 7.0


def read(text: bytes, now: datetime) -> Rota:
    """Return `schedule.read_rota`, bounded. Raises `BadInput` as it does."""
    order = {"calendar": decode_text(text, "replace"), "now": now.isoformat()}
    try:
        answer = bounded_process.answer_of(MODULE, order, PROCESS_SECONDS)
    except ProcessFailed as error:
        raise BadInput("calendar", f"can't be read: the process that reads it {error}.") from None
    if answer["error"]:
        raise BadInput("calendar", answer["error"])
    return Rota([schedule.shift_of(shift) for shift in answer["shifts"]], answer["broken"])


def _answer(order: dict[str, Any]) -> dict[str, Any]:
    now = datetime.fromisoformat(order["now"])
    try:
        rota = schedule.read_rota(order["calendar"].encode(), now, _build_core_time_bounds())
    except BadInput as error:
        return {"shifts": [], "broken": [], "error": error.message}
    return {"shifts": [shift.document() for shift in rota.shifts], "broken": rota.broken, "error": ""}


def _build_core_time_bounds() -> Callable[[], AbstractContextManager[None]]:
    """Return the bounds on the core time of one event, and of all of them. This process has one thread."""
    begun = time.process_time()

    def interrupt(*_: Any) -> None:
        raise BrokenEvent("takes too long to read: its rule rarely or never recurs; add UNTIL to the rule.")

    @contextmanager
    def limit_core_time() -> Iterator[None]:
        if time.process_time() - begun > MAX_EVENTS_CORE_SECONDS:
            raise BadInput(
                "calendar", "takes too long to read: many of its rules rarely or never recur; add UNTIL to them."
            )
        signal.setitimer(signal.ITIMER_PROF, MAX_EVENT_CORE_SECONDS)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    signal.signal(signal.SIGPROF, interrupt)
    return limit_core_time


if __name__ == "__main__":
    bounded_process.serve(_answer, MAX_MEMORY_BYTES, MAX_CORE_SECONDS)
