"""A queue's 1000 points: shared, moved, split, diverted, and restored, with the sum kept."""

from collections.abc import Mapping, Sequence

from common import checks
from common.errors import BadInput

TOTAL = 1000


def check_points(points: object, field: str = "points", least: int = 1) -> dict[str, int]:
    """Check the points per node of a queue: whole numbers, at least `least` each, 1000 in total. Raises `BadInput`."""
    if not isinstance(points, Mapping) or not points:
        raise BadInput(field, 'must be a JSON object of node names and points, such as {"n1": 500, "n2": 500}.')
    for node, value in points.items():
        checks.accept_whole_number(least, TOTAL).validate(value, f"{field}.{node}", end=".")
    if sum(points.values()) != TOTAL:
        raise BadInput(field, f"must sum to {TOTAL}, not {sum(points.values())}.")
    return dict(points)


def apportion(amount: int, weights: Mapping[str, float]) -> dict[str, int]:
    """Distribute `amount` whole points in proportion to `weights`, by largest remainder. Earlier names win ties."""
    total = sum(weights.values())
    exact = {name: amount * weight / total for name, weight in weights.items()}
    given = {name: int(value) for name, value in exact.items()}
    by_remainder = sorted(exact, key=lambda name: given[name] - exact[name])
    for name in by_remainder[: amount - sum(given.values())]:
        given[name] += 1
    return given


def share(nodes: Sequence[str], weights: Mapping[str, float] | None = None) -> dict[str, int]:
    """Distribute 1000 points over `nodes`, equally or by `weights` (such as capacities), and at least 1 to each."""
    if not nodes or len(set(nodes)) != len(nodes) or len(nodes) > TOTAL:
        raise BadInput("nodes", f"must have 1 to {TOTAL} different node names.")
    wanted = {node: weights[node] if weights else 1.0 for node in nodes}
    if any(not 0 < weight < float("inf") for weight in wanted.values()):
        raise BadInput("weights", "must be finite numbers above 0.")
    extra = apportion(TOTAL - len(nodes), wanted) if weights else apportion(TOTAL, wanted)
    return {node: extra[node] + 1 for node in nodes} if weights else extra


def move(points: Mapping[str, int], source: str, target: str, amount: int) -> dict[str, int]:
    """Move `amount` points to another node (which may be new). A source left with none loses its container."""
    before = check_points(points)
    if source not in before:
        raise BadInput("from", f"{source} has no points. The nodes with points are {', '.join(before)}.")
    if source == target:
        raise BadInput("to", "must not be the same node as from.")
    if not checks.is_whole(amount, 1, before[source]):
        raise BadInput("points", f"must be a whole number from 1 to {before[source]}, the points of {source}.")
    after = {**before, target: before.get(target, 0) + amount, source: before[source] - amount}
    return {node: value for node, value in after.items() if value}


def split(points: Mapping[str, int], source: str, target: str) -> dict[str, int]:
    """Scale up: move half of a container's points (rounded down) to a node without one. Houtman, chapter 3."""
    before = check_points(points)
    if target in before:
        raise BadInput("to", f"{target} already has a container of this queue.")
    if before.get(source, 0) < 2:
        raise BadInput("from", f"{source} has {before.get(source, 0)} points. A split needs at least 2.")
    return move(before, source, target, before[source] // 2)


def restore(points: Mapping[str, int], node: str, amount: int) -> dict[str, int]:
    """Give `amount` points to a node that came back, from the others in proportion; each keeps at least 1."""
    before = check_points(points)
    others = {name: value for name, value in before.items() if name != node}
    spare = {name: value - 1 for name, value in others.items()}
    most = sum(spare.values())
    if not checks.is_whole(amount, 1, most):
        raise BadInput("points", f"must be a whole number from 1 to {most}: every other node keeps at least 1.")
    taken = apportion(amount, spare)
    after = {name: before[name] - taken.get(name, 0) for name in before}
    return {**after, node: before.get(node, 0) + amount}
