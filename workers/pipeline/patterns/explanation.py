"""Explanations of conditions: the condition with the values that made it true, or its part that isn't true.

`value > 10 * A.value` of B becomes `B.value 940 > 10 × A.value 93`.
"""

import ast
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from workers.pipeline.patterns.references import iterate_conjuncts
from workers.pipeline.patterns.scalars import Bound, Row, Scalar, compile_scalar

Explanation = Callable[[Row, Bound], str]
MAX_CHARACTERS = 300
_MAX_VALUE_CHARACTERS = 40
_SIGNS: Mapping[type, str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "×",
    ast.Div: "/",
    ast.Eq: "=",
    ast.NotEq: "≠",
    ast.Lt: "<",
    ast.LtE: "≤",
    ast.Gt: ">",
    ast.GtE: "≥",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.And: "and",
    ast.Or: "or",
}


def compile_explanation(tree: ast.expr, symbol: str, names: Mapping[str, Scalar]) -> Explanation:
    """Return a function of an event and the bound events. names: as for `scalars.compile_scalar`."""

    def explain(row: Row, bound: Bound) -> str:
        writer = _ConditionWriter(symbol, names, row, bound)
        return _shorten(" and ".join(writer.write(part) for part in iterate_conjuncts(tree)))

    return explain


def compile_refutation(tree: ast.expr, symbol: str, names: Mapping[str, Scalar]) -> Explanation:
    """Return a function that names the first part of a condition that isn't true, with its values.

    `value > 10 * A.value` of B becomes `B.value 80 > 10 × A.value 93 (80 > 930) is false`. The text is empty if the
    condition is true.
    """

    def refute(row: Row, bound: Bound) -> str:
        writer = _ConditionWriter(symbol, names, row, bound)
        for part in iterate_conjuncts(tree):
            value = writer.evaluate(part)
            if value is not True:
                word = "false" if value is False else "unknown"
                return f"{_shorten(writer.write(part))}{writer.write_results(part)} is {word}"
        return ""

    return refute


@dataclass(frozen=True)
class _ConditionWriter:
    """Writes a condition with the values of an event and of the bound events."""

    symbol: str
    names: Mapping[str, Scalar]
    row: Row
    bound: Bound

    def evaluate(self, node: ast.expr) -> Any:
        return compile_scalar(node, self.names)(self.row, self.bound)

    def write(self, node: ast.expr) -> str:
        write = self.write
        match node:
            case ast.Name(id=name) if name in self.names:
                shown = name if "." in name or "(" in name else f"{self.symbol}.{name}"
                return f"{shown} {format_value(self.evaluate(node))}"
            case ast.Call(args=[ast.Name(id=name)]):
                return f"prev({name}) {format_value(self.evaluate(node))}"
            case ast.Constant(value=value):
                return format_value(value)
            case ast.BoolOp(op=op, values=values):
                return f" {_SIGNS[type(op)]} ".join(_enclose(part, write(part)) for part in values)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return f"not ({write(operand)})"
            case ast.UnaryOp(operand=operand):
                return f"-{_enclose(operand, write(operand))}"
            case ast.BinOp(left=left, op=op, right=right):
                return f"{_enclose(left, write(left))} {_SIGNS[type(op)]} {_enclose(right, write(right))}"
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return f"{write(left)} {_SIGNS[type(op)]} {write(right)}"
        return ast.unparse(node)

    def write_results(self, node: ast.expr) -> str:
        """Return the compared results in parentheses if a side of a comparison is calculated, else an empty text."""
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]) if ast.BinOp in (type(left), type(right)):
                sides = [format_value(self.evaluate(side)) for side in (left, right)]
                return f" ({sides[0]} {_SIGNS[type(op)]} {sides[1]})"
        return ""


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…"


def _enclose(node: ast.expr, text: str) -> str:
    return f"({text})" if isinstance(node, ast.BinOp | ast.BoolOp) else text


def format_value(value: Any) -> str:
    """Return the text of a value for an explanation."""
    if value is None:
        return "missing"
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:.6g}"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_VALUE_CHARACTERS else f"{text[: _MAX_VALUE_CHARACTERS - 1]}…"
