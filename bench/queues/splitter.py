"""What the splitter costs a block, beside going round without any weight (`itertools.cycle`)."""

import itertools
import time
from collections.abc import Callable

from queues.points import share
from queues.publishing.splitter import Splitter

TARGET_US = 2.0
NODES = tuple(f"n{number}" for number in range(1, 11))
ROUND_BLOCKS = 20_000


def run(seconds: float) -> dict[str, dict[str, float]]:
    """Microseconds a block over three and ten containers, and while points change every 1000 blocks."""
    three, ten = share(NODES[:3]), share(NODES)
    share_seconds = seconds / 4
    figures = {
        "us_per_block": _us_per_call(Splitter(three).pick_container, share_seconds),
        "us_per_block_10_containers": _us_per_call(Splitter(ten).pick_container, share_seconds),
        "us_per_block_points_changing": _us_per_call(toggle_points(Splitter(three)), share_seconds),
    }
    cycle = itertools.cycle(NODES[:3])
    peers = {"cycle_us_per_block": _us_per_call(cycle.__next__, share_seconds)}
    ratio = {
        "to_cycle": figures["us_per_block"] / peers["cycle_us_per_block"],
        "of_target": max(figures.values()) / TARGET_US,
    }
    return {"figures": figures, "peers": peers, "ratio": ratio}


def toggle_points(splitter: Splitter) -> Callable[[], str]:
    """`next` of a splitter whose points move to and fro every 1000 blocks."""
    points = itertools.cycle([{"n1": 500, "n2": 300, "n3": 200}, {"n1": 334, "n2": 333, "n3": 333}])
    left = 0

    def step() -> str:
        nonlocal left
        if left == 0:
            splitter.set_points(next(points))
            left = 1000
        left -= 1
        return splitter.pick_container()

    return step


def _us_per_call(call: Callable[[], str], seconds: float) -> float:
    """The best round of many: what it costs when nothing else runs."""
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(ROUND_BLOCKS):
            call()
        best = min(best, time.perf_counter() - start)
    return best / ROUND_BLOCKS * 1e6
