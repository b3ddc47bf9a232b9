"""What a symbol of a pattern demands of an event: a small, safe expression over its columns.

`value > 80 and key == "total"` — comparisons (`==  !=  <  <=  >  >=  in  not in`, also `=` and `<>`), `and`,
`or`, `not`, arithmetic (`+ - * /`), numbers, strings, `true` and `false`; `"text" in column` searches for a
part of a text; `prev(column)` is the column of the previous event of the same key. A comparison with an
unknown (null, prev() at the first event, 0 / 0) is not true, nor is its `not`, as in SQL. One predicate is
evaluated over a whole Arrow batch at once. Whole numbers are exact (`exact_numbers`).
"""

import ast
import keyword
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from queues.errors import BadInput, Forbidden
from workers.pipeline.patterns import exact_numbers
from workers.pipeline.patterns.contradiction import can_hold

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
    ast.Div: lambda left, right: pc.divide(_real(left), _real(right)),
}
_WORDS = {"true": True, "false": False}
KINDS: Mapping[type, str] = {float: "number", str: "text", bool: "truth value"}
_PREVIOUS = "prev"
_LARGEST = 2**64
MOST_CHARACTERS = 2_000  # of a condition, and of a pattern
MOST_NESTING = 12
MOST_OPERATORS = 20  # within one another, chains of `and` and `or` being one
_SHOWN = 80  # characters of a condition that a refusal quotes


# Words that are Python's and not ours: attributes may be called so.
_FREE_WORDS = sorted({*keyword.kwlist} - {"and", "or", "not", "in", "True", "False", "None"})
# Before such a word while Python reads it; no key writes this letter.
_MARK = "\u02cd"
# Texts first, so that what stands in them stays as it is; then every operator that contains a `=`.
_SQL = re.compile(
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|<>|[=!<>]=|=|\b(?:AND|OR|NOT|IN|"""
    rf"""{"|".join(_FREE_WORDS)})\b"""
)
_TEXTS = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""")
_BRACKETS = re.compile(r"[()\[\]]")
_STRANGE = re.compile(r"[^\w\s'\"()\[\],.=!<>+*/-]")
_LONG_NUMBER = re.compile(r"\d[\d_]{39}")
_AS_PYTHON = {
    "=": "==",
    "<>": "!=",
    "AND": "and",
    "OR": "or",
    "NOT": "not",
    "IN": "in",
    **{word: _MARK + word for word in _FREE_WORDS},
}


def previous_of(column: str) -> str:
    """The name under which `Predicate.mask` is given a column of the previous event."""
    return f"{_PREVIOUS}({column})"


@dataclass(frozen=True)
class Predicate:
    """A parsed expression (text: as Python writes it), the columns it reads, and those it reads of the
    previous event.
    """

    text: str
    columns: frozenset[str]
    previous: frozenset[str]
    _tree: ast.expr

    @cached_property
    def types(self) -> frozenset[str]:
        """The event types that it asks for by name."""
        event_types: set[str] = set()
        for node in ast.walk(self._tree):
            match node:
                case ast.Compare(left=ast.Name(id="type"), ops=[ast.Eq() | ast.In()], comparators=[right]):
                    values = [item.value for item in ast.walk(right) if isinstance(item, ast.Constant)]
                    event_types |= {value for value in values if isinstance(value, str)}
        return frozenset(event_types)

    def mask(self, columns: Mapping[str, pa.Array], rows: int) -> pa.BooleanArray:
        """True where the expression holds; null counts as false. Raises pyarrow.ArrowException where a
        column's type does not fit, as a text compared with a number.
        """
        return pc.fill_null(self.truth(columns, rows), False)

    def truth(self, columns: Mapping[str, pa.Array], rows: int) -> pa.BooleanArray:
        """The same, with null where what is unknown decides: neither true nor false. Raises likewise."""
        return _broadcast(_evaluate(self._tree, columns), rows, pa.bool_())


@dataclass(frozen=True)
class Quantity:
    """A parsed expression whose value is a number, such as `shed_per_second + late_per_second`."""

    text: str
    columns: frozenset[str]
    _tree: ast.expr

    def values(self, columns: Mapping[str, pa.Array], rows: int) -> pa.DoubleArray:
        """The number of each row; null where a column that it reads is."""
        return _broadcast(_evaluate(self._tree, columns), rows, pa.float64())


def _broadcast(result: Any, rows: int, kind: pa.DataType) -> Any:
    """Of constants alone an expression has one value, for all rows."""
    if isinstance(result, pa.Scalar):
        result = result.as_py()
    if isinstance(result, (pa.Array, pa.ChunkedArray)):
        return result if result.type == kind else result.cast(kind)
    return pa.repeat(pa.scalar(result, kind), rows)


def parse(text: str, field: str) -> Predicate:
    """Reads an expression. Raises BadInput naming `field` where it is not of the language above."""
    python, tree, columns, previous = _read(text, field, "value > 80")
    if not _is_condition(tree):
        raise BadInput(
            field, f"must be true or false of an event, such as value > 80; {text[:_SHOWN]!r} is neither"
        )
    parsed = Predicate(python, frozenset(columns), frozenset(previous), tree)
    if not can_hold(tree) or (not columns and not previous and not _is_true(parsed, field)):
        raise BadInput(field, f"{text[:_SHOWN]!r} is never true: no event could match")
    return parsed


def parse_quantity(text: str, field: str) -> Quantity:
    """Reads an expression of the same language whose value is a number. Raises BadInput naming `field`."""
    python, tree, columns, previous = _read(text, field, "shed_per_second + late_per_second")
    if previous:
        raise BadInput(field, "takes no prev(): each row is calculated by itself")
    if not _is_number(tree):
        raise BadInput(field, f"takes a number or a calculation, and {text[:_SHOWN]!r} is neither")
    return Quantity(python, frozenset(columns), tree)


def _is_number(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=bool() | str()):
            return False
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _is_number(operand)
        case ast.BinOp(left=left, right=right):
            return _is_number(left) and _is_number(right)
        case ast.Name(id=name):
            return name not in _WORDS
    return isinstance(node, ast.Constant)


def _read(text: str, field: str, example: str) -> tuple[str, ast.expr, set[str], set[str]]:
    """(as Python writes it, tree, columns, columns of the previous event), checked."""
    if not isinstance(text, str) or not text.strip():
        raise BadInput(field, f'takes an expression such as "{example}"')
    _check_text(text, field)
    try:
        python = _as_python(text.strip())
        tree = _restore_names(ast.parse(python, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BadInput(field, f"can't be read: {text[:_SHOWN]!r} ({_reason(error)})") from None
    _check_depth(tree, field)
    columns: set[str] = set()
    previous: set[str] = set()
    _check(tree, field, columns, previous)
    return python.replace(_MARK, ""), tree, columns, previous


def _restore_names(tree: ast.expr) -> ast.expr:
    """With the names as they were written."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = node.id.removeprefix(_MARK)
    return tree


def _check_text(text: str, field: str) -> None:
    """Judged before Python reads it: what it takes to read is bounded by length and brackets."""
    if len(text) > MOST_CHARACTERS:
        raise Forbidden(field, f"takes at most {MOST_CHARACTERS} characters, not {len(text)}")
    plain = _TEXTS.sub("''", text)
    if match := _STRANGE.search(plain):
        raise Forbidden(field, f"{match[0]!r} has no meaning in a condition")
    if _LONG_NUMBER.search(plain):
        raise BadInput(field, f"a number in it is not finite, or larger than {_LARGEST:.0e}")
    depth = 0
    for mark in _BRACKETS.findall(plain):
        depth += 1 if mark in "([" else -1
        if depth > MOST_NESTING:
            raise Forbidden(field, f"is nested deeper than {MOST_NESTING}")


def _check_depth(tree: ast.expr, field: str) -> None:
    waiting: list[tuple[ast.AST, int]] = [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        if depth > MOST_OPERATORS:
            raise Forbidden(field, f"has more than {MOST_OPERATORS} operators within one another")
        waiting += [(part, depth + 1) for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]


def _is_true(constant: Predicate, field: str) -> bool:
    try:
        return bool(constant.mask({}, 1)[0].as_py())
    except pa.ArrowException:
        raise BadInput(field, f"{constant.text!r} compares a text with a number") from None


def _as_python(text: str) -> str:
    """The text with SQL's `=`, `<>`, AND, OR and NOT as Python writes them."""
    return _SQL.sub(lambda found: _AS_PYTHON.get(found[0], found[0]), text.replace("\n", " "))


def _reason(error: BaseException) -> str:
    return error.msg if isinstance(error, SyntaxError) else "not complete"


def match_type(event_type: str) -> Predicate:
    """The predicate of a symbol that nobody defined: the symbol is the event type."""
    tree = ast.Compare(left=ast.Name(id="type"), ops=[ast.Eq()], comparators=[ast.Constant(value=event_type)])
    return Predicate(f"type == {event_type!r}", frozenset({"type"}), frozenset(), tree)


def _is_condition(node: ast.expr) -> bool:
    if isinstance(node, ast.Name):
        return node.id in _WORDS
    negation = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    return negation or isinstance(node, (ast.Compare, ast.BoolOp))


def _check(node: ast.expr, field: str, columns: set[str], previous: set[str]) -> None:
    if isinstance(node, ast.Call):
        previous.add(_column_before(node, field))
        return
    for part in _parts(node, field):
        _check(part, field, columns, previous)
    if isinstance(node, ast.Name) and node.id not in _WORDS:
        columns.add(node.id)


def _column_before(node: ast.Call, field: str) -> str:
    match node:
        case ast.Call(func=ast.Name(id="prev"), args=[ast.Name(id=column)], keywords=[]) if (
            column not in _WORDS
        ):
            return column
    raise BadInput(field, f"{_format_node(node)!r} is not known: prev(column) is, such as prev(value)")


def _parts(node: ast.expr, field: str) -> list[ast.expr]:
    """The parts of one node, when the node is of the language."""
    match node:
        case ast.Constant(value=int() | float() as number) if not abs(number) < _LARGEST:
            raise BadInput(field, f"a number in it is not finite, or larger than {_LARGEST:.0e}")
        case ast.Constant(value=str() as text) if not _is_whole_text(text):
            raise BadInput(field, "a text in it has half a character (a surrogate), which is none")
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
        case ast.Compare(
            left=ast.Constant(value=str()) as part,
            ops=[ast.In() | ast.NotIn()],
            comparators=[ast.Name(id=name) as whole],
        ) if name not in _WORDS:
            return [part, whole]
        case ast.Compare(left=left, ops=[ast.In() | ast.NotIn()], comparators=[right]):
            _check_members(right, field)
            return [left]
    raise BadInput(
        field,
        f"{_format_node(node)!r} is not understood: use comparisons, and, or, not, in (…), + - * /, "
        "prev(column), column names, numbers and strings",
    )


def _is_whole_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_members(node: ast.expr, field: str) -> None:
    """Each is a constant that may stand by itself, and all are of one kind."""
    items = node.elts if isinstance(node, (ast.Tuple, ast.List)) else None
    if items is None or not all(map(_is_member, items)):
        raise BadInput(field, '`in` takes a list of values, such as type in ("cpu", "load")')
    for item in items:
        _parts(item.operand if isinstance(item, ast.UnaryOp) else item, field)
    if len({_kind_of(value) for value in _members(items)}) != 1:
        raise BadInput(field, "`in` takes a list of texts or a list of numbers, and at least one")


def _is_member(node: ast.expr) -> bool:
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)):
            return exact_numbers.is_number(value)
        case ast.Constant(value=bool() | int() | float() | str()):
            return True
        case ast.Name(id=name):
            return name in _WORDS
    return False


def _members(nodes: Iterable[ast.expr]) -> list[Any]:
    """The values of a list that was checked."""
    return [_evaluate(node, {}) for node in nodes]


def _kind_of(value: object) -> type:
    return float if exact_numbers.is_number(value) else type(value)


def _kind_of_rows(value: Any) -> type | None:
    """Of what a side comes to; None where nothing is known of it."""
    value = value.as_py() if isinstance(value, pa.Scalar) else value
    if not isinstance(value, pa.Array):
        return float if isinstance(value, exact_numbers.Worked) else _kind_of(value)
    if pa.types.is_boolean(value.type):
        return bool
    if pa.types.is_string(value.type) or pa.types.is_large_string(value.type):
        return str
    return float if exact_numbers.is_whole(value) or _is_numeric(value.type) else None


def _is_nothing(value: Any) -> bool:
    """Whether it is a column that is null in every row, so that nobody knows of what kind it is."""
    return isinstance(value, pa.Array) and pa.types.is_null(value.type)


def _is_numeric(kind: pa.DataType) -> bool:
    """Decimals too: rules make them of whole numbers."""
    return any(of(kind) for of in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal))


def _format_node(node: ast.expr) -> str:
    return ast.unparse(node).replace(_MARK, "")[:_SHOWN]


def _evaluate(node: ast.expr, columns: Mapping[str, pa.Array]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return _WORDS[name] if name in _WORDS else columns[name]
        case ast.Call(args=[ast.Name(id=name)]):
            return columns[previous_of(name)]
        case ast.BoolOp(op=op, values=values):
            join = pc.and_kleene if isinstance(op, ast.And) else pc.or_kleene
            return _fold(join, [_evaluate(value, columns) for value in values])
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return pc.invert(_evaluate(operand, columns))
        case ast.UnaryOp(operand=operand):
            value = _evaluate(operand, columns)
            return exact_numbers.negate(value) if _needs_row_evaluation(value) else pc.negate(value)
        case ast.BinOp(left=left, op=op, right=right):
            sides = _evaluate(left, columns), _evaluate(right, columns)
            if _needs_row_evaluation(*sides):
                return exact_numbers.calculate(op, *sides)
            return _drop_undefined(_ARITHMETIC[type(op)](*sides))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _compare(op, _evaluate(left, columns), right, columns)
    raise AssertionError(f"unchecked expression {ast.dump(node)}")


def _fold(join: Callable[[Any, Any], Any], values: list[Any]) -> Any:
    result = values[0]
    for value in values[1:]:
        result = join(result, value)
    return result


def _needs_row_evaluation(*values: Any) -> bool:
    """Whether Arrow would not be exact, or there are only constants to work with."""
    return any(map(exact_numbers.is_whole, values)) or all(map(exact_numbers.is_number, values))


def _compare(op: ast.cmpop, left: Any, right: ast.expr, columns: Mapping[str, pa.Array]) -> Any:
    if _is_nothing(left):
        return exact_numbers.UNKNOWN
    if not isinstance(op, (ast.In, ast.NotIn)):
        value = _evaluate(right, columns)
        if _is_nothing(value):
            return exact_numbers.UNKNOWN
        if _needs_row_evaluation(left, value) and not exact_numbers.are_int64(left, value):
            return exact_numbers.compare(op, left, value)
        compared = _COMPARISONS[type(op)](left, value)
        return exact_numbers.UNKNOWN if any(map(exact_numbers.is_undefined, (left, value))) else compared
    if isinstance(right, ast.Name):
        if _is_nothing(columns[right.id]):
            return exact_numbers.UNKNOWN
        compared = pc.match_substring(columns[right.id], left)
        return compared if isinstance(op, ast.In) else pc.invert(compared)
    members = _members(right.elts)  # type: ignore[attr-defined]
    if (of_rows := _kind_of_rows(left)) not in (None, _kind_of(members[0])):
        raise pa.ArrowTypeError(f"a {KINDS[of_rows]} is never among {KINDS[_kind_of(members[0])]}s")
    if exact_numbers.is_undefined(left):
        return exact_numbers.UNKNOWN
    if any(map(exact_numbers.is_whole, (left, *members))) and not isinstance(members[0], bool | str):
        held = exact_numbers.is_member(left, members)
        return held if isinstance(op, ast.In) else pc.invert(held)
    # Of null, is_in says false; whether it is among them is unknown.
    held = pc.if_else(pc.is_valid(left), pc.is_in(left, value_set=pa.array(members)), None)
    return held if isinstance(op, ast.In) else pc.invert(held)


def _drop_undefined(found: Any) -> Any:
    """What is calculated, unknown where it is no number: nothing by nothing, or infinite less infinite."""
    return pc.if_else(pc.is_nan(found), None, found) if pa.types.is_floating(found.type) else found


def _real(value: Any) -> Any:
    """As a floating-point number: whole numbers divide with a rest, and by 0 without an error. Raises
    pyarrow.ArrowTypeError for what is no number.
    """
    if exact_numbers.is_number(value):
        return pa.scalar(float(value))
    kind = getattr(value, "type", pa.string())
    if not (_is_numeric(kind) or pa.types.is_null(kind)):
        raise pa.ArrowTypeError("only numbers are divided")
    return value.cast(pa.float64())
