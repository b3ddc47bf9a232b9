"""References of a condition or measure to the events that an attempt has bound to symbols.

    A.value            of the last event bound to A
    first(A.value, n)  of the n-th event of A after its first one (0: the first)
    last(A.value, n)   of the n-th event of A before its last one (0: the last)
    count(A)           number of events of A; count(): of all bound events; count(A.value): of values that exist
    sum avg min max    over the values of A that exist

Without a symbol, `first(value)` or `sum(value)` is over all bound events. The argument may be an expression of one
symbol: `sum(A.price * A.amount)`. A reference becomes a name in the tree of its expression, so that the rest of the
language needs no changes. Semantics: SQL's row patterns (ISO 9075-2, MATCH_RECOGNIZE).
"""

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from common.errors import BadInput

NAVIGATION = ("first", "last")
AGGREGATES = ("count", "sum", "avg", "min", "max")
FUNCTIONS = (*NAVIGATION, *AGGREGATES)
MAX_OFFSET = 1_000  # events of a symbol that an attempt keeps for a reference
_SHOWN = 80


@dataclass(frozen=True)
class EventReference:
    """A reference. symbol: None stands for all bound events. tree: the value of one event; None: the event itself.

    name: its text, which is its name in the tree of the expression.
    """

    name: str
    function: str
    symbol: str | None
    offset: int
    columns: frozenset[str]
    previous: frozenset[str]
    tree: ast.expr | None

    @property
    def value_text(self) -> str:
        """Return the text of the value of one event."""
        return "" if self.tree is None else ast.unparse(self.tree)


@dataclass(frozen=True)
class SymbolScope:
    """The scope of an expression. symbols: symbols of the pattern. own: symbol of the condition; None: a measure."""

    symbols: tuple[str, ...]
    own: str | None = None


def resolve(tree: ast.expr, scope: SymbolScope, field: str) -> tuple[ast.expr, dict[str, EventReference]]:
    """Return the tree with a name for each reference, and the references by name. Raises `BadInput` naming `field`.

    In the condition of S, `S.x` is the event under test and becomes `x`. In a measure, `x` is of the last event.
    """
    resolver = _Resolver(scope, field)
    return resolver.resolve(tree), resolver.references


class _Resolver(ast.NodeTransformer):
    def __init__(self, scope: SymbolScope, field: str) -> None:
        self._scope, self._field = scope, field
        self.references: dict[str, EventReference] = {}

    def resolve(self, tree: ast.expr) -> ast.expr:
        resolved: ast.expr = self.visit(tree)
        return resolved

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return self._refer("last", node, 0, node)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return node if self._scope.own or node.id in ("true", "false") else self._refer("last", node, 0, node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS:
            is_previous = isinstance(node.func, ast.Name) and node.func.id == "prev"
            return self._refer("last", node, 0, node) if is_previous and not self._scope.own else node
        function, arguments = node.func.id, list(node.args)
        if node.keywords or any(isinstance(argument, ast.Starred) for argument in arguments):
            raise self._error(node, f"must be written like {function}(A.value)")
        offset = self._read_offset(node, arguments.pop()) if function in NAVIGATION and len(arguments) == 2 else 0
        if len(arguments) > 1 or (not arguments and function != "count"):
            raise self._error(node, f"must have one argument, such as {function}(A.value)")
        return self._refer(function, arguments[0] if arguments else None, offset, node)

    def _read_offset(self, node: ast.Call, argument: ast.expr) -> int:
        offset = argument.value if isinstance(argument, ast.Constant) else None
        if type(offset) is int and offset <= MAX_OFFSET:
            return offset
        raise self._error(node, f"must have a whole number from 0 to {MAX_OFFSET} as its second argument")

    def _refer(self, function: str, argument: ast.expr | None, offset: int, node: ast.expr) -> ast.expr:
        inside = "" if argument is None else ast.unparse(argument)
        symbol, tree = self._read_argument(function, argument, node)
        own = self._scope.own
        if tree is not None and function == "last" and offset == 0 and own and symbol in (own, None):
            return tree
        is_plain = function == "last" and offset == 0 and isinstance(tree, ast.Name) and symbol is not None
        name = inside if is_plain else f"{function}({inside}{f', {offset}' if offset else ''})"
        columns, previous = list_read_columns(tree)
        self.references[name] = EventReference(name, function, symbol, offset, columns, previous, tree)
        return ast.Name(id=name)

    def _read_argument(
        self, function: str, argument: ast.expr | None, node: ast.expr
    ) -> tuple[str | None, ast.expr | None]:
        """Return the symbol and the value of an argument."""
        if argument is None:
            return None, None
        if function == "count" and isinstance(argument, ast.Name) and argument.id in self._scope.symbols:
            return argument.id, None
        if argument is node and isinstance(node, ast.Call):
            return None, node  # prev() in a measure
        reader = _ValueReader(self._scope, self._field, _format(node))
        tree = reader.visit(argument)
        if len(reader.qualifiers) > 1:
            named = " and ".join(sorted(name or "attributes without a symbol" for name in reader.qualifiers))
            raise self._error(node, f"must be an expression of one symbol, not of {named}")
        return next(iter(reader.qualifiers), None), tree

    def _error(self, node: ast.expr, reason: str) -> BadInput:
        return BadInput(self._field, f"{_format(node)!r} {reason}")


class _ValueReader(ast.NodeTransformer):
    """Reads the value of one event: removes the symbols from names. qualifiers: the symbols; None: no symbol."""

    def __init__(self, scope: SymbolScope, field: str, whole: str) -> None:
        self._scope, self._field, self._whole = scope, field, whole
        self.qualifiers: set[str | None] = set()

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if not isinstance(node.value, ast.Name):
            raise BadInput(
                self._field,
                f"{_format(node)!r} is not supported; a symbol that conditions refer to must consist of letters, "
                "digits, and _, as in A.value",
            )
        if node.value.id not in self._scope.symbols:
            known = ", ".join(symbol for symbol in self._scope.symbols if symbol.isidentifier())
            raise BadInput(
                self._field,
                f"{_format(node)!r} refers to {node.value.id!r}, which is not a symbol of the pattern; "
                f"use one of {known}",
            )
        self.qualifiers.add(node.value.id)
        return ast.Name(id=node.attr)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        self.qualifiers.add(None)
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.BinOp | ast.UnaryOp | ast.Constant | ast.operator | ast.unaryop):
            return super().generic_visit(node)
        raise BadInput(
            self._field, f"{self._whole!r} must contain an attribute or a calculation, such as A.value or A.x * A.y"
        )


def list_read_columns(tree: ast.expr | None) -> tuple[frozenset[str], frozenset[str]]:
    """Return the columns that a value reads of its event, and of the event before it."""
    match tree:
        case None:
            return frozenset(), frozenset()
        case ast.Call(args=[ast.Name(id=name)]):
            return frozenset(), frozenset({name})
    return frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name)), frozenset()


def iterate_conjuncts(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the conditions that `and` joins."""
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        for value in node.values:
            yield from iterate_conjuncts(value)
    else:
        yield node


def refers(node: ast.expr, references: Collection[str]) -> bool:
    """Return whether an expression contains one of the references."""
    return any(isinstance(part, ast.Name) and part.id in references for part in ast.walk(node))


def join_conjuncts(parts: list[ast.expr]) -> ast.expr:
    """Return the conditions joined by `and`; always true without any."""
    if not parts:
        return ast.Constant(value=True)
    return parts[0] if len(parts) == 1 else ast.BoolOp(op=ast.And(), values=parts)


def _format(node: ast.expr) -> str:
    return ast.unparse(node)[:_SHOWN]
