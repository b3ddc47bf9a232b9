"""A paused queue: what is said of it ends by itself, each part for itself."""

import json

import pytest

from common.errors import QueuePaused
from queues import keys, pausing
from queues.pausing import CONSUMPTION, INTAKE, Pause
from queues.publishing.client import Client
from queues.segments.segment import Segment

NOW = 1_790_000_000.0


def stop(control, queue, part=INTAKE, seconds=60.0):
    pausing.pause(control, queue, part, Pause(NOW + seconds, "a disk is changed", "ada"), NOW)


def stored(nodes):
    return sum(Segment(each.client(), "alert").measure()["length_blocks"] for each in nodes.values())


def test_a_pause_is_of_one_part_of_one_queue_and_can_be_ended(control):
    stop(control, "alert")
    assert pausing.load_pauses(control, ["alert", "telemetry"], INTAKE)["alert"].by == "ada"
    assert pausing.load_pauses(control, ["alert"], CONSUMPTION) == {}
    assert pausing.load_pauses(control, [], INTAKE) == {}
    pausing.resume(control, "alert", INTAKE)
    assert pausing.load_pauses(control, ["alert"], INTAKE) == {}


def test_the_key_ends_by_itself_and_a_time_that_is_over_ends_it_at_once(control):
    stop(control, "alert", seconds=30.0)
    assert 29_000 < control.pttl(keys.PAUSE.build("alert", INTAKE)) <= 30_000
    stop(control, "alert", seconds=0.0)
    assert not control.exists(keys.PAUSE.build("alert", INTAKE))


def test_a_pause_of_a_newer_version_holds_during_an_upgrade(control, control_server, plant_topology):
    stop(control, "alert")
    key = keys.PAUSE.build("alert", INTAKE)
    control.set(key, json.dumps({**json.loads(control.get(key)), "ticket": "OPS-7"}))
    assert pausing.load_pauses(control, ["alert"], INTAKE)["alert"].by == "ada"
    with Client(control_server.url, "test", clock=lambda: NOW) as client, pytest.raises(QueuePaused):
        client.publish("alert", [{"type": "t"}])


def test_who_is_to_wait_hears_whole_seconds_and_at_least_one():
    pause = Pause(NOW + 4.2, "a disk is changed", "ada")
    assert [pause.compute_left_seconds(NOW + late) for late in (0.0, 3.9, 4.2, 60.0)] == [5, 1, 1, 1]


def test_a_publisher_is_refused_with_the_reason_and_nothing_is_stored(control, control_server, plant_topology, nodes):
    stop(control, "alert")
    with Client(control_server.url, "test", clock=lambda: NOW) as client:
        with pytest.raises(QueuePaused) as refused:
            client.publish("alert", [{"type": "t"}])
        assert client.publish("telemetry", [{"type": "t"}]).events == 1
    assert refused.value.retry_seconds == 60
    assert "Intake of alert is paused for another 60 s: a disk is changed" in str(refused.value)
    assert stored(nodes) == 0


def test_a_pause_reaches_a_running_publisher_within_a_second_and_so_does_its_end(
    control, control_server, plant_topology
):
    ticks = iter(range(10_000))
    with Client(control_server.url, "test", clock=lambda: NOW, monotonic=lambda: float(next(ticks))) as client:
        assert client.publish("alert", [{"type": "t"}]).events == 1
        stop(control, "alert")
        with pytest.raises(QueuePaused):
            client.publish("alert", [{"type": "t"}])
        pausing.resume(control, "alert", INTAKE)
        assert client.publish("alert", [{"type": "t"}]).events == 1


def test_without_the_control_server_a_pause_ends_by_the_publishers_clock(control, control_server, plant_topology):
    stop(control, "alert", seconds=60.0)
    now, ticks = [NOW], iter(range(10_000))
    client = Client(control_server.url, "test", clock=lambda: now[0], monotonic=lambda: float(next(ticks)))
    with client:
        with pytest.raises(QueuePaused):
            client.publish("alert", [{"type": "t"}])
        control_server.kill()
        with pytest.raises(QueuePaused):
            client.publish("alert", [{"type": "t"}])
        now[0] += 61.0
        assert client.publish("alert", [{"type": "t"}]).events == 1
