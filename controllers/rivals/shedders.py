"""What else decides which events to drop: nothing at all, chance, and a type's utility.

Each answers a share to drop for every pattern and type, from the same measurements the law has: the rates
λ_T [events/s], what an event takes in each pattern [s], and the utilisation that keeps the bound.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Table = dict[str, dict[str, float]]


@dataclass(frozen=True)
class MeasuredStream:
    """`takes`: pattern → its types. `utility`: pattern → type → share of its events that ended in matches."""

    rates: Mapping[str, float]
    takes: Mapping[str, Sequence[str]]
    seconds: Mapping[str, float]
    budget: float
    utility: Mapping[str, Mapping[str, float]]

    def work(self) -> float:
        """Seconds of work per second if nothing is dropped."""
        return sum(
            self.seconds[name] * self.rates[kind] for name, kinds in self.takes.items() for kind in kinds
        )


def none(measured: MeasuredStream) -> Table:
    """Drops nothing."""
    return {name: dict.fromkeys(kinds, 0.0) for name, kinds in measured.takes.items()}


def random(measured: MeasuredStream) -> Table:
    """The same share of everything, as much as is too much."""
    work = measured.work()
    share = max(0.0, 1 - measured.budget / work) if work > 0 else 0.0
    return {name: dict.fromkeys(kinds, share) for name, kinds in measured.takes.items()}


def utility(measured: MeasuredStream) -> Table:
    """The types of least utility first, whole, until the rest fits (after eSPICE's threshold).

    The last one is dropped in part. A conditional pattern finds nothing once one of its types is gone, which
    a threshold per type can't see.
    """
    table, excess = none(measured), measured.work() - measured.budget
    ranked = sorted(
        (measured.utility[name][kind], name, kind) for name, kinds in measured.takes.items() for kind in kinds
    )
    for _, name, kind in ranked:
        work = measured.seconds[name] * measured.rates[kind]
        if excess <= 0:
            break
        table[name][kind] = min(1.0, excess / work) if work > 0 else 0.0
        excess -= work
    return table


SHEDDERS: Mapping[str, Callable[[MeasuredStream], Table]] = {
    "none": none,
    "random": random,
    "utility": utility,
}
