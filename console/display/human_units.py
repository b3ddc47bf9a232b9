"""Values in units for people: MiB for bytes, % for shares. Laws keep their own."""

from dataclasses import dataclass
from typing import Any

from common import checks

MEBIBYTE = 2.0**20
DIGITS = 12
SHARES = ("share", "probability", "utilization", "s of work per s")


@dataclass(frozen=True)
class HumanUnit:
    """A unit as shown; `factor` converts a value of the law to it."""

    name: str
    factor: float = 1.0

    def convert(self, value: Any) -> Any:
        """Convert a value of the law to this unit, without rounding noise (7.000000000000001 %).

        Non-numbers are unchanged.
        """
        if not checks.is_number(value) or self.factor == 1.0:
            return value
        return float(f"{value * self.factor:.{DIGITS}g}")

    def back(self, value: float) -> float:
        """Convert a typed value to the law's unit."""
        return value / self.factor if self.factor != 1.0 else value


def get_human_unit(unit: str, kind: str = "number") -> HumanUnit:
    """Return the unit in which to show values of a parameter; only numbers are converted."""
    if kind == "number" and unit in ("bytes", "bytes/s"):
        return HumanUnit(unit.replace("bytes", "MiB"), 1 / MEBIBYTE)
    share = next((each for each in SHARES if unit.startswith(each)), None)
    if kind == "number" and share is not None:
        return HumanUnit(f"%{unit.removeprefix(share)}", 100.0)
    return HumanUnit("" if unit in ("1", "choice", "flag") else unit)


@dataclass(frozen=True, kw_only=True)
class HumanValues:
    """Values of a parameter in the unit shown; `factor` converts a value of the law to it."""

    unit: str
    factor: float
    value: Any
    effective: Any
    minimum: Any
    maximum: Any


def build_human_values(unit: str, kind: str, **values: Any) -> HumanValues:
    """Return the values of a parameter with this unit and of this kind."""
    human = get_human_unit(unit, kind)
    turned = {name: human.convert(value) for name, value in values.items()}
    return HumanValues(unit=human.name, factor=human.factor, **turned)
