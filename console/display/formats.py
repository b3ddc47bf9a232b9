"""Values as text: numbers with their precision, shares, ages, money, documents in one line, and units for people.

The browser formats the same values again each second: `static/js/values/format.js` is the counterpart of `FORMATS`,
by the same rules, so that no number changes its form when the page becomes live.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import TypeGuard

from common import checks
from console.display.script_rules import AGE_STEPS, NUMBER_RULES, NumberRule

UNKNOWN = "—"
MINUS = "\u2212"
ISO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?([+-]\d\d:\d\d|Z)\Z")
MAX_DECIMALS = 6


def _format_fixed(value: float, digits: int) -> str:
    """Round as the browser does: the shortest decimal that identifies the number, halves to even."""
    return f"{Decimal(repr(value)):,.{digits}f}"


def _format_significant(value: float, least: int) -> str:
    """Return three significant digits, with all digits before the point and at least `least` after it.

    At most six digits follow the point: smaller amounts are rounding errors of float sums.
    """
    amount = Decimal(repr(round(float(value), MAX_DECIMALS) or 0.0))
    text = f"{amount:,.{min(max(2 - amount.adjusted(), least), MAX_DECIMALS)}f}"
    whole, _, decimals = text.partition(".")
    kept = decimals.rstrip("0").ljust(least, "0")
    return f"{whole}.{kept}" if kept else whole


def _format_by_rule(value: float, rule: NumberRule) -> str:
    number = value * rule.factor
    return _format_fixed(number, rule.digits if rule.limit is None or abs(number) < rule.limit else 0)


def format_age(value: float) -> str:
    """Return seconds in the largest whole unit: 0.4 s, 14 s, 4 min, 2 h, 3 d."""
    for seconds, unit in AGE_STEPS:
        if value >= seconds:
            return f"{_format_fixed(value / seconds, 0)} {unit}"
    return f"{_format_fixed(value, 1 if abs(value) < 10 else 0)} s"


def format_countdown(value: float) -> str:
    """Return seconds as m:ss, or h:mm:ss from one hour on; never below zero."""
    seconds = max(0, math.floor(value + 0.5))
    hours, minutes, rest = seconds // 3600, seconds // 60 % 60, seconds % 60
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


FORMATS: dict[str, Callable[[float], str]] = {
    **{name: partial(_format_by_rule, rule=rule) for name, rule in NUMBER_RULES.items()},
    "number": lambda value: f"{value:,.4g}" if abs(value) < 1000 else _format_fixed(value, 0),
    "age": format_age,
    "countdown": format_countdown,
    "clock": lambda value: datetime.fromtimestamp(value, UTC).strftime("%H:%M:%S"),
}


def is_finite_number(value: object) -> TypeGuard[float]:
    return checks.is_number(value)


def format_value(value: object, name: str = "number") -> str:
    """Return a value as text in one of `FORMATS`; unknown values are a dash, texts are unchanged."""
    if value is None or value == "":
        return UNKNOWN
    return FORMATS[name](value) if is_finite_number(value) else format_for_input(value)


def format_for_input(value: object) -> str:
    """Return a value as a person types it: 1000, not 1,000 and not 1000.0; empty for None.

    Parsed again it is the same number: an unchanged form changes nothing.
    """
    if value is None:
        return ""
    if checks.FLAG.accepts(value):
        return str(value).lower()
    return str(value).removesuffix(".0") if is_finite_number(value) else str(value)


def format_as_words(name: object) -> str:
    """Return a snake_case name as words: upper_limit → upper limit."""
    return str(name).replace("_", " ")


def format_compactly(value: object) -> str:
    """Return an action or a value in one line: {"start": 3} → start 3; numbers without noise."""
    if isinstance(value, dict):
        return ", ".join(f"{format_as_words(key)} {format_compactly(part)}" for key, part in value.items()) or UNKNOWN
    if isinstance(value, (list, tuple)):
        return ", ".join(format_compactly(part) for part in value) or UNKNOWN
    if isinstance(value, str) and ISO_TIME.match(value):
        return f"{datetime.fromisoformat(value).astimezone(UTC):%-d %b %H:%M:%S} UTC"
    return format_value(value)


def format_money(value: float | None, price: object) -> str:
    """Return an amount of money, in the currency of the prices; without a price a note, never 0."""
    if price is None:
        return "no price set"
    return UNKNOWN if value is None else _format_significant(value, 2)


def format_hours(value: float | None) -> str:
    """Return an amount of hours, which may be as short as a second."""
    return UNKNOWN if value is None else _format_significant(value, 0)


def format_minutes(seconds: float | None) -> str:
    """Return 1:07 for 67 s; a dash if unknown."""
    if seconds is None:
        return UNKNOWN
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02d}"


def format_signed(value: float) -> str:
    """Return a change with its sign, a real minus if negative."""
    return f"{'+' if value > 0 else MINUS}{abs(value):,}"


def format_css_share(value: float) -> str:
    """Return a share as a length of style sheets and SVG, at most the whole: 0.75 → 75.00%."""
    return f"{100 * min(max(value, 0.0), 1.0):.2f}%"


def format_coordinate(value: float) -> str:
    """Return a share as a coordinate from 0 to 100."""
    return f"{100 * value:.1f}"


def format_brief_number(value: float) -> str:
    """Return a round number as an axis label: 0.5, 20, 40k, 1.5M."""
    for size, unit in ((1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'k' else size):g}{unit}"
    return f"{value:,.4g}" if abs(value) < 1_000 else f"{value:,.0f}"


MEBIBYTE = 2.0**20
DIGITS = 12
SHARES = ("share", "probability", "utilization", "s of work per s")


@dataclass(frozen=True)
class HumanUnit:
    """A unit as shown; `factor` converts a value of the law to it."""

    name: str
    factor: float = 1.0

    def convert(self, value: object) -> object:
        """Convert a value of the law to this unit, without rounding noise (7.000000000000001 %), if it is a number."""
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
    share = next((share_unit for share_unit in SHARES if unit.startswith(share_unit)), None)
    if kind == "number" and share is not None:
        return HumanUnit(f"%{unit.removeprefix(share)}", 100.0)
    return HumanUnit("" if unit in ("1", "choice", "flag") else unit)


@dataclass(frozen=True, kw_only=True)
class HumanValues:
    """Values of a parameter in the unit shown; `factor` converts a value of the law to it."""

    unit: str
    factor: float
    value: object
    effective: object
    minimum: object
    maximum: object


def build_human_values(unit: str, kind: str, **values: object) -> HumanValues:
    """Return the values of a parameter with this unit and of this kind."""
    human = get_human_unit(unit, kind)
    turned = {name: human.convert(value) for name, value in values.items()}
    return HumanValues(unit=human.name, factor=human.factor, **turned)
