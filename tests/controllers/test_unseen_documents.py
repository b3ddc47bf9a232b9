"""Documents for `decide` that somebody got wrong, or took to the ends of what they may hold: of every law.

What is of another kind than declared, out of any range or unknown is refused by its name; whatever is taken is decided
on, in finite JSON, and the state that comes out is taken again.
"""

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common.documents import read_json
from common.errors import BadInput
from common.parameter import Parameter
from controllers import catalog, request
from controllers.framework import guard
from tests.controllers.decide_runs import RUNS, documents

each_law = pytest.mark.parametrize("law", list(catalog.LAWS))
WRONG_KINDS = {
    "number": ("7", "", True, [], [1], {}, {"a": 1}),
    "integer": ("7", "", False, [], [1], {}, 2.5),
    "choice": (7, "none of them", True, [], {}, ""),
    "text": (7, True, [], {}, ""),
    "flag": (0, 1, "true", [], {}, "x"),
    "numbers": (7, "x", {}, True, ["x"], [[1]], [None], [True], {"0": 1}),
    "integers": (7, "x", {}, True, ["x"], [1.5], [None]),
    "table": (7, "x", {}, [1], [["x"]], [[1], [1, 2]], [[]]),
    "names": (7, "x", {}, ["x"], [[1]], [[""]]),
    "object": (7, "x", [], True, [1]),
    "variant": (7, "x", [], True, {}, {"kind": "none of them"}),
    "rows": (7, "x", {}, True, [7], ["x"], [[]]),
    "map": (7, "x", [], True, [1]),
}
OUT_OF_ANY_RANGE = (1e39, -1e39, 10**39, -(10**39), 1e300)
MAX_LEAVES_TWEAKED = 4
FEW = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


class Place(NamedTuple):
    """Where a declared value stands in a document: the steps to it, and its name in a refusal."""

    steps: tuple[str | int, ...]
    name: str
    declared: Parameter


def places(law: str, document: Mapping[str, Any]) -> list[Place]:
    """Every declared value that the document holds."""
    of = catalog.LAWS[law]
    found = list(_in_object(of.parameters, document["parameters"], ("parameters",), "parameters"))
    for at, seen in enumerate(document["observations"]):
        found += _in_object(of.observation, seen, ("observations", at), f"observations[{at}]")
    if document["state"] is not None:
        found += _in_object(of.state, document["state"], ("state",), "state")
    if "guard" in document:
        passed = document["guard"]
        for name, declared in (("settings", guard.PARAMETERS), ("state", guard.STATE)):
            found += _in_object(declared, passed[name], ("guard", name), f"guard.{name}")
        found += _in_object((request.SECONDS, request.AGE), passed, ("guard",), "guard")
    return found


def _in_object(
    declared: Sequence[Parameter], values: Mapping[str, Any], steps: tuple[str | int, ...], name: str
) -> Iterator[Place]:
    for parameter in declared:
        if parameter.name in values:
            there = Place((*steps, parameter.name), f"{name}.{parameter.name}", parameter)
            yield from _at(there, values[parameter.name])


def _at(place: Place, value: Any) -> Iterator[Place]:
    yield place
    declared = place.declared
    if value is None:
        return
    if declared.kind == "object":
        yield from _in_object(declared.items, value, place.steps, place.name)
    elif declared.kind == "variant":
        yield from _in_object(dict(declared.variants)[value["kind"]], value, place.steps, place.name)
    elif declared.kind == "rows":
        for at, row in enumerate(value):
            yield from _in_object(declared.items, row, (*place.steps, at), f"{place.name}[{at}]")
    elif declared.kind == "map":
        for key, each in value.items():
            yield from _at(Place((*place.steps, key), f"{place.name}.{key}", declared.items[0]), each)


def value_at(document: Any, steps: Sequence[str | int]) -> Any:
    for step in steps:
        document = document[step]
    return document


def changed(document: Mapping[str, Any], steps: Sequence[str | int], value: Any) -> dict[str, Any]:
    """A copy with another value at a place."""
    copied = copy.deepcopy(dict(document))
    value_at(copied, steps[:-1])[steps[-1]] = value
    return copied


def decided(law: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """What the command answers, through JSON in both directions. Raises BadInput, in one line."""
    try:
        out = request.answer(law, read_json(json.dumps(document)))
    except BadInput as refused:
        line = " ".join(str(refused).split())
        assert refused.field and line.startswith(refused.field), line
        raise
    answer: dict[str, Any] = json.loads(json.dumps(out, allow_nan=False))
    return answer


def goes_on(law: str, document: Mapping[str, Any]) -> None:
    """A state that came out is taken, and decides the same as if nobody had written it down."""
    twice = {**document, "observations": [*document["observations"], document["observations"][-1]]}
    whole = decided(law, twice)
    state = decided(law, document)["state"]
    rest = decided(law, {**document, "state": state, "observations": twice["observations"][-1:]})
    assert rest["decisions"][-1] == whole["decisions"][-1]
    assert rest["state"] == whole["state"]


def a_document(data: st.DataObject, law: str) -> dict[str, Any]:
    return dict(data.draw(st.sampled_from(documents(law))))


def guarded(document: Mapping[str, Any]) -> dict[str, Any]:
    """The same as a ledger entry has it, with the guard that it passed."""
    passed = {
        "settings": {each.name: each.default for each in guard.PARAMETERS},
        "state": {"value": 1.0, "acted_at_seconds": 5.0, "recent": [1.0, 2.0]},
        "now_seconds": 10.0,
        "age_seconds": 0.5,
    }
    return {**document, "guard": passed}


def test_every_law_has_runs():
    assert set(RUNS) == set(catalog.LAWS)


@each_law
def test_every_value_that_a_law_declares_is_in_some_document(law):
    declared = {parameter.name for parameter in (*catalog.LAWS[law].observation, *catalog.LAWS[law].state)}
    seen = {place.declared.name for document in documents(law) for place in places(law, document)}
    assert declared - seen <= {
        "trouble",
        "change_pause_seconds",
        "latency_seconds",
        "elsewhere_seconds",
        "service_cv2",
        "is_circuit_open",
    }


@each_law
def test_a_state_that_was_put_out_goes_on_exactly(law):
    for document in documents(law):
        goes_on(law, document)


def check_wrong(law: str, data: st.DataObject) -> None:
    document = a_document(data, law)
    if data.draw(st.booleans()):
        document = guarded(document)
    place = data.draw(st.sampled_from(places(law, document)))
    wrong = list(WRONG_KINDS[place.declared.kind])
    if place.declared.kind in ("number", "integer"):
        wrong += OUT_OF_ANY_RANGE
    if place.declared.kind in ("numbers", "integers"):
        wrong += [[each] for each in OUT_OF_ANY_RANGE]
    value = data.draw(st.sampled_from(wrong))
    with pytest.raises(BadInput) as refused:
        decided(law, changed(document, place.steps, value))
    # Of an object or a row it may be the part that is missing or wrong.
    field = refused.value.field
    assert place.name.startswith(field) or field.startswith(place.name), (field, place.name)


def check_unknown_and_missing(law: str, data: st.DataObject) -> None:
    document = a_document(data, law)
    place = data.draw(st.sampled_from(places(law, document)))
    parent = value_at(document, place.steps[:-1])
    in_map = place.name.rpartition(".")[2] != place.declared.name
    if not in_map:
        with pytest.raises(BadInput) as refused:
            decided(law, changed(document, place.steps[:-1], {**parent, "colour": 1}))
        assert refused.value.field == f"{place.name.rpartition('.')[0]}.colour"
    without = {key: each for key, each in parent.items() if key != place.steps[-1]}
    try:
        decided(law, changed(document, place.steps[:-1], without))
    except BadInput:
        return
    assert in_map or not place.declared.required


def check_extremes(law: str, data: st.DataObject) -> None:
    document = a_document(data, law)
    for _ in range(data.draw(st.integers(1, MAX_LEAVES_TWEAKED))):
        numeric = [
            place
            for place in places(law, document)
            if place.declared.kind in ("number", "integer", "numbers", "integers", "flag", "choice")
        ]
        place = data.draw(st.sampled_from(numeric))
        document = changed(document, place.steps, data.draw(taken(place, document)))
    try:
        goes_on(law, document)
    except BadInput as refused:
        assert not refused.field.startswith("document")


def check_guarded_extremes(law: str, data: st.DataObject) -> None:
    document = guarded(a_document(data, law))
    for place in data.draw(st.lists(st.sampled_from(places(law, document)), max_size=MAX_LEAVES_TWEAKED)):
        if place.name.startswith("guard.") and place.declared.kind != "choice":
            document = changed(document, place.steps, data.draw(taken(place, document)))
    try:
        state = decided(law, document)["guard"]["state"]
    except BadInput as refused:
        assert refused.field == "guard.settings.minimum", refused
        return
    document["guard"]["state"] = state
    decided(law, document)


# What a state of an earlier version did not have.
ADDED = {
    "balance": {"returning", "correcting", "past_differences", "past_shares", "information"},
    "ladder": {"short"},
    "concurrency": {"refused", "limit", "epoch", "followed", "trial", "origin"},
    "worker_rate": {"arrivals", "executed", "cap", "waited_seconds", "pledged", "recent"},
    "parallelism_joint": {
        "waited",
        "seen_per_second",
        "blocked_until_seconds",
        "blocked_per_second",
        "blocked_tasks",
        "expected",
    },
}


@pytest.mark.parametrize("law", ADDED)
def test_a_state_of_an_earlier_version_is_still_taken(law):
    def without(values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {key: without(each) for key, each in values.items() if key not in ADDED[law]}

    for document in documents(law):
        state = without(document["state"])
        decided(law, {**document, "state": state})
        of = catalog.LAWS[law]
        json.dumps(catalog.read_state(of, catalog.read_parameters(of, document["parameters"]), state))


@pytest.mark.parametrize("law", [name for name, of in catalog.LAWS.items() if of.actuator is None])
def test_where_there_is_no_single_number_nobody_sets_one_by_hand(law):
    with pytest.raises(BadInput, match=r"manual\.None: is unknown"):
        decided(law, {**guarded(documents(law)[0]), "manual": {"None": 5}})


def taken(place: Place, document: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """Values that the declaration takes, its ends among them."""
    declared = place.declared
    if declared.kind == "flag":
        return st.booleans()
    if declared.kind == "choice":
        return st.sampled_from(declared.choices)
    low, high = declared.minimum, declared.maximum
    near = [low, high, 0, 1, 0.5, 2, 1e-300, 1e-9, 1e-3, 1e3, 1e6, 1e9, 1e12, -1, -1e9]
    whole = declared.kind in ("integer", "integers")
    fitting = [each for each in near if low <= each <= high and (not whole or float(each).is_integer())]
    number = st.sampled_from([int(each) for each in fitting] if whole else fitting)
    if declared.kind in ("numbers", "integers"):
        length = len(value_at(document, place.steps) or [])
        return st.lists(number, min_size=min(length, 40), max_size=min(length, 40))
    return number


@each_law
@FEW
@given(data=st.data())
def test_what_is_of_another_kind_or_out_of_any_range_is_refused_by_its_name(law, data):
    check_wrong(law, data)


@each_law
@FEW
@given(data=st.data())
def test_what_is_unknown_is_refused_by_its_name_and_so_is_what_is_missing(law, data):
    check_unknown_and_missing(law, data)


@each_law
@FEW
@given(data=st.data())
def test_at_the_ends_of_all_ranges_a_law_decides_or_refuses_and_goes_on(law, data):
    check_extremes(law, data)


@each_law
@FEW
@given(data=st.data())
def test_at_the_ends_of_all_ranges_a_guard_lets_through_or_holds(law, data):
    check_guarded_extremes(law, data)
