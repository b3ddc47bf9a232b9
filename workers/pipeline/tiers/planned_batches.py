"""The plans of inter-event batches, on the control server.

A batch is planned once. The plan defines which results the batch reads, and up to which event time. It is written
before the batch starts. Every process or task that executes the batch follows this plan, and skips data that is already
written. Only a combiner that has finished the newest batch plans the next batch, and only if no other combiner has
planned it in the meantime. Two combiners therefore never process different batches under one number.

Plans, states, and results are on one server, and are written in this order. If the server loses its newest writes, it
loses the newest plans, states, and results together. A batch whose end is lost is executed again.

| key | type | holds |
|---|---|---|
| `weir:pipeline:planned:{app}` | hash | `batch`, `offset` (JSON); `done`: the newest batch that is finished; |
| | | `split:{batch}:{level}`: whether the operators have separate tasks, until the batch is finished |
"""

import json
import time
from typing import NamedTuple

import redis
from redis.typing import EncodableT

from queues import keys
from queues.lua.script import load_script
from workers.pipeline.declaration.controls import Controls
from workers.pipeline.dispatch.assignment import Dispatches
from workers.pipeline.dispatch.cursor import Cursor
from workers.pipeline.dispatch.result_queue import ResultQueue
from workers.pipeline.tiers.combining import CombinedOffset, OutstandingDispatch, build_barrier, combine_arrived_results


class PlannedBatch(NamedTuple):
    """A batch and its end offset. is_done: whether the server has recorded that the batch is finished."""

    batch: int
    offset: CombinedOffset
    is_done: bool = False


class PlannedBatches:
    """Reads and writes the key. replicas: replicas whose results are combined. defaults: the declared controls."""

    def __init__(
        self, control: redis.Redis, application: str, replicas: tuple[str, ...] = (), defaults: Controls | None = None
    ) -> None:
        self._control, self._replicas, self._defaults = control, replicas, defaults or Controls()
        self._key = keys.PIPELINE_PLANNED.build(application)
        self._dispatches, self._results = Dispatches(control, application), ResultQueue(control, application)
        self._plan = control.register_script(load_script("pipeline/plan_batch"))
        self._finish = control.register_script(load_script("pipeline/finish_batch"))
        self._released: int | None = None  # the batch whose results were released

    def load(self) -> PlannedBatch | None:
        """Return the newest batch, or None before the first. Raises `BadInput` if it has another version."""
        batch, offset, done = self._control.hmget(self._key, ["batch", "offset", "done"])
        if batch is None:
            return None
        return PlannedBatch(int(batch), CombinedOffset.from_document(json.loads(offset or "{}")), done == batch)

    def plan_after(self, done: PlannedBatch | None, wait_seconds: float = 0.0) -> PlannedBatch | None:
        """Plan the batch after a finished one (None: the first), and return it; None if there is nothing to do.

        If another combiner has planned the batch, returns that plan. wait_seconds: maximum wait for a result if there
        is nothing to do, in seconds.
        """
        before = CombinedOffset(controls=self._defaults) if done is None else done.offset
        if done is not None and done.batch != self._released:
            for result in before.list_finished():
                self._results.release(result)
            self._released = done.batch
        end, newest = self._combine_results(before)
        if end is before and wait_seconds:
            # Some changes move the watermark without a result, such as the end of a range. They are noticed when this
            # wait ends.
            self._results.await_after(newest, wait_seconds)
            end, _ = self._combine_results(before)
        if end is before:
            return None
        planned = PlannedBatch(0 if done is None else done.batch + 1, end)
        return planned if self._write("" if done is None else done.batch, planned) else self.load()

    def decide_split(self, batch: int, level: int, is_split: bool) -> bool:
        """Return whether the operators of a level have separate tasks. The first attempt at the batch decides.

        The results of a task are written together. If a later attempt divided the key groups differently, it would
        skip groups whose results are not written.
        """
        name = f"split:{batch}:{level}"
        if self._control.hsetnx(self._key, name, int(is_split)):
            return is_split
        return bool(int(self._control.hget(self._key, name) or is_split))

    def finish(self, planned: PlannedBatch, levels: int = 1) -> None:
        """Record that a batch is finished. levels: number of levels of operators."""
        self._finish(keys=[self._key], args=[planned.batch])
        self._control.hdel(self._key, *(f"split:{planned.batch}:{level}" for level in range(levels)))

    def restore(self, planned: PlannedBatch) -> None:
        """Continue from a batch that was planned in Spark's checkpoint, unless the control server has a plan."""
        if self._write("", planned) and planned.is_done:
            self.finish(planned)

    def clear(self) -> None:
        self._control.delete(self._key)

    def _write(self, before: int | str, planned: PlannedBatch) -> bool:
        written: list[EncodableT] = [before, planned.batch, json.dumps(planned.offset.to_document())]
        return bool(self._plan(keys=[self._key], args=written))

    def _combine_results(self, before: CombinedOffset) -> tuple[CombinedOffset, str]:
        """Return the end offset of the next batch, and the entry ID of the newest result."""
        # The order matters. If a dispatch is outstanding after the cursor was read, it was outstanding at that time or
        # is newer. If a dispatch is not outstanding, its result is in the queue, which is read last.
        cursor = self._dispatches.load_cursor() or Cursor(controls=self._defaults)
        published = self._results.measure_room().published
        outstanding = {
            name: OutstandingDispatch(waiting[0].tick, waiting[0].watermark_us)
            for name in self._replicas
            if (waiting := self._dispatches.list_after(name, published.get(name, 0), 1))
        }
        settled = build_barrier(cursor.watermark_us, outstanding)
        controls = cursor.controls.freeze(time.time())  # some may have expired since the dispatch
        arrived = self._results.read_after(before.taken)
        end = combine_arrived_results(before, arrived, settled, controls, controls.combine_events_per_batch)
        return end, arrived[-1].entry_id if arrived else before.taken
