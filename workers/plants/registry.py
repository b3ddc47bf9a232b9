"""Plants by name: the local one, and those that an administrator has added."""

import time
from collections.abc import Mapping
from typing import Any

import redis

from controllers.measured_topology import Topology
from queues.errors import BadInput
from workers.plants.plant import Elastic
from workers.plants.published import PublishedPlant
from workers.plants.topology import topology_of

LOCAL = "main"


class UnknownPlant(BadInput):
    """A plant that is not registered."""


def seen(snapshot: Mapping[str, Any], name: str) -> Topology:
    """The plant's topology in a snapshot. Raises UnknownPlant."""
    if name == snapshot["plant"]:
        return topology_of(snapshot)
    raise UnknownPlant("plant", f"{name} is not known; there is {snapshot['plant']}.")


def actuator(control: redis.Redis, name: str) -> Elastic:
    """The plant, to set its tasks. Raises UnknownPlant."""
    if name == LOCAL:
        return PublishedPlant(control, time.time)
    raise UnknownPlant("plant", f"{name} is not known; there is {LOCAL}.")
