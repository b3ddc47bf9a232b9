"""Definition of a batch job: its parameters, its division into chunks, and the processing of a chunk.

The amount of work may be known in advance (`pieces` returns all chunks) or not (`next_piece` returns the chunk after a
given identifier, None when nothing is left): Houtman, 2.1, where instances increment a global identifier.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import redis

from common import checks
from common.errors import BadInput
from common.parameter import Parameter

# Requirements that select the role of the workers. Others are capabilities of hosts (WEIR_CAPABILITIES).
REQUIREMENTS = ("spark", "memory")


@dataclass(frozen=True)
class JobContext:
    """The context of a job: the data folder, the control server, and the time when its run was planned.

    owner: the id of the person who requested the planned run; None for a scheduled one.
    """

    data: Path
    control: redis.Redis
    now: datetime
    owner: int | None = None


@dataclass(frozen=True)
class ChunkSpec:
    """The specification of a chunk: `identifier` is unique in its run, `content` is JSON for its worker."""

    identifier: str
    content: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ChunkResult:
    """The result of a chunk.

    It has the number of rows; written and unpublished files, final path → temporary path, both relative to the data
    folder; and skipped input, [{"file", "why"}].
    """

    rows: int
    outputs: Mapping[str, str] = field(default_factory=dict)
    skipped: tuple[Mapping[str, str], ...] = ()


Values = Mapping[str, Any]


class HeldChunk(Protocol):
    """A chunk and its lease, as the work of a job uses them; see `workers.batch.chunk_leases.ChunkLease`."""

    surroundings: JobContext

    @property
    def identifier(self) -> str: ...

    @property
    def token(self) -> str: ...

    @property
    def parameters(self) -> Mapping[str, Any]: ...

    @property
    def content(self) -> Mapping[str, Any]: ...

    def clock(self) -> datetime: ...

    def check(self, progress: Mapping[str, Any] | None = None) -> None: ...

    def guard_transaction(self) -> AbstractContextManager[None]: ...


Work = Callable[[HeldChunk], ChunkResult]
Opened = Callable[[JobContext], AbstractContextManager[Work]]


def build_check(parameter: Parameter) -> checks.Check:
    """Return the check of a job's parameter.

    Text is accepted for a number, because commands and forms have only text. A `name_list` is names separated by
    commas; a `moment` without a zone is UTC. A day and a moment are stored as text.
    """
    least, most = parameter.minimum, parameter.maximum
    return {
        "integer": checks.from_text(checks.accept_whole_number(least, most), checks.convert_to_integer),
        "number": checks.from_text(checks.accept_number(least, most), checks.convert_to_float),
        "name": _NAMED,
        "name_list": checks.Check("names separated by commas", _parse_names),
        "text": checks.accept_text(),
        "choice": checks.accept_choice(parameter.choices),
        "day": _limit_to_event_times(checks.DAY),
        "moment": _limit_to_event_times(checks.TIMESTAMP),
    }[parameter.kind]


def read_value(parameter: Parameter, value: object) -> Any:
    """Return the validated value, or the default. Raises BadInput naming the parameter and its valid values."""
    if value is None or value == "":
        if parameter.required:
            raise BadInput(parameter.name, f"is missing: {parameter.help}.")
        return parameter.default
    return build_check(parameter).validate(value, parameter.name, end=".")


def _limit_to_event_times(check: checks.Check) -> checks.Check:
    """Limit a check to the years that events may have: the day before the first of all days is invalid."""

    def read(value: object) -> str:
        kept = str(check.read(value))
        if not "1970" <= kept < "2200":
            raise ValueError
        return kept

    return checks.Check(f"{check.takes}, from 1970 to 2199", read)


_NAMED = checks.accept_matching_text(checks.NAME, "a name of letters, digits, dots, -, and _")


def _parse_names(value: object) -> list[str]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list):
        raise ValueError
    return [_NAMED.read(part.strip() if isinstance(part, str) else part) for part in parts]


@dataclass(frozen=True)
class Job:
    """A declared job.

    `opened` gives the function that processes one chunk, for all chunks of a worker (Spark is started once for all of
    them).
    """

    name: str
    help: str
    parameters: tuple[Parameter, ...]
    opened: Opened
    pieces: Callable[[Values, JobContext], Iterable[ChunkSpec]] | None = None
    next_piece: Callable[[Values, JobContext, str | None], ChunkSpec | None] | None = None
    requirements: tuple[str, ...] = ()
    single_instance: bool = True
    parallel: int = 1
    every_seconds: int | None = None
    crontab: str | None = None
    max_chunk_seconds: float | None = None  # maximum duration of a chunk, which then fails; None: unlimited

    def read(self, values: Values) -> dict[str, Any]:
        """Return all parameters with defaults. Raises BadInput naming the field."""
        known = {parameter.name: parameter for parameter in self.parameters}
        message = f"is not a parameter of {self.name}. The parameters are {{known}}."
        checks.refuse_unknown(values, known, "", message=message)
        return {name: read_value(parameter, values.get(name)) for name, parameter in known.items()}
