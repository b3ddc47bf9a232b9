"""Queues in which tasks wait and from which no worker takes: their workers have ended, or none was started.

RabbitMQ reports how many consumers a queue has. With Redis only the workers know. A queue counts as served while a
worker that answers takes from it, and whenever it has become shorter. It also counts as served while a worker sends
heartbeats and answers nothing (its remote control is switched off), because its queues are unknown.
"""

from collections.abc import Collection, Mapping

from workers.documents.plants import UnservedQueue
from workers.plants.foreign.celery_app.broker import QueueLength

# A queue that its broker does not find for this long, because a node is away, is the same when it is back.
AWAY_SECONDS = 60.0


class UnservedQueues:
    """The unserved queues of one app. Times are monotonic, in seconds."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._seen: dict[str, float] = {}
        self._waiting: dict[str, int] = {}

    def observe(
        self,
        at: float,
        lengths: Mapping[str, QueueLength],
        served: Collection[str],
        paused: Collection[str],
        is_sure: bool,
    ) -> dict[str, UnservedQueue]:
        """Return the unserved queues.

        served: queues of workers that answer; paused: queues that a person paused in Weir; is_sure: all live workers
        answer.
        """
        self._seen = {name: seen for name, seen in self._seen.items() if at - seen <= AWAY_SECONDS}
        self._seen |= dict.fromkeys(lengths, at)
        away = self._seen.keys() - lengths.keys()
        since: dict[str, float] = {}
        for name, length in lengths.items():
            is_taken = length.waiting < self._waiting.get(name, 0)
            if length.consumers is None:
                is_served = name in served or is_taken or not is_sure
            else:
                is_served = length.consumers > 0
            if length.waiting and not is_served and name not in paused:
                since[name] = self._since.get(name, at)
        self._since = since | {name: began for name, began in self._since.items() if name in away}
        self._waiting = {name: each.waiting for name, each in lengths.items()}
        return {
            name: UnservedQueue(waiting=lengths[name].waiting, seconds=round(at - began, 1))
            for name, began in since.items()
        }
