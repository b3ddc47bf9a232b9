"""Where Spark keeps how far each query of an application has come."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from queues.errors import BadInput

COMBINER = "combiner"
NEW_START = "Start once with --reset to begin anew at the oldest events still waiting."


@dataclass(frozen=True)
class Checkpoint:
    """folder: where Spark keeps offsets and commits. run: 8 hex digits, new with every reset. query: whose
    offsets (a replica, or COMBINER).
    """

    folder: Path
    run: str
    query: str = COMBINER

    def find_sibling(self, query: str) -> "Checkpoint":
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
