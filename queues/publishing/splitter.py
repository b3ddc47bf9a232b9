"""Distributes blocks over containers by points: smooth weighted round robin."""

from collections.abc import Mapping
from math import gcd

from common import checks
from common.errors import BadInput

MAXIMUM_POINTS = 1_000_000_000
MAXIMUM_COUNT = 1_000_000
PLAN_BLOCKS = 1024


def check_points(points: object, field: str = "points") -> dict[str, int]:
    """Return points per container as given. Raises `BadInput` that names an entry that is not a whole number from 0."""
    if not isinstance(points, Mapping) or not points:
        raise BadInput(field, 'must be a JSON object of container names and points, such as {"a": 5, "b": 1}.')
    for name, value in points.items():
        if not isinstance(name, str) or not name:
            raise BadInput(field, "must have container names that are not empty.")
        checks.accept_whole_number(0, MAXIMUM_POINTS).validate(value, f"{field}.{name}", end=".")
    if not any(points.values()):
        raise BadInput(field, "must have at least one container with points above 0. All are 0.")
    return dict(points)


class Splitter:
    """Smooth weighted round robin, exact.

    Each step adds every container's points to its credit, picks the highest credit (the first on ties) and subtracts
    the sum of the points from it. The sum of credits stays 0 and every credit stays within the sum of points, so after
    k blocks a container has received k·points/sum of them, less than one block per container off.

    The steps are planned some 1000 at a time: a pick is then an index into a list, and if the credits return to their
    start values (after sum/gcd steps from rest) the plan is used again as it is.

    Not thread-safe: if you share one, use a lock.
    """

    def __init__(self, points: Mapping[str, int]) -> None:
        self._points = check_points(points)
        self._excluded: set[str] = set()
        self._credits = dict.fromkeys(self._points, 0)
        self._position = self._length = 0
        self._begin()

    @property
    def points(self) -> dict[str, int]:
        """Return the points as set, excluded containers included."""
        return dict(self._points)

    @property
    def available(self) -> list[str]:
        """Return the containers with points that are not excluded."""
        return list(self._names)

    def pick_container(self) -> str:
        """Return the container of the next block. Raises `LookupError` if all with points are excluded."""
        position = self._position
        if position == self._length:
            self._plan_on()
            position = 0
        self._position = position + 1
        return self._plan[position]

    def sequence(self, count: int) -> list[str]:
        """Return the next `count` containers."""
        return [self.pick_container() for _ in range(count)]

    def exclude(self, name: str) -> None:
        """Leave out a container that failed; the others share its credit, so that none of them is flooded."""
        if name in self._points and name not in self._excluded:
            self._settle()
            self._excluded.add(name)
            self._rescale()

    def admit(self, name: str) -> None:
        """Take a container in again. It starts with no credit: what it missed is not caught up in a burst."""
        if name in self._excluded:
            self._settle()
            self._excluded.discard(name)
            self._rescale()

    def set_points(self, points: Mapping[str, int]) -> None:
        """Change points. Credits are kept in proportion, so the change skips or favors no container."""
        checked = check_points(points)
        if checked == self._points:
            return
        self._settle()
        self._points = checked
        self._excluded &= set(checked)
        self._rescale()

    def get_credits(self) -> dict[str, int]:
        """Return the credit of each available container after the last pick; the sum is 0."""
        self._settle()
        return {name: self._credits[name] for name in self._names}

    def _begin(self) -> None:
        """Start a plan from the current credits, over the available containers."""
        self._names = [name for name, points in self._points.items() if points and name not in self._excluded]
        self._weights = [self._points[name] for name in self._names]
        self._total = sum(self._weights)
        self._plan: list[str] = []
        self._length = self._position = 0
        self._start = self._end = [self._credits[name] for name in self._names]

    def _plan_on(self) -> None:
        """Continue after the plan: with the same plan if it ended where it started."""
        if not self._names:
            raise LookupError("every container with points is excluded")
        self._position = 0
        if self._length and self._end == self._start:
            return
        self._start = self._end
        self._plan, self._end = self._compute_steps(min(PLAN_BLOCKS, self._total // gcd(*self._weights)))
        self._length = len(self._plan)

    def _compute_steps(self, count: int) -> tuple[list[str], list[int]]:
        """Run `count` exact steps from the start of the plan. Returns the picks, and the credits after them."""
        weights, names, total = self._weights, self._names, self._total
        credit = list(self._start)
        plan = []
        for _ in range(count):
            credit = [have + more for have, more in zip(credit, weights, strict=True)]
            best = credit.index(max(credit))
            credit[best] -= total
            plan.append(names[best])
        return plan, credit

    def _settle(self) -> None:
        """Bring the credits to the position in the plan: start + k·points - sum·picks, for k blocks taken."""
        taken = self._plan[: self._position]
        for name, start, weight in zip(self._names, self._start, self._weights, strict=True):
            self._credits[name] = start + len(taken) * weight - self._total * taken.count(name)
        self._begin()

    def _rescale(self) -> None:
        """Transfer credits to changed points, in proportion to the sums, so that their sum is 0 again."""
        before, old = max(self._total, 1), self._credits
        self._credits = dict.fromkeys(self._points, 0)
        self._begin()
        for name in self._names:
            self._credits[name] = int(old.get(name, 0) * self._total / before)
        for name in self._points:
            if name not in self._names:
                self._credits[name] = 0
        rest = -sum(self._credits[name] for name in self._names)
        for name, weight in zip(self._names, self._weights, strict=True):
            self._credits[name] += rest * weight // self._total
        if self._names:
            self._credits[self._names[0]] -= sum(self._credits[name] for name in self._names)
        self._begin()


def split_request(document: object) -> dict[str, list[str]]:
    """Convert `{"points": {name: points}, "count": n}` to `{"sequence": [name, …]}`.

    Raises `BadInput` that names the field for unknown keys and for points or a count that are not whole numbers.
    """
    if not isinstance(document, Mapping):
        raise BadInput("document", 'must be a JSON object such as {"points": {"a": 5, "b": 1}, "count": 6}.')
    unknown = "is unknown. The keys are points and count."
    checks.refuse_unknown(document, ("points", "count"), "", message=unknown)
    for key in ("points", "count"):
        if key not in document:
            raise BadInput(key, "is missing.")
    count = checks.accept_whole_number(0, MAXIMUM_COUNT).validate(document["count"], "count", end=".")
    return {"sequence": Splitter(check_points(document["points"])).sequence(count)}
