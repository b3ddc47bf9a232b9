"""The capacity of nodes, measured while they are busy.

By the utilization law, a node that spends the share U of its server's core on X events/s can handle X / U events/s. The
events of a queue may cost more than those of another queue, and a queue may be mostly on a slow node. For each batch of
observations, the capacities C_n and the costs w_q of an event are therefore the fixed point of

    w_q = Σ_n U_qn C_n / Σ_n X_qn       scaled so that Σ w_q X_q = Σ X_q
    C_n = Σ_q w_q X_qn / Σ_q U_qn

X is the mean of inserted and removed events. The measured capacity is the lower limit of the 95 % confidence interval
of the mean of the newest batches.
"""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean, stdev

import numpy as np

from common.stored_document import replace_fields
from workers.documents.nodes import NodeStatus
from workers.documents.snapshot import Snapshot

BUSY_SHARE = 0.3  # below it, the fixed work of a server falsifies the result
BATCH_SAMPLES = 30
MIN_BUSY_SAMPLES = 15  # of a node in a batch
MIN_BATCHES, MAX_BATCHES = 8, 20
T_QUANTILE = 1.9  # of Student's t distribution for MIN_BATCHES, one-sided
ITERATIONS = 20
NOTABLE_CHANGE = 0.05  # a smaller change of the result is not published, so that loops get steady values
NOTABLE_DIFFERENCE = 0.2
Pair = tuple[str, str]  # queue, node
Work = tuple[float, float]  # share of a core, events/s


@dataclass
class CapacityWatch:
    """The measured capacities of nodes, events/s."""

    capacities: dict[str, float] = field(default_factory=dict)
    _work: dict[Pair, Work] = field(default_factory=dict)  # sums over the busy samples of this batch
    _busy: dict[str, int] = field(default_factory=dict)  # node → its busy samples in this batch
    _samples: int = 0
    _batches: dict[str, deque[float]] = field(default_factory=dict)

    def add(self, snapshot: Snapshot) -> Snapshot:
        """Add a snapshot, about one per second; return it with the measured capacities."""
        used = dict.fromkeys(snapshot.nodes, 0.0)
        rows = dict[Pair, Work]()
        for queue, status in snapshot.queues.items():
            for node, row in status.containers.items():
                share, inserted, removed = row.server_time_share, row.in_per_second, row.out_per_second
                if (
                    share is None
                    or inserted is None
                    or removed is None
                    or node not in used
                    or snapshot.nodes[node].stale
                ):
                    continue
                used[node] += share
                rows[queue, node] = share, (inserted + removed) / 2
        for pair, (share, events) in rows.items():
            if used[pair[1]] >= BUSY_SHARE:
                before = self._work.get(pair, (0.0, 0.0))
                self._work[pair] = before[0] + share, before[1] + events
        for node, share in used.items():
            self._busy[node] = self._busy.get(node, 0) + (share >= BUSY_SHARE)
        self._samples += 1
        if self._samples >= BATCH_SAMPLES:
            self._close_batch(snapshot)
        nodes = {name: self._add_capacity(node, name) for name, node in snapshot.nodes.items()}
        return replace_fields(snapshot, nodes=nodes)

    def _close_batch(self, snapshot: Snapshot) -> None:
        for node, capacity in estimate_capacities(self._work).items():
            if self._busy.get(node, 0) >= MIN_BUSY_SAMPLES:
                self._batches.setdefault(node, deque(maxlen=MAX_BATCHES)).append(capacity)
        self._work, self._busy, self._samples = {}, {}, 0
        for node in self._batches.keys() - snapshot.nodes.keys():
            del self._batches[node]
            self.capacities.pop(node, None)
        for node, batches in self._batches.items():
            if len(batches) >= MIN_BATCHES:
                lower = fmean(batches) - T_QUANTILE * stdev(batches) / math.sqrt(len(batches))
                if lower > 0 and abs(lower - self.capacities.get(node, 0.0)) > NOTABLE_CHANGE * lower:
                    self.capacities[node] = round(lower, 1)

    def _add_capacity(self, node: NodeStatus, name: str) -> NodeStatus:
        measured = self.capacities.get(name)
        if measured is None:
            return node
        difference = describe_difference(measured, node.capacity_events_per_second)
        return replace_fields(node, measured_capacity_per_second=measured, capacity_difference=difference)


def estimate_capacities(work: Mapping[Pair, Work]) -> dict[str, float]:
    """Return the capacity of each node."""
    known = {pair: values for pair, values in work.items() if min(values) > 0}
    if not known:
        return {}
    queue, node = (np.unique([pair[place] for pair in known], return_inverse=True) for place in (0, 1))
    share, events = np.array(list(known.values())).T
    used = np.bincount(node[1], share)
    capacity = np.bincount(node[1], events) / used
    by_queue = np.bincount(queue[1], events)
    for _ in range(ITERATIONS):
        cost = np.bincount(queue[1], share * capacity[node[1]]) / by_queue
        cost *= events.sum() / (cost @ by_queue)
        capacity = np.bincount(node[1], cost[queue[1]] * events) / used
    return dict(zip(node[0].tolist(), capacity.tolist(), strict=True))


def describe_difference(measured: float, declared: float) -> str | None:
    """Return a sentence if the measured capacity differs notably from the declared one."""
    if abs(measured - declared) <= NOTABLE_DIFFERENCE * declared:
        return None
    share = f"{100 * abs(measured - declared) / declared:,.0f} %"
    if measured < declared:
        return f"The measured capacity is {share} below the declared capacity. By default, loops use the measured one."
    return f"The measured capacity is {share} above the declared capacity. Loops and node states use the declared one."
