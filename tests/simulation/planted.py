"""A simulation of Weir with a defect: `python -m tests.simulation.planted DEFECT --seed N …`."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bench.simulation import process


def skip_fence() -> None:
    """A tick that lost its lease meanwhile writes its decision all the same."""
    from workers.control.ledger.ledger import EvaluatedTick

    tick: Any = EvaluatedTick
    tick.is_next = lambda self, passed: True


def forget_lease() -> None:
    """The alerter delivers without asking whether another one does."""
    import time

    from workers.coordination.leases import Lease

    acquire = Lease.acquire

    def pretend(lease: Any, at_least: int = 0) -> Any:
        if lease.name == "alerter":
            lease.fence = int(time.time() * 1e6)
            return lease.fence
        return acquire(lease, at_least)

    leases: Any = Lease
    leases.acquire = pretend


def acknowledge_first() -> None:
    """A transfer removes blocks from their node before the other node has them."""
    from workers.placement.transfer import Route

    deliver = Route._deliver

    def confirm_first(route: Any, rows: Any, deadline: Any) -> Any:
        route.source.confirm([block.entry_id for block in rows])
        return deliver(route, rows, deadline)

    routes: Any = Route
    routes._deliver = confirm_first


@dataclass(frozen=True)
class Defect:
    """A defect. kinds: of the faults that uncover it; shows: a part of the violation."""

    plant: Callable[[], None]
    kinds: str
    shows: str


DEFECTS: Mapping[str, Defect] = {
    "skip a fence": Defect(skip_fence, "freeze at a call", " after "),
    "forget a lease": Defect(forget_lease, "crash", "which no lease had"),
    "acknowledge before the write": Defect(acknowledge_first, "stop node,lost request", "blocks are lost"),
}


def main() -> int:
    return process.main(DEFECTS[sys.argv.pop(1)].plant)


if __name__ == "__main__":
    sys.exit(main())
