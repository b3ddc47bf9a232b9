"""A report that can't be read, as of another version, hides no other report and loses no node."""

import json
import logging

import pytest

from queues import keys
from tests.workers.snapshot.test_local_plant import HOST, NOW, Times, beat, beat_all, host
from workers.pipeline.status.status import count_waiting_events
from workers.placement.plant_sensors import check_measurement
from workers.pool.orders import list_unreadable_reports, read_host_reports
from workers.snapshot.local import LocalPlant

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("plant_topology")]
BEATS = [b"{}", b"not JSON", b"\xff\xfe", b'{"seq": "seven"}', b'{"seq": 1, "parts": [0.5]}', b"null"]
REPORTS = [b"{}", b"\xff", json.dumps({**HOST, "at": "now"}).encode(), b'{"at": 1, "slots": "two"}']


@pytest.fixture
def times():
    return Times()


@pytest.fixture
def plant(control, times):
    return LocalPlant(control, lambda: times.wall_seconds, lambda: times.monotonic_seconds)


def observe_for(plant, control, times, seconds, unreadable=None):
    """The snapshot after so many seconds in which every node beats; n2 what can't be read."""
    for second in range(seconds):
        times.pass_by(1.0)
        for node in ("n1", "n2", "n3"):
            beat(control, node, 100 + second)
        if unreadable is not None:
            control.hset(keys.HEARTBEATS, "n2", unreadable)
        snapshot = plant.observe()
    return snapshot


@pytest.mark.parametrize("text", BEATS)
def test_one_unreadable_heartbeat_leaves_every_other_node_standing(text, plant, control, times):
    beat_all(control, 1)
    plant.observe()
    snapshot = observe_for(plant, control, times, 6, text)
    assert [snapshot.nodes[name].state for name in ("n1", "n2", "n3")] == ["NORMAL", None, "NORMAL"]
    node = snapshot.nodes["n2"]
    assert node.unreadable and node.stale
    state = snapshot.states["node/n2"]
    assert state.word == "Unreadable" and "The heartbeat of node n2 can't be read" in state.finding
    assert "its points stay on it" in state.finding and "same version" in state.step
    assert "n2" in check_measurement(snapshot, times.wall_seconds).invalid
    assert observe_for(plant, control, times, 2).nodes["n2"].state == "NORMAL"


@pytest.mark.parametrize("text", REPORTS)
def test_one_unreadable_host_report_leaves_every_other_host_standing(text, plant, control):
    beat_all(control, 1)
    host(control)
    control.hset(keys.HOSTS, "jobs@other", text)
    snapshot = plant.observe()
    assert list(snapshot.hosts) == ["jobs@here"]
    state = snapshot.states["host/jobs@other"]
    assert state.word == "Unreadable" and "jobs@other can't be read" in state.finding
    assert list(read_host_reports(control)) == ["jobs@here"]
    assert list(list_unreadable_reports(control)) == ["jobs@other"]


def test_an_unreadable_report_is_logged_once(plant, control, times, caplog):
    beat_all(control, 1)
    control.hset(keys.HOSTS, "jobs@other", b"{}")
    with caplog.at_level(logging.WARNING, "workers.snapshot.local"):
        observe_for(plant, control, times, 4, b"{}")
        assert [each.getMessage().partition(" can't")[0] for each in caplog.records] == [
            "The heartbeat of n2",
            "The host report of jobs@other",
        ]
        observe_for(plant, control, times, 2)
        observe_for(plant, control, times, 2, b"{}")
    assert len(caplog.records) == 3


def test_what_waits_is_unknown_while_a_heartbeat_cannot_be_read(control):
    for node in ("n1", "n2"):
        beat(control, node, 1, NOW, inserted_events=5)
    assert count_waiting_events(control.hgetall(keys.HEARTBEATS), ("alert",)) == 10
    control.hset(keys.HEARTBEATS, "n2", b"{}")
    assert count_waiting_events(control.hgetall(keys.HEARTBEATS), ("alert",)) is None
