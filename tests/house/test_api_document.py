"""The API's document says of every route, by name and field by field, what it answers."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from console.api import v1
from console.api.request import answers
from console.api.request.answers import Router
from console.help.documents import build_script_types
from tests.house import sources

ROOT = Path(__file__).resolve().parents[2]
JSON = "application/json"
TERMS = {"CloudEvent"}  # the field's, not ours


def document() -> dict[str, Any]:
    return v1.api.get_openapi_schema()


def answered_contents() -> Iterator[tuple[str, dict[str, Any]]]:
    """Route and content of every answer that is no refusal."""
    for path, operations in document()["paths"].items():
        for method, operation in operations.items():
            for status, told in operation["responses"].items():
                if status < 400:
                    yield f"{method.upper()} {path}", told.get("content")


def test_every_route_answers_a_schema_or_a_file():
    for route, content in answered_contents():
        assert content, f"{route} declares no answer"
        if JSON in content:
            assert set(content) == {JSON}, route
            # The control API of plants answers plain values, too.
            assert "$ref" in content[JSON]["schema"] or "/control/" in route, route


def test_every_object_that_is_answered_names_its_fields():
    _, components = answers.build_schemas({})
    for name, schema in components.items():
        assert schema["properties"] and schema["additionalProperties"] is False, name


def test_no_schema_of_an_answer_replaces_one_of_a_request():
    _, components = answers.build_schemas({})
    requests = {
        name
        for operation in answers.ANSWERS
        for path in document()["paths"].values()
        for each in path.values()
        if each["operationId"] == operation
        for name in re.findall(r"schemas/(\w+)", str(each.get("requestBody", "")))
    }
    assert not requests & components.keys()


def test_a_route_without_an_answer_is_refused():
    with pytest.raises(TypeError, match="declares no answer"):
        Router().get("/nothing")(lambda request: {})


def test_no_route_has_a_router_that_lets_it_off():
    for path in (ROOT / "console" / "api").rglob("*.py"):
        for node in sources.nodes(path):
            if isinstance(node, ast.ImportFrom) and node.module == "ninja":
                assert "Router" not in {each.name for each in node.names}, path


def test_the_scripts_know_the_types_of_the_documents():
    """Else: .venv/bin/python -m console.help.documents > static/js/documents.d.ts"""
    assert (ROOT / "static/js/documents.d.ts").read_text(encoding="utf-8") == build_script_types()


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
