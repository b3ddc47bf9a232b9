"""Columns of numbers in a CSV file, compressed or not: a trace of real arrivals, or recordings of a plant.

Traces of arrivals for the lab: uploaded files, and rates extracted from the plant's own archive.

The folder of a file says whose values it has: `traces/{user id}/` has one person's uploads, `extracts/queue={name}/` a
queue's extracts. Users who are limited to some queues may use the extracts of those, and their own uploads. Files
beside these folders are from an earlier version: whose values they have is unknown.
"""

import gzip
import re
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from common.errors import BadInput
from common.files import resolve_inside_folder
from console.accounts.access import Actor, require_data_access
from controllers.simulation.scenario import Floats
from workers.history import event_archive
from workers.history.event_archive import EXTRACTS, OF_QUEUE
from workers.lab import series
from workers.lab.models import Experiment
from workers.lab.trace_files import read_trace

MAX_TRACE_BYTES = 4 * 2**20
MAX_TRACE_LINES = 200_000  # 55 hours of seconds
CHUNK_BYTES = 2**20
NAME = re.compile(r"\w[\w .()-]{0,95}\.csv(\.gz)?\Z")


@dataclass(frozen=True)
class Trace:
    """Arrivals and their source.

    path: of the file, in the data folder; "" if unknown. queues: whose values they are; None if unknown.
    """

    name: str
    column: str
    values: Floats
    path: str = ""
    queues: Sequence[str] | None = None

    def describe(self) -> dict[str, Any]:
        rows = int(self.values.size)
        return {"name": self.name, "column": self.column, "rows": rows, "path": self.path}


def list_traces(data: Path, actor: Actor) -> list[str]:
    """Return the files that the actor may choose: uploads, and rates from the plant's own archive."""
    return [path for path in _list_all_traces(data) if actor.can_access_queues(_list_file_queues(path, actor))]


def _list_all_traces(data: Path) -> list[str]:
    """Return all traces, of every owner."""
    names = (str(path.relative_to(data)) for path in event_archive.iterate_extract_files(data))
    return [name for name in names if name.endswith((".csv", ".csv.gz"))]


def _list_file_queues(path: str, actor: Actor) -> list[str] | None:
    """Return whose values a file has, as far as the actor is concerned; None if unknown."""
    folder = str(Path(path).parent)
    of_a_queue = f"{EXTRACTS}/{OF_QUEUE}"
    if folder.startswith(of_a_queue):
        return [folder.removeprefix(of_a_queue)]
    # A token may be limited to fewer queues than its owner.
    person = actor.user if actor.token is None else None
    is_own = person is not None and folder == event_archive.upload_folder(person.pk)
    return own_queues(actor) if is_own else None


def own_queues(actor: Actor) -> list[str] | None:
    """Return the queues of an actor's own uploads: those it is limited to; None: any."""
    return None if actor.queues is None else sorted(actor.queues)


def find_trace(data: Path, name: str, column: str, actor: Actor) -> Trace:
    """Return a known file's column. Raises `BadInput`; `PermissionDenied` for values of another queue."""
    if name not in _list_all_traces(data):
        raise BadInput("trace", f"{name[:80]} no longer exists. Choose another trace.")
    queues = _list_file_queues(name, actor)
    require_data_access(actor, "lab.run", queues)
    return Trace(Path(name).name, column, _read(resolve_inside_folder(data, name, "trace"), column), name, queues)


def load_experiment_trace(data: Path, number: int, actor: Actor) -> Trace:
    """Return the arrivals of an experiment from its own copy, even if the file is gone.

    Raises `BadInput`; `PermissionDenied` for values of another queue.
    """
    experiment = Experiment.objects.filter(pk=number, trace__isnull=False).first()
    if experiment is not None:
        require_data_access(actor, "lab.run", experiment.queues)
    try:
        values = None if experiment is None else series.read_trace(data, number)
    except OSError:
        values = None
    if experiment is None or experiment.trace is None or values is None:
        raise BadInput("trace", f"of experiment {number} no longer exists. Choose another trace.")
    about = experiment.trace
    return Trace(about["name"], about["column"], values, about.get("path", ""), experiment.queues)


def save_upload(data: Path, name: str, file: BinaryIO, column: str, actor: Actor) -> Trace:
    """Store an uploaded file for later use if it can be read.

    It replaces the person's own file of that name, and nobody else's. Raises `BadInput`.
    """
    plain = Path(name).name
    if not NAME.match(plain):
        raise BadInput(
            "trace", "must be a .csv or .csv.gz file whose name has only letters, digits, spaces, . _ and -."
        )
    place = event_archive.upload_folder(actor.account.pk)
    folder = data / place
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".") as kept:
        path = Path(kept) / plain
        _copy(file, path)
        trace = Trace(plain, column, _read(path, column), f"{place}/{plain}", own_queues(actor))
        path.replace(resolve_inside_folder(folder, plain, "trace"))
    return trace


def _copy(file: BinaryIO, path: Path) -> None:
    """Copy up to MAX_TRACE_BYTES, counted unpacked."""
    written = 0
    with path.open("wb") as out:
        while chunk := file.read(CHUNK_BYTES):
            out.write(chunk)
            written += len(chunk)
            if written > MAX_TRACE_BYTES:
                raise BadInput("trace", f"must have at most {MAX_TRACE_BYTES // 2**20} MiB.")
    if path.suffix != ".gz":
        return
    unpacked = 0
    try:
        with gzip.open(path) as packed:
            while chunk := packed.read(CHUNK_BYTES):
                unpacked += len(chunk)
                if unpacked > MAX_TRACE_BYTES:
                    raise BadInput("trace", f"decompresses to more than {MAX_TRACE_BYTES // 2**20} MiB.")
    except (OSError, EOFError, zlib.error):
        raise BadInput("trace", "is not a complete gzip file.") from None


def _read(path: Path, column: str) -> Floats:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            lines = sum(
                text.count(b"\n") + text.count(b"\r") - text.count(b"\r\n")
                for text in iter(lambda: file.read(CHUNK_BYTES), b"")
            )
        if lines > MAX_TRACE_LINES:
            raise BadInput("trace", f"must have at most {MAX_TRACE_LINES:,} lines.")
        return read_trace(str(path), column or None)
    except BadInput as error:
        message = error.message.replace(str(path), path.name)
        raise BadInput(error.field.removeprefix("--"), message) from None
