"""Loops of concurrency at an attached app: one a pool, in advise first, and never a second owner."""

from datetime import timedelta

import pytest

from common.errors import BadInput
from controllers import catalog
from tests.workers.control.kinds.pooled_app import ONE, PLANT, TWO, PooledApp
from workers.control.kinds.concurrency import measure_target
from workers.control.ledger import ledger
from workers.control.parts.attached_pools import MAX_NAME, build_loop_name
from workers.models import Loop
from workers.steering import overrides

pytestmark = pytest.mark.django_db
RATE = 4.0  # of one process
LAW = "concurrency"
NAME = f"concurrency/plant:{PLANT}/{ONE}"


@pytest.fixture
def app(control, monkeypatch):
    return PooledApp(control, monkeypatch, one=2)


def station(capacity):
    """Tasks per second by processes, where so many are served at once."""
    return lambda threads: RATE * min(threads, capacity)


def steered(app, capacity, ticks, mode="auto"):
    app.ensured(LAW)
    Loop.objects.filter(law=LAW).update(mode=mode)
    entries = []
    for _ in range(ticks):
        app.work(station(capacity))
        entries += app.tick(5.0, LAW)
    return entries


def test_each_pool_that_can_be_set_has_a_loop_that_advises_in_the_range_of_its_plant(control, monkeypatch):
    app = PooledApp(control, monkeypatch, one=2, two=20)
    found = {loop.target["operator"]: loop for loop in app.ensured(LAW)}
    assert found.keys() == {ONE, TWO} and {loop.mode for loop in found.values()} == {"advise"}
    read = catalog.read_parameters(catalog.get_law(LAW), found[ONE].parameters)
    assert (found[ONE].name, read["start"], read["minimum"], read["maximum"]) == (NAME, 2, 1, 16)
    assert read["patience"] == 648  # of 5 s, within the hour in which fewer processes are to be there
    assert (found[TWO].parameters["maximum"], found[TWO].guard["maximum"]) == (20, 20.0)
    del app.tasks[TWO]
    assert [loop.target["operator"] for loop in app.ensured(LAW)] == [ONE]
    app.row = {"state": "stale"}
    assert [loop.target["operator"] for loop in app.ensured(LAW)] == [ONE]
    app.row, app.fixed = {}, "a pool of threads can't be resized"
    assert app.ensured(LAW) == []


def test_on_auto_it_goes_up_from_what_there_is_and_rests_where_more_brings_nothing(app):
    entries = steered(app, 6, 40)
    sizes = [each[ONE] for each in app.ordered]
    assert min(sizes) >= 2 and 5 <= app.tasks[ONE] <= 7
    assert all(entry.error in (None, "") for entry in entries)
    assert app.orders() == {ONE: app.tasks[ONE]}
    assert PLANT in app.snapshot().plants and Loop.objects.get(law=LAW).state["law"]["machine"]["phase"] == "steady"
    assert all(ledger.replay(entry).same for entry in entries)


def test_where_only_idle_processes_end_a_busy_pool_is_asked_until_it_is_smaller(app):
    app.is_idle = False
    steered(app, 6, 30)
    largest = app.tasks[ONE]
    assert largest > 7 and app.ordered[-1][ONE] < largest
    app.row = {"orders": {ONE: {"tasks": app.ordered[-1][ONE], "at": 1.0, "by": "loop", "now": largest}}}
    app.work(station(6))
    (entry,) = app.tick(5.0, LAW)
    assert "only idle processes are stopped); retrying" in entry.reason
    app.is_idle, app.row = True, {}
    app.tick(5.0, LAW)
    assert app.tasks[ONE] < largest


def test_no_sample_is_taken_twice_and_another_count_begins_anew(app):
    target = {"plant": PLANT, "operator": ONE}
    app.work(station(6), samples=5)
    first = measure_target(target, app.snapshot(), None, app.now.timestamp())
    assert len(first.observation["interdeparture_seconds"]) == 5 and first.observation["ends_idle"]
    again = measure_target(target, app.snapshot(), first.counters, app.now.timestamp())
    assert (again.observation["interdeparture_seconds"], again.observation["seconds"]) == ([], 0.0)
    app.completions[ONE]["since"] = 2.0
    anew = measure_target(target, app.snapshot(), first.counters, app.now.timestamp())
    assert len(anew.observation["interdeparture_seconds"]) == 5


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"state": "stale", "age_seconds": 9.0, "error": "late"}, "was last observed 9 s ago: late"),
        (
            {"state": "unseen", "topology": None, "age_seconds": None, "error": "away"},
            "has not been observed yet: away",
        ),
        ({"steered_by": {"holder": "ann", "until": None}}, "ann controls the tasks"),
        (
            {"orders": {ONE: {"tasks": 9, "at": 1.0, "by": "loop x", "now": 2, "state": "missed"}}},
            f"loop x requested 9 tasks for {ONE}, which still has 2: no effect so far",
        ),
    ],
)
def test_a_pool_that_can_not_be_measured_or_steered_is_held_with_the_reason(app, row, said):
    app.ensured(LAW)
    Loop.objects.update(mode="auto")
    app.row = row
    app.work(station(6))
    (entry,) = app.tick(5.0, LAW)
    assert entry.action is None and said in entry.reason and app.ordered == []


def test_a_pool_of_which_no_completion_is_heard_has_nothing_to_decide_on(app):
    app.ensured(LAW)
    Loop.objects.update(mode="auto")
    (entry,) = app.tick(5.0, LAW)
    assert entry.action is None and f"{ONE} reports no completions" in entry.reason


def test_a_pool_that_can_not_be_resized_any_more_is_held_with_the_reason(app):
    steered(app, 30, 4)
    app.fixed = "it runs with --autoscale"
    app.work(station(30))
    (held,) = app.tick(5.0, LAW)
    assert held.action is None and "--autoscale" in held.reason


# One owner


def loops_of_both(app):
    app.ensured(LAW, "parallelism_joint", "parallelism_queueing")
    return Loop.objects.get(name=NAME), Loop.objects.get(name=f"parallelism_joint/plant:{PLANT}")


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("mode", ["auto", "manual"])
def test_who_would_let_a_second_loop_act_on_the_same_tasks_is_refused_both_ways(app, user, first, mode):
    both = loops_of_both(app)
    owner, second = both[first], both[1 - first]
    said = {"owner": user, "reason": "a try", "now": app.now, "minutes": 30}
    overrides.set_override(loop=owner, name="mode", value=mode, **said)
    for other in ("auto", "manual"):
        with pytest.raises(BadInput, match=f"set {owner.name} to advise first") as refused:
            overrides.set_override(loop=second, name="mode", value=other, **said)
        assert refused.value.field == "value" and ONE in str(refused.value)
    for harmless in ("advise", "hold"):
        overrides.set_override(loop=second, name="mode", value=harmless, **said)
    assert overrides.list_active(app.now).filter(loop=owner, name="mode").get().value == mode


def test_should_both_act_all_the_same_the_loop_of_the_pool_stands_back(app):
    """As after a pool that comes back, whose loop was on auto."""
    pool, whole = loops_of_both(app)
    Loop.objects.filter(pk__in=[pool.pk, whole.pk]).update(mode="auto")
    for _ in range(2):
        app.work(station(6))
        entries = {entry.loop.law: entry for entry in app.tick(5.0)}
    assert f"loop {whole.name} (mode auto) already controls" in entries[LAW].reason
    assert entries[LAW].limited_by == "nothing to decide"  # it lacks no measurement
    assert "owner" not in entries["parallelism_joint"].reason


def test_a_loop_whose_override_has_ended_lets_the_other_act(app, user):
    pool, whole = loops_of_both(app)
    said = {"owner": user, "reason": "a try", "minutes": 10}
    overrides.set_override(loop=whole, name="mode", value="auto", now=app.now, **said)
    later = app.now + timedelta(minutes=11)
    overrides.set_override(loop=pool, name="mode", value="auto", now=later, **said)


def test_names_of_loops_are_bounded_and_differ():
    long = [build_loop_name(LAW, "shop", "w" * 200 + end) for end in "ab"]
    assert len(set(long)) == 2 and max(map(len, long)) == MAX_NAME
    assert build_loop_name(LAW, "shop", ONE) == NAME
