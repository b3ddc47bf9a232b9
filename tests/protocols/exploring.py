"""How a protocol's machine is explored: its examples, and time that passes without waiting.

A short form takes a quarter of what any Hypothesis test takes (WEIR_TEST_EXAMPLES), three at least; the long one many
and longer ones. The servers' own clocks go on by milliseconds only: what waits for time is made older instead.
"""

from collections.abc import Callable

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from queues import keys
from queues.segments.gauge import GROUP
from tests.conftest import EXAMPLES

SHORT = (max(3, EXAMPLES // 4), 25)  # examples, steps of each
LONG = (300, 50)
# Less than any claim or lease lasts, and more: what matters is on which side of the end somebody acts.
SECONDS = st.sampled_from((4, 16))
DEPTHS = [
    pytest.param(SHORT, id="short"),
    pytest.param(LONG, id="long", marks=[pytest.mark.slow, pytest.mark.timeout(1800)]),
]


def explore(machine: Callable[[], RuleBasedStateMachine], depth: tuple[int, int]) -> None:
    """Run the machine in its short or its long form."""
    examples, steps = depth
    checks = list(HealthCheck)  # a server costs what it costs
    chosen = settings(max_examples=examples, stateful_step_count=steps, suppress_health_check=checks)
    run_state_machine_as_test(machine, settings=chosen)


def age_keys(server: redis.Redis, names: list[str], seconds: int) -> None:
    """Keys that end by themselves end so much earlier."""
    for name in names:
        left_ms = server.pttl(name)
        if left_ms > 0:
            # As the server does it: what has 0 ms left is gone.
            server.pexpire(name, left_ms - 1000 * seconds)


def age_segment(node: redis.Redis, queue: str, seconds: int) -> None:
    """Claims are idle for so much longer, retries due so much earlier."""
    stream, retry = keys.SEGMENT.build(queue), keys.RETRY.build(queue)
    if not node.exists(stream) or not node.xinfo_groups(stream):
        return
    for entry in node.xpending_range(stream, GROUP, "-", "+", 10_000):
        name, idle_ms = entry["message_id"], entry["time_since_delivered"] + 1000 * seconds
        node.xclaim(stream, GROUP, entry["consumer"], 0, [name], idle=idle_ms, justid=True)
    for name in node.zrange(retry, 0, -1):
        node.zincrby(retry, -1000 * seconds, name)
