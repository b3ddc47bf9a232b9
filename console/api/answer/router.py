"""Routes that declare what they answer.

An answer is sent as the route made it: its schema is the route's type, which mypy checks, and which the API's document
describes; tests check every route's answers against it. Nothing is converted (a whole number stays one), a long list is
not read twice, and users get figures even if a schema is wrong.
"""

from collections.abc import Callable
from typing import Annotated, Any

import ninja
from ninja.constants import NOT_SET
from pydantic import ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from console.api.request.plain_numbers import require_plain_numbers

EXACTLY = ConfigDict(extra="forbid")  # the fields that are declared, and no others


class UnconvertedAnswer:
    """Marks the type of an answer that is described as that type, but neither checked nor converted."""

    def __init__(self, answer: type) -> None:
        self.answer = answer

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.any_schema()

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        # As a part of another schema it appears in the document once, by its name; only list items take a
        # configuration.
        described = TypeAdapter(list[self.answer], config=EXACTLY).core_schema  # type: ignore[name-defined]
        json_schema: JsonSchemaValue = handler(core_schema.json_or_python_schema(described, core_schema.any_schema()))
        return dict(json_schema["items"])


class Router(ninja.Router):
    """A router whose routes declare their answer.

    `response` is a schema, or {status: schema}; a route that sends a file describes it in `openapi_extra`. Raises
    `TypeError` for a route that declares neither.
    """

    def add_api_operation(self, path: str, methods: list[str], view_func: Callable[..., Any], **options: Any) -> None:
        response = options.pop("response", NOT_SET)
        if response is NOT_SET and "responses" not in (options.get("openapi_extra") or {}):
            raise TypeError(f"{path} declares no response; set response.")
        if response is not NOT_SET:
            answers = response if isinstance(response, dict) else {200: response}
            options["response"] = {
                status: Annotated[Any, UnconvertedAnswer(answer)] for status, answer in answers.items()
            }
        super().add_api_operation(path, methods, view_func, **{**options, "by_alias": True})
        require_plain_numbers(self.path_operations[path].operations[-1].models)
