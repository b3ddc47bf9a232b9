"""What a symbol of a pattern demands of an event: a small, safe expression over its columns.

`value > 80 and key == "total"` — comparisons (`==  !=  <  <=  >  >=  in  not in`), `and`, `or`, `not`,
arithmetic (`+ - * /`), numbers, strings, `true` and `false`. A comparison with an unknown (null) is not true.
One predicate is evaluated over a whole Arrow batch at once.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from queues.errors import BadInput

_COMPARISONS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: pc.equal,
    ast.NotEq: pc.not_equal,
    ast.Lt: pc.less,
    ast.LtE: pc.less_equal,
    ast.Gt: pc.greater,
    ast.GtE: pc.greater_equal,
}
_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: pc.add,
    ast.Sub: pc.subtract,
    ast.Mult: pc.multiply,
    ast.Div: pc.divide,
}
_WORDS = {"true": True, "false": False}


@dataclass(frozen=True)
class Predicate:
    """A parsed expression and the columns it reads."""

    text: str
    columns: frozenset[str]
    _tree: ast.expr

    def mask(self, columns: Mapping[str, pa.Array], rows: int) -> pa.BooleanArray:
        """True where the expression holds; null counts as false."""
        result = _evaluate(self._tree, columns)
        if isinstance(result, (bool, pa.BooleanScalar)):
            held = result if isinstance(result, bool) else bool(result.as_py())
            return pa.repeat(pa.scalar(held), rows)
        return pc.fill_null(result, False)


def parse(text: str, field: str) -> Predicate:
    """Reads an expression. Raises BadInput naming `field` where it is not of the language above."""
    if not isinstance(text, str) or not text.strip():
        raise BadInput(field, 'takes an expression such as "value > 80"')
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise BadInput(field, f"can't be read near column {error.offset}: {text!r} (equal is ==)") from None
    columns: set[str] = set()
    _check(tree, field, columns)
    if not _is_condition(tree):
        raise BadInput(field, f"must be true or false of an event, such as value > 80; {text!r} is neither")
    return Predicate(text.strip(), frozenset(columns), tree)


def of_type(event_type: str) -> Predicate:
    """The predicate of a symbol that nobody defined: the symbol is the event type."""
    tree = ast.Compare(left=ast.Name(id="type"), ops=[ast.Eq()], comparators=[ast.Constant(value=event_type)])
    return Predicate(f"type == {event_type!r}", frozenset({"type"}), tree)


def _is_condition(node: ast.expr) -> bool:
    if isinstance(node, ast.Name):
        return node.id in _WORDS
    negation = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    return negation or isinstance(node, (ast.Compare, ast.BoolOp))


def _check(node: ast.expr, field: str, columns: set[str]) -> None:
    for part in _parts(node, field):
        _check(part, field, columns)
    if isinstance(node, ast.Name) and node.id not in _WORDS:
        columns.add(node.id)


def _parts(node: ast.expr, field: str) -> list[ast.expr]:
    """The parts of one node, when the node is of the language."""
    match node:
        case ast.Name() | ast.Constant(value=bool() | int() | float() | str()):
            return []
        case ast.BoolOp(values=values):
            if not all(_is_condition(value) for value in values):
                raise BadInput(field, "`and` and `or` take conditions on both sides, such as value > 80")
            return values
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            if not _is_condition(operand):
                raise BadInput(field, "`not` takes a condition, such as not (value > 80)")
            return [operand]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return [operand]
        case ast.BinOp(left=left, right=right, op=op) if type(op) in _ARITHMETIC:
            return [left, right]
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARISONS:
            return [left, right]
        case ast.Compare(left=left, ops=[ast.In() | ast.NotIn()], comparators=[right]):
            _check_members(right, field)
            return [left]
    raise BadInput(
        field,
        f"{ast.unparse(node)!r} is not understood: use comparisons, and, or, not, in (…), + - * /, "
        "column names, numbers and strings",
    )


def _check_members(node: ast.expr, field: str) -> None:
    constants = isinstance(node, (ast.Tuple, ast.List)) and all(
        isinstance(item, ast.Constant) for item in node.elts
    )
    if not constants:
        raise BadInput(field, '`in` takes a list of values, such as in ("cpu", "load")')


def _evaluate(node: ast.expr, columns: Mapping[str, pa.Array]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return _WORDS[name] if name in _WORDS else columns[name]
        case ast.BoolOp(op=op, values=values):
            join = pc.and_kleene if isinstance(op, ast.And) else pc.or_kleene
            return _fold(join, [_evaluate(value, columns) for value in values])
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return pc.invert(_evaluate(operand, columns))
        case ast.UnaryOp(operand=operand):
            return pc.negate(_evaluate(operand, columns))
        case ast.BinOp(left=left, op=op, right=right):
            return _ARITHMETIC[type(op)](_evaluate(left, columns), _evaluate(right, columns))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _compare(op, _evaluate(left, columns), right, columns)
    raise AssertionError(f"unchecked expression {ast.dump(node)}")


def _fold(join: Callable[[Any, Any], Any], values: list[Any]) -> Any:
    result = values[0]
    for value in values[1:]:
        result = join(result, value)
    return result


def _compare(op: ast.cmpop, left: Any, right: ast.expr, columns: Mapping[str, pa.Array]) -> Any:
    if not isinstance(op, (ast.In, ast.NotIn)):
        return _COMPARISONS[type(op)](left, _evaluate(right, columns))
    members = [item.value for item in right.elts]  # type: ignore[attr-defined]
    present = pc.and_kleene(pc.is_in(left, value_set=pa.array(members)), pc.is_valid(left))
    return present if isinstance(op, ast.In) else pc.and_kleene(pc.invert(present), pc.is_valid(left))


def holds(predicate: Predicate, event: Mapping[str, Any]) -> bool:
    """The same of one event given as a mapping (a column it lacks is unknown)."""
    columns = {name: pa.array([event.get(name)]) for name in predicate.columns}
    return bool(operator.getitem(predicate.mask(columns, 1), 0).as_py())
