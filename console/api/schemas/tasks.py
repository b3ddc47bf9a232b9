"""Answers about batch tasks and their runs."""

from datetime import datetime
from typing import Annotated, NotRequired

from pydantic import Field

from console.api.answer.schema import ApiAnswer, Document, Json, Seconds, Share, build_enum_field
from workers.models import Chunk, Run


class SkippedFile(ApiAnswer):
    file: str
    why: str


class RunStages(ApiAnswer):
    done: int
    total: int


class RunProgress(ApiAnswer):
    """The progress of a run; empty before its first report."""

    rows: NotRequired[int]
    share: NotRequired[Annotated[Share | None, Field(description="0 to 1; null: unknown.")]]
    stages: NotRequired[RunStages | None]
    chunks: NotRequired[Annotated[int, Field(description="Number of finished chunks.")]]
    working: NotRequired[Annotated[list[str], Field(description="The active chunks.")]]
    skipped: NotRequired[list[SkippedFile]]


class RunRow(ApiAnswer):
    """A run of a task."""

    run: int
    task: str
    state: Annotated[str, build_enum_field(Run.State.values)]
    owner: Annotated[str | None, Field(description="null: started by the schedule.")]
    parameters: Document
    progress: RunProgress
    chunks_total: Annotated[int | None, Field(description="null: not known in advance.")]
    chunks_done: int
    workers_wanted: int
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    deadline_at: datetime | None
    seconds: Annotated[Seconds | None, Field(description="Duration, s; null: not ended.")]
    error: str
    command: Annotated[str, Field(description="The equivalent command line.")]


class RunList(ApiAnswer):
    runs: list[RunRow]


class ChunkRow(ApiAnswer):
    """A part of a run that is done completely or not at all."""

    identifier: str
    state: Annotated[str, build_enum_field(Chunk.State.values)]
    worker: str
    tries: int
    rows: int
    seconds: Seconds | None
    skipped: list[SkippedFile]
    error: str


class RunDetail(RunRow):
    chunks: list[ChunkRow]


class TaskRow(ApiAnswer):
    """A batch task, its schedule, and its last runs."""

    name: str
    job: str
    help: str
    sound: Annotated[bool, Field(description="false: the job can't be imported; `help` has the reason.")]
    parameters: dict[str, Json]
    schedule: str
    interval_seconds: Seconds | None
    crontab: str | None
    next_at: datetime | None
    requirements: list[str]
    single_instance: bool
    parallel: Annotated[int, Field(description="Maximum number of concurrent workers.")]
    deadline: Annotated[str | None, Field(description="HH:MM (UTC) by which a run must be finished.")]
    enabled: bool
    digest: Annotated[
        str, Field(description=("Digest of the current state. A change with an older digest is rejected."))
    ]
    runs: list[RunRow]


class TaskList(ApiAnswer):
    tasks: list[TaskRow]
