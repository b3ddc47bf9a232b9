"""The existing things that loops can be created for: the topology, and the running parts that report."""

from collections.abc import Mapping, Sequence
from functools import cached_property

import redis

from queues.topology import Topology
from workers.documents.hosts import ReportedHost
from workers.documents.snapshot import NOTHING_SEEN, Snapshot
from workers.pipeline.declaration.declared import Declarations
from workers.plants.foreign.adapters import get_kind, list_steerable_adapters
from workers.plants.foreign.kind import AdapterKind
from workers.pool.reports import read_host_reports


class PlantInventory:
    """The existing things. Each part is read once, when a kind first requests it."""

    def __init__(self, topology: Topology, control: redis.Redis, snapshot: Snapshot | None = None) -> None:
        self.topology = topology
        self.snapshot = snapshot or NOTHING_SEEN
        self._control = control

    @cached_property
    def applications(self) -> Sequence[str]:
        """Return the names of the running pipeline applications."""
        return list(Declarations(self._control).load_running())

    @cached_property
    def hosts(self) -> Mapping[str, ReportedHost]:
        """Return the worker hosts that report, with their reports."""
        return read_host_reports(self._control)

    @cached_property
    def plants(self) -> Mapping[str, AdapterKind]:
        """Return the registered plants with anything adjustable, by name."""
        return {plant.name: get_kind(plant.kind) for plant in list_steerable_adapters()}
