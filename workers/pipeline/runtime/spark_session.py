"""The Spark session of the pipeline process, which starts only when an application needs it."""

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from common.errors import WeirError
from workers.pipeline.runtime.long_tasks import prepare_worker
from workers.pipeline.runtime.spark_demand import LIMIT
from workers.pipeline.tiers.batch_work import describe_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Python workers that start before applications move to Spark: the first batch there doesn't wait for their imports.
WORKERS = 3
RETRY_SECONDS = 60.0  # after a start that failed

log = logging.getLogger("weir.pipeline")


class SparkNeeded(Exception):  # noqa: N818
    """Raised when an application can't run without Spark. The text completes "because …"."""


class SparkOnDemand:
    """Starts the session once, in a thread, while the applications continue to run in the process.

    start: starts a session. reason: why the session is there or starts, as a clause; None: it doesn't.
    """

    def __init__(self, start: "Callable[[], SparkSession]", monotonic: Callable[[], float] = time.monotonic) -> None:
        self._start, self._monotonic = start, monotonic
        self._failure: WeirError | None = None
        self._due_at = 0.0
        self.spark: SparkSession | None = None
        self.reason: str | None = None

    def start(self, reason: str) -> None:
        """Start the session, and wait for it."""
        self.reason = reason
        self.spark = self._start()

    def request(self, reason: str, is_essential: bool = False) -> None:
        """Start the session in the background, unless it is there or starts now.

        is_essential: whether an application can't run without it. In that case, raises the `WeirError` of a start that
        failed. Otherwise, the next start begins after RETRY_SECONDS.
        """
        if is_essential and self._failure is not None:
            raise self._failure
        if self.reason is not None or self._monotonic() < self._due_at:
            return
        log.info("Spark starts: %s", reason)
        self.reason, self._failure = reason, None
        threading.Thread(target=self._start_in_thread, name="spark start", daemon=True).start()

    def explain_place(self) -> str:
        """Return why the applications run where they run, as a clause."""
        if self.reason is None:
            return LIMIT
        return self.reason if self.spark is not None else f"Spark is starting because {self.reason}"

    def _start_in_thread(self) -> None:
        try:
            spark = self._start()
            spark.sparkContext.parallelize(range(WORKERS), WORKERS).mapPartitions(prepare_worker).collect()
            self.spark = spark
        except WeirError as error:
            self._fail(error)
        except Exception as error:  # any error is passed to the main thread
            self._fail(WeirError(f"Spark failed to start ({describe_error(error)})"))

    def _fail(self, error: WeirError) -> None:
        log.error("%s", error)
        self._failure, self.reason, self._due_at = error, None, self._monotonic() + RETRY_SECONDS

    def stop(self) -> None:
        """Stop the session. A session that is still starting ends with the process."""
        if self.spark is not None:
            self.spark.stop()
