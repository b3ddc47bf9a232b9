"""A brownout with and without the retry budget and the circuit breaker, on real servers.

The destination is a queue with one server in this process. Its service slows down with its length, and it also serves
the calls whose clients have given up. Events arrive at a steady rate; then the destination is ten times slower for a
while. Workers are the real ones: they claim from a segment, and share the state on the control server.

Figures: goodput in the last seconds of the run, as a share of the arrivals, and the seconds from the end of the
brownout until a second with RECOVERED_SHARE of the arrivals. Reference: the same run without a limit on the calls.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import redis

from bench.queues.node_servers import node_servers
from queues.events.block import BlockIds, cut, from_events
from queues.segments.segment import Segment
from queues.topology import QueueSpec
from workers.consumer.destination import DestinationLimit, NoLimit, SharedLimit
from workers.consumer.handler import Delivery, Failure, Handler, Outcome
from workers.consumer.worker import Consumer

QUEUE, DESTINATION = "orders", "shop.example:443"
WORKERS = 16
ARRIVALS_PER_SECOND = 40
CALLS_PER_SECOND = 80.0  # of the idle destination
CALLS_TO_HALF = 40.0  # waiting calls that halve its speed
BROWNOUT_SHARE = 0.1  # of its speed
TIMEOUT_SECONDS = 0.6
CALM_SECONDS, BROWNOUT_SECONDS, MIN_AFTER_SECONDS, LAST_SECONDS = 3.0, 8.0, 30.0, 10
RECOVERED_SHARE = 0.9
LIMITS = {"limit_goodput_share": 0.9}
EACH = 1.0 / ARRIVALS_PER_SECOND


@dataclass
class Destination:
    """A server that a queue of calls slows down."""

    share: float = 1.0  # of its speed
    waiting: "deque[threading.Event]" = field(default_factory=deque)
    stopped: bool = False

    def serve(self) -> None:
        while not self.stopped:
            if not self.waiting:
                time.sleep(0.001)
                continue
            time.sleep((1 + len(self.waiting) / CALLS_TO_HALF) / (CALLS_PER_SECOND * self.share))
            self.waiting.popleft().set()

    def call(self) -> bool:
        """Return whether the answer came in time."""
        answered = threading.Event()
        self.waiting.append(answered)
        return answered.wait(TIMEOUT_SECONDS)


class Caller(Handler):
    """A handler that calls the destination once per block."""

    works_block_by_block = True

    def __init__(self, destination: Destination, done: Counter[int]) -> None:
        self._destination, self._done = destination, done

    def handle(self, deliveries: Sequence[Delivery]) -> Outcome:
        failures, effects = [], 0
        for place, delivery in enumerate(deliveries):
            if self._destination.call():
                effects += delivery.events
                self._done[int(time.monotonic())] += delivery.events
            else:
                failures.append(Failure(place, "shop.example did not respond in time", transient=True))
        return Outcome(effects, 0, tuple(failures))


def run(seconds: float) -> dict[str, Any]:
    """Both runs, one after the other."""
    after_seconds = max(seconds, MIN_AFTER_SECONDS)
    limited, unlimited = measure(True, after_seconds), measure(False, after_seconds)
    return {
        "figures": limited,
        "peers": {**LIMITS, **{f"unlimited_{name}": value for name, value in unlimited.items()}},
        "ratio": {},
        "at_least": ["goodput_share"],
    }


def measure(is_limited: bool, after_seconds: float) -> dict[str, float | None]:
    """Return the goodput share of the last seconds, and the seconds until it has recovered."""
    destination, done, stop = Destination(), Counter[int](), threading.Event()
    with node_servers(("control", "n1")) as urls, ExitStack() as stack:
        control, node = (stack.enter_context(redis.Redis.from_url(urls[name])) for name in ("control", "n1"))
        segment = Segment(node, QUEUE)

        def work(number: int) -> None:
            handler = Caller(destination, done)
            while not stop.is_set():
                limit: DestinationLimit = SharedLimit(control, QUEUE, DESTINATION) if is_limited else NoLimit()
                spec = QueueSpec(QUEUE, "jobs", {"n1": 1000}, tries=1000, events_per_worker=4)
                Consumer(spec, segment, handler, f"w{number}-{time.monotonic_ns()}", limit=limit).run()
                stop.wait(0.02)

        def publish() -> None:
            ids, due = BlockIds(), time.monotonic()
            while not stop.is_set():
                segment.publish(cut(from_events([{"type": "order"}], now_us=int(time.time() * 1e6)), ids))
                due += EACH
                stop.wait(max(0.0, due - time.monotonic()))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(WORKERS)]
        threads += [threading.Thread(target=publish), threading.Thread(target=destination.serve)]
        for thread in threads:
            thread.start()
        time.sleep(CALM_SECONDS)
        destination.share = BROWNOUT_SHARE
        time.sleep(BROWNOUT_SECONDS)
        destination.share, ended = 1.0, int(time.monotonic())
        time.sleep(after_seconds)
        stop.set()
        last = int(time.monotonic())
        for thread in threads[:-1]:
            thread.join()
        destination.stopped = True
        threads[-1].join()
    goodput = sum(done[second] for second in range(last - LAST_SECONDS, last)) / LAST_SECONDS
    enough = RECOVERED_SHARE * ARRIVALS_PER_SECOND
    recovered = next((second - ended for second in range(ended, last) if done[second] >= enough), None)
    return {"goodput_share": round(goodput / ARRIVALS_PER_SECOND, 2), "recovery_seconds": recovered}
