"""The checkpoint of one application, and whether it belongs to the state on the control server.

Both carry the same run number. One without the other can't be continued: batches would be counted from
another beginning, and events would be matched twice or never.
"""

import fcntl
import json
import secrets
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import redis

from queues.errors import BadInput, WeirError
from workers.pipeline.dispatch.cursor import NEW_START
from workers.pipeline.dispatch.dispatches import Dispatches
from workers.pipeline.events.faults import FaultStore
from workers.pipeline.inter_event.combining import Combined
from workers.pipeline.tiers.result_queue import ResultQueue
from workers.pipeline.tiers.state import StateStore

COMBINER = "combiner"


class CheckpointInUse(WeirError):  # noqa: N818
    """Another pipeline process works on the same checkpoint."""


@dataclass(frozen=True)
class Checkpoint:
    """folder: where Spark keeps offsets and commits. run: 8 hex digits, new with every reset. query: whose
    offsets (a replica, or COMBINER).
    """

    folder: Path
    run: str
    query: str = COMBINER

    def of(self, query: str) -> "Checkpoint":
        """That of another query of the same run."""
        return replace(self, query=query)

    @property
    def location(self) -> str:
        return str(self.folder / "spark" / self.query)

    def offset(self, batch: int) -> Any:
        """The end offset of a planned batch, as Spark wrote it before the batch began. Raises BadInput when
        it can't be read.
        """
        path = Path(self.location) / "offsets" / str(batch)
        try:
            # Spark's offset log: a version, metadata, then one line for each source; there is one source.
            return json.loads(path.read_text(encoding="utf-8").splitlines()[2])
        except (OSError, ValueError, IndexError) as error:
            raise BadInput("checkpoint", f"{path} can't be read ({error}). {NEW_START}") from None

    def check(self) -> None:
        """Reads what a start will continue from. Raises BadInput when it is broken or of another program
        version.
        """
        if (self.folder / "spark" / "offsets").exists():
            raise BadInput("checkpoint", f"{self.folder} is of a program before this one. {NEW_START}")
        for query in sorted(path.name for path in (self.folder / "spark").glob("*")):
            self.of(query).check_query()

    def check_query(self) -> None:
        offsets = (Path(self.location) / "offsets").glob("*")
        batches = [int(path.name) for path in offsets if path.name.isdigit()]
        if not batches:
            return
        newest = self.offset(max(batches))
        metadata = Path(self.location) / "metadata"
        try:
            json.loads(metadata.read_text(encoding="utf-8"))["id"]
            if self.query == COMBINER:
                Combined.from_document(newest)
        except BadInput:
            raise
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BadInput("checkpoint", f"{self.location} can't be read ({error}). {NEW_START}") from None


def open_checkpoint(folder: Path, control: redis.Redis, application: str) -> Checkpoint:
    """The checkpoint to go on with, or a new one where neither folder nor control server knows of a run.
    Raises BadInput.
    """
    folder.mkdir(parents=True, exist_ok=True)
    own = folder / "run.json"
    key = f"weir:pipeline:run:{application}"
    known = control.get(key)
    here = _read_run(own)
    if known is None and here is None:
        here = secrets.token_hex(4)
        control.set(key, here)
        own.write_text(json.dumps({"run": here, "application": application}))
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
    checkpoint.check()
    return checkpoint


def reset_checkpoint(folder: Path, control: redis.Redis, application: str) -> None:
    """Forgets folder, run and what is between the tiers; the next `open_checkpoint` begins anew."""
    Dispatches(control, application).clear()
    ResultQueue(control, application).clear()
    FaultStore(control, application).clear()
    StateStore(control, application).clear()
    control.delete(f"weir:pipeline:run:{application}")
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


def _read_run(path: Path) -> str | None:
    try:
        return json.loads(path.read_text(encoding="utf-8"))["run"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput("checkpoint", f"{path} can't be read ({error}). {NEW_START}") from None
