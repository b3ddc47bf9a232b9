"""Definition of a batch job: its parameters, its division into chunks, and the processing of a chunk.

The amount of work may be known in advance (`pieces` returns all chunks) or not (`next_piece` returns the chunk after a
given identifier, None when nothing is left): Houtman, 2.1, where instances increment a global identifier.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import redis

from workers.batch.jobs.parameters import JobParameter, read_parameters

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
Work = Callable[[Any], ChunkResult]  # the lease (workers.batch.chunk_leases.ChunkLease)
Opened = Callable[[JobContext], AbstractContextManager[Work]]


@dataclass(frozen=True)
class Job:
    """A declared job.

    `opened` gives the function that processes one chunk, for all chunks of a worker (Spark is started once for all of
    them).
    """

    name: str
    help: str
    parameters: tuple[JobParameter, ...]
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
        return read_parameters(self.name, self.parameters, values)
