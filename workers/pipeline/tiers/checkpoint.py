"""Where Spark stores the progress of each query of an application."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from common.errors import BadInput

COMBINER = "combiner"
NEW_START = "Start once with --reset to start over at the oldest events still waiting."


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint of a query.

    folder: where Spark stores offsets and commits. run: 8 hex digits, new after every reset. query: the query (a
    replica, or COMBINER).
    """

    folder: Path
    run: str
    query: str = COMBINER

    def find_sibling(self, query: str) -> "Checkpoint":
        """Return the checkpoint of another query of the same run."""
        return replace(self, query=query)

    @property
    def location(self) -> str:
        return str(self.folder / "spark" / self.query)

    def read_offset(self, batch: int) -> Any:
        """Return the end offset of a planned batch, as Spark wrote it before the batch started.

        Raises `BadInput` if it can't be read.
        """
        path = Path(self.location) / "offsets" / str(batch)
        try:
            # Spark's offset log: a version, metadata, then one line for each source; there is one source.
            return json.loads(path.read_text(encoding="utf-8").splitlines()[2])
        except (OSError, ValueError, IndexError) as error:
            raise BadInput("checkpoint", f"{path} can't be read ({error}). {NEW_START}") from None
