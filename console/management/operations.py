"""The API's operations as words for a terminal: read from its own document, so that none is missing.

`POST /api/v1/loops/{loop_id}/mode` is `loops 3 mode --mode hold --reason …`. Operations that change something at an
address that can also be read, or at that of one thing, get a verb: `overrides create`, `users NAME change`.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from common.errors import BadInput
from common.parsing import parse_any_number

PREFIX = "/api/v1/"
VERBS = {"put": "set", "patch": "change", "delete": "delete"}
PLACE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Operation:
    """One operation: its words (variable parts in braces), and the fields of its query and body."""

    method: str
    path: str
    words: tuple[str, ...]
    summary: str
    query: Mapping[str, Any]
    body: Mapping[str, Any]

    def fits(self, words: Sequence[str]) -> bool:
        """Return whether the words match it, with any values of its variable parts."""
        return len(words) == len(self.words) and all(
            PLACE.fullmatch(own) or own == given for own, given in zip(self.words, words, strict=True)
        )

    def build_path(self, words: Sequence[str]) -> str:
        """Return the path with the words in its variable parts."""
        places = {own: given for own, given in zip(self.words, words, strict=True) if PLACE.fullmatch(own)}
        return PLACE.sub(lambda found: quote(places[found.group(0)], safe=""), self.path)

    def read(self, options: Sequence[tuple[str, str]]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return options as (query, body). Raises `BadInput` that names an unknown or invalid one."""
        query: dict[str, Any] = {}
        body: dict[str, Any] = {}
        for name, text in options:
            if name in self.body:
                _put(body, name, self.body[name], text)
            elif name in self.query:
                _put(query, name, self.query[name], text)
            else:
                known = [*self.query, *self.body]
                takes = f"accepts {', '.join(f'--{option}' for option in known)}" if known else "accepts no options"
                raise BadInput(f"--{name}", f"is unknown. The command {' '.join(self.words)} {takes}.")
        return query, body


def list_operations(document: Mapping[str, Any]) -> list[Operation]:
    """Return every operation of an OpenAPI document that a command line can send, by its words."""
    operations_read = []
    for path, methods in document["paths"].items():
        for method, details in methods.items():
            body = _find_body_fields(document, details)
            if path.startswith(PREFIX) and body is not None:
                words = _build_command_words(path, method, methods)
                query = {
                    parameter["name"]: parameter["schema"]
                    for parameter in details.get("parameters", ())
                    if parameter["in"] == "query"
                }
                summary = details.get("summary", "")
                operations_read.append(Operation(method.upper(), path, words, summary, query, body))
    return sorted(operations_read, key=lambda operation: operation.words)


def find_operation(operations: Sequence[Operation], words: Sequence[str]) -> Operation:
    """Return the operation that the words match: the one with the most fixed words. Raises `BadInput`."""
    fitting = [operation for operation in operations if operation.fits(words)]
    if not fitting:
        near = [" ".join(operation.words) for operation in operations if words and operation.words[0] == words[0]]
        raise BadInput(
            "command",
            f"{' '.join(words)[:60]!r} is unknown. "
            + (f"Similar commands: {'; '.join(near)}." if near else "To list all commands, run manage.py weir."),
        )
    return max(fitting, key=lambda operation: sum(not PLACE.fullmatch(word) for word in operation.words))


def _build_command_words(path: str, method: str, methods: Mapping[str, Any]) -> tuple[str, ...]:
    words = tuple(path.removeprefix(PREFIX).split("/"))
    if method == "get":
        return words
    if method in VERBS:
        return (*words, VERBS[method])
    if PLACE.fullmatch(words[-1]):
        return (*words, "change")
    return (*words, "create") if "get" in methods else words


def _find_body_fields(document: Mapping[str, Any], details: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the fields of a JSON body, {} without one; None for another kind of body (events)."""
    content = details.get("requestBody", {}).get("content")
    if content is None:
        return {}
    schema = content.get("application/json", {}).get("schema", {})
    # An optional body is either its schema or null.
    schema = next((option for option in schema.get("anyOf", ()) if "$ref" in option), schema)
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    properties: Mapping[str, Any] | None = schema.get("properties")
    return properties


def _put(into: dict[str, Any], name: str, schema: Mapping[str, Any], text: str) -> None:
    """Add a value of its kind, or null if permitted; a list option may be repeated."""
    if text == "null" and {"type": "null"} in schema.get("anyOf", ()):
        into[name] = None
        return
    choices = schema.get("anyOf", [schema])
    kinds = {choice.get("type", "object") for choice in choices} - {"null"}
    if "array" in kinds:
        whole = _parse_json(name, text) if text.startswith("[") else [text]
        into[name] = [*into.get(name, []), *whole]
        return
    if name in into:
        raise BadInput(f"--{name}", "is given twice. Give it once.")
    into[name] = _parse_value(name, kinds, text)


def _parse_value(name: str, kinds: set[str], text: str) -> object:
    if "boolean" in kinds and text in ("true", "false"):
        return text == "true"
    if kinds & {"number", "integer"}:
        number = parse_any_number(text)
        if number is not None:
            return number
        if "string" not in kinds:
            raise BadInput(f"--{name}", f"must be a number, not {text[:40]!r}.")
    if "string" in kinds:
        return text
    if "boolean" in kinds:
        raise BadInput(f"--{name}", f"must be true or false, not {text[:40]!r}.")
    return _parse_json(name, text)


def _parse_json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise BadInput(f"--{name}", f"must be JSON, not {text[:40]!r}.") from None
