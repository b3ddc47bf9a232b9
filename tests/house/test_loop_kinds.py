"""Every kind of loop is whole: a law, a sensor, words to show it, a line of docs, a scenario in the lab."""

import re

import pytest
import redis

from console.help import reference
from controllers import catalog
from controllers.framework import guard
from controllers.framework.discovery import import_modules
from controllers.parallelism.measured_topology import MeasuredOperator, MeasuredTopology
from controllers.simulation.catalog import SCENARIOS
from queues.topology import NodeSpec, QueueSpec, Topology
from tests.workers.snapshots import snapshot_of
from workers.control import kinds, loops
from workers.control.kinds.registry import KINDS
from workers.control.parts.kind import LoopStart, PlantInventory
from workers.documents.hosts import ReportedHost
from workers.documents.snapshot import NOTHING_SEEN, Snapshot
from workers.plants.foreign import adapters

ROW = re.compile(r"^\| \[(\w+)\]\(laws/\1\.md\) \| (.+) \| (\d+) s \| (\w+) \|$", re.MULTILINE)
each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
NODES = {"n1": NodeSpec("n1", "redis://n1:6379/0")}
QUEUES = {
    "alert": QueueSpec("alert", "jobs", {"n1": 1000}),
    "telemetry": QueueSpec("telemetry", "pipeline", {"n1": 1000}),
}
POOL = "celery@one"
SHOP = MeasuredTopology("shop", 1.0, 10.0, {POOL: MeasuredOperator(POOL, "operator", 2, 1, 100)})
EAST = MeasuredTopology("east", 1.0, 10.0, {"parse": MeasuredOperator("parse", "operator", 2, 1, 8)})
OPERATORS = snapshot_of(
    {
        "pipeline": {"applications": {"performance": {"operators": {"hosts": {}}}}},
        "plants": {
            "shop": {"kind": "celery", "state": "seen", "topology": SHOP.to_document()},
            "east": {"kind": "flink", "state": "seen", "topology": EAST.to_document()},
        },
    }
)


def checks_of_a_kind():
    """Every check of one kind here, by name; the worked example's law has to pass them too."""
    return {
        name: check
        for name, check in globals().items()
        if name.startswith("test_") and each_kind.mark in getattr(check, "pytestmark", ())
    }


class Everything(PlantInventory):
    """A plant that has one of everything; no server is asked."""

    applications = ("performance",)
    hosts = {"jobs@host": ReportedHost(role="jobs", slots=2, at=0.0)}
    plants = {"east": adapters.list_kinds()["flink"], "shop": adapters.list_kinds()["celery"]}
    fair_queues = ("alert",)

    def __init__(self) -> None:
        super().__init__(Topology(1, NODES, QUEUES), redis.Redis(), OPERATORS)


def starts_of(kind) -> dict[str, LoopStart]:
    return kind.targets(Everything()).loops


def test_each_law_has_a_kind_and_each_kind_its_law():
    assert {name: kind.law for name, kind in KINDS.items()} == dict(catalog.LAWS)


def test_each_module_of_the_folder_is_the_kind_of_the_law_it_is_named_after():
    found = {module.__name__.rpartition(".")[2]: module for module in import_modules(kinds)}
    del found["registry"]
    assert {name: getattr(module, "KIND", None) for name, module in found.items()} == dict(KINDS)


@each_kind
def test_a_kind_has_a_loop_for_what_there_is_that_begins_with_good_values(kind):
    starts = starts_of(kind)
    assert starts and kind.targets(Everything()).gone
    for name, start in starts.items():
        assert name == kind.name or name.startswith(f"{kind.name}/")
        begun = kind.begin(start)
        catalog.read_parameters(kind.law, begun["parameters"])
        guard.read_settings(kind.law, begun["guard"])


@each_kind
def test_a_sensor_that_sees_nothing_says_why_and_gives_an_observation_all_the_same(kind):
    for start in starts_of(kind).values():
        for snapshot in (NOTHING_SEEN, Snapshot(at=100.0)):
            sensed = kind.sensor(start.target, snapshot, None, 100.0)
            assert sensed.measured.invalid
            assert sensed.observation.keys() <= {each.name for each in kind.law.observation}
            assert not any((kind.readings(start.target, snapshot) or {}).values())


@each_kind
def test_what_a_kind_shows_is_what_its_law_says(kind):
    display = kind.display
    assert display.lanes.measured and display.lanes.actuator and display.lanes.done
    assert set(display.setpoints) <= {each.name for each in kind.law.parameters}
    part, _, name = display.measured.partition(".")
    assert part in ("", "observation", "terms")
    assert part != "observation" or name in {each.name for each in kind.law.observation}


@each_kind
def test_a_kind_is_ticked_by_the_clock(kind):
    (second,) = [seconds for _, task, seconds in loops.ROWS if task == loops.TICK]
    assert kind.interval_seconds >= second and kind.interval_seconds % second == 0


@each_kind
def test_a_kind_has_a_line_in_the_docs(kind):
    rows = {law: rest for law, *rest in ROW.findall(reference.build_loops_page())}
    display = kind.display
    assert display.of_each and "|" not in f"{display.of_each}{display.purpose}"
    said = [display.of_each, display.purpose, display.lanes.measured, display.lanes.actuator]
    assert rows[kind.name] == [" | ".join(said), str(kind.interval_seconds), kind.defaults.mode]


@each_kind
def test_a_kind_names_the_scenario_in_which_its_law_is_tried(kind):
    tried_in = {
        name
        for name, scenario in SCENARIOS.items()
        if kind.name in (name, *scenario.laws, *(law for law, _ in scenario.steers.values()))
    }
    assert kind.tuning.scenario in (tried_in or {None})


@each_kind
def test_a_kind_says_its_purpose_its_formula_and_which_parameters_people_turn(kind):
    display, names = kind.display, {parameter.name for parameter in kind.law.parameters}
    assert display.purpose.endswith(".") and display.formula
    folded = [name for _, of_topic in display.topics for name in of_topic]
    assert 1 <= len(display.main) <= 5
    assert names.issuperset({*display.main, *folded})
    assert len({*display.main, *folded}) == len(display.main) + len(folded), "each has one place"
