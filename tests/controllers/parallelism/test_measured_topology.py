"""A plant as operators, tasks and channels: paths, aggregates, and documents that are refused by name."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import BadInput
from controllers.parallelism.measured_topology import COUNTS, MEASURES, Link, MeasuredOperator, MeasuredTopology


def task(**measures):
    return dict.fromkeys((each.name for each in MEASURES), None) | measures


def made(operators, links, **more):
    named = {each.name: each for each in operators}
    return MeasuredTopology("main", 1.0, 10.0, named, tuple(Link(*each) for each in links), **more)


def diamond():
    """A source, and two ways to a sink."""
    names = ("left", "right", "sink")
    operators = [MeasuredOperator("source", "source", 1), *(MeasuredOperator(name, "operator", 2) for name in names)]
    return made(
        operators, [("source", "left", 0.5), ("source", "right", 0.25), ("left", "sink", 0.0), ("right", "sink", 0.0)]
    )


def test_paths_lead_from_sources_along_links_to_those_without_any():
    assert diamond().paths == {"path1": ("source", "left", "sink"), "path2": ("source", "right", "sink")}


def test_counts_of_an_operator_are_summed_and_the_rest_is_the_mean_of_what_is_known():
    operator = MeasuredOperator(
        "parse",
        "operator",
        3,
        tasks=(
            task(latency_seconds=0.2, executions=10.0),
            task(latency_seconds=0.4, executions=30.0),
            task(executions=0.0),
        ),
    )
    assert operator.measure("executions") == 40.0
    assert operator.measure("latency_seconds") == pytest.approx(0.3)
    assert [operator.aggregate("executions", how) for how in ("MIN", "MAX", "AVG")] == [0.0, 30.0, 40 / 3]
    assert operator.group_by_task("latency_seconds") == {"parse_1": 0.2, "parse_2": 0.4, "parse_3": None}
    assert operator.measure("utilisation") is None


def test_a_paths_latency_is_that_of_channels_and_operators_but_unknown_where_one_is():
    quick = task(latency_seconds=0.1)
    operators = [
        MeasuredOperator("source", "source", 1, tasks=(task(latency_seconds=9.0),)),
        MeasuredOperator("parse", "operator", 1, tasks=(quick,)),
        MeasuredOperator("sink", "operator", 1, tasks=(quick,)),
        MeasuredOperator("dead-end", "operator", 1),
    ]
    topology = made(operators, [("source", "parse", 0.5), ("parse", "sink", 0.2), ("parse", "dead-end", 0.0)])
    assert topology.compute_path_latency_seconds(("source", "parse", "sink")) == pytest.approx(0.9)
    assert topology.compute_path_latency_seconds(("source", "parse", "dead-end")) is None
    assert topology.compute_source_latency_seconds("source") == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("links", "said"),
    [
        ([("a", "b"), ("b", "a")], "form a cycle"),
        ([("source", "a"), ("a", "b"), ("b", "a")], "a leads back to itself"),
        ([("a", "b"), ("b", "a"), ("source", "source2")], "not an operator"),
        ([("a", "z")], "z is not an operator"),
    ],
)
def test_a_topology_with_a_cycle_or_a_link_to_nowhere_is_refused(links, said):
    operators = [MeasuredOperator("a", "operator", 1), MeasuredOperator("b", "operator", 1)]
    if any("source" in link for link in links):
        operators.append(MeasuredOperator("source", "source", 1))
    with pytest.raises(BadInput, match=said):
        made(operators, links)


def test_too_many_paths_are_refused_rather_than_walked():
    rungs = [(f"n{level}-{a}", f"n{level + 1}-{b}") for level in range(12) for a in "xy" for b in "xy"]
    operators = [MeasuredOperator(name, "operator", 1) for name in dict.fromkeys(end for rung in rungs for end in rung)]
    with pytest.raises(BadInput, match="at most 1000 paths"):
        made(operators, rungs)


def test_tasks_are_checked_together_and_the_first_that_does_not_fit_is_named():
    fixed = MeasuredOperator("replicas", "operator", 2, fixed="they are declared")
    topology = made([fixed, MeasuredOperator("hosts", "operator", 2, 1, 8)], [("replicas", "hosts")])
    assert topology.check_tasks({"hosts": 8}) == {"hosts": 8}
    for tasks, field in (
        ({"hosts": 9}, "tasks.hosts"),
        ({"hosts": 0}, "tasks.hosts"),
        ({"hosts": True}, "tasks.hosts"),
        ({"hosts": 2, "sites": 1}, "tasks.sites"),
        ({"replicas": 3}, "tasks.replicas"),
    ):
        with pytest.raises(BadInput) as refused:
            topology.check_tasks(tasks)
        assert refused.value.field == field


NUMBERS = st.none() | st.floats(0, 1e9, allow_nan=False)
TASKS = st.lists(st.fixed_dictionaries({each.name: NUMBERS for each in MEASURES}), max_size=3)


@given(st.lists(TASKS, min_size=1, max_size=4))
def test_a_document_gives_the_same_topology_again(tasks):
    operators = [
        MeasuredOperator(f"op{place}", "operator", max(1, len(rows)), tasks=tuple(rows))
        for place, rows in enumerate(tasks)
    ]
    links = [(f"op{at}", f"op{at + 1}", 0.1 * at) for at in range(len(tasks) - 1)]
    topology = made(operators, links, holder="weir-2", held_until=5.0)
    document = json.loads(json.dumps(topology.to_document(), allow_nan=False))
    again = MeasuredTopology.from_document(document)
    assert again.to_document() == document
    for name in (*COUNTS, "latency_seconds"):
        assert again.operators["op0"].measure(name) == operators[0].measure(name)


@pytest.mark.parametrize(
    ("spoil", "field"),
    [
        (lambda d: d.pop("operators"), "topology.operators"),
        (lambda d: d["operators"]["a"].pop("parallelism"), "topology.operators.a.parallelism"),
        (lambda d: d["operators"]["a"].update(tasks=[{}, {}]), "topology.operators.a.tasks"),
        (lambda d: d["operators"]["a"].update(tasks=[{"latency_seconds": "fast"}]), "latency_seconds"),
        (lambda d: d["links"].append({"source": "a"}), "topology.links[0].target"),
        (lambda d: d["links"].append({"source": "a", "target": "z"}), "links[0]"),
        (lambda d: d.update(at="now"), "topology.at"),
        (lambda d: d.update(at=9e11), "topology.at"),  # no page could say when that is
    ],
)
def test_a_document_that_is_wrong_or_half_is_refused_by_name(spoil, field):
    document = made([MeasuredOperator("a", "operator", 1)], []).to_document()
    spoil(document)
    with pytest.raises(BadInput) as refused:
        MeasuredTopology.from_document(document)
    assert field in refused.value.field
