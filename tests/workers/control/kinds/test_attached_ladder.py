"""The remedy ladder at an attached plant: advice where there is something to do, and nothing applied."""

import pytest

from common.errors import BadInput
from controllers import catalog
from controllers.parallelism.measured_topology import Link, MeasuredOperator, MeasuredTopology
from tests.workers.control.kinds.pooled_app import ONE, PLANT, PooledApp
from workers.control.kinds.ladder import collect_readings, measure_target
from workers.control.ledger import ledger
from workers.models import Loop
from workers.steering import overrides

pytestmark = pytest.mark.django_db
LAW = "ladder"
TARGET = {"plant": PLANT}


class QueuedApp(PooledApp):
    """An app of one pool, which takes from some queues."""

    queues, run_seconds = ("celery", "mail"), 0.5

    def get_topology(self):
        found = super().get_topology()
        sources = {
            f"queue {name}": MeasuredOperator(f"queue {name}", "source", 1, 1, 1, "a queue") for name in self.queues
        }
        links = tuple(Link(source, ONE, self.waits_seconds) for source in sources)
        operators = {**sources, ONE: found.operators[ONE]}
        return MeasuredTopology(found.plant, found.at, found.window_seconds, operators, links)


@pytest.fixture
def app(control, monkeypatch):
    return QueuedApp(control, monkeypatch, one=2)


def test_each_attached_plant_has_a_ladder_that_advises_and_reaches_no_further_than_a_pause(app):
    (loop,) = app.ensured(LAW)
    assert (loop.name, loop.mode, loop.target) == (f"ladder/plant:{PLANT}", "advise", TARGET)
    read = catalog.read_parameters(catalog.get_law(LAW), loop.parameters)
    assert (read["cap"], read["backlog_bound_seconds"]) == ("throttle", 10.0)


def test_while_more_comes_than_its_tasks_can_do_it_advises_more_tasks(app):
    app.ensured(LAW)
    assert app.ticks(LAW, 2, 3.0)[-1].action is None
    entry = app.ticks(LAW, 3, 8.0, waits_seconds=4.0)[-1]
    seen = entry.observation
    assert (seen["demand_per_second"], seen["capacity_per_second"], seen["backlog_seconds"]) == (8.0, 4.0, 4.0)
    assert entry.reason.startswith("Would enable adding workers (advice only)")
    assert app.ordered == [] and not entry.applied and ledger.replay(entry).same
    assert collect_readings(TARGET, app.snapshot()) == {"wait_seconds": 4.0, "node_state": None}


def test_where_the_pool_has_its_most_it_advises_to_pause_a_queue_if_there_is_another(app):
    app.ensured(LAW)
    app.tasks[ONE] = 16
    entry = app.ticks(LAW, 4, 50.0, waits_seconds=4.0)[-1]
    assert entry.observation["saturated"]["workers"] and "throttle" not in entry.observation["unavailable"]
    assert entry.reason.startswith("Would enable throttling (advice only)")
    app.queues = ("celery",)
    (entry,) = app.ticks(LAW, 1, 50.0, waits_seconds=4.0)
    assert entry.observation["unavailable"].keys() == {"rebalance", "nodes", "throttle", "shed"}
    assert entry.action is None
    assert "every overloaded operator has its maximum tasks" in entry.reason


@pytest.mark.parametrize(("per_second", "run_seconds"), [(0.0, 0.5), (4.0, None)])
def test_of_a_plant_to_which_nothing_comes_or_of_which_too_little_is_known_nothing_is_decided(
    app, per_second, run_seconds
):
    app.load(per_second, service_seconds=run_seconds)
    sensed = measure_target(TARGET, app.snapshot(), None, app.now.timestamp())
    assert "no arrivals" in sensed.measured.idle
    app.row = {"state": "stale", "age_seconds": 9.0, "error": "late"}
    stale = measure_target(TARGET, app.snapshot(), None, app.now.timestamp()).measured
    assert "was last observed 9 s ago" in stale.invalid


def test_it_can_not_be_put_on_auto_or_manual(app, user):
    (loop,) = app.ensured(LAW)
    said = {"owner": user, "reason": "a try", "now": app.now, "minutes": 5}
    for mode in ("auto", "manual"):
        with pytest.raises(
            BadInput, match=r"can't change an attached plant\. To add tasks, set a loop of the plant to auto"
        ):
            overrides.set_override(loop=loop, name="mode", value=mode, **said)
    overrides.set_override(loop=loop, name="mode", value="hold", **said)


def test_should_it_be_on_auto_all_the_same_it_applies_nothing(app):
    (loop,) = app.ensured(LAW)
    Loop.objects.filter(pk=loop.pk).update(mode="auto")
    entry = app.ticks(LAW, 1, 8.0, waits_seconds=4.0)[0]
    entry.refresh_from_db()
    assert not entry.applied and "can't change an attached plant" in entry.error and app.ordered == []
