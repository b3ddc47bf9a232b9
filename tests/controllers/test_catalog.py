"""Laws are found by name, and what a person may set of them is checked in one place."""

import pytest

from common.errors import BadInput
from controllers import catalog


def test_a_law_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(BadInput, match=r"nonsense is unknown; the laws are .*worker_rate"):
        catalog.get_law("nonsense")
    assert catalog.find_remedy_by_name("nonsense") is None


def test_two_laws_of_one_name_are_refused(monkeypatch):
    law = catalog.get_law("worker_rate")
    monkeypatch.setattr(catalog, "_iterate_laws", lambda: iter([law, law]))
    with pytest.raises(ValueError, match="Two laws have the name worker_rate"):
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
