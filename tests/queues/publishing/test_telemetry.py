"""Real measurements of this host, and what happens to them when nobody takes them."""

import json
import logging
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from types import SimpleNamespace

import psutil
import pytest

from common.errors import NodeUnavailable
from queues import keys
from queues.events.block import decode, from_events
from queues.publishing import telemetry
from queues.publishing.client import Client
from queues.publishing.telemetry import CounterRates, HostTelemetry, UnpublishedEvents, find_primary_address
from tests.servers import Server


@pytest.fixture
def client(control_server: Server, plant_topology):
    with Client(control_server.url, "host") as made:
        yield made


def test_a_sample_is_real_events_of_every_kind_with_units_and_address():
    ticks = iter(range(100))
    telemetry = HostTelemetry("vm", "192.0.2.7", clock=lambda: 5.0, monotonic=lambda: float(next(ticks)))
    telemetry.sample()
    events = telemetry.sample()
    assert {"cpu", "load", "memory", "disk", "network"} <= {event["type"] for event in events}
    assert {"total", "core0", "load1", "used", "root"} <= {event["key"] for event in events}
    assert all(event["source"] == "vm" and event["time"] == 5.0 for event in events)
    attributes = [json.loads(event["attributes"]) for event in events]
    assert all(each["unit"] and each["address"] == "192.0.2.7" for each in attributes)
    assert from_events(events, 0).num_rows == len(events)


def test_the_busiest_processes_are_named_with_their_pid_and_memory():
    telemetry = HostTelemetry("vm", "192.0.2.7")
    telemetry.measure_busiest_processes()
    sum(number * number for number in range(2_000_000))
    events = telemetry.measure_busiest_processes()
    assert 1 <= len(events) <= 10
    values = [event["value"] for event in events]
    assert values == sorted(values, reverse=True)
    assert json.loads(events[0]["attributes"])["memory_bytes"] > 0
    assert events[0]["key"].rpartition(":")[2].isdigit()


class NamedProcess:
    """A process as psutil shows it: its pid, its name, and a second more of CPU each time it is asked."""

    def __init__(self, pid: int, name: str, seconds: int = 0) -> None:
        self.pid, self._name, self._seconds = pid, name, count(seconds)

    def name(self) -> str:
        return self._name

    def cpu_times(self) -> SimpleNamespace:
        return SimpleNamespace(user=float(next(self._seconds)), system=0.0)

    def memory_info(self) -> SimpleNamespace:
        return SimpleNamespace(rss=1)

    def oneshot(self) -> AbstractContextManager[None]:
        return nullcontext()


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("berechnung-zä\udcc3", "berechnung-zä\ufffd:7"),  # Linux has cut it after 15 bytes
        ("x" * 2_000, "x" * 1_000),
    ],
)
def test_a_process_whose_name_is_no_text_or_too_long_costs_no_other_event(monkeypatch, name, key):
    ticks = count()
    processes = [NamedProcess(7, name), NamedProcess(8, "python")]
    monkeypatch.setattr(psutil, "process_iter", lambda: iter(processes))
    telemetry = HostTelemetry("vm", "192.0.2.7", clock=lambda: 5.0, monotonic=lambda: float(next(ticks)))
    telemetry.measure_busiest_processes()
    assert from_events(telemetry.measure_busiest_processes(), 0).column("key").to_pylist() == [key, "python:8"]


def test_a_process_has_nothing_of_one_that_had_its_number_before(monkeypatch):
    ticks, running = count(), list[NamedProcess]()
    monkeypatch.setattr(psutil, "process_iter", lambda: iter(running))
    telemetry = HostTelemetry("vm", "192.0.2.7", clock=lambda: 5.0, monotonic=lambda: float(next(ticks)))
    for processes, busy in (
        ([NamedProcess(7, "first")], []),
        ([], []),
        ([NamedProcess(7, "second", 3)], []),
        (None, ["second:7"]),
    ):
        running[:] = running if processes is None else processes
        assert [event["key"] for event in telemetry.measure_busiest_processes()] == busy


class PassingSeconds:
    """A stop that is requested after so many seconds, which pass at once."""

    def __init__(self, seconds):
        self.left = seconds

    def wait(self, seconds):
        self.left -= 1
        return self.left < 0


class Outbox:
    """Keeps what would be published: (queue, types and keys) per call."""

    def __init__(self, client):
        self.added = []
        client.append(self)

    def add(self, queue, events):
        self.added.append((queue, [event["key"] for event in events]))

    def flush(self):
        pass


def test_queue_process_gets_the_busiest_of_a_minute_and_telemetry_those_of_two_seconds(monkeypatch):
    running = [NamedProcess(7, "steady")]
    ticks = count()
    monkeypatch.setattr(psutil, "process_iter", lambda: iter(running))
    monkeypatch.setattr(telemetry, "UnpublishedEvents", Outbox)
    monkeypatch.setattr(telemetry, "is_throttled", lambda client, queue: queue == "telemetry")
    monkeypatch.setattr(telemetry, "takes_processes", lambda client: True)
    host, outboxes = HostTelemetry("vm", "192.0.2.7", clock=lambda: 5.0, monotonic=lambda: float(next(ticks))), []
    telemetry.run(outboxes, host, PassingSeconds(180))
    assert outboxes[0].added == 3 * [("process", ["steady:7"])], "once a minute, also while telemetry is throttled"
    monkeypatch.setattr(telemetry, "is_throttled", lambda client, queue: False)
    monkeypatch.setattr(telemetry, "takes_processes", lambda client: False)
    telemetry.run(outboxes, host, PassingSeconds(4))
    measured = [(queue, "steady:7" in keys) for queue, keys in outboxes[1].added]
    # The first call only starts the measurement.
    assert measured == [("telemetry", False), ("telemetry", False), ("telemetry", False), ("telemetry", True)]


def test_rates_need_two_samples_and_a_counter_that_went_back_gives_none():
    rates = CounterRates()
    assert rates("x", 10, 0.0) is None
    assert rates("x", 30, 2.0) == 10.0
    assert rates("x", 5, 3.0) is None
    assert rates("x", 6, 4.0) == 1.0


def test_the_address_is_an_ipv4_address():
    assert len([int(part) for part in find_primary_address().split(".")]) == 4


def stored_ids(client: Client) -> list[str]:
    return [
        event
        for name in ("n1", "n2", "n3")
        for _, block_id, data, _ in client.get_segment("telemetry", name).read("0-0", "+")
        for event in decode(block_id, data).get_event_ids().to_pylist()
    ]


def test_events_wait_while_publishing_fails_and_go_out_in_order_afterwards(client, control, plant_topology, caplog):
    document = json.loads(plant_topology.to_json())
    del document["queues"]["telemetry"]
    control.set(keys.TOPOLOGY, json.dumps(document))
    outbox = UnpublishedEvents(client, most_events=3)
    with caplog.at_level(logging.WARNING):
        for number in range(5):
            outbox.add("telemetry", [{"id": f"e{number}", "type": "cpu"}])
            outbox.flush()
    assert len([line for line in caplog.messages if "publishing fails" in line]) == 1
    assert outbox.dropped == 2
    control.set(keys.TOPOLOGY, plant_topology.to_json())
    client.get_topology(fresh=True)
    outbox.flush()
    assert stored_ids(client) == ["e2", "e3", "e4"]


def test_a_queue_that_takes_nothing_holds_up_no_other(client, control, plant_topology):
    outbox = UnpublishedEvents(client)
    outbox.add("nowhere", [{"id": "waits", "type": "cpu"}])
    outbox.add("telemetry", [{"id": "goes", "type": "cpu"}])
    outbox.flush()
    assert stored_ids(client) == ["goes"]


def test_what_was_stored_by_nodes_that_did_not_say_so_comes_again_under_its_ids(client, monkeypatch):
    store = client.send

    def store_and_time_out(queue, node, blocks):
        store(queue, node, blocks)
        return NodeUnavailable(f"{node} did not respond in time")

    outbox = UnpublishedEvents(client)
    with monkeypatch.context() as patch:
        patch.setattr(client, "send", store_and_time_out)
        outbox.add("telemetry", [{"type": "cpu", "value": number} for number in range(3)])
        outbox.flush()
    outbox.add("telemetry", [{"type": "cpu", "value": 3}])
    outbox.flush()
    found = stored_ids(client)
    assert len(set(found)) == 4 < len(found)


def test_an_event_that_is_none_is_dropped_and_the_others_go_out(client, caplog):
    outbox = UnpublishedEvents(client)
    with caplog.at_level(logging.WARNING):
        outbox.add("telemetry", [{"type": "cpu", "value": float("nan")}])
        outbox.add("telemetry", [{"id": "good", "type": "cpu"}])
        outbox.flush()
    assert (outbox.dropped, stored_ids(client)) == (1, ["good"])
    assert "value" in caplog.text
