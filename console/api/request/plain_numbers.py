"""Numbers of a request as plain ASCII text: pydantic also takes 1_000, full-width digits, nan and inf.

One place for every parameter and every body: the validators of a route's models are compiled once more, with a check in
front of each number. The models themselves, and so the OpenAPI document, stay as they are.
"""

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticCustomError, SchemaValidator, core_schema

from common.parsing import MAX_SHOWN, parse_decimal_number

EXAMPLES = {"int": "a whole number such as 12", "float": "a number such as 12 or 0.5"}
# What stands below these keys of a core schema is no schema.
NO_SCHEMA = {"cls", "config", "default", "expected", "function", "metadata", "serialization"}


def require_plain_numbers(models: Iterable[type[BaseModel]]) -> None:
    """Make the models refuse text that is no plain number where they take a number."""
    for model in models:
        schema = _add_number_checks(model.__pydantic_core_schema__)
        # A model inside it would otherwise bring along the validator that it already has.
        model.__pydantic_validator__ = SchemaValidator(schema, _use_prebuilt=False)


def _add_number_checks(node: Any) -> Any:
    """Return a copy of a core schema with a check in front of each number."""
    if isinstance(node, tuple | list):
        return type(node)(map(_add_number_checks, node))
    if not isinstance(node, dict):
        return node
    copied = {key: value if key in NO_SCHEMA else _add_number_checks(value) for key, value in node.items()}
    example = EXAMPLES.get(str(node.get("type")))
    return copied if example is None else _wrap_number_schema(copied, example)


def _wrap_number_schema(number: dict[str, Any], example: str) -> core_schema.CoreSchema:
    reference = number.pop("ref", None)

    def check(value: Any) -> Any:
        if isinstance(value, str) and parse_decimal_number(value) is None:
            raise PydanticCustomError(
                "plain_number",
                "must be {example}, not {given}.",
                {"example": example, "given": repr(value[:MAX_SHOWN])},
            )
        return value

    return core_schema.no_info_before_validator_function(check, number, ref=reference)
