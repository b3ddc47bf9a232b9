"""Batch tasks, their runs, and chunks as pages show them, and as documents for API and command line.

Times are ISO 8601.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Annotated, Any, NotRequired, TypedDict

from msgspec import Meta

from common.errors import BadInput
from common.parameter import Parameter
from common.stored_document import Seconds, Share, describe
from console.input.form_values import digest_of
from workers.batch import catalog, task_definitions
from workers.batch.job import Job, build_check
from workers.models import Chunk, Run, Task

LAST_RUNS = 5
IsoTime = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]


class SkippedFile(TypedDict):
    file: str
    why: str


class RunStages(TypedDict):
    done: int
    total: int


class RunProgress(TypedDict):
    """The progress of a run; empty before its first report."""

    rows: NotRequired[int]
    share: NotRequired[Annotated[Share | None, describe("0 to 1; null: unknown.")]]
    stages: NotRequired[RunStages | None]
    chunks: NotRequired[Annotated[int, describe("Number of finished chunks.")]]
    working: NotRequired[Annotated[list[str], describe("The active chunks.")]]
    skipped: NotRequired[list[SkippedFile]]
    obstacle: NotRequired[
        Annotated[str, describe("Reason why no host can run the workers of the task; empty: a host can.")]
    ]


@dataclass(frozen=True, kw_only=True)
class DescribedRun:
    """A run of a task."""

    run: int
    task: str
    state: Annotated[str, describe(values=Run.State.values)]
    owner: Annotated[str | None, describe("User who started the run; null: the schedule started it.")]
    parameters: Mapping[str, Any]
    progress: RunProgress
    chunks_total: Annotated[int | None, describe("Total number of chunks; null: not known in advance.")]
    chunks_done: int
    workers_wanted: int
    created_at: IsoTime
    started_at: IsoTime | None
    ended_at: IsoTime | None
    deadline_at: IsoTime | None
    seconds: Annotated[Seconds | None, describe("Duration, s; null: not ended.")]
    error: str
    command: Annotated[str, describe("The equivalent command line.")]


@dataclass(frozen=True, kw_only=True)
class DescribedChunk:
    """A part of a run that is done completely or not at all."""

    identifier: str
    state: Annotated[str, describe(values=Chunk.State.values)]
    worker: str
    tries: int
    rows: int
    seconds: Seconds | None
    skipped: list[SkippedFile]
    error: str


@dataclass(frozen=True, kw_only=True)
class RunDetail(DescribedRun):
    """A run and its chunks."""

    chunks: list[DescribedChunk]


@dataclass(frozen=True, kw_only=True)
class DescribedTask:
    """A task, its schedule in words, and its last runs, the newest first."""

    name: str
    job: str
    help: str
    sound: Annotated[bool, describe("false: the job can't be imported; `help` has the reason.")]
    parameters: Mapping[str, Any]
    schedule: str
    interval_seconds: Seconds | None
    crontab: str | None
    next_at: IsoTime | None
    requirements: list[str]
    single_instance: bool
    parallel: Annotated[int, describe("Maximum number of concurrent workers.")]
    deadline: Annotated[str | None, describe("HH:MM (UTC) by which a run must be finished.")]
    enabled: bool
    digest: Annotated[str, describe("Digest of the task without its runs. A change with an older digest is rejected.")]
    runs: list[DescribedRun]


@dataclass(frozen=True, kw_only=True)
class RunParameter:
    """A parameter of a task's runs (in words), and the task's value of it."""

    name: str
    help: str
    takes: str
    choices: Sequence[str]
    value: object
    required: bool


def build_task_document(task: Task, now: datetime) -> dict[str, Any]:
    """Return the task as JSON."""
    return asdict(describe_task(task, now))


def run_document(run: Run) -> dict[str, Any]:
    """Return the run as JSON."""
    return asdict(describe_run(run))


def describe_task(task: Task, now: datetime, run_count: int = LAST_RUNS) -> DescribedTask:
    """Return the current state of the task, with its last runs."""
    declared, trouble = _find_job(task)
    last_start = task.runs.filter(owner=None).order_by("-created_at").values_list("created_at", flat=True)
    next_at = task_definitions.compute_next_start(task.periodic, last_start.first(), now) if task.enabled else None
    return DescribedTask(
        name=task.name,
        job=task.job,
        help=declared.help if declared else trouble,
        sound=declared is not None,
        parameters=get_task_parameters(task),
        schedule=task_definitions.describe_schedule(task.periodic),
        interval_seconds=task_definitions.get_interval_seconds(task.periodic),
        crontab=task_definitions.format_crontab_line(task.periodic),
        next_at=next_at.isoformat() if next_at else None,
        requirements=task.requirements,
        single_instance=task.single_instance,
        parallel=task.parallel,
        deadline=None if task.deadline is None else f"{task.deadline:%H:%M}",
        enabled=task.enabled,
        digest=digest_of(audit_document(task)),
        runs=[describe_run(run) for run in list_last_runs(task, run_count)],
    )


def audit_document(task: Task) -> dict[str, Any]:
    """Return a short document of a task, for the audit log."""
    return {
        "job": task.job,
        "schedule": task_definitions.describe_schedule(task.periodic),
        "parameters": task.parameters,
        "parallel": task.parallel,
        "requirements": task.requirements,
        "deadline": task.deadline and f"{task.deadline:%H:%M}",
        "enabled": task.enabled,
    }


def list_last_runs(task: Task, count: int) -> Sequence[Run]:
    """Return the last runs, the newest first."""
    return list(task.runs.select_related("owner", "task").order_by("-created_at", "-pk")[:count])


def describe_run(run: Run) -> DescribedRun:
    """Return the current state of the run."""
    seconds = (run.ended_at - run.started_at).total_seconds() if run.started_at and run.ended_at else None
    return DescribedRun(
        run=run.pk,
        task=run.task.name,
        state=run.state,
        owner=run.owner.get_username() if run.owner else None,
        parameters=run.parameters,
        progress=run.progress,
        chunks_total=run.chunks_total,
        chunks_done=run.chunks_done,
        workers_wanted=run.workers_wanted,
        created_at=run.created_at.isoformat(),
        started_at=run.started_at.isoformat() if run.started_at else None,
        ended_at=run.ended_at.isoformat() if run.ended_at else None,
        deadline_at=run.deadline_at.isoformat() if run.deadline_at else None,
        seconds=seconds,
        error=run.error,
        command=format_run_command(run),
    )


def format_run_command(run: Run) -> str:
    """Return the command line of the run, with the parameters that differ from the task's."""
    own = get_task_parameters(run.task)
    words = ["manage.py", "job", "run", run.task.name]
    for name, value in run.parameters.items():
        if value is not None and own.get(name) != value:
            text = ",".join(value) if isinstance(value, list) else str(value)
            words += ["--set", f"{name}={text}"]
    return shlex.join(words)


def get_task_parameters(task: Task) -> dict[str, Any]:
    """Return every parameter of its job: the task's own value, else the default; none if the job is gone."""
    declared, _ = _find_job(task)
    return {
        parameter.name: _get_parameter_value(task, parameter) for parameter in (declared.parameters if declared else ())
    }


def describe_chunk(chunk: Chunk) -> DescribedChunk:
    """Return the current state of the chunk."""
    return DescribedChunk(**{field.name: getattr(chunk, field.name) for field in fields(DescribedChunk)})


def list_run_parameters(task: Task) -> list[RunParameter]:
    """Return the parameters of the task's runs; none if its job can't be imported."""
    declared, _ = _find_job(task)
    return [_build_run_parameter(task, parameter) for parameter in (declared.parameters if declared else ())]


def _build_run_parameter(task: Task, declared: Parameter) -> RunParameter:
    value = _get_parameter_value(task, declared)
    return RunParameter(
        name=declared.name,
        help=declared.help,
        takes=build_check(declared).takes,
        choices=declared.choices,
        value=", ".join(value) if isinstance(value, list) else value,
        required=declared.required and value is None,
    )


def _find_job(task: Task) -> tuple[Job | None, str]:
    """Return the task's job, or why there is none."""
    try:
        return catalog.get_job(task.job), ""
    except BadInput as error:
        return None, str(error)


def _get_parameter_value(task: Task, declared: Parameter) -> object:
    """Return the task's own value, else the default; None if each run has to give it."""
    return task.parameters.get(declared.name, declared.default)
