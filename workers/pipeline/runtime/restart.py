"""The run that a start continues, and whether the data folder belongs to the state on the control server.

All state that a start continues from is on the control server. The folder has the run's number, so that a start detects
if the server has lost the state or has the state of another plant. In both cases, events could be matched twice or
never. Spark's files in the folder are valid for one process only.
"""

import fcntl
import json
import secrets
import shutil
from pathlib import Path
from typing import IO

import redis

from common.errors import BadInput, WeirError, describe_connection_error
from common.files import write_private
from common.parsing import parse_digits
from queues import keys
from queues.control.replies import expect_bytes
from workers.pipeline.dispatch.assignment import Dispatches
from workers.pipeline.dispatch.cursor import NEW_START
from workers.pipeline.dispatch.result_queue import ResultQueue
from workers.pipeline.events.faults import FaultStore
from workers.pipeline.tiers.batch_work import COMBINER, SPARK, Checkpoint
from workers.pipeline.tiers.combining import CombinedOffset
from workers.pipeline.tiers.planned_batches import PlannedBatch, PlannedBatches
from workers.pipeline.tiers.state import StateStore

ROOM_BYTES = 2**20  # files that a start writes at once


class CheckpointInUse(WeirError):  # noqa: N818
    """Raised when another pipeline process uses the same checkpoint."""


def open_checkpoint(folder: Path, control: redis.Redis, application: str) -> Checkpoint:
    """Return the checkpoint to continue, or a new one.

    It is new if neither folder nor control server has a run with progress. Raises `BadInput`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    own = folder / "run.json"
    key = keys.PIPELINE_RUN.build(application)
    known = expect_bytes(control).get(key)
    here = _read_run(own)
    # Of a run that ended before it planned or dispatched anything, nothing can be lost or done twice.
    if known is None and (
        here is None or not ((folder / SPARK).exists() or Dispatches(control, application).load_cursor() is not None)
    ):
        here = here or secrets.token_hex(4)
        # The folder first, and completely: a process that crashes after it, or finds no room for it, starts over.
        write_private(own, json.dumps({"run": here, "application": application}))
        control.set(key, here)
    elif known is None:
        raise BadInput(
            "checkpoint", f"{folder} belongs to run {here}, but the control server has no state of it. {NEW_START}"
        )
    elif here != known.decode():
        raise BadInput(
            "checkpoint",
            f"{folder} belongs to run {here or 'none'}, but the control server has the state of run {known.decode()}. "
            f"Restore that run's folder (see WEIR_DATA), or start over. {NEW_START}",
        )
    _import_plan(folder, control, application)
    shutil.rmtree(folder / SPARK, ignore_errors=True)
    return Checkpoint(folder, here or "")


def _import_plan(folder: Path, control: redis.Redis, application: str) -> None:
    """Continue from the newest batch of a version of Weir that planned batches in Spark's checkpoint."""
    own = folder / SPARK / COMBINER
    batches = [number for path in (own / "offsets").glob("*") if (number := parse_digits(path.name)) is not None]
    planned = PlannedBatches(control, application)
    if not batches or planned.load() is not None:
        return
    path = own / "offsets" / str(max(batches))
    try:
        # Spark's offset log: a version, metadata, then one line for each source; there is one source.
        document = json.loads(path.read_text(encoding="utf-8").splitlines()[2])
    except (OSError, ValueError, IndexError) as error:
        raise BadInput("checkpoint", f"{path} can't be read ({error}). {NEW_START}") from None
    if isinstance(document, dict) and document.keys() == {
        "batch"
    }:  # this version, which was killed before it planned its first batch
        return
    is_done = (own / "commits" / path.name).exists()
    planned.restore(PlannedBatch(max(batches), CombinedOffset.from_document(document), is_done))


def open_replica_checkpoint(folder: Path, control: redis.Redis, application: str) -> Checkpoint:
    """Return a new checkpoint for the process of a replica, in the run of the main process.

    Everything that the replica continues from is on the control server: its assignments, and its last published result.
    Raises `WeirError` before the main process has started the run.
    """
    known = expect_bytes(control).get(keys.PIPELINE_RUN.build(application))
    if known is None:
        raise WeirError(f"the main process has not started {application}")
    shutil.rmtree(folder / SPARK, ignore_errors=True)
    return Checkpoint(folder, known.decode())


def is_current(checkpoint: Checkpoint, control: redis.Redis, application: str) -> bool:
    """Return whether the checkpoint belongs to the run on the control server, as far as the server responds."""
    try:
        return bool(expect_bytes(control).get(keys.PIPELINE_RUN.build(application)) == checkpoint.run.encode())
    except (redis.ConnectionError, redis.TimeoutError):
        return True


def reset_checkpoint(folder: Path, control: redis.Redis, application: str) -> None:
    """Remove the folder, the run, and what is between the tiers; the next `open_checkpoint` starts a new run.

    The run goes first: after a reset that crashes in the middle, a start does not continue, but requires another reset.
    """
    control.delete(keys.PIPELINE_RUN.build(application))
    Dispatches(control, application).clear()
    ResultQueue(control, application).clear()
    FaultStore(control, application).clear()
    StateStore(control, application).clear()
    PlannedBatches(control, application).clear()
    shutil.rmtree(folder / SPARK, ignore_errors=True)
    (folder / "run.json").unlink(missing_ok=True)


def lock_checkpoint(folder: Path) -> IO[str]:
    """Lock the checkpoint while the file stays open; the kernel releases the lock when the process ends.

    Raises `CheckpointInUse`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = (folder / "lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise CheckpointInUse(f"{folder} is in use by another pipeline process. Stop that process first.") from None
    return file


def explain_missing(folder: Path, control: redis.Redis) -> str:
    """Return what a start would fail for lack of, the control server or disk space; "" if nothing."""
    try:
        control.ping()
    except redis.RedisError as error:
        return f"the control server is not responding ({describe_connection_error(error)})"
    probe = folder / "room"
    try:
        probe.write_bytes(bytes(ROOM_BYTES))
        probe.unlink()
    except OSError as error:
        return f"{folder} can't be written ({error.strerror})"
    return ""


def _read_run(path: Path) -> str | None:
    try:
        run: str | None = json.loads(path.read_text(encoding="utf-8"))["run"]
        return run
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput("checkpoint", f"{path} can't be read ({error}). {NEW_START}") from None
