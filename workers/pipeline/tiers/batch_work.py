"""Micro-batches of both tiers, which Spark runs through foreachBatch: error handling and files."""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame

from common.errors import WeirError
from workers.observability.spans import span

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
                self.work()
            except Exception as error:
                self.failure = error
                raise BatchFailed(describe_error(error)) from None

    @abstractmethod
    def work(self) -> None:
        """Process the next batch, if there is one."""


def describe_error(error: Exception) -> str:
    """Return the most informative line of an error: Spark buries a task's Python error in pages of text."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    own = [line for line in lines if line.startswith(OURS)]
    if own:
        return own[-1].split(": ", 1)[-1][:500]
    raised = [line for line in lines if RAISED.match(line) and not line.startswith(WRAPPING)]
    return (raised or lines or [type(error).__name__])[-1 if raised else 0][:500]


COMBINER = "combiner"
SPARK = "spark"  # the folder of Spark's files


@dataclass(frozen=True)
class Checkpoint:
    """The files of an application's run.

    folder: where Spark stores the numbers of batches. run: 8 hex digits, new after every reset.
    """

    folder: Path
    run: str

    def locate(self, query: str) -> str:
        """Return Spark's folder for a query: a replica, or COMBINER."""
        return str(self.folder / SPARK / query)
