"""Bodies of several endpoints, and their base."""

from ninja import Schema
from pydantic import ConfigDict


class Given(Schema):
    """A body whose unknown keys are rejected by name."""

    model_config = ConfigDict(extra="forbid")


class Reason(Given):
    """The reason, which the audit log records."""

    reason: str
