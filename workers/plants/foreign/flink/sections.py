"""The sections of a Flink job's page besides operators and tasks.

They are back-pressure, rescales, checkpoints, and exceptions, each from the REST API of Flink 2.3. If the cluster is
older, or keeps no rescales (`web.adaptive-scheduler.rescale-history.size` is 0 by default), the section says so.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from statistics import fmean
from typing import TypeVar

import msgspec

from common.stored_document import BadDocument, StoredDocument, convert
from workers.documents.plants import PlantSection
from workers.plants.foreign.client import PlantClient
from workers.plants.foreign.redaction import redact

MAX_ROWS, MAX_VERTICES = 10, 20
MAX_TEXT, MAX_NAME = 300, 100
MEBIBYTE = 2**20
NO_HISTORY = (
    "The cluster does not record rescales. Flink 2.3 records them if"
    " web.adaptive-scheduler.rescale-history.size is above 0."
)
Value = str | float | None
Answer = TypeVar("Answer", bound=StoredDocument)


class SubtaskPressure(StoredDocument, frozen=True, rename={"busy": "busyRatio", "idle": "idleRatio"}):
    """Shares of the time: held up by downstream tasks, busy, idle."""

    ratio: float | None = None
    busy: float | None = None
    idle: float | None = None


class VertexPressure(StoredDocument, frozen=True, rename={"level": "backpressureLevel"}):
    """A vertex in `/jobs/ID/vertices/ID/backpressure`."""

    level: str | None = None
    subtasks: list[SubtaskPressure] = []


class FlinkRescale(StoredDocument, frozen=True, rename="camel"):
    """A rescale of `/jobs/ID/rescales/history`, newest first."""

    start_timestamp_in_millis: float | None = None
    end_timestamp_in_millis: float | None = None
    terminal_state: str | None = None
    trigger_cause: str | None = None
    terminated_reason: str | None = None


class FlinkRescales(StoredDocument, frozen=True):
    """The list of rescales, in a document."""

    rescales: list[FlinkRescale]


class FlinkCheckpoint(StoredDocument, frozen=True):
    """A checkpoint of the history."""

    id: int = 0
    status: str = ""
    checkpoint_type: str | None = None
    trigger_timestamp: float | None = None
    end_to_end_duration: float | None = None
    state_size: float | None = None
    checkpointed_size: float | None = None
    failure_message: str | None = None


class FlinkCheckpoints(StoredDocument, frozen=True):
    """The answer of `/jobs/ID/checkpoints`, newest first."""

    counts: dict[str, int] = {}
    history: list[FlinkCheckpoint] = []


class FlinkException(StoredDocument, frozen=True, rename="camel"):
    """An exception of the history."""

    exception_name: str = ""
    stacktrace: str = ""
    timestamp: float | None = None
    task_name: str | None = None


class ExceptionHistory(StoredDocument, frozen=True):
    entries: list[FlinkException] = []


class Exceptions(StoredDocument, frozen=True, rename="camel"):
    """The answer of `/jobs/ID/exceptions`."""

    exception_history: ExceptionHistory = msgspec.field(default_factory=ExceptionHistory)


def build_sections(client: PlantClient, job: str, names: Mapping[str, str]) -> list[PlantSection]:
    """Return the sections. A section that can't be read says so, and the others are kept.

    names: of the vertices, by id. Raise `PlantUnavailable` and `InvalidPlantResponse`.
    """
    return [
        _read_section(client, "Back-pressure", lambda: _build_pressure_section(client, job, names)),
        _read_section(client, "Rescales", lambda: _build_rescales_section(client, job)),
        _read_section(client, "Checkpoints", lambda: _build_checkpoints_section(client, job)),
        _read_section(client, "Exceptions", lambda: _build_exceptions_section(client, job)),
    ]


def _read_section(client: PlantClient, title: str, read: Callable[[], PlantSection]) -> PlantSection:
    try:
        return read()
    except BadDocument as error:
        return PlantSection(title=title, about=f"{client.name} returned a response that is not from Flink ({error})")


def _ask(client: PlantClient, path: str, kind: type[Answer], **query: str) -> Answer | None:
    """Return the answer, or None if the cluster does not support the request."""
    status, document = client.ask("GET", path, **query)
    return convert(kind, document, path.rpartition("/")[2]) if status == 200 else None


def _build_pressure_section(client: PlantClient, job: str, names: Mapping[str, str]) -> PlantSection:
    rows: list[list[Value]] = []
    for vertex, name in list(names.items())[:MAX_VERTICES]:
        pressure = _ask(client, f"jobs/{job}/vertices/{vertex}/backpressure", VertexPressure)
        tasks = pressure.subtasks if pressure else []
        rows.append(
            [
                name,
                (pressure.level if pressure else None) or "not measured yet",
                _compute_percent([task.ratio for task in tasks], max),
                _compute_percent([task.ratio for task in tasks], fmean),
                _compute_percent([task.busy for task in tasks], fmean),
                _compute_percent([task.idle for task in tasks], fmean),
            ]
        )
    left = len(names) - len(rows)
    return PlantSection(
        title="Back-pressure",
        about="share of the time in which downstream tasks block a task"
        + (f"; {left} more operators are not shown" if left > 0 else ""),
        columns=["Operator", "Level", "Worst task, %", "Mean, %", "Busy, %", "Idle, %"],
        rows=rows,
        empty="The job has no operators.",
    )


def _build_rescales_section(client: PlantClient, job: str) -> PlantSection:
    status, document = client.ask("GET", f"jobs/{job}/rescales/history")
    rescales = convert(FlinkRescales, {"rescales": document}, "history").rescales if status == 200 else []
    rescales = rescales[:MAX_ROWS]
    return PlantSection(
        title="Rescales",
        about="newest first",
        columns=["Started, UTC", "Cause", "State", "Duration, s", "Termination reason"],
        rows=[
            [
                _format_time(rescale.start_timestamp_in_millis),
                _format_plain_name(rescale.trigger_cause),
                _format_plain_name(rescale.terminal_state) or "in progress",
                _compute_duration(rescale.start_timestamp_in_millis, rescale.end_timestamp_in_millis),
                _format_plain_name(rescale.terminated_reason),
            ]
            for rescale in rescales
        ],
        empty="No rescales yet." if status == 200 else NO_HISTORY,
    )


def _build_checkpoints_section(client: PlantClient, job: str) -> PlantSection:
    checkpoints = _ask(client, f"jobs/{job}/checkpoints", FlinkCheckpoints)
    counts = checkpoints.counts if checkpoints else {}
    told = [
        f"{counts[name]:,} {name.replace('_', ' ')}"
        for name in ("completed", "failed", "in_progress")
        if name in counts
    ]
    return PlantSection(
        title="Checkpoints",
        about=", ".join(told),
        columns=["ID", "State", "Kind", "Started, UTC", "Duration, s", "State, MiB", "Written, MiB", "Failure reason"],
        rows=[
            [
                str(checkpoint.id),
                _format_plain_name(checkpoint.status),
                _format_plain_name(checkpoint.checkpoint_type),
                _format_time(checkpoint.trigger_timestamp),
                _round_value(checkpoint.end_to_end_duration, 1_000),
                _round_value(checkpoint.state_size, MEBIBYTE),
                _round_value(checkpoint.checkpointed_size, MEBIBYTE),
                redact(checkpoint.failure_message or "", MAX_TEXT),
            ]
            for checkpoint in (checkpoints.history if checkpoints else [])[:MAX_ROWS]
        ],
        empty="No checkpoints yet." if checkpoints else "The cluster does not report checkpoints.",
    )


def _build_exceptions_section(client: PlantClient, job: str) -> PlantSection:
    exceptions = _ask(client, f"jobs/{job}/exceptions", Exceptions, maxExceptions=str(MAX_ROWS))
    return PlantSection(
        title="Exceptions",
        about="exceptions that restarted or failed the job, newest first; detected secrets are removed",
        columns=["Time, UTC", "Exception", "Task", "Message"],
        rows=[
            [
                _format_time(entry.timestamp),
                entry.exception_name.rpartition(".")[2][:MAX_NAME],
                (entry.task_name or "")[:MAX_NAME],
                redact(entry.stacktrace.partition("\n")[0], MAX_TEXT),
            ]
            for entry in (exceptions.exception_history.entries if exceptions else [])[:MAX_ROWS]
        ],
        empty="No exceptions yet." if exceptions else "The cluster does not report exceptions.",
    )


def _compute_percent(shares: Sequence[float | None], of: Callable[[list[float]], float]) -> float | None:
    known = [share for share in shares if share is not None]
    return round(100 * of(known), 1) if known else None


def _format_plain_name(name: str | None) -> str:
    """Return the name in lower case: COMPLETED → completed."""
    return (name or "")[:MAX_NAME].replace("_", " ").lower()


def _format_time(milliseconds: float | None) -> Value:
    if milliseconds is None or not 0 < milliseconds < 4e12:
        return None
    return f"{datetime.fromtimestamp(milliseconds / 1_000, UTC):%Y-%m-%d %H:%M:%S}"


def _compute_duration(first: float | None, last: float | None) -> float | None:
    return None if first is None or last is None or last < first else round((last - first) / 1_000, 1)


def _round_value(value: float | None, unit: float) -> float | None:
    return None if value is None or value < 0 else round(value / unit, 2)
