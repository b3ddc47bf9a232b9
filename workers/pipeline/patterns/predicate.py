"""The condition of a symbol of a pattern: a small, safe expression over the columns of an event.

`value > 80 and key == "total"` — comparisons (`==  !=  <  <=  >  >=  in  not in`, also `=` and `<>`), `and`, `or`,
`not`, arithmetic (`+ - * /`), numbers, strings, `true` and `false`. `"text" in column` searches for a part of a text.
`prev(column)` is the column of the previous event of the same key. As in SQL, neither a comparison with an unknown
(null, prev() at the first event, 0 / 0) nor its `not` is true. A predicate is evaluated over a whole Arrow batch at
once. Whole numbers are exact (`exact_numbers`).

In a pattern, a condition may also refer to earlier events of the match (`references`): `value > 10 * A.value`. The
parts that refer only to the event under test are a predicate as above. The other parts are a `BoundExpression`, which
is evaluated for each attempt to match.
"""

import ast
import keyword
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from common.errors import BadInput, Forbidden
from workers.pipeline.patterns import exact_numbers
from workers.pipeline.patterns.contradiction import can_hold
from workers.pipeline.patterns.references import (
    FUNCTIONS,
    EventReference,
    SymbolScope,
    iterate_conjuncts,
    join_conjuncts,
    refers,
    resolve,
)

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
    ast.Div: lambda left, right: pc.divide(_convert_to_real(left), _convert_to_real(right)),
}
_WORDS = {"true": True, "false": False}
KINDS: Mapping[type, str] = {float: "number", str: "string", bool: "Boolean"}
_PREVIOUS = "prev"
_LARGEST = 2**64
MAX_CHARACTERS = 2_000  # of a condition, and of a pattern
MAX_NESTING = 12
MAX_OPERATORS = 20  # nested; a chain of `and` or `or` counts as one level
_SHOWN = 80  # characters of a condition that an error message quotes


# Keywords of Python that are none here: attributes may have these names.
_FREE_WORDS = sorted({*keyword.kwlist} - {"and", "or", "not", "in", "True", "False", "None"})
# Prefix of such a word while Python parses it; no keyboard types this letter.
_MARK = "\u02cd"
# Texts first, so that their content stays as it is; then every operator that contains a `=`.
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


def format_previous_name(column: str) -> str:
    """Return the name under which `Predicate.mask` gets a column of the previous event."""
    return f"{_PREVIOUS}({column})"


@dataclass(frozen=True)
class BoundExpression:
    """An expression over the event under test and the events that an attempt to match has bound.

    columns, previous: columns that it reads of the event under test, and of the previous event. references: by name, as
    in `tree`.
    """

    text: str
    columns: frozenset[str]
    previous: frozenset[str]
    references: Mapping[str, EventReference]
    tree: ast.expr

    @property
    def all_columns(self) -> frozenset[str]:
        """Return the columns that it reads of any event."""
        return self.columns.union(*(reference.columns for reference in self.references.values()))

    @property
    def all_previous(self) -> frozenset[str]:
        """Return the columns that it reads of the event before any event."""
        return self.previous.union(*(reference.previous for reference in self.references.values()))

    def evaluate(self, columns: Mapping[str, pa.Array], rows: int) -> pa.Array:
        """Return the value of each row. columns: columns of the rows, and the values of the references, by name.

        Raises `pyarrow.ArrowException` if the type of a column does not fit.
        """
        return _build_column(_evaluate(self.tree, columns), rows)

    def check_types(self, columns: Mapping[str, pa.Array]) -> None:
        """Raise `pyarrow.ArrowException` if it can't be evaluated over columns of these types."""
        none = {name: column.slice(0, 0) for name, column in columns.items()}
        values = {name: _build_type_example(reference, none) for name, reference in self.references.items()}
        self.evaluate({**none, **values}, 0)


def evaluate_reference(reference: EventReference, columns: Mapping[str, pa.Array], rows: int) -> pa.Array:
    """Return the value of a reference's event per row. columns: of these events."""
    assert reference.tree is not None
    return _build_column(_evaluate(reference.tree, columns), rows)


def _build_column(result: object, rows: int) -> pa.Array:
    if isinstance(result, exact_numbers.CalculationResult):
        return exact_numbers.build_column(result)
    return result if isinstance(result, pa.Array) else pa.repeat(result, rows)


def _build_type_example(reference: EventReference, columns: Mapping[str, pa.Array]) -> pa.Array:
    """Return an empty column of the type of a reference's values."""
    if reference.tree is None:
        return pa.array([], pa.int64())
    result = _evaluate(reference.tree, columns)
    if reference.function in ("sum", "avg"):
        _evaluate(ast.BinOp(left=reference.tree, op=ast.Add(), right=ast.Constant(value=0)), columns)
    if reference.function == "count":
        return pa.array([], pa.int64())
    if isinstance(result, pa.Array):
        return pa.array([], pa.float64()) if reference.function == "avg" else result
    kind = str if isinstance(result, str) else bool if isinstance(result, bool) else float
    return pa.array([], {str: pa.string(), bool: pa.bool_(), float: pa.float64()}[kind])


@dataclass(frozen=True)
class Predicate:
    """A parsed expression, the columns it reads, and those it reads of the previous event. text: in Python's syntax.

    bound: the part of the condition that refers to bound events, which must be true too; None: there is none.
    """

    text: str
    columns: frozenset[str]
    previous: frozenset[str]
    tree: ast.expr
    bound: BoundExpression | None = None

    @property
    def all_columns(self) -> frozenset[str]:
        return self.columns | (self.bound.all_columns if self.bound else frozenset())

    @property
    def all_previous(self) -> frozenset[str]:
        return self.previous | (self.bound.all_previous if self.bound else frozenset())

    @cached_property
    def types(self) -> frozenset[str]:
        """Return the event types that it requests by name."""
        event_types: set[str] = set()
        for node in ast.walk(self.tree):
            match node:
                case ast.Compare(left=ast.Name(id="type"), ops=[ast.Eq() | ast.In()], comparators=[right]):
                    values = [item.value for item in ast.walk(right) if isinstance(item, ast.Constant)]
                    event_types |= {value for value in values if isinstance(value, str)}
        return frozenset(event_types)

    def mask(self, columns: Mapping[str, pa.Array], rows: int) -> pa.BooleanArray:
        """Return True where the expression is true; null counts as false.

        Raises `pyarrow.ArrowException` if the type of a column does not fit, such as a text compared with a number.
        """
        return pc.fill_null(self.compute_truth(columns, rows), False)

    def compute_truth(self, columns: Mapping[str, pa.Array], rows: int) -> pa.BooleanArray:
        """Return the same as `mask`, but null where the result is unknown. Raises the same exception."""
        return _broadcast(_evaluate(self.tree, columns), rows, pa.bool_())


@dataclass(frozen=True)
class Quantity:
    """A parsed expression whose value is a number, such as `shed_per_second + late_per_second`."""

    text: str
    columns: frozenset[str]
    _tree: ast.expr

    def collect_values(self, columns: Mapping[str, pa.Array], rows: int) -> pa.DoubleArray:
        """Return the number of each row; null where a column that it reads is null."""
        return _broadcast(_evaluate(self._tree, columns), rows, pa.float64())


def _broadcast(result: object, rows: int, kind: pa.DataType) -> pa.Array:
    """Expand the result of an expression of constants to all rows."""
    if isinstance(result, pa.Scalar):
        result = result.as_py()
    if isinstance(result, (pa.Array, pa.ChunkedArray)):
        return result if result.type == kind else result.cast(kind)
    return pa.repeat(pa.scalar(result, kind), rows)


def parse(text: str, field: str, scope: SymbolScope | None = None) -> Predicate:
    """Parse an expression. Raises `BadInput` that names `field` if it is not in the language above.

    scope: scope of a symbol, whose condition can refer to bound events.
    """
    read = _read(text, field, "value > 80", scope)
    if not _is_condition(read.tree):
        raise BadInput(field, f"must be a condition such as value > 80, not {text[:_SHOWN]!r}")
    parsed = _split_condition(read)
    try:
        is_possible = can_hold(read.tree) and (
            parsed.bound or parsed.columns or parsed.previous or parsed.mask({}, 1)[0].as_py()
        )
    except pa.ArrowException:
        raise BadInput(field, f"{parsed.text!r} compares a string with a number") from None
    if not is_possible:
        raise BadInput(field, f"{text[:_SHOWN]!r} is never true: no event could match")
    return parsed


def _split_condition(read: "_ParsedText") -> Predicate:
    """Separate the parts that refer to bound events from those that an event alone decides."""
    if not read.references:
        return Predicate(read.text, frozenset(read.columns), frozenset(read.previous), read.tree)
    parts = list(iterate_conjuncts(read.tree))
    own = join_conjuncts([part for part in parts if not refers(part, read.references)])
    bound = join_conjuncts([part for part in parts if refers(part, read.references)])
    return Predicate(
        read.text,
        *_list_columns(own),
        own,
        BoundExpression(read.text, *_list_columns(bound, read.references), read.references, bound),
    )


def _list_columns(tree: ast.expr, references: Collection[str] = ()) -> tuple[frozenset[str], frozenset[str]]:
    """Return the columns that a checked tree reads of an event, and of the previous event."""
    columns: set[str] = set()
    previous: set[str] = set()
    _check(tree, "", columns, previous)
    return frozenset(columns - set(references)), frozenset(previous)


def parse_measure(text: str, field: str, scope: SymbolScope) -> BoundExpression:
    """Parse the expression of a measure: a number or a text. Raises `BadInput` that names `field`."""
    read = _read(text, field, "last(B.value) - A.value", scope)
    if any(isinstance(node, ast.expr) and _is_condition(node) for node in ast.walk(read.tree)):
        raise BadInput(field, f"must be a value such as last(B.value) - A.value, not the condition {text[:_SHOWN]!r}")
    return BoundExpression(read.text, frozenset(), frozenset(), read.references, read.tree)


def parse_quantity(text: str, field: str) -> Quantity:
    """Parse an expression of the same language whose value is a number. Raises `BadInput` that names `field`."""
    read = _read(text, field, "shed_per_second + late_per_second")
    if read.previous:
        raise BadInput(field, "must not use prev(): each row is calculated separately")
    if not _is_number(read.tree):
        raise BadInput(field, f"must be a number or a calculation, not {text[:_SHOWN]!r}")
    return Quantity(read.text, frozenset(read.columns), read.tree)


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


class _ParsedText(NamedTuple):
    """A checked text in Python's syntax, with its tree, columns, columns of the previous event, and references."""

    text: str
    tree: ast.expr
    columns: set[str]
    previous: set[str]
    references: dict[str, EventReference]


def _read(text: str, field: str, example: str, scope: SymbolScope | None = None) -> _ParsedText:
    """Check a text. Without a scope, it can't refer to bound events."""
    if not isinstance(text, str) or not text.strip():
        raise BadInput(field, f'must be an expression such as "{example}"')
    _check_text(text, field)
    try:
        # SQL's `=`, `<>`, AND, OR, and NOT become Python's operators.
        python = _SQL.sub(lambda found: _AS_PYTHON.get(found[0], found[0]), text.strip().replace("\n", " "))
        tree = ast.parse(python, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        why = error.msg if isinstance(error, SyntaxError) else "incomplete"
        raise BadInput(field, f"can't be read: {text[:_SHOWN]!r} ({why})") from None
    for name in ast.walk(tree):
        if isinstance(name, ast.Name):
            name.id = name.id.removeprefix(_MARK)
        elif isinstance(name, ast.Attribute):
            name.attr = name.attr.removeprefix(_MARK)
    waiting: list[tuple[ast.AST, int]] = [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        if depth > MAX_OPERATORS:
            raise Forbidden(field, f"has more than {MAX_OPERATORS} nested operators")
        waiting += [(part, depth + 1) for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
    columns: set[str] = set()
    previous: set[str] = set()
    references: dict[str, EventReference] = {}
    if scope:
        tree, references = resolve(tree, scope, field)
    for part in (tree, *(reference.tree for reference in references.values() if reference.tree)):
        _check(part, field, columns, previous, scope is not None)
    return _ParsedText(python.replace(_MARK, ""), tree, columns - set(references), previous, references)


def _check_text(text: str, field: str) -> None:
    """Check the text before Python parses it: length and nesting bound the cost of parsing."""
    if len(text) > MAX_CHARACTERS:
        raise Forbidden(field, f"must have at most {MAX_CHARACTERS} characters, not {len(text)}")
    plain = _TEXTS.sub("''", text)
    if match := _STRANGE.search(plain):
        raise Forbidden(field, f"{match[0]!r} is not allowed in a condition")
    if _LONG_NUMBER.search(plain):
        raise BadInput(field, f"must not contain a number that is infinite or larger than {_LARGEST:.0e}")
    depth = 0
    for mark in _BRACKETS.findall(plain):
        depth += 1 if mark in "([" else -1
        if depth > MAX_NESTING:
            raise Forbidden(field, f"is nested deeper than {MAX_NESTING}")


def match_type(event_type: str) -> Predicate:
    """Return the predicate of an undefined symbol: the symbol is the event type."""
    tree = ast.Compare(left=ast.Name(id="type"), ops=[ast.Eq()], comparators=[ast.Constant(value=event_type)])
    return Predicate(f"type == {event_type!r}", frozenset({"type"}), frozenset(), tree)


def _is_condition(node: ast.expr) -> bool:
    if isinstance(node, ast.Name):
        return node.id in _WORDS
    negation = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    return negation or isinstance(node, (ast.Compare, ast.BoolOp))


def _check(node: ast.expr, field: str, columns: set[str], previous: set[str], may_refer: bool = False) -> None:
    match node:
        case ast.Call(func=ast.Name(id="prev"), args=[ast.Name(id=column)], keywords=[]) if column not in _WORDS:
            previous.add(column)
            return
        case ast.Call():
            known = f", or {', '.join(FUNCTIONS)} of events of the match" if may_refer else ""
            raise BadInput(field, f"{_format_node(node)!r} is unknown; use prev(column), such as prev(value){known}")
    for part in _list_checked_parts(node, field):
        _check(part, field, columns, previous, may_refer)
    if isinstance(node, ast.Name) and node.id not in _WORDS:
        columns.add(node.id)


def _list_checked_parts(node: ast.expr, field: str) -> list[ast.expr]:
    """Return the parts of one node, if the node is in the language."""
    match node:
        case ast.Constant(value=int() | float() as number) if not abs(number) < _LARGEST:
            raise BadInput(field, f"must not contain a number that is infinite or larger than {_LARGEST:.0e}")
        case ast.Constant(value=str() as text) if not _is_whole_text(text):
            raise BadInput(field, "must not contain an unpaired surrogate, which is not valid Unicode")
        case ast.Name() | ast.Constant(value=bool() | int() | float() | str()):
            return []
        case ast.BoolOp(values=values):
            if not all(_is_condition(value) for value in values):
                raise BadInput(field, "`and` and `or` need conditions on both sides, such as value > 80")
            return values
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            if not _is_condition(operand):
                raise BadInput(field, "`not` needs a condition, such as not (value > 80)")
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
        f"{_format_node(node)!r} is not supported; use comparisons, and, or, not, in (…), + - * /, "
        "prev(column), column names, numbers, and strings",
    )


def _is_whole_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_members(node: ast.expr, field: str) -> None:
    """Check that each member is a constant that may stand alone, and that all have the same kind."""
    items = node.elts if isinstance(node, (ast.Tuple, ast.List)) else None
    if items is None or not all(map(_is_member, items)):
        raise BadInput(field, '`in` needs a list of values, such as `type in ("cpu", "load")`')
    for item in items:
        _list_checked_parts(item.operand if isinstance(item, ast.UnaryOp) else item, field)
    if len({_get_kind(value) for value in _evaluate_members(items)}) != 1:
        raise BadInput(field, "`in` needs a list of strings or a list of numbers, with at least one item")


def _is_member(node: ast.expr) -> bool:
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)):
            return exact_numbers.is_number(value)
        case ast.Constant(value=bool() | int() | float() | str()):
            return True
        case ast.Name(id=name):
            return name in _WORDS
    return False


def _evaluate_members(nodes: Iterable[ast.expr]) -> list[Any]:
    """Return the values of a checked list."""
    return [_evaluate(node, {}) for node in nodes]


def _get_kind(value: object) -> type:
    return float if exact_numbers.is_number(value) else type(value)


def _find_rows_kind(value: object) -> type | None:
    """Return the kind of the value of a side; None if it is unknown."""
    value = value.as_py() if isinstance(value, pa.Scalar) else value
    if not isinstance(value, pa.Array):
        return float if isinstance(value, exact_numbers.CalculationResult) else _get_kind(value)
    if pa.types.is_boolean(value.type):
        return bool
    if pa.types.is_string(value.type) or pa.types.is_large_string(value.type):
        return str
    return float if exact_numbers.is_whole(value) or _is_numeric(value.type) else None


def _is_nothing(value: object) -> bool:
    """Return whether it is a column that is null in every row, so that its kind is unknown."""
    return isinstance(value, pa.Array) and pa.types.is_null(value.type)


def _is_numeric(kind: pa.DataType) -> bool:
    """Return whether it is numeric. Decimals are too: rules compute them from whole numbers."""
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
            return columns[format_previous_name(name)]
        case ast.BoolOp(op=op, values=values):
            join = pc.and_kleene if isinstance(op, ast.And) else pc.or_kleene
            return reduce(join, [_evaluate(value, columns) for value in values])
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


def _needs_row_evaluation(*values: object) -> bool:
    """Return whether Arrow would not be exact, or there are only constants."""
    return any(map(exact_numbers.is_whole, values)) or all(map(exact_numbers.is_number, values))


def _compare(op: ast.cmpop, left: object, right: ast.expr, columns: Mapping[str, pa.Array]) -> object:
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
    members = _evaluate_members(right.elts)  # type: ignore[attr-defined]
    if (of_rows := _find_rows_kind(left)) not in (None, _get_kind(members[0])):
        raise pa.ArrowTypeError(f"a {KINDS[of_rows]} can't be in a list of {KINDS[_get_kind(members[0])]}s")
    if exact_numbers.is_undefined(left):
        return exact_numbers.UNKNOWN
    if any(map(exact_numbers.is_whole, (left, *members))) and not isinstance(members[0], bool | str):
        held = exact_numbers.is_member(left, members)
        return held if isinstance(op, ast.In) else pc.invert(held)
    # For null, is_in returns false, but whether null is among them is unknown.
    held = pc.if_else(pc.is_valid(left), pc.is_in(left, value_set=pa.array(members)), None)
    return held if isinstance(op, ast.In) else pc.invert(held)


def _drop_undefined(found: pa.Array | pa.Scalar) -> pa.Array | pa.Scalar:
    """Replace results that are not a number (0 / 0, infinite minus infinite) by unknown."""
    return pc.if_else(pc.is_nan(found), None, found) if pa.types.is_floating(found.type) else found


def _convert_to_real(value: pa.Array | pa.Scalar) -> pa.Array | pa.Scalar:
    """Return the value as floating-point numbers, so that division keeps fractions and never fails on 0.

    Raises `pyarrow.ArrowTypeError` if the value is not a number.
    """
    if exact_numbers.is_number(value):
        return pa.scalar(float(value))
    kind = getattr(value, "type", pa.string())
    if not (_is_numeric(kind) or pa.types.is_null(kind)):
        raise pa.ArrowTypeError("only numbers can be divided")
    return value.cast(pa.float64())
