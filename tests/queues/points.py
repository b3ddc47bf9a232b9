"""Points of a queue, set at once."""

from collections.abc import Mapping

import redis

from queues import projection
from queues.topology import Topology


def set_points(control: redis.Redis, queue: str, points: Mapping[str, int]) -> Topology:
    before = {queue: projection.read_database().queue(queue).live_points}
    return projection.move_points(control, before, {queue: points})
