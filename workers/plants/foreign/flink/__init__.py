"""A job on a Flink session cluster as a plant: its vertices, and other data from its REST API."""

import time

from workers.coordination.connections import control_server
from workers.plants.foreign.flink.flink_plant import FlinkPlant
from workers.plants.foreign.kind import AdapterKind, PlantAddress, declare_option
from workers.plants.foreign.leases import store_tasks_before
from workers.plants.reached import ConvergenceTimeout

# A rescale waits for the cool-down of the previous one, 30 s unless the cluster is configured otherwise.
RESCALE_SECONDS = 45.0


def make(address: PlantAddress) -> FlinkPlant:
    before = store_tasks_before(address.name, control_server(), time.time)
    return FlinkPlant(address.create_client(), address.get_option("job"), before=before)


ADAPTER = AdapterKind(
    name="flink",
    title="Flink session cluster (REST API)",
    options=(declare_option("job", "name or ID of the job; empty if only one is running", "Job"),),
    example="http://flink.example:8081",
    patience=ConvergenceTimeout(more_seconds=RESCALE_SECONDS, fewer_seconds=RESCALE_SECONDS),
    make=make,
)
