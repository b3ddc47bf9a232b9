"""Long-running tasks in threads of the pipeline process, in place of Spark tasks."""

import pickle
import threading

from common.errors import WeirError
from workers.pipeline.runtime.long_tasks import EpochWork, LongTask


def run_in_thread(task: LongTask) -> int:
    """Run an epoch in this thread, and return the number of batches.

    The task is copied, as Spark does. Otherwise, it would share its reference tables with the main thread, which
    compares their state to notice a change.
    """
    copy: LongTask = pickle.loads(pickle.dumps(task))
    return sum(copy([]))


class TaskThread:
    """Runs the epochs of a long-running task, one after the other. A failure that ends them is raised by `check`."""

    def __init__(self, name: str, work: EpochWork) -> None:
        self._work = work
        self._ending = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._ending.is_set():
                self._work.work()
        except Exception as error:  # any error is passed to the main thread
            self._failure = error

    def check(self) -> None:
        """Raise the error that has ended the thread."""
        if not self._thread.is_alive():
            raise self._failure or WeirError("a long-running task ended unexpectedly")

    def end(self, wait_seconds: float) -> None:
        """Start no more epochs, and wait for the end of the running epoch.

        A batch that takes longer is overtaken by another task of its role.
        """
        self._ending.set()
        self._thread.join(max(0.0, wait_seconds))
