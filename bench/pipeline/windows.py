"""Open attempts of long windows, in one process: the time per event, and the bytes per attempt.

SEQ(A; B) within a day, without and with a condition between the events. The attempts are opened first. After that, A
and B arrive in equal shares. The keys are the same for each number of attempts, because the time per event also
depends on the number of keys in a batch.

    ns_SHAPE_N     nanoseconds of processor time per event while N attempts are open, in batches of BATCH_EVENTS
    bytes_SHAPE_N  exact size of all arrays of the open attempts, including gaps and room for more, per attempt
    growth_SHAPE   ns with a million attempts, divided by ns with a thousand

SHAPE: `queue` without a condition, `between` with B.value > 10 * A.value, where an event of B takes the oldest of the
attempts that it fits.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from bench.pipeline.matcher import compared, pattern
from workers.pipeline.matching.matcher import Matcher
from workers.pipeline.matching.retained import KEYED
from workers.pipeline.patterns.pattern import Pattern

KEYS, KEY_GROUPS = 10_000, 64
DAY_US = 86_400_000_000
OPEN = (1_000, 1_000_000)
MANY_OPEN = 10_000_000
MIN_SECONDS_OF_MANY = 30.0  # with at least these `--seconds`, ten million are also measured, which takes minutes
BATCH_EVENTS, EVENTS = 20_000, 400_000
OPENED_TOGETHER = 200_000
MAX_GROWTH, MAX_BYTES = 2.0, 120.0


def run(seconds: float) -> dict[str, Any]:
    """Measure each shape once; `seconds` decides whether ten million attempts are measured."""
    figures: dict[str, float] = {}
    shapes = {"queue": pattern("SEQ(A; B)"), "between": compared()}
    for shape, wanted in shapes.items():
        for count in (*OPEN, MANY_OPEN) if seconds >= MIN_SECONDS_OF_MANY else OPEN:
            nanoseconds, size = measure(replace(wanted, within_us=DAY_US), count)
            figures |= {f"ns_{shape}_{count}": nanoseconds, f"bytes_{shape}_{count}": size}
        few, many = (figures[f"ns_{shape}_{count}"] for count in OPEN)
        figures[f"growth_{shape}"] = many / few
    limits = {f"limit_growth_{shape}": MAX_GROWTH for shape in shapes}
    limits |= {f"limit_bytes_{shape}_{OPEN[-1]}": MAX_BYTES for shape in shapes}
    ratio = {
        name.removeprefix("limit_"): figures[name.removeprefix("limit_")] / limit for name, limit in limits.items()
    }
    return {"figures": figures, "peers": limits, "ratio": ratio}


def measure(wanted: Pattern, count: int) -> tuple[float, float]:
    """Return the nanoseconds per event and the bytes per open attempt while about `count` attempts are open."""
    matcher, opened = Matcher(wanted), 0
    while opened < count:
        rows = min(OPENED_TOGETHER, count - opened)
        matcher.take(generate_rows(rows, opened, lambda chance, number: pa.repeat("A", number)))
        opened += rows
    batches = [generate_rows(BATCH_EVENTS, start, _choose) for start in range(opened, opened + EVENTS, BATCH_EVENTS)]
    began = time.process_time()
    for batch in batches:
        matcher.take(batch)
        matcher.advance(batch.column("time")[-1].as_py())
        matcher.compute_timers()
    nanoseconds = (time.process_time() - began) / EVENTS * 1e9
    open_attempts = matcher.open_attempts
    assert open_attempts is not None
    return nanoseconds, open_attempts.nbytes / len(open_attempts)


def _choose(chance: np.random.Generator, number: int) -> pa.Array:
    return pa.array(["A", "B"]).take(pa.array(chance.integers(0, 2, number)))


def generate_rows(number: int, start: int, choose: Callable[[np.random.Generator, int], pa.Array]) -> pa.RecordBatch:
    """Return events of random keys, 10 µs apart. start: number of the first one."""
    chance = np.random.default_rng(start)
    numbers, hosts = np.arange(start, start + number), chance.integers(0, KEYS, number)
    names = pa.array([f"host{host}" for host in range(KEYS)]).take(pa.array(hosts))
    columns = [
        pa.array(numbers * 10),
        pa.array(np.char.add("e", numbers.astype(str))),
        choose(chance, number),
        pa.array(chance.random(number)),
        names,
        names,
        pa.array((hosts % KEY_GROUPS).astype(np.int32)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=KEYED)
