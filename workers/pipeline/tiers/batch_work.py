"""The micro-batches of both tiers as Spark calls them (foreachBatch): their progress on disk, and their failures."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from common.errors import BadInput, WeirError
from workers.observability.spans import span
from workers.pipeline.dispatch.cursor import NEW_START

OURS = ("common.errors.", "workers.")
WRAPPING = ("java.", "org.", "py4j.", "scala.", "pyspark.")
RAISED = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt): \S")


class BatchFailed(WeirError):  # noqa: N818
    """Raised to Spark for a batch that failed."""


class BatchWork(ABC):
    """Callable as Spark requires: `(events, batch)`. `failure` keeps the original error.

    Spark itself gets one sentence only: when it is being stopped, it searches an error's text with a regular expression
    that overflows the thread's stack on the long text of a Java error.
    """

    failure: Exception | None = None
    ids: Mapping[str, str] = {}  # of every line that a batch logs, and of its span

    def __call__(self, events: DataFrame, batch: int) -> None:
        with span("batch", **self.ids, batch=batch):
            try:
                self.work(events, batch)
            except Exception as error:
                self.failure = error
                raise BatchFailed(describe_error(error)) from None

    @abstractmethod
    def work(self, events: DataFrame, batch: int) -> None:
        """Process one batch. May be called again for the same one."""


def describe_error(error: Exception) -> str:
    """Return the most informative line of an error: Spark buries a task's Python error in pages of text."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    own = [line for line in lines if line.startswith(OURS)]
    if own:
        return own[-1].split(": ", 1)[-1][:500]
    raised = [line for line in lines if RAISED.match(line) and not line.startswith(WRAPPING)]
    return (raised or lines or [type(error).__name__])[-1 if raised else 0][:500]


COMBINER = "combiner"


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

    def read_offset(self, batch: int) -> dict[str, Any]:
        """Return the end offset of a planned batch, as Spark wrote it before the batch started.

        Raises `BadInput` if it can't be read.
        """
        path = Path(self.location) / "offsets" / str(batch)
        try:
            # Spark's offset log: a version, metadata, then one line for each source; there is one source.
            offset: dict[str, Any] = json.loads(path.read_text(encoding="utf-8").splitlines()[2])
            return offset
        except (OSError, ValueError, IndexError) as error:
            raise BadInput("checkpoint", f"{path} can't be read ({error}). {NEW_START}") from None
