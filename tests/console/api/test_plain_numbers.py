"""The API takes numbers in plain ASCII digits alone, whatever Python and pydantic would take for one."""

from typing import Any

import pytest
from ninja import Schema
from pydantic import ValidationError

from console.api import v1
from console.api.request.input import require_plain_numbers

pytestmark = pytest.mark.django_db
FULL_WIDTH = "\uff11\uff12"
UNUSUAL = ["1_000", FULL_WIDTH, "nan"]
NUMBERS = {"integer", "number"}


def takes_only_numbers(schema: dict[str, Any]) -> bool:
    """Whether a parameter takes a number, and no text beside it."""
    kinds = {each.get("type") for each in schema.get("anyOf", [schema])}
    return bool(kinds & NUMBERS) and "string" not in kinds


def numeric_parameters() -> list[tuple[str, str, str]]:
    """Return each numeric parameter of a route that reads: address, where it stands, name."""
    paths = v1.api.get_openapi_schema()["paths"]
    return [
        (path, parameter["in"], parameter["name"])
        for path, operations in paths.items()
        for parameter in operations.get("get", {}).get("parameters", [])
        if takes_only_numbers(parameter["schema"])
    ]


def address_with(path: str, name: str, value: str) -> str:
    filled = path.replace("{" + name + "}", value)
    return "/".join("1" if part.startswith("{") else part for part in filled.split("/"))


@pytest.mark.parametrize("text", UNUSUAL)
def test_every_numeric_parameter_refuses_what_only_python_takes(text, browsers):
    parameters = numeric_parameters()
    assert len(parameters) > 20 and {place for _, place, _ in parameters} == {"path", "query"}
    for path, place, name in parameters:
        query = {name: text} if place == "query" else {}
        answer = browsers["administrator"].get(address_with(path, name, text), query)
        assert answer.status_code == 422, (path, name, answer.content)
        errors = answer.json()["errors"]
        assert any(each.split(".")[-1] == name for each in errors), (path, errors)


def test_the_refusal_names_the_field_the_value_and_the_fix(browsers):
    answer = browsers["viewer"].get("/api/v1/audit", {"rows": "1_0"})
    assert answer.json()["errors"] == {"rows": ["must be a whole number such as 12, not '1_0'."]}


class _Nested(Schema):
    settings: dict[str, int | float | str | bool] = {}
    counts: list[int] = []
    hours: float | None = None


class _Body(Schema):
    inner: _Nested


def test_a_value_that_may_be_text_stays_as_it_was_written():
    require_plain_numbers([_Body])
    settings = {"whole": 5, "half": 0.5, "text": "1_0", "number": "5", "yes": True}
    read = _Body.model_validate({"inner": {"settings": settings}}).inner.settings
    assert read == settings and list(map(type, read.values())) == [int, float, str, str, bool]


@pytest.mark.parametrize("inner", [{"counts": [1, "1_0"]}, {"hours": FULL_WIDTH}, {"hours": "1_0.5"}])
def test_a_number_deep_in_a_body_is_as_plain(inner):
    require_plain_numbers([_Body])
    with pytest.raises(ValidationError, match="must be a"):
        _Body.model_validate({"inner": inner})
