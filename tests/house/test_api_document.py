"""The API's document says of every route, by name and field by field, what it answers."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from console.api import v1
from console.api.answer.router import Router
from console.api.answer.schema import ApiAnswer
from tests.house import sources

ROOT = Path(__file__).resolve().parents[2]
JSON = "application/json"
TERMS = {"CloudEvent"}  # the field's, not ours
FREE = {"JsonValue"}  # what the plant's laws and jobs write: any JSON


def document() -> dict[str, Any]:
    return v1.api.get_openapi_schema()


def answers() -> Iterator[tuple[str, dict[str, Any]]]:
    """Route and content of every answer that is no refusal."""
    for path, operations in document()["paths"].items():
        for method, operation in operations.items():
            for status, told in operation["responses"].items():
                if status < 400:
                    yield f"{method.upper()} {path}", told.get("content")


def test_every_route_answers_a_schema_with_a_name_or_a_file():
    for route, content in answers():
        assert content, f"{route} declares no answer"
        if JSON in content:
            assert set(content) == {JSON}, route
            reference = content[JSON]["schema"].get("$ref", "")
            name = reference.removeprefix("#/components/schemas/")
            assert name not in FREE and name in document()["components"]["schemas"], route


def answered() -> set[str]:
    """Every schema that an answer is made of."""
    schemas = document()["components"]["schemas"]
    found: set[str] = set()
    waiting: list[Any] = [content for _, content in answers()]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            name = each.get("$ref", "").rpartition("/")[2]
            if name and name not in found:
                found.add(name)
                waiting.append(schemas[name])
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
    return found


def test_every_object_that_is_answered_names_its_fields():
    schemas = document()["components"]["schemas"]
    for name in answered() - FREE:
        schema = schemas[name]
        if schema.get("type") == "object":
            named = "properties" in schema and schema.get("additionalProperties") is False
            assert named or isinstance(schema.get("additionalProperties"), dict), name


def every(kind: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for each in kind.__subclasses__():
        yield each
        yield from every(each)


def test_every_schema_is_answered_by_some_route():
    own = {
        each.__name__ for each in every(ApiAnswer) if "[" not in each.__name__ and not each.__subclasses__()
    }
    assert own - answered() == set()


def test_a_route_without_an_answer_is_refused():
    with pytest.raises(TypeError, match="declares no answer"):
        Router().get("/nothing")(lambda request: {})


def test_no_route_has_a_router_that_lets_it_off():
    for path in (ROOT / "console" / "api").rglob("*.py"):
        for node in sources.nodes(path):
            if isinstance(node, ast.ImportFrom) and node.module == "ninja":
                assert "Router" not in {each.name for each in node.names}, path


def test_an_operation_is_called_by_what_it_does_and_not_by_where_our_code_stands():
    """A client that was generated from the document outlasts a move of our code."""
    names = {
        (path, method): operation["operationId"]
        for path, operations in document()["paths"].items()
        for method, operation in operations.items()
    }
    assert len(set(names.values())) == len(names)
    for (path, method), name in names.items():
        assert not name.startswith("console"), f"{method} {path}"
        # The control API of plants has the words of Stutz, Table 6.1.
        assert "_" in name or path.startswith("/control/"), f"{method} {path}: {name} names no thing"


def test_what_a_route_says_of_itself_has_no_name_of_our_code_in_it():
    """A name that was changed everywhere was changed in sentences, too."""
    names = {
        node.name
        for package in ("console", "workers", "controllers", "queues")
        for path in (ROOT / package).rglob("*.py")
        for node in sources.nodes(path)
        if isinstance(node, ast.ClassDef) and re.search(r"[a-z][A-Z]", node.name)
    }
    for path, operations in document()["paths"].items():
        for operation in operations.values():
            said = f"{operation.get('summary', '')} {operation.get('description', '')}"
            assert not (names - TERMS) & set(re.findall(r"\w+", said)), f"{path}: {said}"
