"""What there is now that loops can be made for: the topology, and what reports itself at work."""

from collections.abc import Mapping, Sequence
from functools import cached_property

import redis

from queues.topology import Topology
from workers.documents.hosts import ReportedHost
from workers.documents.snapshot import NOTHING_SEEN, Snapshot
from workers.pipeline.declaration.declared import Declarations
from workers.plants.foreign.adapters import kind_named, list_steerable_adapters
from workers.plants.foreign.kind import AdapterKind
from workers.pool.reports import host_reports


class Present:
    """Each part is read when a kind first asks for it, and once."""

    def __init__(self, topology: Topology, control: redis.Redis, snapshot: Snapshot | None = None) -> None:
        self.topology = topology
        self.snapshot = snapshot or NOTHING_SEEN
        self._control = control

    @cached_property
    def applications(self) -> Sequence[str]:
        """Names of the pipeline's applications at work."""
        return list(Declarations(self._control).load_running())

    @cached_property
    def hosts(self) -> Mapping[str, ReportedHost]:
        """Worker hosts that report, and what."""
        return host_reports(self._control)

    @cached_property
    def plants(self) -> Mapping[str, AdapterKind]:
        """Registered plants of which something can be set, by name."""
        return {plant.name: kind_named(plant.kind) for plant in list_steerable_adapters()}
