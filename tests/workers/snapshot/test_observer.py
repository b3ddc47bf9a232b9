"""The observer: one writer, one snapshot a second, deltas that add up; and its probe of the console."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import pytest
import redis
from django.core.management import call_command
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from queues.nodes.server import free_port
from tests.servers import Server
from tests.waiting import MAX_SECONDS, until
from tests.workers.snapshots import snapshot_of, without_nulls
from workers.coordination.merge_patch import apply_patch, compute_patch
from workers.documents.snapshot import Snapshot
from workers.history.snapshot_archive import Recorder
from workers.objectives.book import ObjectiveBook
from workers.plants.foreign.watch import PlantWatch
from workers.snapshot.observer import OBSERVE_AT_SECONDS, ConsoleProbe, Observer, compute_wait_seconds, is_answering

BASE = Path(__file__).parents[3]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=4),
    max_leaves=12,
)


documents = st.dictionaries(st.text(max_size=2), json_values, max_size=5)


class Scripted:
    """A plant whose snapshots a test writes."""

    def __init__(self) -> None:
        self.waiting_events: int | None = 0
        self.looks = 0

    def observe(self) -> Snapshot:
        self.looks += 1
        document = {
            "seq": 0,
            "at": 1_790_000_000.0 + self.looks,
            "totals": {"in_per_second": 1.5, "backlog_events": self.waiting_events},
            "pipeline": {"in_per_second": None},
            "queues": {
                "alert": {
                    "waiting_events": self.waiting_events,
                    "in_per_second": 2.0,
                    "containers": {"n1": {"points": 1000}},
                }
            },
            "nodes": {"n1": {"utilisation": 0.25}},
            "hosts": {},
            "loops": {"worker_rate/alert/n1": {"measured": 12, "setpoint": 1000, "actuator": None}},
        }
        return snapshot_of(document)


@pytest.fixture
def messages(control):
    with control.pubsub(ignore_subscribe_messages=True) as subscription:
        subscription.subscribe("weir:live")
        until(lambda: control.pubsub_numsub("weir:live")[0][1])
        yield subscription


def next_message(subscription: redis.client.PubSub) -> dict[str, Any]:
    found = until(lambda: subscription.get_message(timeout=0.1))
    document: dict[str, Any] = json.loads(found["data"])
    return document


# Publishing
def test_the_deltas_lead_from_each_snapshot_to_the_next(control, messages):
    plant = Scripted()
    observer = Observer(control, plant)
    seen = []
    for waiting in (0, 5, 5, 9):
        plant.waiting_events = waiting
        observer.step()
        seen.append(next_message(messages))
    assert [message["seq"] for message in seen] == [1, 2, 3, 4]
    assert "delta" not in seen[0]
    document = seen[0]["snapshot"]
    for message in seen[1:]:
        document = apply_patch(document, message["delta"])
        assert document["queues"] == message["snapshot"]["queues"]
        assert document["at"] == message["at"]
    assert json.loads(control.get("weir:snapshot") or b"") == seen[-1]["snapshot"]


def test_a_second_observer_watches_and_publishes_nothing(control):
    first, second_plant = Observer(control, Scripted()), Scripted()
    second = Observer(control, second_plant)
    assert first.step() is not None
    assert second.step() is None
    assert second_plant.looks == 1
    assert control.xlen("weir:metrics") == 1


def test_who_takes_over_goes_on_with_the_sequence(control, messages):
    first = Observer(control, Scripted())
    first.step()
    first.step()
    first.close()
    second = Observer(control, Scripted())
    second.step()
    seen = [next_message(messages) for _ in range(3)]
    assert [message["seq"] for message in seen] == [1, 2, 3]
    assert "delta" in seen[2]


def test_an_observer_survives_a_control_server_that_is_away(control, control_server):
    stop = threading.Event()
    impatient = control_server.client(retry=None)
    Observer(impatient, Scripted(), clock=iter_clock(stop, control_server)).run(stop)
    assert control.get("weir:snapshot") is not None


def test_while_the_disk_is_full_all_but_the_recording_goes_on_and_it_is_said_once(control, tmp_path, caplog):
    (tmp_path / "snapshots").write_bytes(b"")  # no folder can be made, as on a disk that is full
    sent, minutes = list[int](), create_autospec(ObjectiveBook, instance=True)
    minutes.step.return_value = {}
    observer = Observer(
        control,
        Scripted(),
        recorder=Recorder(tmp_path),
        sent=lambda snapshot: sent.append(snapshot.seq),
        objectives=minutes,
    )
    for _ in range(3):
        observer.step()
    assert sent == [1, 2, 3] and minutes.keep.call_count == 3
    (complaint,) = [record.getMessage() for record in caplog.records]
    assert complaint.startswith("Failed to record snapshots") and "observation" not in complaint
    (tmp_path / "snapshots").unlink()
    observer.step()
    assert list((tmp_path / "snapshots").glob("open-*"))


def iter_clock(stop: threading.Event, server: Server) -> Any:
    """A clock that makes waits short, kills the server at the second look and revives it at the fourth."""
    looks = iter(range(100))

    def clock() -> float:
        look = next(looks)
        if look == 1:
            server.kill()
        elif look == 3:
            server.start().client().flushall()
        elif look == 6:
            stop.set()
        return 100.0 + OBSERVE_AT_SECONDS - 0.01

    return clock


@hypothesis_settings(deadline=None)
@given(st.floats(0, 4e9))
def test_the_next_observation_is_at_a_fifth_of_a_second_whatever_the_clock_says(now):
    wait_seconds = compute_wait_seconds(now)
    assert 0 < wait_seconds <= 1.0
    fraction = (now + wait_seconds) % 1.0
    assert fraction == pytest.approx(OBSERVE_AT_SECONDS, abs=1e-5)


# Merge patches
@given(documents, documents)
def test_a_patch_leads_from_the_old_to_the_new(old, new):
    assert without_nulls(apply_patch(old, compute_patch(old, new))) == without_nulls(new)


# The process
@pytest.mark.slow
def test_the_command_publishes_until_it_is_asked_to_stop(control, control_server, tmp_path):
    environment = {**os.environ, "REDIS_URL": control_server.url, "WEIR_DATA": str(tmp_path)}
    manage = [sys.executable, str(BASE / "manage.py")]
    subprocess.run([*manage, "migrate", "--skip-checks", "-v0"], env=environment, check=True)
    process = subprocess.Popen([*manage, "observe"], env=environment, start_new_session=True)
    try:
        until(lambda: control.xlen("weir:metrics") >= 2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(MAX_SECONDS) == 0
    finally:
        process.kill()
        process.wait()
    assert control.get("weir:lease:observer") is None


def test_the_command_closes_what_it_watched_at_plants_of_others(control_server, monkeypatch):
    closed = []
    monkeypatch.setenv("REDIS_URL", control_server.url)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(PlantWatch, "close", lambda watch: closed.append(watch))
    monkeypatch.setattr(ConsoleProbe, "start", lambda _: None)

    def fails(observer, stop):
        raise RuntimeError("an error of the observer's own")

    for run, raised in ((lambda *_: None, nullcontext()), (fails, pytest.raises(RuntimeError))):
        monkeypatch.setattr(Observer, "run", run)
        with raised:
            call_command("observe")
    assert len(closed) == 2


@contextmanager
def answering(said: bytes) -> Iterator[str]:
    """The address of what says this to whoever connects, once."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def say() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4_096)
                connection.sendall(said)

        thread = threading.Thread(target=say, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join(MAX_SECONDS)


@pytest.mark.parametrize(
    ("said", "available"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", False),
        (b"", False),
        (b"\x15\x03\x01\x00\x02\x02\x46", False),  # TLS: the port takes https alone
        (b"HTTP/1.1 2", False),  # it ended while it answered
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000, False),
    ],
)
def test_a_console_is_there_where_it_answers_in_http_and_not_where_another_does(said, available):
    with answering(said) as address:
        assert is_answering(address) is available


def test_no_proxy_is_asked_for_the_console_next_door(monkeypatch):
    """It may know nobody of a plant's own network, and would answer for a console that is away."""
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(urllib.request, "_opener", None)  # it is made once a process
    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") as address:
        assert is_answering(address)
