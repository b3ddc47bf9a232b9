"""Whole numbers of units from a course with fractions; the same course always gives the same numbers.

Steps of a course that lie before the next plan decide what is ordered now: of these the greatest count, rounded up. A
fraction below `SPARE` is dropped, because the risk rows already contain a reserve. Nodes of several kinds share one
load, so their fractions together become the cheapest nodes that carry it.
"""

import math
from collections.abc import Mapping

from controllers.planning.inputs import Floats
from controllers.planning.model import ModeledNodes, PlantModel
from controllers.planning.program import PlannedCourse

SPARE = 0.1


def round_units(course: PlannedCourse) -> dict[str, int]:
    """Return how many units of each group are ordered now, within its range."""
    inputs = course.inputs
    groups = inputs.model.groups.items()
    needed = {
        name: _find_needed(row, inputs.locate_orders(group))
        for (name, group), row in zip(groups, course.values["units"], strict=True)
    }
    return round_counts(inputs.model, needed)


def round_counts(model: PlantModel, needed: Mapping[str, float]) -> dict[str, int]:
    """Return whole units for fractions, within the range of each group."""
    counts = dict[str, int]()
    for name, group in model.groups.items():
        low, high = group.range
        counts[name] = min(max(math.ceil(needed[name] - SPARE), low), high)
    counts.update(_round_nodes(model.nodes, needed))
    for name in model.pools:
        _fit_into_slots(model, name, needed, counts)
    for name, pool in model.pools.items():
        users = sum(counts[stage] for stage, of in model.stages.items() if of.pool == name)
        low, high = pool.range
        counts[name] = min(max(counts[name], math.ceil(users / pool.slots), low), high)
    return counts


def _fit_into_slots(model: PlantModel, name: str, needed: Mapping[str, float], counts: dict[str, int]) -> None:
    """Lower the counts that were rounded up most until the hosts that work now have slots for them."""
    pool = model.pools[name]
    users = [stage for stage, of in model.stages.items() if of.pool == name]
    slots = pool.slots * (pool.range[1] if pool.start_seconds <= 0 else min(pool.units, pool.range[1]))
    while sum(counts[user] for user in users) > slots:
        free = [user for user in users if counts[user] > model.stages[user].range[0]]
        if not free:
            return
        counts[max(free, key=lambda user: counts[user] - needed[user])] -= 1


def _find_needed(row: Floats, last: int) -> float:
    """Return the greatest count until the next plan's orders are effective."""
    return float(row[: last + 1].max())


def _round_nodes(groups: Mapping[str, ModeledNodes], needed: Mapping[str, float]) -> dict[str, int]:
    """Return the nodes of each kind: whole parts, and for the rest of the load the cheapest nodes.

    Nodes that work or start already come first: a new one could not carry the load before it has started.
    """
    counts = {
        name: min(max(math.floor(needed[name] + 1e-6), group.range[0]), group.range[1])
        for name, group in groups.items()
    }
    load = sum(needed[name] * group.per_second for name, group in groups.items())
    missing = load - sum(counts[name] * group.per_second for name, group in groups.items())
    while missing > SPARE * min((group.per_second for group in groups.values()), default=0.0):
        free = [name for name, group in groups.items() if counts[name] < group.range[1] and group.per_second > 0]
        if not free:
            break
        present = [name for name in free if counts[name] < groups[name].ordered]
        name = min(present or free, key=lambda name: _price_rest(groups[name], missing))
        counts[name] += 1
        missing -= groups[name].per_second
    return counts


def _price_rest(group: ModeledNodes, missing: float) -> tuple[float, float]:
    """Return the price of the units of one kind that carry the rest; of equal ones, the smaller unit."""
    return math.ceil(missing / group.per_second) * group.price_per_hour, group.per_second
