"""A path into JSON in a declaration: a JMESPath expression whose time and result size are limited.

Both the expression and the document come from outside. So an expression has at most MAX_PATH characters. Its lists and
objects turn one value into at most MAX_GROWTH values. It joins no texts (a sensor is a number). It ends after MAX_STEPS
steps, where each value of a list, object, or text that it makes is a step.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import jmespath
from jmespath.exceptions import JMESPathError
from jmespath.visitor import TreeInterpreter

from common.errors import BadInput
from workers.pipeline.declaration import fields
from workers.plants.plant import InvalidPlantResponse

MAX_PATH = 500
MAX_GROWTH = 16
MAX_STEPS = 1_000_000
MAKES_TEXT = frozenset({"join", "to_string"})
GROWS = frozenset({"multi_select_list", "multi_select_dict"})


@dataclass(frozen=True)
class JsonPath:
    """A path; the empty path is the document itself."""

    text: str = ""

    @cached_property
    def _parsed(self) -> Mapping[str, Any]:
        parsed: Mapping[str, Any] = jmespath.compile(self.text).parsed
        return parsed

    def read(self, document: Any) -> Any:
        """Return the value at the path. Raise `InvalidPlantResponse` if the path does not match the document."""
        if not self.text:
            return document
        try:
            return _Interpreter().visit(self._parsed, document)
        except _StepLimitExceeded:
            raise InvalidPlantResponse(f"{self.text[:80]} takes more than {MAX_STEPS} steps") from None
        except (JMESPathError, ArithmeticError, RecursionError, TypeError) as error:
            # The message of such an error may quote the whole document.
            name = getattr(error, "function_name", "")
            what = f"{name}() can't be applied to {error.actual_type}" if hasattr(error, "actual_type") else ""
            said = what or type(error).__name__
            raise InvalidPlantResponse(f"{self.text[:80]} does not match the response: {said}") from None


def read_path(text: Any, where: str) -> JsonPath:
    """Read a path. Raise `BadInput`, saying what is wrong."""
    path = JsonPath(fields.validate_text(text, where, MAX_PATH))
    try:
        nodes = list(_iterate_nodes(jmespath.compile(path.text).parsed))
    except JMESPathError as error:
        raise BadInput(where, f"is not valid JMESPath: {str(error).splitlines()[0][:200]}") from None
    except RecursionError:
        raise BadInput(where, "is not valid JMESPath: it is nested too deeply") from None
    for node in nodes:
        if node["type"] == "function_expression" and node["value"] in MAKES_TEXT:
            raise BadInput(where, f"must not use {node['value']}(), because a sensor must return a number")
    growth = prod(max(1, len(node["children"])) for node in nodes if node["type"] in GROWS)
    if growth > MAX_GROWTH:
        raise BadInput(where, f"must return at most {MAX_GROWTH} values for each input value, not {growth}")
    return path


def _iterate_nodes(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield node
    for child in node["children"]:
        if isinstance(child, Mapping):
            yield from _iterate_nodes(child)


class _StepLimitExceeded(Exception):  # noqa: N818
    """An evaluation that took MAX_STEPS."""


class _Interpreter(TreeInterpreter):
    """An interpreter that counts its steps."""

    def __init__(self) -> None:
        super().__init__()
        self._left = MAX_STEPS

    def visit(self, node: Any, *args: Any, **named: Any) -> Any:
        result = super().visit(node, *args, **named)
        self._left -= 1 + (len(result) if isinstance(result, list | dict | str) else 0)
        if self._left < 0:
            raise _StepLimitExceeded
        return result
