"""Detection of a condition that contradicts itself, so that no event can ever satisfy it: `value > 5 and value < 3`.

It recognizes comparisons of one column with constants within one `and`. Anything else counts as possible.
"""

import ast
from dataclasses import dataclass, field

from workers.pipeline.patterns.references import iterate_conjuncts

_MIRRORED: dict[type, type] = {ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE}
Value = bool | int | float | str


@dataclass
class _Demands:
    """The demands on one column. low, high: (bound, whether the bound itself is excluded)."""

    equal: list[Value] = field(default_factory=list)
    unequal: list[Value] = field(default_factory=list)
    low: list[tuple[Value, bool]] = field(default_factory=list)
    high: list[tuple[Value, bool]] = field(default_factory=list)

    def add(self, op: type, value: Value) -> None:
        if op is ast.Eq:
            self.equal.append(value)
        elif op is ast.NotEq:
            self.unequal.append(value)
        elif op in (ast.Gt, ast.GtE):
            self.low.append((value, op is ast.Gt))
        else:
            self.high.append((value, op is ast.Lt))

    def can_be_met(self) -> bool:
        return all(self._allows(value) for value in self.equal) and all(
            _lie_apart(low, high) for low in self.low for high in self.high
        )

    def _allows(self, value: Value) -> bool:
        return (
            all(value == other for other in self.equal)
            and value not in self.unequal
            and all(_lie_apart(low, (value, False)) for low in self.low)
            and all(_lie_apart((value, False), high) for high in self.high)
        )


def _lie_apart(low: tuple[Value, bool], high: tuple[Value, bool]) -> bool:
    """Return whether a value fits between `low` and `high`."""
    (least, least_excluded), (most, most_excluded) = low, high
    if isinstance(least, str) != isinstance(most, str):
        return False
    if least == most:
        return not (least_excluded or most_excluded)
    return least < most  # type: ignore[operator]


def can_hold(node: ast.expr) -> bool:
    """Return whether some event could satisfy the condition."""
    match node:
        case ast.BoolOp(op=ast.Or(), values=values):
            return any(can_hold(value) for value in values)
        case ast.BoolOp(op=ast.And()):
            parts = list(iterate_conjuncts(node))
            return all(can_hold(part) for part in parts) and _agree(parts)
    return True


def _agree(parts: list[ast.expr]) -> bool:
    demands: dict[str, _Demands] = {}
    for part in parts:
        match part:
            case ast.Compare(left=ast.Name(id=name), ops=[op], comparators=[ast.Constant() as constant]):
                kind: type = type(op)
            case ast.Compare(left=ast.Constant() as constant, ops=[op], comparators=[ast.Name(id=name)]):
                kind = _MIRRORED.get(type(op), type(op))
            case _:
                continue
        value = constant.value
        if isinstance(value, (bool, int, float, str)) and kind in (ast.Eq, ast.NotEq, *_MIRRORED):
            demands.setdefault(name, _Demands()).add(kind, value)
    return all(demand.can_be_met() for demand in demands.values())
