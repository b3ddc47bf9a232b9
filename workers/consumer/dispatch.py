"""Submission of short-lived workers through Celery."""

from collections.abc import Sequence
from typing import Any

import redis
from celery import current_app

from common.errors import BadInput
from queues.topology import Topology
from workers.consumer.work_report import SUBMISSION_EXPIRES_SECONDS, submit
from workers.consumer.worker import compute_work_seconds
from workers.pool.hosts import CONSUME

KILL_AFTER_SECONDS = 10.0
AHEAD_OF_ALL = 0  # Celery's highest priority: served before any queue with another one


def send_workers(
    control: redis.Redis,
    topology: Topology,
    queue: str,
    node: str,
    count: int,
    worker_ids: Sequence[str],
    now: float,
    ahead: int = 0,
) -> list[str]:
    """Submit `count` workers for one container under their ids and return the ids.

    The first `ahead` of them are served before other queues', the rest by the queue's priority. They are counted as
    waiting to run, then sent; a submission that no host takes within SUBMISSION_EXPIRES_SECONDS is void. Celery's time
    limits are the last resort after the worker's own (`workers.consumer.time_limit`): an exception (soft), then the
    process is killed (hard). Raises BadInput for a container that does not exist.
    """
    spec = topology.queue(queue)
    if spec.kind != "jobs":
        raise BadInput("queue", f"{queue} is read by the pipeline; only a jobs queue has workers.")
    if topology.get_node(node).name not in spec.points:
        raise BadInput("node", f"{node} has no container of {queue}; choose {', '.join(spec.points)}.")
    if count != len(worker_ids):
        raise BadInput("count", f"must equal the number of IDs ({len(worker_ids)}), not {count}.")
    if not worker_ids:
        return []
    submit(control, queue, node, worker_ids, now)
    soft_seconds: Any = compute_work_seconds(spec.handler_timeout_seconds) + spec.handler_timeout_seconds
    for place, worker_id in enumerate(worker_ids):
        current_app.send_task(
            CONSUME,
            args=(queue, node, worker_id),
            task_id=worker_id,
            priority=AHEAD_OF_ALL if place < ahead else spec.priority,
            expires=SUBMISSION_EXPIRES_SECONDS,
            soft_time_limit=soft_seconds,
            time_limit=soft_seconds + KILL_AFTER_SECONDS,
        )
    return list(worker_ids)
