"""Interventions at a Celery app besides resizing pools: in force until their expiry, and undone then."""

from contextlib import closing
from types import SimpleNamespace

import pytest

from common.errors import BadInput
from tests.workers.plants.foreign.celery_app.far import FakeCelery
from workers.plants.foreign import interventions
from workers.plants.foreign.bounded import BoundedPlant
from workers.plants.foreign.celery_app.interventions import INTERVENTIONS, LIMIT, PAUSE, REVOKE
from workers.plants.plant import PlantUnavailable

ONE, TWO = "celery@one", "celery@two"
KINDS = {each.name: each for each in INTERVENTIONS}
ROWS = [SimpleNamespace(name="shop")]


@pytest.fixture
def far():
    return FakeCelery({ONE: 2, TWO: 2})


@pytest.fixture
def begin(far, control):
    def begun(kind, subject, value="", until=200.0):
        plant, chosen = BoundedPlant("shop", far.plant()), KINDS[kind]
        prepared = interventions.prepare_intervention(
            control, "shop", plant, chosen, subject, value, by="eve", until=until
        )
        interventions.begin(control, "shop", plant, chosen, prepared)

    return begun


def undo_due(far, control, now):
    def opened(row):
        return closing(BoundedPlant(row.name, far.plant()))

    return interventions.undo_due(control, ROWS, now, opened)


def undo(far, control, kind, subject, now=110.0):
    due = interventions.end(control, "shop", kind, subject, now)
    interventions.undo(control, "shop", BoundedPlant("shop", far.plant()), due, now)


def in_force(control):
    return interventions.list_active(control, "shop")


def test_a_paused_queue_is_left_alone_by_all_its_workers_until_its_end(far, control, begin):
    begin(PAUSE, "celery")
    assert far.paused == {(ONE, "celery"), (TWO, "celery")}
    [found] = interventions.list_active(control, "shop")
    assert (found.kind, found.subject, found.by, found.until) == (PAUSE, "celery", "eve", 200.0)
    assert undo_due(far, control, 199.0) == []
    assert far.paused
    undo_due(far, control, 200.0)
    assert not far.paused
    assert interventions.list_active(control, "shop") == []


def test_a_paused_queue_is_still_seen(far, begin):
    plant = far.plant()
    plant.get_topology()
    begin(PAUSE, "celery")
    far.queues["celery"] = 5
    assert "queue celery" in plant.get_topology().operators
    assert plant.list_sections()[2].rows[0][:2] == ["celery", 5]


def test_a_rate_limit_goes_back_to_what_it_was_however_often_it_was_changed(far, control, begin):
    begin(LIMIT, "shop.mail", "1/m")
    begin(LIMIT, "shop.mail", "5/m", until=300.0)
    assert far.limits["shop.mail"] == "5/m"
    assert [each.until for each in interventions.list_active(control, "shop")] == [300.0]
    undo(far, control, LIMIT, "shop.mail")
    assert far.limits["shop.mail"] == "10/m"


def test_a_task_without_a_limit_has_none_again(far, control, begin):
    begin(LIMIT, "shop.work", "1/s")
    undo(far, control, LIMIT, "shop.work")
    assert far.limits["shop.work"] == "0"


def test_a_revoked_task_is_revoked_at_every_worker_and_nothing_is_in_force(far, control, begin):
    begin(REVOKE, "8ae73293", "terminate")
    assert far.revoked == [(ONE, "8ae73293", True), (TWO, "8ae73293", True)]
    assert interventions.list_active(control, "shop") == []


@pytest.mark.parametrize(
    ("kind", "subject", "value", "said"),
    [
        (PAUSE, "nobody", "", "must be a queue that workers consume"),
        (PAUSE, "", "", "subject"),
        (LIMIT, "shop.work", "fast", "must be a rate such as 10/s"),
        (LIMIT, "shop.work", "\u0661/s", "must be a rate such as 10/s"),
        (LIMIT, "shop.work", "1/s\n", "must be a rate such as 10/s"),
        (LIMIT, "shop.none", "1/s", "must be the name of a task that workers have registered"),
        (REVOKE, "8ae73293", "kill", "terminate"),
        (PAUSE, "x" * 300, "", "1 to 255 characters"),
    ],
)
def test_what_can_t_be_is_refused_and_nothing_is_done(far, control, begin, kind, subject, value, said):
    with pytest.raises(BadInput, match=said):
        begin(kind, subject, value)
    assert not far.paused
    assert not far.revoked
    assert interventions.list_active(control, "shop") == []


def test_a_plant_that_is_away_at_the_end_is_tried_again(far, control, begin):
    begin(PAUSE, "celery")
    answer = far.answer
    far.answer = lambda command, worker, **more: (
        {"error": "no"} if command == "add_consumer" else answer(command, worker, **more)
    )
    assert undo_due(far, control, 250.0) == []
    with pytest.raises(
        PlantUnavailable, match=r"rejected the request: no\. Weir retries it every 10" " s for 60 minutes"
    ):
        undo(far, control, PAUSE, "celery", 250.0)
    far.answer = answer
    assert [each.subject for each in undo_due(far, control, 251.0)] == ["celery"]
    assert not far.paused


def test_one_worker_that_is_late_at_the_end_is_undone_when_it_answers(far, control, begin):
    begin(PAUSE, "celery")
    processes = far.processes.pop(TWO)
    undo_due(far, control, 200.0)
    assert far.paused == {(TWO, "celery")}
    [left] = in_force(control)
    assert (left.error, left.tried_at) == (f"{TWO} is not responding.", 200.0)
    far.processes[TWO] = processes
    far.asked.clear()
    far.paused.add((ONE, "celery"))  # by its owner: what was undone is not undone again
    undo_due(far, control, 210.0)
    assert far.paused == {(ONE, "celery")}
    assert not interventions.list_active(control, "shop")


def test_a_pause_is_prolonged_while_nobody_takes_from_the_queue(far, control, begin):
    begin(PAUSE, "celery")
    begin(PAUSE, "celery", until=300.0)
    assert undo_due(far, control, 250.0) == []
    undo_due(far, control, 300.0)
    assert not far.paused


def test_a_change_that_is_refused_leaves_what_is_in_force(far, control, begin):
    begin(LIMIT, "shop.mail", "1/m")
    with pytest.raises(BadInput, match="must be a rate"):
        begin(LIMIT, "shop.mail", "fast", until=500.0)
    assert [(each.value, each.until) for each in interventions.list_active(control, "shop")] == [("1/m", 200.0)]


def test_a_plant_that_is_away_for_an_hour_after_the_end_is_given_up(far, control, begin):
    begin(PAUSE, "celery")
    far.silent = True
    undo_due(far, control, 200.0)
    undo_due(far, control, 200.0 + interventions.GIVE_UP_SECONDS - 1)
    assert "no worker responds" in in_force(control)[0].error
    undo_due(far, control, 200.0 + interventions.GIVE_UP_SECONDS)
    assert not interventions.list_active(control, "shop")


def test_a_worker_that_started_after_a_pause_began_is_paused_when_it_begins_again_and_undone_with_it(
    far, control, begin
):
    begin(PAUSE, "celery")
    far.processes["celery@three"] = 2
    begin(PAUSE, "celery")
    assert ("celery@three", "celery") in far.paused
    undo_due(far, control, 200.0)
    assert not far.paused


def test_a_worker_that_was_started_anew_is_as_its_owner_set_it_up(far, control, begin):
    begin(PAUSE, "celery")
    far.now, far.stats = 190.0, {"uptime": 50}  # another worker has the name now, and leaves the queue alone
    undo_due(far, control, 200.0)
    assert far.paused and not in_force(control)


def test_nothing_is_given_up_that_was_never_tried_however_late_it_is(far, control, begin):
    begin(PAUSE, "celery", until=150.0)
    begin(LIMIT, "shop.mail", "1/m")
    answer, late = far.answer, 210.0 + interventions.GIVE_UP_SECONDS  # Weir itself was away
    far.answer = lambda command, worker, **more: (
        {"error": "no"} if command == "add_consumer" else answer(command, worker, **more)
    )
    undo_due(far, control, late)
    assert {each.kind for each in in_force(control)} == {PAUSE, LIMIT}  # tried once: an hour starts now
    undo_due(far, control, late + 10.0)
    assert far.limits["shop.mail"] == "10/m"
    undo_due(far, control, late + interventions.GIVE_UP_SECONDS - 1.0)
    assert [each.kind for each in in_force(control)] == [PAUSE]
    undo_due(far, control, late + interventions.GIVE_UP_SECONDS + 1.0)
    assert not in_force(control)


@pytest.mark.parametrize(("kind", "value"), [(PAUSE, ""), (LIMIT, "1/s"), (REVOKE, "")])
def test_an_app_of_which_nobody_answers_is_silent_and_nothing_counts_as_done(far, control, begin, kind, value):
    far.silent = True
    with pytest.raises(PlantUnavailable, match="no worker responds to remote control"):
        begin(kind, "celery", value)
    assert not in_force(control)


@pytest.mark.parametrize(("kind", "command"), [(PAUSE, "active_queues"), (LIMIT, "registered")])
def test_a_worker_that_answers_late_is_named_and_a_repetition_includes_it(far, control, begin, kind, command):
    subject, value = ("celery", "") if kind == PAUSE else ("shop.mail", "1/m")
    far.late = {command: [TWO]}
    with pytest.raises(PlantUnavailable, match=rf"was not sent to workers that responded late: {TWO}. Repeat it"):
        begin(kind, subject, value)
    assert {worker for worker, _ in [*far.paused, *far.limited]} == {ONE}
    far.late, far.limits["shop.mail"] = {}, "10/m"
    begin(kind, subject, value)
    assert {worker for worker, _ in [*far.paused, *far.limited]} == {ONE, TWO}
    undo(far, control, kind, subject)
    assert not far.paused and far.limits["shop.mail"] == "10/m"


def test_a_worker_that_can_t_be_undone_is_not_asked(far, begin):
    far.late = {"active_queues": [TWO]}
    plant = far.plant()
    plant.read_before(PAUSE, "celery", "")
    far.late = {}
    with pytest.raises(PlantUnavailable, match=f"was not sent to workers .*: {TWO}"):
        plant.intervene(PAUSE, "celery", "")
    assert far.paused == {(ONE, "celery")}


def test_what_begins_anew_while_it_is_undone_stays_in_force(far, control, begin):
    begin(PAUSE, "celery", until=150.0)
    answer = far.answer

    def meanwhile(command, worker, **more):
        if command == "add_consumer" and worker == ONE:
            far.answer = answer
            begin(PAUSE, "celery", until=900.0)
        return answer(command, worker, **more)

    far.answer = meanwhile
    undo_due(far, control, 200.0)
    assert [each.until for each in in_force(control)] == [900.0]


def test_an_undo_that_dies_in_its_midst_is_due(far, control, begin):
    begin(PAUSE, "celery", until=900.0)
    interventions.end(control, "shop", PAUSE, "celery", 300.0)
    undo_due(far, control, 300.0)
    assert not far.paused


def test_a_pause_that_was_undone_does_not_come_back_when_the_broker_was_away(far, control, begin):
    begin(PAUSE, "celery")
    undo(far, control, PAUSE, "celery")
    observer = far.plant()
    observer.get_topology()
    assert not far.paused
    far.reconnect()
    far.now += 1.0
    observer.get_topology()
    assert not far.paused
    begin(PAUSE, "celery")  # on purpose
    for _ in range(40):
        far.now += 1.0
        observer.get_topology()
    assert far.paused == {(ONE, "celery"), (TWO, "celery")}


def test_a_worker_that_does_not_follow_is_ordered_again_but_not_at_each_check(far, control, begin):
    begin(PAUSE, "celery")
    undo(far, control, PAUSE, "celery")
    observer, told = far.plant(), far.asked
    for _ in range(29):
        far.reconnect()
        far.now += 1.0
        observer.get_topology()
    assert told.count("add_consumer") == 2
