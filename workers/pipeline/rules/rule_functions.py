"""The functions that rules may use, and the arguments that they take.

All of them work on one row, take time bounded by the length of their input, and are deterministic. None reads a file, a
clock, or a class, makes rows, or runs a regular expression of the author's.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import exp

MAX_PAD = 1_000
MAX_PATH = 200
_PATH = re.compile(r"\$(?:\.[A-Za-z_][A-Za-z0-9_-]*|\[\d{1,4}\])*\Z")
_DELIMITER = re.compile(r"(?:[^\\.\[\]{}()*+?|^$]|\\[.\[\]{}()*+?|^$\\/-])+\Z")
_UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")


@dataclass(frozen=True)
class Function:
    """A function.

    least, most: number of arguments (most None: unlimited). literal: checks the literal argument at a place and returns
    what it takes, as a sentence. joins: whether it concatenates its arguments.
    """

    least: int
    most: int | None
    literal: Callable[[int, exp.Expression, Sequence[exp.Expression]], str | None] | None = None
    joins: bool = False

    def takes(self) -> str:
        """Return the number of arguments in words."""
        if self.most is None:
            return f"{self.least} or more arguments"
        if self.least == self.most:
            return f"{self.least} argument{'' if self.least == 1 else 's'}"
        return f"{self.least} to {self.most} arguments"


def get_literal_text(node: exp.Expression) -> str | None:
    """Return the value of a literal text; None for anything else."""
    return node.this if isinstance(node, exp.Literal) and node.is_string else None


def get_literal_number(node: exp.Expression) -> int | None:
    """Return the value of a literal whole number; None for anything else."""
    if isinstance(node, exp.Neg):
        number = get_literal_number(node.this)
        return None if number is None else -number
    plain = isinstance(node, exp.Literal) and not node.is_string and re.fullmatch(r"\d{1,9}", node.this)
    return int(node.this) if plain else None


def _check_path(place: int, node: exp.Expression, _: Sequence[exp.Expression]) -> str | None:
    text = get_literal_text(node)
    if place != 1 or (text is not None and len(text) <= MAX_PATH and _PATH.match(text)):
        return None
    return "a path such as '$.cpu.load' or '$.disks[0]' as its second argument"


def _check_delimiter(place: int, node: exp.Expression, _: Sequence[exp.Expression]) -> str | None:
    """Check a delimiter. It is a regular expression for Spark, so only plain characters are allowed."""
    text = get_literal_text(node)
    if place == 0 or (place == 2 and get_literal_number(node) is not None):
        return None
    if place == 1 and text and len(text) <= 20 and _DELIMITER.match(text):
        return None
    return r"a literal delimiter such as ',' or '\\.' (\\ escapes regular-expression characters), then a number"


def _pad(place: int, node: exp.Expression, _: Sequence[exp.Expression]) -> str | None:
    number = get_literal_number(node)
    if place != 1 or (number is not None and 0 <= number <= MAX_PAD):
        return None
    return f"a literal length from 0 to {MAX_PAD} as its second argument"


def _check_replacement(place: int, node: exp.Expression, given: Sequence[exp.Expression]) -> str | None:
    """Check a replacement: it must not be longer than the replaced text."""
    text = get_literal_text(node)
    if place == 0 or (text is not None and len(text) <= len(get_literal_text(given[1]) or "")):
        return None
    return "literal strings, with a replacement that is not longer"


def _unit(place: int, node: exp.Expression, _: Sequence[exp.Expression]) -> str | None:
    if place != 0 or (get_literal_text(node) or "").lower() in _UNITS:
        return None
    return f"one of {', '.join(_UNITS)} as a literal first argument"


def _check_places(place: int, node: exp.Expression, _: Sequence[exp.Expression]) -> str | None:
    number = get_literal_number(node)
    if place != 1 or (number is not None and abs(number) <= 30):
        return None
    return "a literal number of places from -30 to 30"


_ONE = (
    "abs ceil ceiling floor sqrt cbrt exp ln log10 log2 log1p sign signum sin cos tan radians degrees isnan isnull "
    "isnotnull lower upper lcase ucase trim ltrim rtrim length char_length character_length reverse initcap ascii "
    "crc32 year quarter month day dayofmonth dayofweek dayofyear weekday weekofyear hour minute second unix_seconds "
    "unix_millis unix_micros timestamp_seconds timestamp_millis timestamp_micros to_date"
)
_TWO = "pow power mod pmod nanvl nullif ifnull nvl startswith endswith contains instr left right datediff atan2"

FUNCTIONS: dict[str, Function] = {
    **{name: Function(1, 1) for name in _ONE.split()},
    **{name: Function(2, 2) for name in _TWO.split()},
    "coalesce": Function(1, None),
    "greatest": Function(2, None),
    "least": Function(2, None),
    "concat": Function(1, None, joins=True),
    "concat_ws": Function(2, None, joins=True),
    "if": Function(3, 3),
    "nvl2": Function(3, 3),
    "round": Function(1, 2, _check_places),
    "bround": Function(1, 2, _check_places),
    "substring": Function(2, 3),
    "substr": Function(2, 3),
    "locate": Function(2, 3),
    "lpad": Function(3, 3, _pad),
    "rpad": Function(3, 3, _pad),
    "replace": Function(3, 3, _check_replacement),
    "translate": Function(3, 3, _check_replacement),
    "split": Function(2, 3, _check_delimiter),
    "element_at": Function(2, 2),
    "size": Function(1, 1),
    "get_json_object": Function(2, 2, _check_path),
    "date_trunc": Function(2, 2, _unit),
    "xxhash64": Function(1, None),
    "hash": Function(1, None),
}
SUBNET = "in_subnet"  # added by Weir: in_subnet(address, '92.126.10.0/24')
