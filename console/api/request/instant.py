"""A time in an address or a body. Every endpoint uses one of these two types."""

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from console.input.instant import TAKES, is_representable


def _representable(given: datetime) -> datetime:
    if not is_representable(given):
        raise PydanticCustomError("time_out_of_range", TAKES)
    return given


# As given: with or without a time zone.
GivenTime = Annotated[datetime, AfterValidator(_representable)]
# UTC if it has no time zone, as everywhere in the console.
UtcTime = Annotated[
    GivenTime, AfterValidator(lambda given: given if given.tzinfo else given.replace(tzinfo=UTC))
]
