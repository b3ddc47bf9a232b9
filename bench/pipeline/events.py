"""Events for the measurements of the pipeline, in event-time order, 50 µs apart."""

import time

import numpy as np
import pyarrow as pa

ADDRESSES = ("92.126.10.7", "92.126.11.5", "92.126.11.9", "10.0.0.4")


def telemetry(rows: int) -> pa.Table:
    """Measurements of 200 hosts: an eighth load averages, a quarter of test hosts."""
    source = np.random.default_rng(1)
    hosts = source.integers(0, 200, rows)
    loads = source.random(rows) < 0.125
    attributes = pa.array([f'{{"unit":"","address":"{address}"}}' for address in ADDRESSES])
    return pa.table(
        {
            "time": _times(rows),
            "type": pa.array(np.where(loads, "load", "cpu")),
            "key": pa.array(np.where(loads, "load1", "total")),
            "source": pa.array([f"host{number}" for number in range(200)]).take(pa.array(hosts)),
            "value": np.where(loads, source.exponential(0.4, rows), source.random(rows) * 90),
            "attributes": attributes.take(pa.array(hosts % 4)),
        }
    )


def generate_events(rows: int, keys: int, others: int = 0) -> pa.Table:
    """Events of types A, B, C and `others` more, of `keys` sources, at random."""
    source = np.random.default_rng(2)
    names = pa.array([f"source{number}" for number in range(keys)])
    types = pa.array(["A", "B", "C", *(f"N{number}" for number in range(others))])
    return pa.table(
        {
            "time": _times(rows),
            "type": types.take(pa.array(source.integers(0, 3 + others, rows))),
            "source": names.take(pa.array(source.integers(0, keys, rows))),
            "value": source.random(rows),
        }
    )


def _times(rows: int) -> pa.Array:
    """From two hours ago on."""
    begin_us = int((time.time() - 7_200) * 1_000_000)
    return pa.array(begin_us + np.arange(rows) * 50, pa.timestamp("us", "UTC"))
