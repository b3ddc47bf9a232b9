"""The API's document says of every route, by name and field by field, what it answers."""

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any, get_args, get_origin

import pytest
from ninja import Status
from ninja.operation import Operation
from pydantic import RootModel
from typing_extensions import get_original_bases, is_typeddict

from console.api import schemas, v1
from console.api.answer.router import Router, UnconvertedAnswer
from console.api.answer.schema import ApiAnswer
from console.api.routes import plant_control
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


def own_answers() -> set[type]:
    """What the modules of schemas define to be answered, and not only to be built on."""
    modules = [import_module(each.name) for each in walk_packages(schemas.__path__, f"{schemas.__name__}.")]
    found = {each for module in modules for each in vars(module).values() if is_typeddict(each)}
    parts = {base for each in found for base in get_original_bases(each)}
    return found - parts - {ApiAnswer}


def test_every_schema_is_answered_by_some_route():
    assert {each.__name__ for each in own_answers()} - answered() == set()


def operations() -> list[Operation]:
    apis = (v1.api, plant_control.api)
    return [
        operation
        for api in apis
        for _, router in api._routers
        for view in router.path_operations.values()
        for operation in view.operations
    ]


def declared_answers(operation: Operation) -> set[Any]:
    models = [model for model in operation.response_models.values() if hasattr(model, "model_fields")]
    found = [mark for each in models for mark in each.model_fields["response"].metadata]
    return {each.answer for each in found if isinstance(each, UnconvertedAnswer)}


def given_answers(function: Any) -> set[Any]:
    """By its type: an answer, or a status with one."""
    given = function.__annotations__["return"]
    if get_origin(given) is not Status:
        return {given}
    return {answer for each in get_args(given) for answer in get_args(each) or (each,)}


def roots(answers: set[Any]) -> set[Any]:
    """What is no object is answered as it is."""
    plain = [each for each in answers if issubclass(each, RootModel)]
    return answers - {*plain} | {each.model_fields["root"].annotation for each in plain}


def test_a_route_gives_by_its_type_what_its_document_says():
    declared = [each for each in operations() if declared_answers(each)]
    assert len(declared) > 150
    for each in declared:
        assert given_answers(each.view_func) == roots(declared_answers(each)), each.view_func.__name__


def test_a_route_without_an_answer_is_refused():
    with pytest.raises(TypeError, match="declares no response"):
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
        for package in ("console", "workers", "controllers", "queues", "common")
        for path in (ROOT / package).rglob("*.py")
        for node in sources.nodes(path)
        if isinstance(node, ast.ClassDef) and re.search(r"[a-z][A-Z]", node.name)
    }
    for path, operations in document()["paths"].items():
        for operation in operations.values():
            said = f"{operation.get('summary', '')} {operation.get('description', '')}"
            assert not (names - TERMS) & set(re.findall(r"\w+", said)), f"{path}: {said}"
