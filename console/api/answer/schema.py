"""The base of answer schemas, and the units of figures."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, TypeAlias, TypeVar, cast

from pydantic import Field, JsonValue
from typing_extensions import TypedDict

Json: TypeAlias = JsonValue
Document: TypeAlias = dict[str, JsonValue]
Instant = Annotated[float, Field(description="Unix time in seconds (UTC).")]
Seconds = Annotated[float, Field(description="Seconds.")]
PerSecond = Annotated[float, Field(description="Events per second.")]
Share = Annotated[float, Field(description="A share, 0 to 1.")]
Bytes = Annotated[int, Field(description="Bytes.")]
Events = Annotated[int, Field(description="Events.")]
Points = Annotated[int, Field(description="Points, out of the queue's 1,000.")]
Labels = Annotated[dict[str, str], Field(description="Subject: queue, node, loop, and others, by name.")]


class ApiAnswer(TypedDict):
    """An object with exactly the keys of its fields; fields that are NotRequired may be absent."""


def build_enum_field(values: Iterable[str]) -> Any:
    """Return a field that has one of these values."""
    return Field(json_schema_extra={"enum": [str(value) for value in values]})


Declared = TypeVar("Declared")


def convert(kind: type[Declared], document: Mapping[str, Any]) -> Declared:
    """Cast another layer's document to the declared answer; tests check what types can't."""
    return cast(Declared, document)
