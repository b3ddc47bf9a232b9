"""How many events a worker claims at once.

A worker can't be interrupted while it handles a claim, and no other worker gets these events. In a fair queue, large
claims would therefore delay ordinary events: those in the claim, and those that arrive while all workers handle
diverted events. A claim there is as large as the worker's own speed allows in a short time, and has at least one block.
"""

from dataclasses import dataclass, field

CLAIM_EVENTS = 16_384
# Longer times increase latency. Shorter ones reduce throughput, because each claim needs a few calls to the node.
ORDINARY_SECONDS, DIVERTED_SECONDS = 0.05, 0.02


@dataclass
class ClaimSize:
    """The maximum events of the next claim. diverted: of heavy keys, while no ordinary events wait.

    The first claim of a fair queue has one block, because the speed is unknown.
    """

    is_fair: bool
    ordinary: int = field(init=False)
    diverted: int = field(init=False)

    def __post_init__(self) -> None:
        self.ordinary = self.diverted = 1 if self.is_fair else CLAIM_EVENTS

    def record(self, events: int, seconds: float) -> None:
        """Adapt to the time that a claim took."""
        if self.is_fair and events:
            per_second = events / max(seconds, 1e-6)
            self.ordinary = _limit(per_second * ORDINARY_SECONDS)
            self.diverted = _limit(per_second * DIVERTED_SECONDS)


def _limit(events: float) -> int:
    return max(1, min(CLAIM_EVENTS, round(events)))
