"""Baselines for shedding: none, random, and by a type's utility.

Each returns a share to drop for every pattern and type, from the law's measurements: the rates λ_T [events/s], the
processing time of an event in each pattern [s], and the utilization that keeps the bound.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Table = dict[str, dict[str, float]]


@dataclass(frozen=True)
class MeasuredStream:
    """The measurements that shedders use.

    `takes`: pattern → its types. `utility`: pattern → type → share of events that ended in matches.
    """

    rates: Mapping[str, float]
    takes: Mapping[str, Sequence[str]]
    seconds: Mapping[str, float]
    budget: float
    utility: Mapping[str, Mapping[str, float]]

    def work(self) -> float:
        """Return the seconds of work per second without shedding."""
        return sum(self.seconds[name] * self.rates[kind] for name, kinds in self.takes.items() for kind in kinds)


def shed_nothing(measured: MeasuredStream) -> Table:
    return {name: dict.fromkeys(kinds, 0.0) for name, kinds in measured.takes.items()}


def shed_randomly(measured: MeasuredStream) -> Table:
    """Return a table that drops the same share of everything, as much as exceeds the budget."""
    work = measured.work()
    share = max(0.0, 1 - measured.budget / work) if work > 0 else 0.0
    return {name: dict.fromkeys(kinds, share) for name, kinds in measured.takes.items()}


def shed_by_utility(measured: MeasuredStream) -> Table:
    """Return a table that drops the types of least utility, as a whole, until the rest fits.

    The rule follows eSPICE's threshold; the last type is dropped in part. A conditional pattern finds nothing without
    one of its types, which a threshold per type can't see.
    """
    table, excess = shed_nothing(measured), measured.work() - measured.budget
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
    "none": shed_nothing,
    "random": shed_randomly,
    "utility": shed_by_utility,
}
