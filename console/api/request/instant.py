"""A time in an address or a body. Every endpoint uses one of these two types."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator
from pydantic_core import PydanticCustomError

from common.checks import is_number
from common.parsing import parse_any_number
from console.input.instant import TAKES, is_representable
from queues.events.block import convert_number_to_us


def _convert_number_to_time(given: Any) -> Any:
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
