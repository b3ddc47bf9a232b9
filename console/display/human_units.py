"""Values in the units that people think in: MiB for bytes, % for shares. Laws keep their own."""

from dataclasses import dataclass
from typing import Any

from queues import checks

MEBIBYTE = 2.0**20
DIGITS = 12
SHARES = ("share", "probability", "utilisation", "s of work per s")


@dataclass(frozen=True)
class HumanUnit:
    """A unit as it is shown; `factor` turns a value of the law into it."""

    name: str
    factor: float = 1.0

    def convert(self, value: Any) -> Any:
        """A value of the law in this unit, without what turning it adds (7.000000000000001 %); what is no
        number stays as it is.
        """
        if not checks.is_number(value) or self.factor == 1.0:
            return value
        return float(f"{value * self.factor:.{DIGITS}g}")

    def back(self, value: float) -> float:
        """A typed value in the law's unit."""
        return value / self.factor if self.factor != 1.0 else value


def human_unit(unit: str, kind: str = "number") -> HumanUnit:
    """The unit to show values of a parameter in; only numbers are turned."""
    if kind == "number" and unit in ("bytes", "bytes/s"):
        return HumanUnit(unit.replace("bytes", "MiB"), 1 / MEBIBYTE)
    share = next((each for each in SHARES if unit.startswith(each)), None)
    if kind == "number" and share is not None:
        return HumanUnit(f"%{unit.removeprefix(share)}", 100.0)
    return HumanUnit("" if unit in ("1", "choice", "flag") else unit)


@dataclass(frozen=True, kw_only=True)
class HumanValues:
    """Values of a parameter in the unit that is shown; `factor` turns a value of the law into it."""

    unit: str
    factor: float
    value: Any
    effective: Any
    minimum: Any
    maximum: Any


def human_values(unit: str, kind: str, **values: Any) -> HumanValues:
    """Values of a parameter that has this unit and is of this kind."""
    human = human_unit(unit, kind)
    turned = {name: human.convert(value) for name, value in values.items()}
    return HumanValues(unit=human.name, factor=human.factor, **turned)
