"""Selection of worker hosts: hosts with the required capabilities, and among these the hosts near the container.

A host declares its capabilities in WEIR_CAPABILITIES. It is near a node if one of them is the node's name. A worker is
sent to the Celery queue of one host only if not every host of the role may take it, or if a near host has a free slot.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from celery.utils.nodenames import worker_direct

from common.errors import BadInput
from workers.documents.hosts import (
    ReportedHost,
    describe_capability_remedy,
    explain_missing_capabilities,
    list_missing_capabilities,
)
from workers.pool.orders import is_at_work

Hosts = Mapping[str, ReportedHost]


class HostSelection:
    """The worker hosts as they reported. Workers that were assigned to a host since then count as its tasks."""

    def __init__(self, hosts: Hosts, now_seconds: float) -> None:
        self._hosts = {name: host for name, host in hosts.items() if is_at_work(host, now_seconds)}
        self._tasks = Counter({name: max(host.reserved, host.busy) for name, host in self._hosts.items()})

    def choose(self, role: str, requirements: Collection[str], near: str = "") -> str:
        """Return the host for a worker, or the role if any of its hosts may take it.

        Raises `BadInput` if no host has all required capabilities.
        """
        fitting = {name: host for name, host in self._hosts.items() if host.meets(role, requirements)}
        free = {name: host.slots - self._tasks[name] for name, host in fitting.items() if near in host.capabilities}
        chosen = max(free, key=lambda name: free[name], default="")
        if not chosen or free[chosen] <= 0:
            others = [host for name, host in self._hosts.items() if name not in fitting and host.meets(role, ())]
            if not requirements or (fitting and not others):
                return role
            chosen = min(fitting, key=lambda name: (self._tasks[name] + 1) / max(1, fitting[name].slots), default="")
        if not chosen:
            missing = list_missing_capabilities(tuple(self._hosts.values()), role, requirements)
            why = explain_missing_capabilities(missing, role)
            raise BadInput("requirements", f"{why}. {describe_capability_remedy(missing, role)}.")
        self._tasks[chosen] += 1
        return chosen


def build_celery_queue(destination: str) -> Any:  # the type stubs of `send_task` accept only names
    """Return the Celery queue of a host, or the name of a role's queue."""
    return worker_direct(destination) if "@" in destination else destination
