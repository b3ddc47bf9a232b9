"""The id of a row, in an address or a form: a number that the database can search for."""

from typing import Annotated

from pydantic import Field

from common import parsing

Id = Annotated[int, Field(ge=0, lt=2**63)]


def parse_row_id(text: str) -> int | None:
    """Return the ID in a text; None if no database has such an ID."""
    return parsing.parse_digits(text)
