"""Handling of blocks such that a failing block delays no other.

A block is tried together with the others of its worker; when that fails, alone; when that fails, it waits
(`workers.consumer.backoff`) and is tried again, alone. On its last try, or at once when the handler blames the events
themselves, its events are separated: halves, quarters, … until the poison events are isolated. Only they become dead
letters.

The time limit of a call is enforced from outside of it. SIGALRM is used because the called code is not ours: it may
sleep, wait for a socket, or loop. Only the main thread of a process can be interrupted this way (a Celery prefork child
runs its task there); elsewhere only Celery's own limits apply. Code that never returns to the interpreter cannot be
interrupted: then Celery's hard limit kills the process.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

import pyarrow as pa
from celery.exceptions import SoftTimeLimitExceeded

from workers.consumer.handler import Delivery, Failure, Handler, Outcome, is_away
from workers.pool.departures import Completion

REPEAT_SECONDS = 1.0
MAX_SECONDS = 1e9  # a timer accepts slightly more; a larger limit means no limit


class TimeLimitExceeded(BaseException):
    """Raised in the call. It is not an Exception, so that an `except Exception` of the call does not swallow it."""


@contextmanager
def use_time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeLimitExceeded inside after `seconds`, and again each second while the block continues."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    is_over = False

    def end(signum: int, frame: FrameType | None) -> None:
        if not is_over:
            raise TimeLimitExceeded

    began_seconds = time.monotonic()
    previous = signal.signal(signal.SIGALRM, end)
    left_seconds, interval_seconds = signal.setitimer(signal.ITIMER_REAL, min(seconds, MAX_SECONDS), REPEAT_SECONDS)
    try:
        yield
    finally:
        # This is first: an alarm now would otherwise leave the timer set and interrupt later work of this process.
        is_over = True
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        if left_seconds:  # another alarm was set: it is restored unchanged
            left_seconds = max(0.001, left_seconds - (time.monotonic() - began_seconds))
            signal.setitimer(signal.ITIMER_REAL, left_seconds, interval_seconds)


HUNG_EVENTS_PER_BLOCK = 3
FIRST_BLOCKS = 16  # of the first call, where calls may be divided


class DeadlineExceeded(Exception):  # noqa: N818
    """Raised when the worker's own time ends during a separation."""


@dataclass(frozen=True, slots=True)
class Hang(Failure):
    """Raised when the time limit ended the call."""


def _merge_uniform_poison(
    delivery: Delivery, poison: list[tuple[pa.RecordBatch, str]]
) -> list[tuple[pa.RecordBatch, str]]:
    """Return a single letter where every event failed with the same kind of error.

    In that case a dependency of the handler is usually unavailable, and a letter of one event is fifteen times as large
    as an event in a block.
    """
    kinds = {error.partition(":")[0] for _, error in poison}
    if len(kinds) != 1 or sum(rows.num_rows for rows, _ in poison) < delivery.events:
        return poison
    error = f"each of its {delivery.events} events failed when processed alone: {poison[0][1]}"
    return [(delivery.fill_ids(), error)]


# Time after which a worker starts nothing more: others wait for its place, and its successor loads the
# current handler. A call of many blocks should take much less.
BEGINS_WITHIN_SECONDS = 10.0
UNTRIED = Failure(0, "the worker ran out of time before it reached the block", untried=True)


@dataclass(slots=True)
class HandlerCall:
    """Calls of one handler under its time limit, with the sum of their results.

    `until_seconds`: the monotonic time after which no further call is started.
    """

    handler: Handler
    timeout_seconds: float
    until_seconds: float
    monotonic: Callable[[], float] = time.monotonic
    done: Outcome = field(default_factory=Outcome)
    completions: list[Completion] = field(default_factory=list)  # times at which events were completed
    likely_blocks: int = FIRST_BLOCKS  # they take 1/4 to 1/2 of the time limit, or of a turn

    def choose_block_count(self, left: int) -> int:
        """Return how many of the remaining blocks the next call of `together` should get.

        A slow handler that works block by block gets fewer: of a call that the time limit ends, nothing counts as done.
        """
        return min(left, self.likely_blocks) if self.handler.works_block_by_block else left

    def handle_together(self, deliveries: Sequence[Delivery]) -> dict[int, Failure]:
        """Handle blocks and return the failures by index.

        A call with several blocks that raises is repeated block by block.
        """
        if self._is_out_of_time():
            return dict.fromkeys(range(len(deliveries)), UNTRIED)
        began_seconds = self.monotonic()
        failures: dict[int, Failure] = {}
        answer = self._call(deliveries) if deliveries else Outcome()
        if isinstance(answer, Outcome):
            failures = {failure.block: failure for failure in answer.failures}
        elif len(deliveries) == 1 or isinstance(answer, Hang):
            # After a hang no block is tried alone here, because each could hang for as long. They wait, and are tried
            # alone the next time.
            failures = dict.fromkeys(range(len(deliveries)), answer)
        else:
            failures = self.handle_separately(deliveries)
        took_seconds = self.monotonic() - began_seconds
        most_seconds = min(self.timeout_seconds, BEGINS_WITHIN_SECONDS)
        if took_seconds < most_seconds / 4:
            self.likely_blocks = max(self.likely_blocks, 2 * len(deliveries))
        elif took_seconds > most_seconds / 2:
            self.likely_blocks = max(1, len(deliveries) // 2)
        return failures

    def handle_separately(self, deliveries: Sequence[Delivery]) -> dict[int, Failure]:
        """Handle each block by itself and return the failures by index."""
        failures = {}
        for place, delivery in enumerate(deliveries):
            if self._is_out_of_time():
                failures[place] = UNTRIED
            elif failure := self._try_delivery(delivery):
                failures[place] = failure
        return failures

    def separate(self, delivery: Delivery, failure: Failure) -> list[tuple[pa.RecordBatch, str]]:
        """Return the poison of a block that failed: (rows, error) pairs; all its other rows are handled.

        Raises DeadlineExceeded. The handler recognizes the rows handled until then when the block is delivered again.
        """
        if failure.transient or delivery.events == 1:
            return [(delivery.fill_ids(), failure.error)]
        if isinstance(failure, Hang):
            return self._separate_by_row(delivery)
        middle, poison = delivery.events // 2, []
        for part in (delivery.extract_part(0, middle), delivery.extract_part(middle, delivery.events)):
            if half_failure := self._try_delivery(part):
                poison += self.separate(part, half_failure)
        return _merge_uniform_poison(delivery, poison) if delivery.whole else poison

    def _separate_by_row(self, delivery: Delivery) -> list[tuple[pa.RecordBatch, str]]:
        """Separate a block row by row, because halving would hang at every level.

        Each event that hangs costs one time limit; after a few the rest is given up.
        """
        poison: list[tuple[pa.RecordBatch, str]] = []
        hung = 0
        for row in range(delivery.events):
            if hung >= HUNG_EVENTS_PER_BLOCK:
                rest = delivery.extract_part(row, delivery.events).fill_ids()
                return [*poison, (rest, f"not tried: the handler hung on {hung} earlier events of this block")]
            event = delivery.extract_part(row, row + 1)
            if failure := self._try_delivery(event):
                hung += isinstance(failure, Hang)
                poison.append((event.fill_ids(), failure.error))
        return poison

    def _try_delivery(self, delivery: Delivery) -> Failure | None:
        if self._is_out_of_time():
            raise DeadlineExceeded
        answer = self._call([delivery])
        if isinstance(answer, Failure):
            return answer
        return answer.failures[0] if answer.failures else None

    def _call(self, deliveries: Sequence[Delivery]) -> Outcome | Failure:
        try:
            with use_time_limit(self.timeout_seconds):
                outcome = self.handler.handle(deliveries)
        except TimeLimitExceeded:
            return Hang(0, f"the handler took longer than {self.timeout_seconds:g} s", away=True)
        except SoftTimeLimitExceeded:
            raise  # the worker's own end and not the handler's fault
        except Exception as error:  # any exception of a handler is a failure of its input
            return Failure(0, f"{type(error).__name__}: {error}", away=is_away(error))
        for failure in outcome.failures:
            if not 0 <= failure.block < len(deliveries):
                named = f"the handler reported block {failure.block} of {len(deliveries)} as failed"
                return Failure(0, f"{named}: {failure.error}")
        self.done = self.done.add_counts(outcome)
        if events := outcome.effects + outcome.duplicates:
            self.completions += outcome.completions or [(self.monotonic(), events)]
        return outcome

    def _is_out_of_time(self) -> bool:
        return self.monotonic() >= self.until_seconds
