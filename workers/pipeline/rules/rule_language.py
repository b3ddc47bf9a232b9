r"""The language of rules: a subset of Spark SQL's expressions.

They are parsed here, and `rule_columns` builds them into Spark's columns. No text of a declaration is ever given to
Spark to parse.

| part | takes |
|---|---|
| columns | those of the event, declared attributes, columns that earlier rules have added |
| `:name` | the present value of a criterion |
| literals | numbers (`3 3L 1.5 1e3`), texts in quotes (`\\`, `\'`, `\"`), true, false, null, DATE '…' |
| comparisons | `= == <> != < <= > >= <=>`, IN (…), BETWEEN … AND …, LIKE 'a%', IS NULL, IS TRUE |
| arithmetic | `+ - * / % DIV`, and `\|\|` for texts |
| others | AND, OR, NOT, CASE, CAST(… AS type), `…::type`, a text that was split `[n]`, FUNCTIONS, in_subnet |

A text is checked before it is parsed: at most MAX_CHARACTERS, MAX_TOKENS and MAX_DEPTH, so that parsing takes time
proportional to its length. sqlglot parses it; every node must be in the list below. An expression that two grammars
could read in two ways (`a = b = c`) needs parentheses.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from typing import cast

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel, SqlglotError
from sqlglot.parsers.spark import SparkParser

from common.errors import BadInput, Forbidden
from workers.pipeline.rules.reference import parse_subnet
from workers.pipeline.rules.rule_functions import FUNCTIONS, SUBNET, get_literal_number, get_literal_text

MAX_CHARACTERS = 4_000
MAX_TOKENS = 1_000
MAX_DEPTH = 12
MAX_WRITTEN = 2_000  # parts, once the expressions of the named columns are expanded
MAX_JOINED = 16  # columns that are concatenated
TYPES = {
    exp.DataType.Type.TEXT: "string",
    exp.DataType.Type.BOOLEAN: "boolean",
    exp.DataType.Type.SMALLINT: "smallint",
    exp.DataType.Type.INT: "int",
    exp.DataType.Type.BIGINT: "bigint",
    exp.DataType.Type.FLOAT: "float",
    exp.DataType.Type.DOUBLE: "double",
    exp.DataType.Type.DATE: "date",
    exp.DataType.Type.TIMESTAMPTZ: "timestamp",
}
ALLOWED = (
    "comparisons, AND, OR, NOT, IN, BETWEEN, LIKE, IS NULL, CASE, CAST, + - * / % DIV ||, literals, columns, "
    ":criteria, and functions of one event"
)

CONNECTORS = (exp.And, exp.Or)
COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ)
PREDICATES = (*COMPARISONS, exp.In, exp.Between, exp.Like, exp.Is)
ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.IntDiv)
_LOOSE = (*CONNECTORS, *PREDICATES, exp.Not)
_NODES = (
    *CONNECTORS,
    *PREDICATES,
    *ARITHMETIC,
    exp.Not,
    exp.Neg,
    exp.DPipe,
    exp.Paren,
    exp.Case,
    exp.If,
    exp.Cast,
    exp.TryCast,
    exp.Bracket,
    exp.Anonymous,
    exp.Column,
    exp.Placeholder,
    exp.Literal,
    exp.Boolean,
    exp.Null,
)

_WORDS = frozenset(
    "AND OR NOT IN IS NULL TRUE FALSE BETWEEN LIKE CASE WHEN THEN ELSE END AS DIV".split()  # noqa: SIM905
)
_STATEMENTS = frozenset(
    "SELECT FROM WITH VALUES TABLE EXISTS LATERAL OVER INSERT CREATE DROP SET ADD USE CALL EXECUTE INTO UNION "  # noqa: SIM905
    "TRANSFORM REFLECT RLIKE REGEXP ILIKE".split()
)
_MARKS = frozenset(
    {
        TokenType.L_PAREN,
        TokenType.R_PAREN,
        TokenType.L_BRACKET,
        TokenType.R_BRACKET,
        TokenType.COMMA,
        TokenType.PLUS,
        TokenType.DASH,
        TokenType.STAR,
        TokenType.SLASH,
        TokenType.MOD,
        TokenType.DPIPE,
        TokenType.EQ,
        TokenType.NEQ,
        TokenType.LT,
        TokenType.LTE,
        TokenType.GT,
        TokenType.GTE,
        TokenType.NULLSAFE_EQ,
        TokenType.COLON,
        TokenType.DCOLON,
        TokenType.DOT,
        TokenType.NOT,
        TokenType.NUMBER,
        TokenType.STRING,
    }
)
_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.CASE}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.END}
_PREFIXES = {TokenType.NOT, TokenType.DASH, TokenType.PLUS}
_WORD = re.compile(r"[A-Za-z_]\w*\Z", re.ASCII)
_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
_NUMBER = re.compile(r"(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][+-]?\d{1,3})?\Z", re.ASCII)
_ESCAPES = re.compile(r"(?:[^\\]|\\[\\'\"])*\Z", re.DOTALL)
_DATE = re.compile(r"\d{4}-\d\d-\d\d\Z")
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d:\d\d(?:\.\d{1,6})?Z?)?\Z")
_DIALECT = Spark()


class _Parser(SparkParser):
    """A parser that treats every function as a name with arguments, and knows nothing but expressions."""

    FUNCTIONS = {}
    FUNCTION_PARSERS = {
        name: parser for name, parser in SparkParser.FUNCTION_PARSERS.items() if name in ("CAST", "TRY_CAST")
    }
    NO_PAREN_FUNCTIONS = {}
    NO_PAREN_FUNCTION_PARSERS = {"CASE": SparkParser.NO_PAREN_FUNCTION_PARSERS["CASE"]}
    STATEMENT_PARSERS = {}
    QUERY_MODIFIER_PARSERS = {}


@dataclass(frozen=True)
class WrittenRule:
    """A parsed and checked expression. columns, criteria: the names that it uses."""

    tree: exp.Expression
    columns: frozenset[str]
    criteria: frozenset[str]


@lru_cache(maxsize=1024)
def parse_expression(text: str, field: str) -> WrittenRule:
    """Parse an expression of the language.

    Raises `BadInput` that names `field`, and `Forbidden` if the expression is not in the language or too large.
    """
    tokens = _tokenize_text(text, field)
    try:
        parsed = _Parser(dialect=_DIALECT, error_level=ErrorLevel.RAISE).parse(tokens, text)
    except SqlglotError as error:
        # An attempt at a statement is no typing error.
        kind = Forbidden if any(token.text.upper() in _STATEMENTS for token in tokens) else BadInput
        first = (getattr(error, "errors", None) or [{}])[0]
        at = f" at line {first['line']}, character {first['col']}" if "col" in first else ""
        raise kind(field, f"can't be read{at}; allowed: {ALLOWED}") from None
    except RecursionError:
        raise Forbidden(field, f"is nested deeper than {MAX_DEPTH}") from None
    if len(parsed) != 1 or parsed[0] is None:
        raise BadInput(field, f"must be a single expression; allowed: {ALLOWED}")
    return _check_tree(cast(exp.Expression, parsed[0]), field)


def _tokenize_text(text: str, field: str) -> list[Token]:
    """Return the tokens of a text, checked before it is parsed.

    Words that are not in the language become plain names, so that no statement, clause, or special function is ever
    recognized.
    """
    if len(text) > MAX_CHARACTERS:
        raise Forbidden(field, f"must have at most {MAX_CHARACTERS} characters, not {len(text)}")
    try:
        tokens = _DIALECT.tokenize(text)
    except SqlglotError:
        raise BadInput(field, "can't be read: a quote or a comment is not closed") from None
    if not tokens:
        raise BadInput(field, f"must be an expression; allowed: {ALLOWED}")
    if len(tokens) > MAX_TOKENS:
        raise Forbidden(field, f"must have at most {MAX_TOKENS} words and symbols, not {len(tokens)}")
    depth = prefixes = 0
    for token in tokens:
        kind = token.token_type
        depth += (kind in _OPENING) - (kind in _CLOSING)
        prefixes = prefixes + 1 if kind in _PREFIXES else 0
        if max(depth, prefixes) > MAX_DEPTH:
            raise Forbidden(field, f"is nested deeper than {MAX_DEPTH}")
    return [_check_token(tokens, place, text, field) for place in range(len(tokens))]


def _check_token(tokens: list[Token], place: int, text: str, field: str) -> Token:
    token = tokens[place]
    before = tokens[place - 1].token_type if place else None
    after = tokens[place + 1].token_type if place + 1 < len(tokens) else None
    if token.comments:
        raise Forbidden(field, "must not contain comments")
    if token.token_type == TokenType.STRING:
        written = text[token.start : token.end + 1]
        if before == TokenType.STRING:
            raise Forbidden(field, r"must not have two strings in a row; write a quote in a string as \'")
        if not _ESCAPES.match(written):
            raise Forbidden(field, r"must not use \ in a string, except for \\, \', and \"")
        return token
    if token.token_type == TokenType.NUMBER and not (
        _NUMBER.match(token.text) and (int(token.text) < 2**63 if token.text.isdigit() else isfinite(float(token.text)))
    ):
        raise Forbidden(field, "must use 64-bit numbers, or numbers of at most 30 digits with a decimal point")
    if token.token_type in _MARKS or token.text.upper() in _WORDS:
        return token
    if not _WORD.match(token.text) or token.token_type == TokenType.IDENTIFIER:
        raise Forbidden(field, f"{token.text[:20]!r} is not allowed in a rule; allowed: {ALLOWED}")
    is_type = before in (TokenType.ALIAS, TokenType.DCOLON)
    types_literal = token.text.upper() in ("DATE", "TIMESTAMP") and after == TokenType.STRING
    if is_type or types_literal:
        return token
    return Token(TokenType.VAR, token.text, token.line, token.col, token.start, token.end, [])


def _check_tree(tree: exp.Expression, field: str) -> WrittenRule:
    columns: set[str] = set()
    criteria: set[str] = set()
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if type(node) not in _NODES:
            is_alias = isinstance(node, exp.Alias)
            what = f"{node.alias[:40]!r} where an operator is expected" if is_alias else type(node).__name__
            raise Forbidden(field, f"has {what}, which is not allowed in a rule; allowed: {ALLOWED}")
        _check_node(node, field)
        if isinstance(node, exp.Column):
            columns.add(node.name)
        elif isinstance(node, exp.Placeholder):
            criteria.add(node.name)
        waiting += list_operands(node)
    _check_nesting(tree, field)
    return WrittenRule(tree, frozenset(columns), frozenset(criteria))


def list_operands(node: exp.Expression) -> list[exp.Expression]:
    """Return the parts of a node that are expressions themselves."""
    match node:
        case exp.Column() | exp.Literal() | exp.Placeholder() | exp.Boolean() | exp.Null():
            return []
        case exp.Cast() | exp.Not() | exp.Neg() | exp.Paren():
            return [node.this]
        case exp.Anonymous():
            return list(node.expressions)
        case exp.In() | exp.Bracket():
            return [node.this, *node.expressions]
        case exp.Between():
            return [node.this, node.args["low"], node.args["high"]]
        case exp.Case():
            subject, default = node.this, node.args.get("default")
            return [operand for operand in (subject, *node.args["ifs"], default) if operand is not None]
        case exp.If():
            return [node.this, node.args["true"]]
    return [node.this, node.expression]


# The allowed arguments of each node, so that nothing hides in another one (a subquery in an IN, an escape).
_ARGUMENTS: dict[type, frozenset[str]] = {
    exp.In: frozenset({"this", "expressions"}),
    exp.Between: frozenset({"this", "low", "high"}),
    exp.Case: frozenset({"this", "ifs", "default"}),
    exp.If: frozenset({"this", "true"}),
    exp.Bracket: frozenset({"this", "expressions"}),
    exp.Anonymous: frozenset({"this", "expressions"}),
    exp.Column: frozenset({"this"}),
    exp.Placeholder: frozenset({"this"}),
    exp.Cast: frozenset({"this", "to", "safe"}),
    exp.TryCast: frozenset({"this", "to", "safe"}),
    exp.Like: frozenset({"this", "expression", "negate"}),
    exp.Div: frozenset({"this", "expression", "typed", "safe"}),
    exp.DPipe: frozenset({"this", "expression", "safe"}),
    exp.Literal: frozenset({"this", "is_string"}),
}
_USUAL = frozenset({"this", "expression"})


def _check_node(node: exp.Expression, field: str) -> None:
    used = {name for name, value in node.args.items() if value not in (None, False, [])}
    if more := used - _ARGUMENTS.get(type(node), _USUAL):
        raise Forbidden(field, f"has {sorted(more)[0]!r} in {type(node).__name__}, which is not allowed in a rule")
    _check_operators(node, field)
    match node:
        case exp.Anonymous():
            _check_function(node, field)
        case exp.Cast():
            _check_type(node, field)
        case exp.Like():
            text = get_literal_text(node.expression)
            if text is None or "\\" in text:
                raise Forbidden(field, "LIKE needs a literal without \\, such as 'web-%'")
            inside = text.removeprefix("%").removesuffix("%") if text.count("%") == 2 else text
            if text.count("%") > 2 or (text.count("%") == 2 and "%" in inside):
                raise Forbidden(field, "LIKE must have one % anywhere, or % at both ends: 'a%', '%a', 'a%b', or '%a%'")
        case exp.Is() if not isinstance(node.expression, (exp.Null, exp.Boolean)):
            raise Forbidden(field, "IS must be followed by NULL, NOT NULL, TRUE, or FALSE")
        case exp.In() if not node.expressions:
            raise Forbidden(field, "IN needs a list of values, such as `type IN ('cpu', 'load')`")
        case exp.Bracket():
            of_split = isinstance(node.this, exp.Anonymous) and node.this.this.lower() == "split"
            places = node.expressions
            if not of_split or len(places) != 1 or get_literal_number(places[0]) is None:
                raise Forbidden(field, "[…] is allowed only after split(…), such as split(key, ',')[0]")
        case exp.Column() if not isinstance(node.this, exp.Identifier) or not _WORD.match(node.name):
            raise Forbidden(field, "must use plain column names")
        case exp.Placeholder() if not isinstance(node.this, str) or not _NAME.match(node.this):
            raise Forbidden(field, "must write a criterion as :name")


def _check_operators(node: exp.Expression, field: str) -> None:
    """Require parentheses where SQL dialects differ in precedence."""
    inner = [operand for operand in list_operands(node) if isinstance(operand, exp.Expression)]
    if isinstance(node, (*PREDICATES, *ARITHMETIC, exp.DPipe, exp.Neg)) and any(
        isinstance(inner_node, _LOOSE) for inner_node in inner
    ):
        raise BadInput(field, "has a condition as part of a comparison: put it in parentheses, such as (a = b)")
    if isinstance(node, ARITHMETIC) and any(isinstance(inner_node, exp.DPipe) for inner_node in inner):
        raise BadInput(field, "has || beside arithmetic: put one of them in parentheses")
    if isinstance(node, exp.DPipe) and any(isinstance(inner_node, ARITHMETIC) for inner_node in inner):
        raise BadInput(field, "has || beside arithmetic: put one of them in parentheses")


def _check_function(node: exp.Anonymous, field: str) -> None:
    if not isinstance(node.this, str):
        raise Forbidden(field, "must use plain function names")
    name = node.this.lower()
    if name == SUBNET:
        _check_subnet(node, field)
        return
    if name not in FUNCTIONS:
        known = ", ".join(sorted([*FUNCTIONS, SUBNET]))
        raise Forbidden(field, f"{name[:40]!r} is not a function of rules; the functions are {known}")
    function, given = FUNCTIONS[name], node.expressions
    if len(given) < function.least or (function.most is not None and len(given) > function.most):
        raise BadInput(field, f"{name} must have {function.takes()}, not {len(given)}")
    for place, argument in enumerate(given):
        says = function.literal(place, argument, given) if function.literal else None
        if says is not None:
            raise Forbidden(field, f"{name} must have {says}")


def _check_subnet(node: exp.Anonymous, field: str) -> None:
    given = node.expressions
    if len(given) != 2 or not isinstance(given[0], exp.Column) or get_literal_text(given[1]) is None:
        raise BadInput(field, "in_subnet needs a column and a subnet, such as in_subnet(address, '92.126.10.0/24')")
    parse_subnet(given[1].this, field)


def _check_type(node: exp.Expression, field: str) -> None:
    kind = node.args["to"]
    if not isinstance(kind, exp.DataType) or kind.this not in TYPES or kind.expressions:
        raise Forbidden(field, f"CAST must be to one of {', '.join(TYPES.values())}")
    text = get_literal_text(node.this)
    if isinstance(node, exp.TryCast) or text is None:
        return
    form = _DATE if kind.this == exp.DataType.Type.DATE else _TIMESTAMP
    if not form.match(text):
        raise BadInput(field, "must be written as DATE '2026-11-20' or TIMESTAMP '2026-11-20 06:00:00'")


def _check_nesting(tree: exp.Expression, field: str) -> None:
    """Check the nesting. Chains of AND and OR count as flat, everything else by its depth."""
    waiting = [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        if depth > 4 * MAX_DEPTH:
            raise Forbidden(field, f"has more than {4 * MAX_DEPTH} nested operators")
        for part in list_operands(node):
            flat = type(part) is type(node) and isinstance(node, CONNECTORS)
            waiting.append((part, depth if flat else depth + 1))


def list_chain(node: exp.Expression) -> Iterator[exp.Expression]:
    """Return the parts of a chain of AND, or of OR, from left to right."""
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if type(part) is type(node):
            waiting += [part.expression, part.this]
        else:
            yield part


@dataclass(frozen=True)
class Cost:
    """The cost of an expression with its columns expanded.

    parts: number of its parts. joined: number of columns whose texts it concatenates.
    """

    parts: int = 1
    joined: int = 1


def compute_cost(expression: WrittenRule, columns: Mapping[str, Cost], field: str) -> Cost:
    """Return the cost of an expression. Raises `Forbidden` if rules that build on one another grow too large."""
    cost = _compute_node_cost(expression.tree, columns)
    if cost.parts > MAX_WRITTEN:
        raise Forbidden(field, f"has {cost.parts} parts after expanding its columns; the maximum is {MAX_WRITTEN}")
    if cost.joined > MAX_JOINED:
        raise Forbidden(field, f"joins the strings of {cost.joined} columns; the maximum is {MAX_JOINED}")
    return cost


def _compute_node_cost(node: exp.Expression, columns: Mapping[str, Cost]) -> Cost:
    if isinstance(node, exp.Column):
        return columns.get(node.name, Cost())
    if isinstance(node, CONNECTORS):
        inner = [_compute_node_cost(operand, columns) for operand in list_chain(node)]
        return Cost(sum(inner_node.parts for inner_node in inner) + len(inner), 1)
    inner = [_compute_node_cost(operand, columns) for operand in list_operands(node)]
    parts = 1 + sum(inner_node.parts for inner_node in inner)
    if isinstance(node, exp.DPipe) or (
        isinstance(node, exp.Anonymous) and node.this.lower() in FUNCTIONS and FUNCTIONS[node.this.lower()].joins
    ):
        return Cost(parts, max(1, sum(inner_node.joined for inner_node in inner)))
    return Cost(parts, max((inner_node.joined for inner_node in inner), default=0))
