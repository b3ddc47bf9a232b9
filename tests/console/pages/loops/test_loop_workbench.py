"""A loop's page: parameters in human units, in their places, and what other values would change."""

import re

import pytest
from django.utils import timezone

from console.display.formats import format_for_input, get_human_unit
from controllers import catalog
from controllers.framework import guard
from tests.console.page_form import form_of, source_of
from tests.console.rows import held as hold_value
from workers.control.kinds.registry import KINDS
from workers.models import Loop, Override
from workers.steering import overrides

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("stored_snapshot")]


def loop_of(law, **target):
    kind = KINDS[law]
    name = "/".join((law, *target.values()))
    return Loop.objects.create(
        name=name, law=law, target=target, parameters=dict(kind.defaults.parameters), guard=dict(kind.defaults.guard)
    )


@pytest.mark.parametrize(
    ("unit", "value", "shown"),
    [("bytes", 2.0**27, (128.0, "MiB")), ("share of capacity", 0.7, (70.0, "% of capacity")), ("s", 5.0, (5.0, "s"))],
)
def test_values_stand_in_the_units_that_people_think_in(unit, value, shown):
    found = get_human_unit(unit)
    assert (found.convert(value), found.name) == pytest.approx(shown)
    assert found.back(found.convert(value)) == pytest.approx(value)


def test_a_value_typed_in_the_shown_unit_is_put_in_force_in_the_law_s_unit(operator):
    loop = loop_of("rebalancing")
    body = {"would-busy": "65", "unit-busy": "% of capacity", "reason": "a test", "minutes": "5"}
    assert operator.post(f"/loops/{loop.pk}/override", body).status_code == 302
    assert Override.objects.get().value == pytest.approx(0.65)


def test_a_unit_that_is_not_shown_is_refused_at_its_field(operator):
    loop = loop_of("rebalancing")
    body = {"would-busy": "65", "unit-busy": "furlongs", "reason": "a test", "minutes": "5"}
    answer = operator.post(f"/loops/{loop.pk}/override", body)
    assert list(answer.context["errors"]) == ["would-busy"] and not Override.objects.exists()


def test_a_value_that_nobody_touched_is_not_rounded_by_its_unit(operator):
    loop = loop_of("flow", application="performance")
    Loop.objects.filter(pk=loop.pk).update(parameters={**loop.parameters, "setpoint": 400_000_000.0})
    bench = operator.get(f"/loops/{loop.pk}/").context["bench"]
    shown = next(row for row in bench.main if row.name == "setpoint").shown
    body = {"would-setpoint": format_for_input(shown.effective), "unit-setpoint": shown.unit, "would-kp": "-0.006"}
    operator.post(f"/loops/{loop.pk}/override", {**body, "reason": "a test", "minutes": "5"})
    assert [each.name for each in Override.objects.all()] == ["kp"]


def overridden(loop, people, **values):
    """What a colleague puts in force."""
    for name, value in values.items():
        hold_value(people["administrator"], name, value, loop=loop)


def test_a_form_that_was_opened_before_a_colleagues_override_leaves_it_in_force(operator, people):
    loop = loop_of("worker_rate", queue="alert", node="n1")
    address = f"/loops/{loop.pk}/override"
    form = form_of(operator.get(f"/loops/{loop.pk}/"), address)
    overridden(loop, people, upper_limit=2_000, **{"guard.maximum": 7})
    posted = {**form, "would-events_per_worker": "50", "reason": "a test"}
    assert operator.post(address, posted).status_code == 302
    held = {each.name: each.value for each in overrides.list_active(timezone.now())}
    assert held == {"upper_limit": 2_000, "guard.maximum": 7, "events_per_worker": 50}


def test_a_form_in_which_nothing_was_touched_changes_nothing_whatever_is_in_force(operator, people):
    loop = loop_of("rebalancing")
    address = f"/loops/{loop.pk}/override"
    form = form_of(operator.get(f"/loops/{loop.pk}/"), address)
    overridden(loop, people, busy=0.6)
    assert operator.post(address, {**form, "would-busy": "70.0", "reason": "a test"}).status_code == 422
    assert Override.objects.get().value == 0.6 and Override.objects.get().ended_at is None


def test_a_value_that_was_touched_takes_the_place_of_a_colleagues_and_says_so(operator, people):
    loop = loop_of("worker_rate", queue="alert", node="n1")
    address = f"/loops/{loop.pk}/override"
    form = form_of(operator.get(f"/loops/{loop.pk}/"), address)
    overridden(loop, people, upper_limit=2_000)
    posted = {**form, "would-upper_limit": "500", "reason": "a test"}
    answer = operator.post(address, posted, headers={"Accept": "application/json"})
    assert "administrator set 2000 for worker rate of alert on n1" in answer.json()["message"]


def test_what_a_change_would_do_is_asked_of_the_touched_values_alone(operator, people):
    loop = loop_of("worker_rate", queue="alert", node="n1")
    form = form_of(operator.get(f"/loops/{loop.pk}/what-if/"), "steer")
    overridden(loop, people, upper_limit=2_000)
    page = operator.get(f"/loops/{loop.pk}/what-if/", {**form, "would-guard.maximum": "2"})
    assert page.context["changed"] == {"guard.maximum": 2}
    row = next(row for row in page.context["rows"] if row.name == "upper_limit")
    assert row.would == 2_000


EXACT = -0.0055891234567891234


def test_a_value_that_nobody_touched_keeps_each_of_its_digits(operator):
    loop = loop_of("flow", application="performance")
    Loop.objects.filter(pk=loop.pk).update(parameters={**loop.parameters, "kp": EXACT})
    rows = operator.get(f"/loops/{loop.pk}/").context["bench"].main
    body = {f"would-{row.name}": format_for_input(row.shown.effective) for row in rows if row.shown.factor == 1}
    body |= {"would-kd": "0.7", "reason": "a test", "minutes": "5"}
    assert operator.post(f"/loops/{loop.pk}/override", body).status_code == 302
    assert [each.name for each in Override.objects.all()] == ["kd"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(1000.0, "1000"), (EXACT, "-0.0055891234567891235"), (33_554_433, "33554433"), (1e22, "1e+22"), (None, "")],
)
def test_a_value_in_a_field_reads_back_as_the_same(value, text):
    assert format_for_input(value) == text
    assert value is None or float(text) == value


TARGET = {"application": "performance", "operator": "hosts", "host": "h", "queue": "alert", "node": "n1"}


@pytest.mark.parametrize("law", sorted(KINDS))
def test_one_number_of_a_loop_is_changed_by_its_form_and_asked_about(law, operator):
    loop = loop_of(law, **TARGET)
    form = form_of(operator.get(f"/loops/{loop.pk}/"), f"/loops/{loop.pk}/override")
    held = guard.read_settings(catalog.get_law(law), loop.guard)["stale_seconds"]
    form |= {"would-guard.stale_seconds": str(held + 1), "reason": "a test", "minutes": "5"}
    asked = operator.get(f"/loops/{loop.pk}/what-if/", form)
    assert asked.status_code == 200 and not asked.context["errors"], asked.context["errors"]
    answer = operator.post(f"/loops/{loop.pk}/override", form)
    assert answer.status_code == 302, answer.context["errors"]
    assert {each.name: each.value for each in Override.objects.all()} == {"guard.stale_seconds": held + 1}


def test_a_flag_is_chosen_on_the_page_and_over_the_api(browsers, stored_snapshot):
    loop, administrator = (loop_of("parallelism_queueing", application="performance"), browsers["administrator"])
    page = " ".join(administrator.get(f"/loops/{loop.pk}/").content.decode().split())
    assert 'name="would-use_correction" data-is="true"' in page and "<option selected> true</option>" in page
    own = {"name": "only_changes", "value": "false", "reason": "a test"}
    assert administrator.post(f"/settings/plant/loops/{loop.pk}", own).status_code == 302
    loop.refresh_from_db()
    assert loop.parameters["only_changes"] is False
    posted = {"would-use_correction": "false", "reason": "a test", "minutes": "5"}
    assert administrator.post(f"/loops/{loop.pk}/override", posted).status_code == 302
    wide = {"name": "parallelism_queueing/only_changes", "value": "true", "law": "", "queue": "", "node": ""}
    wide |= {"reason": "a test", "minutes": "5"}
    assert administrator.post("/overrides/create", wide).status_code == 302
    assert {each.name: each.value for each in Override.objects.all()} == {"use_correction": False, "only_changes": True}
    body = {"loop": loop.pk, "name": "use_correction", "value": True, "reason": "x", "minutes": 5}
    answer = administrator.post("/api/v1/overrides", body, content_type="application/json")
    assert answer.status_code == 201 and answer.json()["value"] is True
    number = administrator.post("/api/v1/overrides", {**body, "value": 1}, content_type="application/json")
    assert number.status_code == 422


@pytest.mark.parametrize("law", sorted(KINDS))
def test_every_law_says_what_a_change_would_do_or_why_that_is_not_known(law, operator):
    loop = loop_of(law, application="performance", operator="hosts", host="h", queue="alert", node="n1")
    page = operator.get(f"/loops/{loop.pk}/").content.decode()
    assert 'id="prediction"' in page
    name = KINDS[law].display.main[0]
    part = operator.get(f"/loops/{loop.pk}/predicted?would-{name}=3").content.decode()
    assert 'id="prediction"' in part and 'role="status"' in part


def test_a_ladder_that_only_advises_has_no_button_that_would_be_refused(operator):
    def buttons(loop):
        return re.findall(r'<button name="mode" value="(\w+)"', source_of(operator.get(f"/loops/{loop.pk}/")))

    assert buttons(loop_of("ladder", plant="shop")) == ["advise", "hold"]
    assert buttons(loop_of("ladder", application="performance")) == ["auto", "advise", "hold", "manual"]
