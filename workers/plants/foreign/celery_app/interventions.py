"""What a person may do at a Celery app besides sizing its pools: pause a queue, limit a task's rate, revoke a
task. Each by remote control, and with what undoes it.
"""

import json
import re

from queues.errors import BadInput
from workers.plants.foreign.celery_app.remote_control import RemoteControl
from workers.plants.foreign.kind import InterventionKind
from workers.plants.plant import PlantSilent

PAUSE, LIMIT, REVOKE = "pause", "rate_limit", "revoke"
INTERVENTIONS = (
    InterventionKind(
        name=PAUSE, title="Pause a queue", subject="a queue, which its workers then leave alone"
    ),
    InterventionKind(
        name=LIMIT,
        title="Limit a task's rate",
        subject="the name of a task",
        value="how many a worker begins: 10/s, 100/m, 5/h; 0 for no limit",
    ),
    InterventionKind(
        name=REVOKE,
        title="Revoke a task",
        subject="the id of a task",
        value='"terminate" to end it where it runs (prefork pools); empty: only if it has not begun',
        lasting=False,
    ),
)
RATE = re.compile(r"\d{1,9}(\.\d{1,3})?(/[smh])?\Z")
NONE = "0"


class AppInterventions:
    """Of one app. Raises PlantSilent where it does not answer in time, and PlantConfused where it refuses."""

    def __init__(self, control: RemoteControl) -> None:
        self._control = control

    def before(self, kind: str, subject: str, value: str) -> str:
        """What there is now, as JSON. Raises BadInput naming subject or value."""
        if kind == PAUSE:
            return json.dumps(self._takers_of(subject))
        if kind == LIMIT:
            return json.dumps(self._limits(subject, value))
        if value not in ("", "terminate"):
            raise BadInput("value", f'takes "terminate" or nothing, not {value[:40]!r}.')
        return ""

    def intervene(self, kind: str, subject: str, value: str) -> None:
        """Do it; what is so already stays."""
        if kind == PAUSE:
            for worker in self._takers(subject):
                self._control.order("cancel_consumer", worker, queue=subject)
        elif kind == LIMIT:
            for worker in self._limits(subject, value):
                self._control.order("rate_limit", worker, task_name=subject, rate_limit=value)
        else:
            for worker in self._control.pools():
                self._control.order("revoke", worker, task_id=subject, terminate=value == "terminate")

    def undo(self, kind: str, subject: str, before: str) -> None:
        """At each worker that answers. Raises PlantSilent for one that does not: it may be late, or gone for
        good, and is asked again until it is given up (`workers.plants.foreign.interventions`).
        """
        noted, living = json.loads(before), self._control.pools()
        for worker in (each for each in noted if each in living):
            if kind == PAUSE:
                self._control.order("add_consumer", worker, queue=subject)
            else:
                self._control.order("rate_limit", worker, task_name=subject, rate_limit=noted[worker] or NONE)
        if away := [each for each in noted if each not in living]:
            raise PlantSilent(f"{away[0]} does not answer; it is asked again")

    def _takers(self, queue: str) -> list[str]:
        return [worker for worker, pool in self._control.pools().items() if queue in pool.queues]

    def _takers_of(self, queue: str) -> list[str]:
        """Raises BadInput where there are none."""
        if takers := self._takers(queue):
            return takers
        known = dict.fromkeys(each for pool in self._control.pools().values() for each in pool.queues)
        said = ", ".join(known) or "none"
        raise BadInput("subject", f"takes a queue that workers take from ({said}), not {queue!r}.")

    def _limits(self, task: str, value: str) -> dict[str, str]:
        """Worker → the task's limit there now."""
        if not RATE.match(value):
            raise BadInput("value", f"takes a rate such as 10/s, 100/m or 5/h, not {value[:40]!r}.")
        limits = self._control.rate_limits(list(self._control.pools()))
        found = {worker: of[task] for worker, of in limits.items() if task in of}
        if not found:
            raise BadInput("subject", f"takes the name of a task that workers know, not {task!r}.")
        return found
