"""Registered plants are observed independently; no loop decides on a silent, stale one."""

import threading
from types import SimpleNamespace

import pytest

from common.stored_document import convert_to_plain, encode_document, replace_fields
from controllers.parallelism.measured_topology import Link, MeasuredOperator, MeasuredTopology
from tests.waiting import until
from tests.workers.snapshot.test_local_plant import documented
from workers.control.parts.operators import build_topology_inputs
from workers.documents.plants import PlantHolder, PlantSection
from workers.documents.snapshot import Snapshot
from workers.plants.foreign.adapters import open_plant
from workers.plants.foreign.kind import SECTIONS_SECONDS, Adapter
from workers.plants.foreign.remote import RemotePlant
from workers.plants.foreign.watch import PlantObserver, PlantWatch
from workers.plants.memory import MemoryPlant
from workers.plants.models import RegisteredPlant
from workers.plants.plant import PlantUnavailable
from workers.plants.registry import UnknownPlant, find_topology

NOW = 1_790_000_000.0


class Far(Adapter):
    """An adapter in this process: it answers, raises, or blocks."""

    def __init__(self):
        self.error, self.gate, self.closed = None, threading.Event(), False
        self.gate.set()

    def get_topology(self):
        self.gate.wait()
        if self.error is not None:
            raise self.error
        operators = {
            "in": MeasuredOperator("in", "source", 1, fixed="a source"),
            "work": MeasuredOperator("work", "operator", 2, 1, 8),
        }
        return MeasuredTopology("main", 5.0, 10.0, operators, (Link("in", "work"),))

    def close(self):
        self.closed = True


@pytest.fixture
def times():
    return SimpleNamespace(now=100.0)


def row(name="east", **more):
    return RegisteredPlant(name=name, kind="weir", url="http://east/control/main/v1", **more)


@pytest.fixture
def far():
    return Far()


@pytest.fixture
def lookout(far, times):
    return PlantObserver(row(), lambda _: far, lambda: times.now)


def snapshot(status, **more):
    return Snapshot(plant="main", at=NOW, plants={"east": replace_fields(status, **more)})


def test_a_plant_that_answers_is_seen_under_its_name_here(lookout):
    assert lookout.build_status().state == "unseen"
    lookout.observe()
    status = lookout.build_status()
    assert (status.state, status.age_seconds, status.error) == ("seen", 0.0, None)
    assert set(convert_to_plain(status)) == set(documented()["plants"]["east"])
    topology = find_topology(snapshot(status), "east")
    assert (topology.plant, topology.operators["work"].parallelism) == ("east", 2)
    assert (status.tasks, status.in_per_second, status.latency_seconds) == (2, None, None)


def test_a_plant_that_is_silent_goes_stale_keeps_what_was_seen_and_says_why(lookout, far, times, monkeypatch):
    monkeypatch.setenv("WEIR_PLANT_TIMEOUT_SECONDS", "2")
    lookout.observe()
    far.error = PlantUnavailable("east did not answer within 2 s.")
    lookout.observe()
    times.now += 4.0
    assert lookout.build_status().state == "seen"
    assert lookout.build_status().error == "east did not answer within 2 s."
    times.now += 4.0
    status = lookout.build_status()
    assert (status.state, status.age_seconds) == ("stale", 8.0)
    assert status.topology["operators"]["work"]["parallelism"] == 2
    with pytest.raises(PlantUnavailable, match="8 s ago: east did not answer"):
        find_topology(snapshot(status), "east")


def test_a_plant_that_connects_to_an_address_is_found_again_at_another(far, times):
    """A restarted broker's name resolves to another address; the adapter kept using the old one."""
    moved = Far()
    makes = iter([far, moved])
    lookout = PlantObserver(row(), lambda _: next(makes), lambda: times.now)
    far.anew_seconds = 30.0
    lookout.observe()
    far.error = PlantUnavailable("east can't be reached.")
    for passed in (25.0, 4.0):
        times.now += passed
        lookout.observe()
        assert not far.closed
    times.now += 4.0
    lookout.observe()
    assert far.closed and lookout.build_status().state == "stale"
    lookout.observe()
    assert lookout.build_status().state == "seen" and not moved.closed


def test_an_adapters_own_fault_ends_no_watch(lookout, far):
    far.error = RuntimeError("a bug")
    lookout.observe()
    assert "RuntimeError" in lookout.build_status().error


@pytest.mark.parametrize(
    ("value", "words"),
    [("half a pair: \ud800", "can't be stored"), (10**400, "can't be stored"), ("x" * 5_000_000, "5 MiB")],
)
def test_what_would_end_the_snapshot_of_all_plants_is_an_error_of_one(lookout, far, times, value, words):
    lookout.observe()
    times.now += SECTIONS_SECONDS
    far.list_sections = lambda: [PlantSection(title="Tasks", columns=["Name"], rows=[[value]])]
    lookout.observe()
    status = lookout.build_status()
    assert words in status.error and len(status.error) < 600
    assert status.topology is not None and not status.sections
    Snapshot.from_json(encode_document(snapshot(status)))


def test_tables_that_are_old_say_so_and_why(lookout, far, times):
    table = PlantSection(title="Checkpoints", columns=["Id"], rows=[["7"]])
    far.list_sections = lambda: [table]
    lookout.observe()

    def refused():
        raise PlantUnavailable("east refuses to list autoscalers (403).")

    far.list_sections = refused
    times.now += 2 * SECTIONS_SECONDS
    lookout.observe()
    said, *old = lookout.build_status().sections
    assert said.rows == [["east refuses to list autoscalers (403). The tables below are 20 s old."]]
    assert old == [table] and lookout.build_status().error is None
    far.list_sections = lambda: [table]
    times.now += SECTIONS_SECONDS
    lookout.observe()
    assert lookout.build_status().sections == [table]


def test_a_loop_holds_on_a_plant_that_answered_wrongly_or_is_steered_by_another(lookout, far):
    lookout.observe()
    fresh = snapshot(lookout.build_status())
    assert build_topology_inputs({"plant": "east"}, fresh, NOW)[1].invalid is None
    held = snapshot(lookout.build_status(), steered_by=PlantHolder(holder="desk-2", until=NOW))
    measured = build_topology_inputs({"plant": "east"}, held, NOW)[1]
    assert measured.invalid is None and measured.idle.startswith("desk-2 controls the tasks until")
    far.error = PlantUnavailable("east returned 200 with invalid or incomplete JSON.")
    lookout.observe()
    assert (
        "incomplete JSON" in build_topology_inputs({"plant": "east"}, snapshot(lookout.build_status()), NOW)[1].invalid
    )
    assert "west is unknown" in build_topology_inputs({"plant": "west"}, fresh, NOW)[1].invalid


def test_one_slow_plant_keeps_no_other_waiting(times):
    slow, quick = Far(), Far()
    slow.gate.clear()
    rows = [row("slow"), row("quick")]
    makes = {"slow": slow, "quick": quick}
    watch = PlantWatch(lambda: rows, lambda each: makes[each.name], lambda: times.now, 0.01)
    try:
        watch.collect_rows()
        until(lambda: watch.collect_rows()["quick"].state == "seen")
        assert watch.collect_rows()["slow"].state == "unseen"
    finally:
        slow.gate.set()
        watch.close()
    until(lambda: slow.closed and quick.closed)


def test_plants_come_go_and_change_without_a_restart(times):
    made = []
    rows = [row("east")]

    def make(each):
        made.append(each.url)
        return Far()

    watch = PlantWatch(lambda: rows, make, lambda: times.now, 0.01)
    until(lambda: watch.collect_rows()["east"].state == "seen")
    rows[:] = [RegisteredPlant(name="east", kind="weir", url="http://other"), row("west")]
    times.now += 6.0
    until(lambda: watch.collect_rows()["west"].state == "seen" and "http://other" in made)
    rows.clear()
    times.now += 6.0
    assert watch.collect_rows() == {}


@pytest.mark.django_db
def test_plants_are_found_by_name():
    local = MemoryPlant(lambda: NOW, [])
    with open_plant("main", local, "chief") as found:
        assert found is local
    with pytest.raises(UnknownPlant, match="east"), open_plant("east", local, "chief"):
        pass
    row().save()
    with open_plant("east", local, "chief") as found:
        assert isinstance(found._plant.adapter, RemotePlant)
    with pytest.raises(RuntimeError, match="closed"):
        found.get_topology()
