"""Overrides: in force from a reason to an expiry, within the catalog's ranges."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from django.db import transaction

from common.errors import BadInput
from controllers import catalog
from queues.models import Node
from tests.races import another_thread, until_another_waits
from workers.models import Loop, Override
from workers.steering import enforcing, overrides, plant_settings

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
    return overrides.apply_overrides({"upper_limit": 500}, loop.overrides.all(), now)["upper_limit"]


def test_an_override_holds_until_it_expires_and_reverts_by_itself(loop, put):
    override = put()
    assert limit_at(loop, START) == 2_000
    assert limit_at(loop, after(seconds=119.9)) == 2_000
    assert limit_at(loop, after(minutes=2)) == 500
    assert not overrides.list_active(after(minutes=2)).exists()
    assert override.instead_of == 500
    assert Override.objects.get().ended_at is None


def test_what_was_set_holds_and_what_has_ended_is_over_also_after_the_clock_was_set_back(loop, put, owner):
    held, ended = put("raise_factor", 2.0, minutes=120), put("upper_limit", 5, minutes=120)
    overrides.end(ended, by=owner, now=after(minutes=1))
    earlier = START - timedelta(hours=1)
    assert list(overrides.list_active(earlier)) == [held]
    assert not overrides.list_active_at(earlier).exists(), "pages that show the past ask for what held then"


def test_a_second_override_of_the_same_value_ends_the_first(loop, put, owner):
    first = put(minutes=60)
    put(value=3_000, now=after(seconds=30))
    first.refresh_from_db()
    assert (first.ended_at, first.ended_by) == (after(seconds=30), owner)
    assert limit_at(loop, after(seconds=31)) == 3_000
    assert limit_at(loop, after(minutes=3)) == 500


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
        ("minutes", {"minutes": 10_081}),
        ("minutes", {"minutes": "never"}),
        ("minutes", {"minutes": float("nan")}),
        ("minutes", {"minutes": True}),
        ("name", {"name": "uper_limit"}),
        ("value", {"value": 0}),
        ("value", {"value": "many"}),
        ("value", {"value": float("inf")}),
        ("value", {"name": "mode", "value": "off"}),
        ("value", {"name": "mode", "value": {}}),
        ("value", {"name": "start", "value": 2.5}),
        ("value", {"name": "start", "value": 101}),
        ("value", {"name": "guard.maximum", "value": -1}),
        ("value", {"name": "minimum_rate", "value": 5_000}),
        ("scope", {"loop": None}),
    ],
)
def test_what_is_no_good_override_is_refused_by_field_and_changes_nothing(put, field, given):
    before = put("raise_factor", 1.5)
    with pytest.raises(BadInput) as refused:
        put(**given)
    assert refused.value.field == field
    assert list(Override.objects.all()) == [before]
    assert Override.objects.get().ended_at is None


def test_seven_days_are_the_most_until_the_setting_says_otherwise(put, owner):
    assert put(minutes=7 * 24 * 60).expires_at == after(days=7)
    plant_settings.change("override.maximum_days", 1, owner, START)
    with pytest.raises(BadInput, match="1 days"):
        put(minutes=24 * 60 + 1)
    assert put(minutes=24 * 60).expires_at == after(days=1)


def test_a_value_is_judged_together_with_the_overrides_beside_it(put):
    put("maximum_rate", 3)
    with pytest.raises(BadInput, match="maximum_rate"):
        put("minimum_rate", 4)
    assert put("minimum_rate", 2).value == 2


def test_thresholds_of_a_node_are_overridden_in_order_and_revert(put, node):
    assert enforcing.get_node_thresholds(START) == {"n1": {"busy": 0.7, "toobusy": 0.9}}
    override = put("busy_threshold", 0.5, loop=None, node=node)
    assert override.instead_of == 0.7
    assert enforcing.get_node_thresholds(after(seconds=119)) == {"n1": {"busy": 0.5, "toobusy": 0.9}}
    assert enforcing.get_node_thresholds(after(minutes=2)) == {"n1": {"busy": 0.7, "toobusy": 0.9}}


@pytest.mark.parametrize(
    ("field", "name", "value"),
    [
        ("value", "busy_threshold", 0.9),
        ("value", "toobusy_threshold", 0.7),
        ("value", "toobusy_threshold", 1.01),
        ("value", "busy_threshold", 0.0),
        ("value", "busy_threshold", float("nan")),
        ("value", "busy_threshold", "half"),
        ("scope", "upper_limit", 0.5),  # no loop is on n1
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
    held = enforcing.get_node_thresholds(after(minutes=5))["n1"]
    assert held["toobusy"] == 0.9
    assert 0.89 < held["busy"] < held["toobusy"]


def test_agents_are_notified_of_thresholds_set_ended_and_expired(put, node, owner, control):
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


@pytest.fixture
def loops(node, db):
    """worker_rate loops of two queues on two nodes, and the loop that steers the plant."""
    loop_of = Loop.objects.create
    Node.objects.create(name="n2", url="redis://127.0.0.1:2/0")
    made = {
        f"{queue}/{name}": loop_of(name=f"{queue} on {name}", law="worker_rate", target={"queue": queue, "node": name})
        for queue in ("alert", "process")
        for name in ("n1", "n2")
    }
    return {**made, "rebalancing": loop_of(name="rebalancing", law="rebalancing")}


def held_on(loops, name, now=START):
    found = overrides.group_by_loop(loops.values(), now)
    return {place: overrides.find_effective_value(name, found[loop.pk], now) for place, loop in loops.items()}


SCOPES = {
    "a law": ({"law": "worker_rate"}, {"alert/n1", "alert/n2", "process/n1", "process/n2"}),
    "a queue": ({"queue": "alert"}, {"alert/n1", "alert/n2"}),
    "a node": ({"node": "n2"}, {"alert/n2", "process/n2"}),
    "a queue on a node": ({"queue": "alert", "node": "n2"}, {"alert/n2"}),
    "a law of the plant": ({"law": "rebalancing"}, {"rebalancing"}),
}


@pytest.mark.parametrize("case", SCOPES)
def test_an_override_on_a_scope_holds_on_each_of_its_loops_and_on_no_other(case, loops, put):
    scope, expected = SCOPES[case]
    if "node" in scope:
        scope = {**scope, "node": Node.objects.get(name=scope["node"])}
    put("mode", "hold", loop=None, **scope)
    modes = held_on(loops, "mode")
    assert {place for place, mode in modes.items() if mode == "hold"} == expected
    assert set(held_on(loops, "mode", after(minutes=2)).values()) == {None}


@pytest.mark.parametrize("scope", [{"law": "worker_rate"}, {"queue": "alert"}])
def test_what_follows_what_a_loop_steers_is_nobodys_to_set(loops, put, scope):
    """A container of which each worker ends would get one at each check for ever."""
    with pytest.raises(BadInput, match="workers can't be set: the value follows the loop's target"):
        put("workers", "permanent", loop=None, **scope)
    assert not Override.objects.exists()


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("scope", {"law": "flow"}),
        ("scope", {"queue": "nothing"}),
        ("scope", {"queue": "alert", "law": "rebalancing"}),
        ("name", {"queue": "alert", "name": "goal"}),
        ("value", {"queue": "alert", "name": "guard.direction", "value": "sideways"}),
        ("name", {"law": "rebalancing", "name": "guard.direction", "value": "up only"}),
        ("value", {"law": "worker_rate", "name": "upper_limit", "value": -1}),
    ],
)
def test_a_scope_without_loops_or_with_a_foreign_name_is_refused(field, given, loops, put):
    with pytest.raises(BadInput) as refused:
        put(given.pop("name", "mode"), given.pop("value", "hold"), loop=None, **given)
    assert refused.value.field == field
    assert not Override.objects.exists()


def test_of_two_that_collide_the_newer_holds_says_what_it_replaces_and_gives_back(loops, put, owner):
    wide = put("upper_limit", 900, loop=None, queue="alert", minutes=60)
    narrow = put("upper_limit", 300, loop=loops["alert/n1"], minutes=10, now=after(seconds=5))
    (replaced,) = narrow.replaces
    assert (replaced["id"], replaced["scope"], replaced["value"]) == (wide.pk, "queue alert", 900)
    assert (replaced["owner"], replaced["ended"], narrow.instead_of) == ("desk-2", False, 900)
    at = after(seconds=6)
    assert held_on(loops, "upper_limit", at)["alert/n1"] == 300
    assert held_on(loops, "upper_limit", at)["alert/n2"] == 900
    overrides.end(narrow, by=owner, now=at)
    assert held_on(loops, "upper_limit", after(seconds=7))["alert/n1"] == 900
    newest = put("upper_limit", 800, loop=None, queue="alert", now=after(seconds=8))
    assert [(row["id"], row["ended"]) for row in newest.replaces] == [(wide.pk, True)]


def test_an_endless_override_holds_until_it_is_ended(loop, put, owner):
    override = put(minutes=None, endless=True)
    assert limit_at(loop, after(days=400)) == 2_000
    assert overrides.expire_due(after(days=400)) == []
    assert overrides.build_status(override).expires_at is overrides.build_status(override).notice_at is None
    overrides.end(override, by=owner, now=after(days=401))
    assert limit_at(loop, after(days=401)) == 500


def test_an_endless_override_can_get_an_end(loop, put):
    override = put(minutes=None, endless=True)
    overrides.extend(override, now=START, minutes=5)
    assert (limit_at(loop, after(minutes=4)), limit_at(loop, after(minutes=6))) == (2_000, 500)


def test_before_it_reverts_notice_is_given(put, owner):
    long, short = put(minutes=60), put("raise_factor", 1.5, minutes=2)
    assert overrides.build_status(long).notice_at == after(minutes=58).timestamp()
    assert overrides.build_status(short).notice_at == after(minutes=1).timestamp()
    plant_settings.change("override.notice_seconds", 600, owner, START)
    assert overrides.build_status(long).notice_at == after(minutes=50).timestamp()


def test_a_direction_is_of_the_loops_whose_action_is_a_number(loops, put, node):
    Loop.objects.filter(pk=loops["rebalancing"].pk).update(target={"node": "n1"})
    put("guard.direction", "up only", loop=None, node=node)
    number, moves = (Loop.objects.get(pk=loops[place].pk) for place in ("alert/n1", "rebalancing"))
    law = catalog.get_law("worker_rate")
    held = overrides.get_effective_guard(law, {}, overrides.list_for_loop(number, START), START)
    assert held["direction"] == "up only"
    with pytest.raises(BadInput, match="is unknown"):
        put("guard.direction", "up only", loop=moves)


@pytest.mark.django_db(transaction=True)
def test_of_two_who_set_the_same_at_once_the_second_replaces_the_first(loop, owner):
    def put(value):
        return overrides.set_override(
            name="upper_limit", value=value, owner=owner, now=START, reason="A test.", loop=loop, minutes=2
        )

    with another_thread() as begin:
        with transaction.atomic():
            first = put(700)
            other = begin(put, 900)
            until_another_waits()
        second = other.result()
    assert [row["id"] for row in second.replaces] == [first.pk]
    assert list(overrides.list_active(START)) == [second]
