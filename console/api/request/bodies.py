"""Bodies of several endpoints, and their base."""

from ninja import Schema
from pydantic import ConfigDict


class RequestBody(Schema):
    """A body whose unknown keys are rejected by name."""

    model_config = ConfigDict(extra="forbid")


class Reason(RequestBody):
    """The reason, which the audit log records."""

    reason: str
