"""What a loop's chart shows: the words of its lanes, which law by law mean different things."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Lanes:
    """Titles with their units; `scale` turns what is measured into the title's unit."""

    measured: str
    actuator: str
    done: str  # what the actuator's value is, in a word
    scale: float = 1.0
    has_reference: bool = True


LANES = {
    "flow": Lanes("Free space of the result queue, MB", "Events admitted", "admitted", scale=1e-6),
    # Its setpoint is the mean of what it measures, and moves with it.
    "balance": Lanes("Slowest less quickest response, s", "Share moved, %", "moved", has_reference=False),
    "worker_rate": Lanes("Waiting, events", "Workers started", "started"),
    "rebalancing": Lanes("Worst node, % of capacity", "Points moved", "moved", scale=100.0),
    # Its setpoint is a share of capacity, what it measures are nodes: they have no axis in common.
    "node_scaling": Lanes("Nodes in use", "Points moved", "moved", has_reference=False),
    "concurrency": Lanes("Completions, events/s", "Processes", "in the pool", has_reference=False),
    "parallelism_queueing": Lanes("Latency of the slowest path, s", "Tasks", "set"),
    "parallelism_forecast": Lanes("Events missed", "Tasks", "set", has_reference=False),
    "parallelism_joint": Lanes("Latency of the slowest path, s", "Tasks", "set"),
    "shedding": Lanes("Age of events when worked, p95, s", "Share of the work shed", "shed"),
    "ladder": Lanes("Demand not met, %", "Rung", "engaged", scale=100.0, has_reference=False),
}
OTHER = Lanes("Measured", "Actuator", "set")


def lanes_of(law: str) -> Lanes:
    return LANES.get(law, OTHER)
