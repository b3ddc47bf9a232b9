"""What schemas of answers are made of: their base, and the units that figures have."""

from collections.abc import Iterable
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue

Json: TypeAlias = JsonValue
Document: TypeAlias = dict[str, JsonValue]
Instant = Annotated[float, Field(description="Seconds since 1970 (UTC).")]
Seconds = Annotated[float, Field(description="Seconds.")]
PerSecond = Annotated[float, Field(description="Events per second.")]
Share = Annotated[float, Field(description="A share, 0 to 1.")]
Bytes = Annotated[int, Field(description="Bytes.")]
Events = Annotated[int, Field(description="Events.")]
Points = Annotated[int, Field(description="Points, of the 1000 of a queue.")]
Labels = Annotated[dict[str, str], Field(description="What it is about: queue, node, loop, … by name.")]


class ApiAnswer(BaseModel):
    """An object with exactly the keys of its fields; one with a default may be absent."""

    model_config = ConfigDict(extra="forbid")


def one_of(values: Iterable[str]) -> Any:
    """A field that has one of these values."""
    return Field(json_schema_extra={"enum": [str(each) for each in values]})
