"""A time in an address or a body. Every endpoint takes its times as one of these two."""

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from console.input.instant import TAKES, is_representable


def _representable(given: datetime) -> datetime:
    if not is_representable(given):
        raise PydanticCustomError("time_out_of_range", TAKES)
    return given


# As it was given: with its zone, or with none.
GivenTime = Annotated[datetime, AfterValidator(_representable)]
# UTC when it names no zone, as everywhere in the console.
UtcTime = Annotated[
    GivenTime, AfterValidator(lambda given: given if given.tzinfo else given.replace(tzinfo=UTC))
]
