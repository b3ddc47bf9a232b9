"""Bodies that several endpoints take, and what all of them are."""

from ninja import Schema
from pydantic import ConfigDict


class Given(Schema):
    """A body whose unknown keys are refused by name."""

    model_config = ConfigDict(extra="forbid")


class Reason(Given):
    """Why, for those who come after you."""

    reason: str
