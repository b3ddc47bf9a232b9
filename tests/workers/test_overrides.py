"""Overrides: in force from a reason to an expiry, within the catalog's ranges."""

import json
from datetime import UTC, datetime, timedelta

import pytest
import redis

from queues.errors import BadInput, NodeUnavailable
from queues.models import Node
from workers import overrides
from workers.models import Loop, Override

pytestmark = pytest.mark.django_db
START = datetime(2026, 1, 5, 3, 0, tzinfo=UTC)


def after(**period):
    return START + timedelta(**period)


@pytest.fixture
def owner(django_user_model):
    return django_user_model.objects.create(username="desk-2")


@pytest.fixture
def loop():
    return Loop.objects.create(
        name="worker_rate/alert/n1", law="worker_rate", parameters={"upper_limit": 500}, target={}
    )


@pytest.fixture
def node():
    return Node.objects.create(name="n1", url="redis://127.0.0.1:1/0")


@pytest.fixture
def put(loop, owner):
    """Set an override on the loop, or on what is given."""

    def put(name="upper_limit", value=2_000, now=START, **given):
        given = {"reason": "Black Friday", "loop": loop, "minutes": 2, **given}
        return overrides.set_override(name=name, value=value, owner=owner, now=now, **given)

    return put


def limit_at(loop, now):
    return overrides.effective({"upper_limit": 500}, loop.overrides.all(), now)["upper_limit"]


def test_an_override_holds_until_it_expires_and_reverts_by_itself(loop, put):
    override = put()
    assert limit_at(loop, START) == 2_000
    assert limit_at(loop, after(seconds=119.9)) == 2_000
    assert limit_at(loop, after(minutes=2)) == 500
    assert not overrides.in_force(after(minutes=2)).exists()
    assert override.instead_of == 500
    assert Override.objects.get().ended_at is None


def test_a_second_override_of_the_same_value_ends_the_first(loop, put, owner):
    first = put(minutes=60)
    put(value=3_000, now=after(seconds=30))
    first.refresh_from_db()
    assert (first.ended_at, first.ended_by) == (after(seconds=30), owner)
    assert limit_at(loop, after(seconds=31)) == 3_000
    assert limit_at(loop, after(minutes=3)) == 500


def test_overrides_of_different_names_hold_together(loop, put):
    put()
    put("raise_factor", 1.5)
    assert overrides.in_force(START).count() == 2


def test_ending_an_override_reverts_at_once_and_a_second_end_changes_nothing(loop, put, owner):
    override = put()
    overrides.end(override, by=owner, now=after(seconds=10))
    assert limit_at(loop, after(seconds=10)) == 500
    again = overrides.end(override, by=owner, now=after(seconds=20))
    assert again.ended_at == after(seconds=10)


def test_an_override_can_be_extended_while_it_holds_and_not_after(loop, put, owner):
    override = put()
    overrides.extend(override, now=after(seconds=100), minutes=10)
    assert limit_at(loop, after(seconds=699)) == 2_000
    for _ in range(2):
        with pytest.raises(BadInput) as refused:
            overrides.extend(override, now=after(minutes=60), minutes=10)
        assert refused.value.field == "override"
    ended = put("raise_factor", 1.5)
    overrides.end(ended, by=owner, now=after(seconds=1))
    with pytest.raises(BadInput):
        overrides.extend(ended, now=after(seconds=2), minutes=10)


def test_an_expiry_is_noted_once_at_the_time_it_was_due(put):
    override = put()
    assert overrides.expire_due(after(seconds=119)) == []
    assert overrides.expire_due(after(minutes=5)) == [override]
    assert overrides.expire_due(after(minutes=6)) == []
    override.refresh_from_db()
    assert (override.ended_at, override.ended_by) == (after(minutes=2), None)


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("reason", {"reason": ""}),
        ("reason", {"reason": "   "}),
        ("reason", {"reason": None}),
        ("reason", {"reason": "x" * 2_001}),
        ("expires_at", {"minutes": None}),
        ("expires_at", {"minutes": 2, "expires_at": after(minutes=2)}),
        ("expires_at", {"minutes": None, "expires_at": START}),
        ("expires_at", {"minutes": None, "expires_at": after(days=7, seconds=1)}),
        ("expires_at", {"minutes": None, "expires_at": datetime(2026, 1, 5, 4, 0)}),  # noqa: DTZ001
        ("minutes", {"minutes": 0}),
        ("minutes", {"minutes": -5}),
        ("minutes", {"minutes": 10_081}),
        ("minutes", {"minutes": "never"}),
        ("minutes", {"minutes": float("nan")}),
        ("minutes", {"minutes": float("inf")}),
        ("minutes", {"minutes": True}),
        ("name", {"name": "uper_limit"}),
        ("value", {"value": 0}),
        ("value", {"value": -1}),
        ("value", {"value": "many"}),
        ("value", {"value": None}),
        ("value", {"value": float("inf")}),
        ("value", {"name": "mode", "value": "off"}),
        ("value", {"name": "mode", "value": {}}),
        ("value", {"name": "start", "value": 2.5}),
        ("value", {"name": "start", "value": 101}),
        ("value", {"name": "guard.maximum", "value": -1}),
        ("value", {"name": "minimum_rate", "value": 5_000}),
        ("target", {"loop": None}),
    ],
)
def test_what_is_no_good_override_is_refused_by_field_and_changes_nothing(put, field, given):
    before = put("raise_factor", 1.5)
    with pytest.raises(BadInput) as refused:
        put(**given)
    assert refused.value.field == field
    assert list(Override.objects.all()) == [before]
    assert Override.objects.get().ended_at is None


def test_seven_days_are_the_most_and_presets_lie_within(put):
    assert put(minutes=overrides.MAXIMUM_MINUTES).expires_at == after(days=7)
    assert max(overrides.PRESET_MINUTES) <= overrides.MAXIMUM_MINUTES


def test_a_mode_a_guard_and_an_actuator_can_be_overridden(put):
    assert put("mode", "hold", minutes=30).instead_of == "auto"
    assert put("guard.maximum", 5).instead_of == 100
    assert put("start", 3).instead_of is None
    assert put("events_per_worker", 400.0).value == 400


def test_a_value_is_judged_together_with_the_overrides_beside_it(put):
    put("maximum_rate", 3)
    with pytest.raises(BadInput, match="maximum_rate"):
        put("minimum_rate", 4)
    assert put("minimum_rate", 2).value == 2


def test_thresholds_of_a_node_are_overridden_in_order_and_revert(put, node):
    assert overrides.node_thresholds(START) == {"n1": {"busy": 0.7, "toobusy": 0.9}}
    override = put("busy_threshold", 0.5, loop=None, node=node)
    assert override.instead_of == 0.7
    assert overrides.node_thresholds(after(seconds=119)) == {"n1": {"busy": 0.5, "toobusy": 0.9}}
    assert overrides.node_thresholds(after(minutes=2)) == {"n1": {"busy": 0.7, "toobusy": 0.9}}


@pytest.mark.parametrize(
    ("field", "name", "value"),
    [
        ("value", "busy_threshold", 0.9),
        ("value", "toobusy_threshold", 0.7),
        ("value", "toobusy_threshold", 1.01),
        ("value", "busy_threshold", 0.0),
        ("value", "busy_threshold", float("nan")),
        ("value", "busy_threshold", "half"),
        ("name", "upper_limit", 0.5),
    ],
)
def test_thresholds_out_of_order_or_range_are_refused(put, node, field, name, value):
    with pytest.raises(BadInput) as refused:
        put(name, value, loop=None, node=node)
    assert refused.value.field == field
    assert not Override.objects.exists()


def test_thresholds_stay_in_order_when_one_of_two_overrides_expires_first(put, node):
    put("toobusy_threshold", 0.98, loop=None, node=node, minutes=2)
    put("busy_threshold", 0.95, loop=None, node=node, minutes=10)
    held = overrides.node_thresholds(after(minutes=5))["n1"]
    assert held["toobusy"] == 0.9
    assert 0.89 < held["busy"] < held["toobusy"]


def test_agents_are_told_of_thresholds_set_ended_and_expired(put, node, owner, control):
    def told():
        return json.loads(control.get("weir:topology"))["nodes"]["n1"]["busy"]

    first = put("busy_threshold", 0.5, loop=None, node=node, control=control)
    assert told() == 0.5
    overrides.end(first, by=owner, now=after(seconds=5), control=control)
    assert told() == 0.7
    put("busy_threshold", 0.4, loop=None, node=node, now=after(seconds=6), control=control)
    assert told() == 0.4
    overrides.expire_due(after(minutes=10), control)
    assert told() == 0.7


def test_thresholds_do_not_change_when_the_agents_cannot_be_told(put, node):
    nobody = redis.Redis(host="127.0.0.1", port=1, socket_connect_timeout=0.2)
    with pytest.raises(NodeUnavailable):
        put("busy_threshold", 0.5, loop=None, node=node, control=nobody)
    nobody.close()
    assert not Override.objects.exists()
