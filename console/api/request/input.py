"""Values in addresses and bodies: the base of bodies, plain numbers, times, and numbers of rows."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from ninja import Schema
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict
from pydantic_core import PydanticCustomError, SchemaValidator, core_schema

from common.checks import is_number
from common.errors import BadInput
from common.parsing import MAX_SHOWN, parse_any_number, parse_decimal_number
from console.input.form_values import TAKES, is_representable
from queues.events.block import convert_number_to_us


class RequestBody(Schema):
    """A body whose unknown keys are rejected by name."""

    model_config = ConfigDict(extra="forbid")


class Reason(RequestBody):
    """The reason, which the audit log records."""

    reason: str


MAX_ROWS = 500


def check_rows(rows: int) -> None:
    """Raise `BadInput` that names `rows` unless it is from 1 to MAX_ROWS."""
    if not 1 <= rows <= MAX_ROWS:
        raise BadInput("rows", f"must be a whole number from 1 to {MAX_ROWS}, not {rows}.")


def _convert_number_to_time(given: object) -> object:
    """Return the time of a number by its size, as of an event's: s, ms, µs or ns since 1970."""
    number = parse_any_number(given) if isinstance(given, str) else given
    if not is_number(number):
        return given
    try:
        return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=convert_number_to_us(number))
    except ValueError:
        raise PydanticCustomError("time_out_of_range", TAKES) from None


def _representable(given: datetime) -> datetime:
    if not is_representable(given):
        raise PydanticCustomError("time_out_of_range", TAKES)
    return given


# As it was given: with its zone, or with none.
GivenTime = Annotated[datetime, BeforeValidator(_convert_number_to_time), AfterValidator(_representable)]
# UTC when it names no zone, as everywhere in the console.
UtcTime = Annotated[GivenTime, AfterValidator(lambda given: given if given.tzinfo else given.replace(tzinfo=UTC))]
EXAMPLES = {"int": "a whole number such as 12", "float": "a number such as 12 or 0.5"}
# What stands below these keys of a core schema is no schema.
NO_SCHEMA = {"cls", "config", "default", "expected", "function", "metadata", "serialization"}


def require_plain_numbers(models: Iterable[type[BaseModel]]) -> None:
    """Make the models refuse text that is no plain number where they take a number."""
    for model in models:
        schema = _add_number_checks(model.__pydantic_core_schema__)
        # A model inside it would otherwise bring along the validator that it already has.
        model.__pydantic_validator__ = SchemaValidator(schema, _use_prebuilt=False)


def _add_number_checks(node: object) -> Any:
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

    def check(value: object) -> object:
        if isinstance(value, str) and parse_decimal_number(value) is None:
            raise PydanticCustomError(
                "plain_number",
                "must be {example}, not {given}.",
                {"example": example, "given": repr(value[:MAX_SHOWN])},
            )
        return value

    return core_schema.no_info_before_validator_function(check, number, ref=reference)
