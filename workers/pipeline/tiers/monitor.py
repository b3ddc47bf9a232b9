"""The monitor: sliding quantiles of arriving values, fed back to the rules as criteria.

This needs no restart (Xu et al., exceptional response times). A monitored value is sketched where it is read, before
any rule, since a criterion fed by its own filter would run away. A sketch (KLL, rank error 1.3 % at most, in 99 of 100
cases) takes some kilobytes for any number of events; those of the window's slots are merged. The criterion follows its
quantile from MIN_EVENTS on. A batch that is processed again is sketched again: a quantile need not be exact.

| key | type | holds |
|---|---|---|
| `weir:pipeline:sketches:{app}` | hash | `{criterion}/{slot}/{writer}` → a KLL sketch |
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import redis
from datasketches import kll_doubles_sketch
from redis.typing import EncodableT, FieldT

from queues import keys
from queues.control.replies import expect_bytes
from workers.documents.pipeline import MonitoredStatus
from workers.pipeline.declaration.controls import steer, steer_named
from workers.pipeline.events.layout import SLOTS, MonitoredQuantile

ACCURACY = 200  # the k of the sketch
MIN_EVENTS = 100
WORTH_CHANGING = 0.001  # relative change of the value: smaller changes are noise of the sketch


@dataclass
class Sketches:
    """The sketches of one task."""

    monitored: tuple[MonitoredQuantile, ...]
    seen: dict[str, Any] = field(default_factory=dict)

    def add(self, rows: pa.RecordBatch) -> None:
        for criterion in self.monitored:
            values = rows.column(criterion.column).cast(pa.float64(), safe=False)
            if criterion.type is not None:
                values = values.filter(pc.equal(rows.column("type"), criterion.type))
            values = values.drop_null()
            if len(values):
                sketch = self.seen.setdefault(criterion.criterion, kll_doubles_sketch(ACCURACY))
                # Arrow's memory is read-only, which the sketch does not accept.
                sketch.update(np.array(values))


class MonitorStore:
    """The key above, of one application."""

    def __init__(self, control: redis.Redis, application: str) -> None:
        self._control = control
        self._key = keys.PIPELINE_SKETCHES.build(application)

    def keep(self, sketches: Sketches, writer: str, now_seconds: float) -> None:
        """Keep the sketches of a task in the current slot. writer: unique within a slot."""
        kept: dict[FieldT, EncodableT] = {
            f"{quantile.criterion}/{quantile.compute_slot(now_seconds)}/{writer}": sketches.seen[
                quantile.criterion
            ].serialize()
            for quantile in sketches.monitored
            if quantile.criterion in sketches.seen
        }
        if kept:
            self._control.hset(self._key, mapping=kept)

    def merge(self, monitored: tuple[MonitoredQuantile, ...], now_seconds: float) -> dict[str, Any]:
        """Return the sketch of each criterion's window.

        Slots that have left the windows are removed, and so are those written by a clock that has been set back since.
        """
        windows = {quantile.criterion: quantile for quantile in monitored}
        sketches: dict[str, Any] = {}
        gone = []
        for name, data in expect_bytes(self._control).hgetall(self._key).items():
            criterion, slot, _ = name.decode().split("/", 2)
            quantile = windows.get(criterion)
            if quantile is None or abs(quantile.compute_slot(now_seconds) - int(slot)) >= SLOTS:
                gone.append(name)
                continue
            sketches.setdefault(criterion, kll_doubles_sketch(ACCURACY)).merge(kll_doubles_sketch.deserialize(data))
        if gone:
            self._control.hdel(self._key, *gone)
        return sketches


class Monitor:
    """Reads the windows and updates the criteria. The process that runs the application calls it every second."""

    def __init__(
        self,
        control: redis.Redis,
        application: str,
        monitored: tuple[MonitoredQuantile, ...],
        declared: dict[str, float],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._control, self._application, self._monitored = control, application, monitored
        self._store = MonitorStore(control, application)
        self._clock = clock
        self._criteria = dict(declared)
        # Criteria that an earlier version monitored and this one declares are removed.
        stored = steer(control, application, {}).get("criteria", {})
        if others := dict.fromkeys(set(stored) - {quantile.criterion for quantile in monitored}):
            steer_named(control, application, "criteria", others, {})

    def step(self) -> dict[str, MonitoredStatus]:
        """Update the criteria, and return the quantile and the number of events per criterion.

        A quantile covers the criterion's window.
        """
        if not self._monitored:
            return {}
        sketches = self._store.merge(self._monitored, self._clock())
        shown: dict[str, MonitoredStatus] = {}
        changed: dict[str, float] = {}
        for quantile in self._monitored:
            name, sketch = quantile.criterion, sketches.get(quantile.criterion)
            events = 0 if sketch is None else sketch.n
            value = None if sketch is None or not events else float(sketch.get_quantile(quantile.quantile))
            shown[name] = MonitoredStatus(
                column=quantile.column,
                type=quantile.type,
                quantile=quantile.quantile,
                window_seconds=quantile.window_seconds,
                events=events,
                value=value,
            )
            if value is not None and events >= MIN_EVENTS:
                before = self._criteria.get(name)
                if before is None or abs(value - before) > WORTH_CHANGING * max(abs(value), abs(before)):
                    changed[name] = value
        if changed:
            steered = steer_named(self._control, self._application, "criteria", changed, {})
            self._criteria = {**self._criteria, **steered["criteria"]}
        return shown
