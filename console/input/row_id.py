"""The id of a row, in an address or a form: a number that the database can search for."""

from typing import Annotated

from pydantic import Field

from queues import checks

Id = Annotated[int, Field(ge=0, lt=2**63)]


def id_of(text: str) -> int | None:
    """Return the id in a text; None if no database can have it."""
    return checks.digits(text)
