"""Telemetry: `python -m queues.publishing.telemetry` measures this host every second.

It publishes to queue `telemetry`. Event types: cpu, load, memory, disk, network, process. `source` is the host's name,
`key` what was measured (core0, load1, eth0:received, bash:4711), `value` a number in the unit that `attributes` names,
along with the host's address. Needs REDIS_URL (the control server). The ten busiest processes are published every two
seconds. The ten busiest of each minute are also published to queue `process` if there is one. No measurements are taken
for a queue while it is throttled.
"""

import json
import logging
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from types import FrameType
from typing import Any

import psutil

from common import checks, logs, own_process
from common import environment as variables
from common.errors import BadInput, MalformedEvent, QueueThrottled, WeirError
from common.files import keep_private
from common.own_process import raise_open_file_limit, wait_seconds
from queues.events.block import MAX_TEXT, EncodedBlock
from queues.publishing.client import Client

QUEUE, PROCESS_QUEUE, PRODUCER = "telemetry", "process", "host"
PROCESSES = 10
PROCESS_EVERY_SECONDS = 2
# Each publication to queue `process` starts a worker. Publishing every two seconds started 1,970 workers per hour. The
# first publication follows soon after the start.
MINUTE_SECONDS, FIRST_MINUTE_SECONDS = 60, 10
BUFFER_EVENTS = 20_000

log = logging.getLogger("weir.telemetry")
Event = dict[str, Any]


def find_primary_address() -> str:
    """Return this host's IPv4 address for outgoing connections, without sending anything.

    Without a network, return the loopback address.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


class CounterRates:
    """Cumulative counters as rates per second by the monotonic clock.

    A counter that went back gives no rate.
    """

    def __init__(self) -> None:
        self._before: dict[str, tuple[float, float]] = {}

    def __call__(self, name: str, total: float, now_seconds: float) -> float | None:
        before = self._before.get(name)
        self._before[name] = (now_seconds, total)
        if before is None or total < before[1] or now_seconds <= before[0]:
            return None
        return (total - before[1]) / (now_seconds - before[0])

    def keep(self, names: Collection[str]) -> None:
        """Remove all other names."""
        self._before = {name: before for name, before in self._before.items() if name in names}


class HostTelemetry:
    """Samples the host.

    `sample` returns the events of one second; the first value of a rate needs two samples.
    """

    def __init__(
        self,
        host: str,
        address: str,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host, self._address = host, address
        self._clock, self._monotonic = clock, monotonic
        self._rates, self._process_rates, self._minute_rates = CounterRates(), CounterRates(), CounterRates()
        self._attributes: dict[str, str] = {}
        psutil.cpu_percent(percpu=True)  # the first call only starts the measurement

    def sample(self) -> list[Event]:
        """Return CPU, load, memory, disk, and network as events with one time."""
        now, at = self._monotonic(), self._clock()
        readings = (*self._cpu(), *self._load(), *self._measure_memory(), *self._disk(now), *self._measure_network(now))
        return [
            self._build_event(at, kind, key, value, unit) for kind, key, value, unit in readings if value is not None
        ]

    def measure_busiest_processes(self) -> list[Event]:
        """Return the busiest processes since the last call, by CPU (percent of one core)."""
        return self._measure_processes(self._process_rates)

    def measure_busiest_processes_of_minute(self) -> list[Event]:
        """Return the same since the last call of this method. The first call only starts the measurement."""
        return self._measure_processes(self._minute_rates)

    def _measure_processes(self, rates: CounterRates) -> list[Event]:
        now, at, shares, there = self._monotonic(), self._clock(), [], set()
        for process in psutil.process_iter():
            try:
                times, name = process.cpu_times(), str(process.pid)
            except psutil.Error:
                continue  # it ended while we read
            there.add(name)
            if share := rates(name, times.user + times.system, now):
                shares.append((share, process))
        # Its process id is soon reused, and a host that runs for months has had millions of processes.
        rates.keep(there)
        shares.sort(key=lambda pair: -pair[0])
        return [
            event for share, process in shares[:PROCESSES] for event in self._build_process_events(at, share, process)
        ]

    def _build_process_events(self, at: float, share: float, process: psutil.Process) -> Iterator[Event]:
        try:
            with process.oneshot():
                name, memory_bytes = process.name(), process.memory_info().rss
        except psutil.Error:
            return
        more = {"memory_bytes": memory_bytes}
        yield self._build_event(at, "process", f"{name}:{process.pid}", 100 * share, "percent of a core", more)

    def _build_event(
        self, at: float, kind: str, key: str, value: float, unit: str, more: dict[str, Any] | None = None
    ) -> Event:
        attributes = self._attributes.get(unit)
        if attributes is None or more:
            document = {"unit": unit, "address": self._address, **(more or {})}
            attributes = json.dumps(document, separators=(",", ":"))
            if not more:
                self._attributes[unit] = attributes
        return {
            "time": at,
            "type": kind,
            "source": self._host,
            # Linux cuts a process's name at 15 bytes, even in the middle of a character.
            "key": checks.make_storable(key)[:MAX_TEXT],
            "value": float(value),
            "attributes": attributes,
        }

    def _cpu(self) -> Iterator[tuple[str, str, float, str]]:
        cores = psutil.cpu_percent(percpu=True)
        yield "cpu", "total", sum(cores) / len(cores), "percent"
        for number, share in enumerate(cores):
            yield "cpu", f"core{number}", share, "percent"

    def _load(self) -> Iterator[tuple[str, str, float, str]]:
        for minutes, load in zip((1, 5, 15), psutil.getloadavg(), strict=True):
            yield "load", f"load{minutes}", load, "processes"

    def _measure_memory(self) -> Iterator[tuple[str, str, float, str]]:
        memory = psutil.virtual_memory()
        yield "memory", "used", memory.total - memory.available, "bytes"
        yield "memory", "used_share", memory.percent, "percent"
        yield "memory", "swap", psutil.swap_memory().used, "bytes"

    def _disk(self, now: float) -> Iterator[tuple[str, str, float | None, str]]:
        yield "disk", "root", psutil.disk_usage("/").percent, "percent"
        io = psutil.disk_io_counters()
        if io is not None:  # a container may not see its disks
            yield "disk", "read", self._rates("disk:read", io.read_bytes, now), "bytes/s"
            yield "disk", "written", self._rates("disk:written", io.write_bytes, now), "bytes/s"

    def _measure_network(self, now: float) -> Iterator[tuple[str, str, float | None, str]]:
        for name, io in psutil.net_io_counters(pernic=True).items():
            for way, total in (("received", io.bytes_recv), ("sent", io.bytes_sent)):
                key = f"{name}:{way}"
                yield "network", key, self._rates(f"network:{key}", total, now), "bytes/s"


class UnpublishedEvents:
    """Events that wait to be published, oldest first; when full, the oldest are dropped and counted.

    They wait as blocks, so that a repeated block keeps its ids: a node that did not answer may have stored it.
    """

    def __init__(self, client: Client, most_events: int = BUFFER_EVENTS) -> None:
        self._client, self._most = client, most_events
        self._waiting: dict[str, deque[EncodedBlock]] = {}
        self._is_failing = False
        self.dropped = 0

    def add(self, queue: str, events: list[Event]) -> None:
        waiting = self._waiting.setdefault(queue, deque())
        try:
            waiting.extend(self._client.build_blocks(events))
        except MalformedEvent as error:
            self.dropped += len(events)
            self._say(f"{len(events)} events were dropped ({error}).")
        while _count_events(waiting) > self._most:
            self.dropped += waiting.popleft().events

    def flush(self) -> None:
        """Publish what waits.

        Blocks that can't be published now are kept for the next time, and delay no other queue.
        """
        failed = False
        for queue, waiting in self._waiting.items():
            if not waiting:
                continue
            try:
                self._client.publish_blocks(queue, list(waiting))
            except QueueThrottled:
                continue
            except WeirError as error:
                waits = f"{_count_events(waiting)} events are waiting, {self.dropped} dropped."
                self._say(f"publishing fails ({error}); {waits}")
                failed = True
                continue
            waiting.clear()
        if self._is_failing and not failed:
            self._is_failing = False
            log.warning("publishing works again; %d events were dropped.", self.dropped)

    def _say(self, text: str) -> None:
        if not self._is_failing:
            log.warning(text)
        self._is_failing = True


def _count_events(blocks: Iterable[EncodedBlock]) -> int:
    return sum(block.events for block in blocks)


def takes_processes(client: Client) -> bool:
    """Return True if the plant has a queue for the busiest processes and does not throttle it.

    Return False if the control server is unavailable.
    """
    try:
        client.get_topology().queue(PROCESS_QUEUE)
    except (BadInput, WeirError):
        return False
    return not is_throttled(client, PROCESS_QUEUE)


def is_throttled(client: Client, queue: str) -> bool:
    """Return True if the queue is throttled, as of the last check."""
    try:
        return client.compute_throttled_seconds(queue) > 0
    except WeirError:
        return False


def run(client: Client, telemetry: HostTelemetry, stop: threading.Event) -> None:
    """Sample and publish on each half second, between the beats of the agents, until a stop is requested."""
    outbox = UnpublishedEvents(client)
    last, second = time.monotonic() - 1.0, 0
    telemetry.measure_busiest_processes_of_minute()
    while not stop.wait(wait_seconds(time.time(), time.monotonic() - last, 0.5)):
        last, second = time.monotonic(), second + 1
        if not is_throttled(client, QUEUE):
            events = telemetry.sample()
            if second % PROCESS_EVERY_SECONDS == 0:
                events += telemetry.measure_busiest_processes()
            outbox.add(QUEUE, events)
        if second % MINUTE_SECONDS == FIRST_MINUTE_SECONDS and takes_processes(client):
            outbox.add(PROCESS_QUEUE, telemetry.measure_busiest_processes_of_minute())
        outbox.flush()
        own_process.touch()


def main(arguments: list[str]) -> int:
    keep_private()
    raise_open_file_limit()
    logs.configure_logging()
    if arguments or not variables.REDIS_URL.is_set():
        log.error("usage: REDIS_URL=redis://host:port/0 python -m queues.publishing.telemetry")
        return 2
    own_process.watch()
    stop = threading.Event()

    def end(_signal: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    try:
        client = Client(variables.REDIS_URL.get_text(), PRODUCER, when_throttled="raise")
    except BadInput as error:
        log.error("%s", error)
        return 2
    with client:
        run(client, HostTelemetry(socket.gethostname(), find_primary_address()), stop)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
