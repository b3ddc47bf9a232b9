"""A time in an address or a body: UTC when it names no zone, as everywhere in the console."""

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator

Moment = Annotated[
    datetime, AfterValidator(lambda given: given if given.tzinfo else given.replace(tzinfo=UTC))
]
