"""How slow this machine is at this instant: limits of CPU seconds are those of another one."""

import time

import orjson

YARDSTICK_SECONDS = 0.35  # of CPU for `yardstick`, where the limits were agreed on


def slowness():
    """How many times slower this machine is at this instant than that of the limit; 1 where it is faster."""
    return max(1.0, yardstick() / YARDSTICK_SECONDS)


def yardstick():
    """CPU seconds of reading 50,000 events one by one, as an honest request has them read."""
    lines = [honest(row) for row in range(50_000)]
    began = time.process_time()
    for _ in range(4):
        sum(len(orjson.dumps(orjson.loads(line))) for line in lines)
    return time.process_time() - began


def honest(row):
    return orjson.dumps({"time": 1.79e9 + row, "type": "cpu", "source": "alpha", "key": "core", "value": row / 7})
