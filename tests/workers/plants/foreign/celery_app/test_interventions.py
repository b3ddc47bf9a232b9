"""What people do at a Celery app besides sizing pools: it is in force until its end, and is undone then."""

from types import SimpleNamespace

import pytest

from queues.errors import BadInput
from tests.workers.plants.foreign.celery_app.far import FakeCelery
from workers.plants.foreign import interventions
from workers.plants.foreign.celery_app.interventions import INTERVENTIONS, LIMIT, PAUSE, REVOKE
from workers.plants.foreign.kind import Adapter
from workers.plants.plant import PlantConfused

ONE, TWO = "celery@one", "celery@two"
KINDS = {each.name: each for each in INTERVENTIONS}
ROWS = [SimpleNamespace(name="shop")]


@pytest.fixture
def far():
    return FakeCelery({ONE: 2, TWO: 2})


@pytest.fixture
def begin(far, control):
    def begun(kind, subject, value="", until=100.0):
        interventions.begin(control, "shop", far.plant(), KINDS[kind], subject, value, by="eve", until=until)

    return begun


def undo_due(far, control, now):
    return interventions.undo_due(control, ROWS, now, lambda row: far.plant())


def test_a_paused_queue_is_left_alone_by_all_its_workers_until_its_end(far, control, begin):
    begin(PAUSE, "celery")
    assert far.paused == {(ONE, "celery"), (TWO, "celery")}
    [found] = interventions.in_force(control, "shop")
    assert (found.kind, found.subject, found.by, found.until) == (PAUSE, "celery", "eve", 100.0)
    assert undo_due(far, control, 99.0) == []
    assert far.paused
    undo_due(far, control, 100.0)
    assert not far.paused
    assert interventions.in_force(control, "shop") == []


def test_a_paused_queue_is_still_seen(far, begin):
    plant = far.plant()
    plant.topology()
    begin(PAUSE, "celery")
    far.queues["celery"] = 5
    assert "queue celery" in plant.topology().operators
    assert plant.sections()[2].rows[0][:2] == ["celery", 5]


def test_a_rate_limit_goes_back_to_what_it_was_however_often_it_was_changed(far, control, begin):
    begin(LIMIT, "shop.mail", "1/m")
    begin(LIMIT, "shop.mail", "5/m", until=200.0)
    assert far.limits["shop.mail"] == "5/m"
    assert [each.until for each in interventions.in_force(control, "shop")] == [200.0]
    interventions.undo(control, "shop", far.plant(), LIMIT, "shop.mail")
    assert far.limits["shop.mail"] == "10/m"


def test_a_task_without_a_limit_has_none_again(far, control, begin):
    begin(LIMIT, "shop.work", "1/s")
    interventions.undo(control, "shop", far.plant(), LIMIT, "shop.work")
    assert far.limits["shop.work"] == "0"


def test_a_revoked_task_is_revoked_at_every_worker_and_nothing_is_in_force(far, control, begin):
    begin(REVOKE, "8ae73293", "terminate")
    assert far.revoked == [(ONE, "8ae73293", True), (TWO, "8ae73293", True)]
    assert interventions.in_force(control, "shop") == []


@pytest.mark.parametrize(
    ("kind", "subject", "value", "said"),
    [
        (PAUSE, "nobody", "", "takes a queue that workers take from"),
        (PAUSE, "", "", "subject"),
        (LIMIT, "shop.work", "fast", "takes a rate such as 10/s"),
        (LIMIT, "shop.none", "1/s", "takes the name of a task that workers know"),
        (REVOKE, "8ae73293", "kill", "terminate"),
        (PAUSE, "x" * 300, "", "at most 255"),
    ],
)
def test_what_can_t_be_is_refused_and_nothing_is_done(far, control, begin, kind, subject, value, said):
    with pytest.raises(BadInput, match=said):
        begin(kind, subject, value)
    assert not far.paused
    assert not far.revoked
    assert interventions.in_force(control, "shop") == []


def test_a_plant_that_is_away_at_the_end_is_tried_again(far, control, begin):
    begin(PAUSE, "celery")
    answer = far.answer
    far.answer = lambda command, worker, **more: (
        {"error": "no"} if command == "add_consumer" else answer(command, worker, **more)
    )
    assert undo_due(far, control, 150.0) == []
    with pytest.raises(PlantConfused):
        interventions.undo(control, "shop", far.plant(), PAUSE, "celery")
    far.answer = answer
    assert [each.subject for each in undo_due(far, control, 151.0)] == ["celery"]
    assert not far.paused


def test_one_worker_that_is_late_at_the_end_is_undone_when_it_answers(far, control, begin):
    begin(PAUSE, "celery")
    processes = far.processes.pop(TWO)
    undo_due(far, control, 100.0)
    assert far.paused == {(TWO, "celery")}
    far.processes[TWO] = processes
    undo_due(far, control, 110.0)
    assert not far.paused
    assert not interventions.in_force(control, "shop")


def test_a_pause_is_prolonged_while_nobody_takes_from_the_queue(far, control, begin):
    begin(PAUSE, "celery")
    begin(PAUSE, "celery", until=200.0)
    assert undo_due(far, control, 150.0) == []
    undo_due(far, control, 200.0)
    assert not far.paused


def test_a_change_that_is_refused_leaves_what_is_in_force(far, control, begin):
    begin(LIMIT, "shop.mail", "1/m")
    with pytest.raises(BadInput, match="takes a rate"):
        begin(LIMIT, "shop.mail", "fast", until=500.0)
    assert [(each.value, each.until) for each in interventions.in_force(control, "shop")] == [("1/m", 100.0)]


def test_a_plant_that_is_away_for_an_hour_after_the_end_is_given_up(far, control, begin):
    begin(PAUSE, "celery")
    far.silent = True
    undo_due(far, control, 100.0 + interventions.GIVE_UP_SECONDS - 1)
    assert interventions.in_force(control, "shop")
    undo_due(far, control, 100.0 + interventions.GIVE_UP_SECONDS)
    assert not interventions.in_force(control, "shop")


def test_what_is_not_in_force_can_t_be_undone(far, control):
    with pytest.raises(BadInput, match="has no pause that is in force"):
        interventions.undo(control, "shop", far.plant(), PAUSE, "celery")


def test_a_plant_without_interventions_says_so():
    class Bare(Adapter):
        def topology(self):
            raise AssertionError

        def set_parallelism(self, tasks):
            raise AssertionError

    for ask in (Bare().before, Bare().intervene, Bare().undo):
        with pytest.raises(BadInput, match="takes none"):
            ask("pause", "celery", "")
