"""A plane of 100 by 100 on which values are drawn: to the right and upwards."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class PlaneLevel:
    """A value that is labeled beside a plane, at y."""

    value: float
    y: float


@dataclass(frozen=True)
class PlaneTick:
    """A label below a plane, at x."""

    value: float | str
    x: float


@dataclass(frozen=True)
class Plane:
    """The value ranges of a plane."""

    left: float
    right: float
    low: float
    high: float

    def x(self, value: float) -> float:
        return 100 * (value - self.left) / (self.right - self.left)

    def y(self, value: float) -> float:
        """Return y measured downwards, as on screens."""
        return 100 * (self.high - value) / (self.high - self.low)

    def build_svg_path(self, points: Iterable[tuple[float, float]]) -> str:
        """Return a line through points as an SVG path."""
        return "M" + "L".join(f"{self.x(x):.2f} {self.y(y):.2f}" for x, y in points)
