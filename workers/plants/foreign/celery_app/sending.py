"""Tasks that people start at a Celery app: checked against what its workers know, and sent to its broker once.

A message has Celery's protocol 2 and JSON, as a task that the app itself sends with the serializer `json`. It goes to
its queue directly (the exchange without a name), so Weir declares and binds nothing in the app's broker.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta

from celery import Celery

from common.checks import suggest
from common.errors import BadInput, describe_connection_error
from workers.plants.foreign.celery_app.broker import FAILURES
from workers.plants.foreign.celery_app.remote_control import WorkerPool
from workers.plants.foreign.kind import TaskRequest
from workers.plants.plant import PlantUnavailable

MAX_NAMES = 500
MAX_NAMED = 20  # in an error message


def list_task_names(registered: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the names of the tasks that workers have registered (worker → task → its rate limit)."""
    return sorted({task for of_worker in registered.values() for task in of_worker})[:MAX_NAMES]


def check_task(
    request: TaskRequest,
    pools: Iterable[WorkerPool],
    queues: Collection[str],
    registered: Mapping[str, Mapping[str, str]],
) -> None:
    """Raise `BadInput`, naming `task` or `queue`, if no worker of the queue has registered the task.

    Celery's workers drop the message of a task that they don't know.
    """
    known = {task for of_worker in registered.values() for task in of_worker}
    if request.name not in known:
        raise BadInput("task", f"{request.name[:80]!r} is not registered{describe_known(request.name, known)}")
    if request.queue not in queues:
        raise BadInput("queue", f"{request.queue[:80]!r} is unknown{describe_known(request.queue, queues)}")
    consumers = [pool.worker for pool in pools if request.queue in pool.queues]
    unaware = [worker for worker in consumers if request.name not in registered.get(worker, {})]
    if unaware:
        raise BadInput(
            "queue",
            f"{request.queue} is consumed by {unaware[0]}, which doesn't know {request.name}. Choose another queue, or"
            " deploy the task there.",
        )


def describe_known(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence about an unknown name: the known name that resembles it, or some known names."""
    names = sorted(known)
    if suggestion := suggest(name, names):
        return f"{suggestion}."
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f". Choose from {', '.join(names[:MAX_NAMED]) or 'none'}{more}."


def send_task(app: Celery, plant: str, request: TaskRequest) -> None:
    """Send a task once. Raise `PlantUnavailable` if it is unknown whether the broker has it."""
    later = datetime.now(UTC) + timedelta(seconds=request.delay_seconds) if request.delay_seconds else None
    try:
        app.send_task(
            request.name,
            args=list(request.args),
            kwargs=dict(request.kwargs),
            task_id=request.id,
            queue=request.queue,
            eta=later,
            serializer="json",
            declare=(),
            retry=False,
        )
    except FAILURES as error:
        raise PlantUnavailable(
            f"{plant} can't be reached ({describe_connection_error(error)}). The task may have been sent: look for its"
            f" ID {request.id} before you send it again."
        ) from None
