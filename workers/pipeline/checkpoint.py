"""The checkpoint of one application, and whether it belongs to the state on the control server.

Both carry the same run number. One without the other can't be continued: batches would be counted from
another beginning, and events would be matched twice or never.
"""

import fcntl
import json
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import redis

from queues.errors import BadInput, WeirError
from workers.pipeline.offset import NEW_START, Offset


class CheckpointInUse(WeirError):  # noqa: N818
    """Another pipeline process works on the same checkpoint."""


@dataclass(frozen=True)
class Checkpoint:
    """folder: where Spark keeps offsets and commits. run: 8 hex digits, new with every reset."""

    folder: Path
    run: str

    @property
    def location(self) -> str:
        return str(self.folder / "spark")

    def offset(self, batch: int) -> Offset:
        """The end offset of a planned batch, as Spark wrote it before the batch began. Raises BadInput when
        it can't be read.
        """
        path = self.folder / "spark" / "offsets" / str(batch)
        try:
            # Spark's offset log: a version, metadata, then one line for each source; there is one source.
            return Offset.from_document(json.loads(path.read_text(encoding="utf-8").splitlines()[2]))
        except (OSError, ValueError, IndexError, KeyError, TypeError) as error:
            raise BadInput("checkpoint", f"{path} can't be read ({error}). {NEW_START}") from None

    def check(self) -> None:
        """Reads what a start will continue from. Raises BadInput when it is broken or of another program
        version.
        """
        batches = [
            int(path.name) for path in (self.folder / "spark" / "offsets").glob("*") if path.name.isdigit()
        ]
        if batches:
            self.offset(max(batches))
            metadata = self.folder / "spark" / "metadata"
            try:
                json.loads(metadata.read_text(encoding="utf-8"))["id"]
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise BadInput("checkpoint", f"{metadata} can't be read ({error}). {NEW_START}") from None


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
    """Forgets folder and run; the next `open_checkpoint` begins anew."""
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
