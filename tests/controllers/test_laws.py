"""One contract for every law in the catalog."""

import copy
import json
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import BadInput
from common.parameter import Parameter, build, read_values
from controllers import catalog
from controllers.framework import guard
from controllers.framework.discovery import import_modules
from controllers.framework.law import decide_next, start_state, write_state
from tests.controllers.rebalancing.plants import observations
from tests.controllers.shedding import applications

LAWS = list(catalog.LAWS.values())
CONTRACT = (
    "flow",
    "balance",
    "worker_rate",
    "rebalancing",
    "node_scaling",
    "concurrency",
    "parallelism_queueing",
    "parallelism_forecast",
    "parallelism_joint",
    "shedding",
    "ladder",
    "fairness",
)
# "Start 1 worker: 20 events would exceed the 4 s wait limit. (Queue: 20 events.)"
ACTION_THEN_CAUSE = re.compile(r"[A-Z][^:]+: [^ ].*[^.;](\.|\.\))", re.DOTALL)
each_law = pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)


def values_of(declared: Parameter) -> st.SearchStrategy:
    if declared.kind == "choice":
        return st.sampled_from(declared.choices)
    if declared.kind == "numbers":
        return st.lists(st.floats(declared.minimum, min(declared.maximum, 1e3)), max_size=40)
    if declared.kind == "flag":
        return st.booleans()
    if declared.kind == "text":
        return st.sampled_from(["one", "another"])
    if declared.kind == "rows":
        return st.lists(documents_of(declared.items), max_size=2)
    if declared.kind == "map":
        return st.dictionaries(st.sampled_from(["t0", "t1"]), values_of(declared.items[0]), max_size=2)
    low, high = max(declared.minimum, -1e6), min(declared.maximum, 1e6)
    if declared.kind == "integer":
        return st.integers(math.ceil(low), math.floor(high))
    return st.floats(low, high, allow_nan=False)


def documents_of(declared) -> st.SearchStrategy:
    return st.fixed_dictionaries({each.name: values_of(each) for each in declared})


def parameters_of(law) -> st.SearchStrategy:
    def fits(document) -> bool:
        try:
            catalog.read_parameters(law, document)
        except BadInput:
            return False
        return True

    some = st.sets(st.sampled_from([each.name for each in law.parameters]), max_size=3)
    whole = st.tuples(documents_of(law.parameters), some)
    chosen = whole.map(lambda pair: {key: value for key, value in pair[0].items() if key in pair[1]})
    return chosen.filter(fits).map(lambda document: catalog.read_parameters(law, document))


def at_most(values, few):
    """Those that are greater or not given, as the greatest that the observations suit."""
    given = {key: most for key, most in few.items() if key in values}
    return {key: most if values[key] is None else min(values[key], most) for key, most in given.items()}


def replicas(law) -> st.SearchStrategy:
    """Observations of the same two to five replicas, and parameters that suit so many."""
    names = st.integers(2, 5).map(lambda count: [f"r{index}" for index in range(count)])
    times, shares = st.floats(0, 100), st.floats(0.001, 10)
    few, none = {"minimum_share": 0.2}, {"a_of": {}, "b_of": {}}

    def seen(of):
        each = st.fixed_dictionaries(
            {
                "response_times_seconds": st.fixed_dictionaries(dict.fromkeys(of, times)),
                "shares": st.fixed_dictionaries(dict.fromkeys(of, shares)),
            }
        )
        return st.lists(each, min_size=2, max_size=6)

    parameters = parameters_of(law).map(lambda values: values | at_most(values, few) | none)
    return st.tuples(parameters, names.flatmap(seen))


def measured_paths(chance: np.random.Generator) -> dict:
    """Two paths over three operators, one of them perhaps not measured."""
    rows = {
        name: {
            "tasks": int(chance.integers(1, 9)),
            "arrival_interval_seconds": None if chance.random() < 0.1 else float(chance.uniform(0.01, 1)),
            "service_seconds": float(chance.uniform(0.001, 0.3)),
        }
        for name in "xyz"
    }
    return {"paths": [["x", "y"], ["x", "z"]], "operators": rows}


def forecast_paths(chance: np.random.Generator) -> dict:
    """Two paths over three operators, three windows, and at times nothing measured or much waiting."""
    rows = {
        name: {
            "tasks": int(chance.integers(1, 9)),
            "rate_per_second": None if chance.random() < 0.1 else float(chance.uniform(0, 90)),
            "service_seconds": float(chance.uniform(0, 0.1)),
            "backlog_events": float(chance.choice([0, 500])),
        }
        for name in "xyz"
    }
    return {
        "at_seconds": float(chance.uniform(0, 9000)),
        "source_per_second": float(chance.uniform(0, 99)),
        "forecast_per_second": chance.uniform(0, 99, 3).tolist(),
        "deviation_per_second": chance.uniform(0, 9, 3).tolist(),
        "paths": [["x", "y"], ["x", "z"]],
        "operators": rows,
    }


def windows(chance: np.random.Generator) -> dict:
    """Five windows, with one task to six."""
    missed = np.sort(chance.uniform(0, 900, (5, 6)))[:, ::-1]
    return {"missed": missed.tolist(), "current": int(chance.integers(1, 7))}


DRAWN = {
    "shedding": applications.running_example,
    "parallelism_queueing": measured_paths,
    "parallelism_forecast": windows,
    "parallelism_joint": forecast_paths,
}


def runs_of(law) -> st.SearchStrategy:
    if law.name == "balance":
        return replicas(law)
    if law.name in DRAWN:
        seeds = st.integers(0, 10_000).map(np.random.default_rng)
        seen = seeds.map(lambda chance: catalog.read_observation(law, DRAWN[law.name](chance)))
        # What the columns of a table stand for is no matter of taste.
        parameters = parameters_of(law).map(lambda values: values | dict.fromkeys({"minimum"} & values.keys(), 1))
        return st.tuples(parameters, st.lists(seen, min_size=2, max_size=4))
    if not any(each.name == "nodes" for each in law.observation):
        seen = st.lists(documents_of(law.observation), min_size=2, max_size=20)
        return st.tuples(parameters_of(law), seen)
    # Nodes and queues that belong together: drawn one by one they would all contradict each other. Small
    # ones, since the law may solve a program for each.
    few = {"minimum_containers": 3, "exact_ways": 15, "branches": 5}
    parameters = parameters_of(law).map(lambda values: values | at_most(values, few))
    plants = observations(nodes=(3, 4), queues=(1, 3))
    seen = st.lists(plants.map(lambda plant: catalog.read_observation(law, plant)), min_size=2, max_size=4)
    return st.tuples(parameters, seen)


def decide_all(law, parameters, state, observations):
    decisions = []
    for observation in observations:
        state, decision = decide_next(law, parameters, state, observation)
        decisions.append(decision)
    return state, decisions


def through_json(value):
    return json.loads(json.dumps(value, allow_nan=False))


@each_law
@given(data=st.data())
def test_the_same_input_gives_the_same_decisions_and_is_left_as_it_was(law, data):
    parameters, observations = data.draw(runs_of(law))
    state = start_state(law, parameters)
    given_before = copy.deepcopy((parameters, state, observations))
    first = decide_all(law, parameters, state, observations)
    assert (parameters, state, observations) == given_before
    assert decide_all(law, parameters, state, observations) == first


@each_law
@given(data=st.data())
def test_a_decision_is_finite_json_and_its_reason_begins_with_the_action(law, data):
    parameters, observations = data.draw(runs_of(law))
    _, decisions = decide_all(law, parameters, start_state(law, parameters), observations)
    for decision in decisions:
        printed = through_json(decision.to_json())
        assert printed == decision.to_json()
        assert ACTION_THEN_CAUSE.fullmatch(decision.reason), decision.reason
        assert decision.reason.startswith("No action: ") == (decision.action is None), decision.reason
        assert decision.action is None or decision.action != {}


@each_law
@given(data=st.data())
def test_a_law_whose_proposals_are_not_carried_out_goes_on_from_a_state_of_its_own(law, data):
    parameters, observations = data.draw(runs_of(law))
    state = start_state(law, parameters)
    for observation in observations:
        after, decision = decide_next(law, parameters, state, observation)
        if decision.action is not None and data.draw(st.booleans()):
            given_, *states = build(law.Parameters, parameters), build(law.State, state), build(law.State, after)
            after = write_state(law, law.correct(given_, *states, None))
        state = catalog.read_state(law, parameters, through_json(after))


@each_law
def test_every_value_a_law_takes_is_documented_with_range_and_unit(law):
    inner = [item for each in law.observation for item in each.items]
    for declared in (*law.parameters, *law.observation, *inner, *guard.PARAMETERS):
        assert declared.help.endswith("."), declared.name
        assert declared.unit, declared.name
        assert declared.minimum < declared.maximum, declared.name
        assert all(map(math.isfinite, (declared.minimum, declared.maximum))), declared.name
        assert (
            declared.required
            or declared.default is None
            or declared.check(declared.default, "default") == declared.default
        )
    assert law.__doc__ and type(law).decide.__doc__


@each_law
def test_the_defaults_of_a_law_and_of_its_guard_are_good_values(law):
    assert catalog.read_parameters(law, {}).keys() == {each.name for each in law.parameters}
    assert guard.read_settings(law, None).keys() == {each.name for each in guard.PARAMETERS}


def test_the_catalog_finds_every_law_of_the_contract_by_its_own_name():
    assert all(name == law.name for name, law in catalog.LAWS.items())
    assert set(CONTRACT) <= set(catalog.LAWS)


@pytest.mark.parametrize("value", [True, "7", None, [], math.nan, math.inf, -math.inf, -1, 11, 2.5, 10**400])
def test_a_value_that_is_no_whole_number_in_range_is_refused_by_name(value):
    declared = (Parameter("tries", "tries", "How often.", 3, 0, 10, "integer"),)
    with pytest.raises(BadInput) as refused:
        read_values(declared, {"tries": value}, "parameters")
    assert refused.value.field == "parameters.tries"
    assert "from 0 to 10" in refused.value.message


def test_an_unknown_key_is_refused_by_name_with_the_known_ones():
    with pytest.raises(BadInput) as refused:
        catalog.read_parameters(catalog.get_law("worker_rate"), {"uper_limit": 5})
    assert refused.value.field == "parameters.uper_limit"
    assert "upper_limit" in refused.value.message


def test_a_law_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(BadInput, match=r"nonsense is unknown; the laws are .*worker_rate"):
        catalog.get_law("nonsense")
    assert catalog.find_remedy_by_name("nonsense") is None


def test_two_laws_of_one_name_are_refused(monkeypatch):
    monkeypatch.setattr(catalog, "import_modules", lambda room: 2 * list(import_modules(room)))
    with pytest.raises(ValueError, match="Two laws have the name"):
        catalog.find_laws()


@pytest.mark.parametrize("name", catalog.LAWS)
def test_parameters_guard_and_actuator_of_a_law_can_be_set_and_nothing_else(name):
    law = catalog.get_law(name)
    for each in law.parameters:
        assert catalog.get_parameter(law, each.name) is each
    if law.actuator is not None:
        actuator = catalog.get_parameter(law, law.actuator)
        assert actuator.minimum is None or actuator.maximum is None or actuator.minimum <= actuator.maximum
    with pytest.raises(BadInput, match=f"nonsense is unknown; the names for {name} are"):
        catalog.get_parameter(law, "nonsense")


def test_laws_of_which_one_acts_on_a_target_are_in_their_order():
    assert set(catalog.list_ranked_laws()) <= set(catalog.LAWS)
