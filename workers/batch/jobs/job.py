"""What a batch job is: its parameters, how its work is cut into chunks, and how a chunk is done.

The amount of work may be known beforehand (`pieces` names all chunks) or not (`next_piece` gives the one
after a given identifier, None when nothing is left): Houtman, 2.1, where instances raise a global identifier.
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
class Surroundings:
    """Where a job works: the data folder, the control server, and the time when its run was planned.

    owner: the id of the person who asked for the run that is planned; None for a scheduled one.
    """

    data: Path
    control: redis.Redis
    now: datetime
    owner: int | None = None


@dataclass(frozen=True)
class Piece:
    """A chunk to be: `identifier` is unique in its run, `content` is JSON for who does it."""

    identifier: str
    content: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Made:
    """What a chunk's work made: rows handled; files that are written but not shown yet, final path →
    temporary path, both relative to the data folder; input that was skipped, [{"file", "why"}].
    """

    rows: int
    outputs: Mapping[str, str] = field(default_factory=dict)
    skipped: tuple[Mapping[str, str], ...] = ()


Values = Mapping[str, Any]
Work = Callable[[Any], Made]  # of a workers.batch.chunk_leases.ChunkLease
Opened = Callable[[Surroundings], AbstractContextManager[Work]]


@dataclass(frozen=True)
class Job:
    """A declared job. `opened` gives the function that does one chunk, for as many chunks as a worker takes
    (Spark is started once for all of them).
    """

    name: str
    help: str
    parameters: tuple[JobParameter, ...]
    opened: Opened
    pieces: Callable[[Values, Surroundings], Iterable[Piece]] | None = None
    next_piece: Callable[[Values, Surroundings, str | None], Piece | None] | None = None
    requirements: tuple[str, ...] = ()
    single_instance: bool = True
    parallel: int = 1
    every_seconds: int | None = None
    crontab: str | None = None
    max_chunk_seconds: float | None = None  # a chunk that takes longer fails; None: as long as it takes

    def read(self, values: Values) -> dict[str, Any]:
        """All parameters, defaults filled in. Raises BadInput naming the field."""
        return read_parameters(self.name, self.parameters, values)
