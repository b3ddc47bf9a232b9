"""What a start goes on with: the checkpoint of one application, and whether it belongs to the state on the
control server.

Both carry the same run number. One without the other can't be continued: batches would be counted from
another beginning, and events would be matched twice or never.
"""

import fcntl
import json
import secrets
import shutil
from pathlib import Path
from typing import IO, cast

import redis

from queues import keys
from queues.errors import BadInput, WeirError, connection_reason
from queues.private_files import write_private
from queues.text.numbers import digits
from workers.pipeline.dispatch.dispatches import Dispatches
from workers.pipeline.events.faults import FaultStore
from workers.pipeline.inter_event.combining import Combined
from workers.pipeline.tiers.checkpoint import COMBINER, NEW_START, Checkpoint
from workers.pipeline.tiers.result_queue import ResultQueue
from workers.pipeline.tiers.state import StateStore

ROOM_BYTES = 2**20  # what a start writes at once


class CheckpointInUse(WeirError):  # noqa: N818
    """Another pipeline process works on the same checkpoint."""


def check(checkpoint: Checkpoint) -> None:
    """Reads what a start will continue from. Raises BadInput when it is broken or of another program
    version.
    """
    if (checkpoint.folder / "spark" / "offsets").exists():
        raise BadInput("checkpoint", f"{checkpoint.folder} is of a program before this one. {NEW_START}")
    for query in sorted(path.name for path in (checkpoint.folder / "spark").glob("*")):
        _check_query(checkpoint.of(query))


def _check_query(checkpoint: Checkpoint) -> None:
    offsets = (Path(checkpoint.location) / "offsets").glob("*")
    batches = [number for path in offsets if (number := digits(path.name)) is not None]
    if not batches:
        return
    newest = checkpoint.offset(max(batches))
    metadata = Path(checkpoint.location) / "metadata"
    try:
        json.loads(metadata.read_text(encoding="utf-8"))["id"]
        if checkpoint.query == COMBINER:
            Combined.from_document(newest)
    except BadInput:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput("checkpoint", f"{checkpoint.location} can't be read ({error}). {NEW_START}") from None


def open_checkpoint(folder: Path, control: redis.Redis, application: str) -> Checkpoint:
    """The checkpoint to go on with, or a new one where neither folder nor control server knows of a run that
    has begun. Raises BadInput.
    """
    folder.mkdir(parents=True, exist_ok=True)
    own = folder / "run.json"
    key = keys.PIPELINE_RUN.of(application)
    known = cast(bytes | None, control.get(key))
    here = _read_run(own)
    if known is None and (here is None or _nothing_is_done(folder, control, application)):
        here = here or secrets.token_hex(4)
        # The folder first, and whole: whoever dies behind it, or finds no room for it, begins once more.
        write_private(own, json.dumps({"run": here, "application": application}))
        control.set(key, here)
    elif known is None:
        raise BadInput(
            "checkpoint",
            f"{folder} is of run {here}, of which the control server holds no state. {NEW_START}",
        )
    elif here != known.decode():
        raise BadInput(
            "checkpoint",
            f"{folder} is of run {here or 'none'}, but the control server holds the state of run "
            f"{known.decode()}. "
            f"Put that run's folder back (see WEIR_DATA), or begin anew. {NEW_START}",
        )
    checkpoint = Checkpoint(folder, here or "")
    check(checkpoint)
    return checkpoint


def _nothing_is_done(folder: Path, control: redis.Redis, application: str) -> bool:
    """Whether a run ended before it planned or dispatched anything: nothing can be lost, or done twice."""
    return not (folder / "spark").exists() and Dispatches(control, application).cursor() is None


def reset_checkpoint(folder: Path, control: redis.Redis, application: str) -> None:
    """Forgets folder, run and what is between the tiers; the next `open_checkpoint` begins anew. The run
    first: a reset that dies in the middle is not gone on with, but asked for once more.
    """
    control.delete(keys.PIPELINE_RUN.of(application))
    Dispatches(control, application).clear()
    ResultQueue(control, application).clear()
    FaultStore(control, application).clear()
    StateStore(control, application).clear()
    shutil.rmtree(folder / "spark", ignore_errors=True)
    (folder / "run.json").unlink(missing_ok=True)


def lock_checkpoint(folder: Path) -> IO[str]:
    """Held while the file stays open; the kernel lets go when the process dies. Raises CheckpointInUse."""
    folder.mkdir(parents=True, exist_ok=True)
    file = (folder / "lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise CheckpointInUse(
            f"{folder} is in use by another pipeline process; stop that one first."
        ) from None
    return file


def lacking(folder: Path, control: redis.Redis) -> str:
    """What a start would fail for want of: the control server, or room for the checkpoint; "" if nothing."""
    try:
        control.ping()
    except redis.RedisError as error:
        return f"the control server does not answer ({connection_reason(error)})"
    probe = folder / "room"
    try:
        probe.write_bytes(bytes(ROOM_BYTES))
        probe.unlink()
    except OSError as error:
        return f"{folder} takes no files ({error.strerror})"
    return ""


def _read_run(path: Path) -> str | None:
    try:
        found: str | None = json.loads(path.read_text(encoding="utf-8"))["run"]
        return found
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput("checkpoint", f"{path} can't be read ({error}). {NEW_START}") from None
