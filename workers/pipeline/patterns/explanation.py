"""Explanations of conditions between events: the condition with the values that made it true.

`value > 10 * A.value` of B becomes `B.value 940 > 10 × A.value 93`.
"""

import ast
import json
from collections.abc import Callable, Mapping
from typing import Any

from workers.pipeline.patterns.references import iterate_conjuncts
from workers.pipeline.patterns.scalars import Bound, Row, Scalar

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
        def write(node: ast.expr) -> str:
            match node:
                case ast.Name(id=name) if name in names:
                    shown = name if "." in name or "(" in name else f"{symbol}.{name}"
                    return f"{shown} {format_value(names[name](row, bound))}"
                case ast.Call(args=[ast.Name(id=name)]):
                    return f"prev({name}) {format_value(names[f'prev({name})'](row, bound))}"
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

        text = " and ".join(write(part) for part in iterate_conjuncts(tree))
        return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…"

    return explain


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
