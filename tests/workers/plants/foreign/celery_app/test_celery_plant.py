"""A Celery app behind the plant interface: what is observed of it, and what its workers are asked to do."""

import pytest

from common.errors import BadInput
from controllers.parallelism import inputs, joint_law
from tests.workers.plants.foreign.celery_app.far import FakeCelery
from workers.plants.foreign.celery_app import inspect
from workers.plants.foreign.kind import PlantAddress
from workers.plants.plant import InvalidPlantResponse, PlantUnavailable

ONE, TWO = "celery@one", "celery@two"


@pytest.fixture
def far():
    return FakeCelery({ONE: 2})


def task(far, number, kind, **more):
    event = {"type": f"task-{kind}", "hostname": ONE, "uuid": str(number), "timestamp": far.now, **more}
    far.listener.events.apply({"name": "shop.work", **event}, far.now)


def busy(far, plant, seconds, per_second):
    """Run tasks that arrive singly, take 0.5 s, and start on arrival."""
    topology, number = plant.get_topology(), 0
    for _ in range(seconds):
        far.now += 1.0
        for _ in range(per_second):
            number += 1
            task(far, number, "received")
            task(far, number, "started")
            far.begun[ONE] += 1
            task(far, number, "succeeded", runtime=0.5)
        topology = plant.get_topology()
    return topology


def test_a_queue_is_a_source_and_a_pool_an_operator_with_its_processes(far):
    topology = far.plant().get_topology()
    assert topology.paths == {"path1": ("queue celery", ONE)}
    assert topology.operators[ONE].parallelism == 2
    assert topology.operators[ONE].maximum == 100
    assert topology.operators["queue celery"].fixed


def test_what_laws_need_is_measured_by_events(far):
    topology = busy(far, far.plant(), 20, 4)
    seen = joint_law.observe(topology).operators[ONE]
    assert seen.rate_per_second == pytest.approx(4.0, rel=0.1)
    assert seen.service_seconds == pytest.approx(0.5)
    assert seen.backlog_events == 0
    assert inputs.list_steered_paths(topology) == ((ONE,),)


def test_what_waits_in_the_broker_and_in_the_worker_has_an_age(far):
    plant = far.plant()
    busy(far, plant, 20, 4)
    for _ in range(5):  # no task starts any more
        far.now += 1.0
        far.queues["celery"] += 4
        topology = plant.get_topology()
    [link] = topology.links
    assert link.latency_seconds == pytest.approx(5.0, abs=1.0)
    assert joint_law.observe(topology).operators[ONE].backlog_events == pytest.approx(20, rel=0.3)


@pytest.mark.parametrize("events", ["ask", "listen"])
def test_what_waits_only_for_its_rate_limit_does_not_wait_for_a_process(far, events):
    far.reserved = [{"name": "shop.mail"}] * 4 + [{"name": "shop.work"}]
    plant = far.plant(events=events)
    plant.get_topology()
    plant.list_sections()  # when limits are requested
    far.now += 1.0
    if events == "ask":
        for number in range(5):
            task(far, number, "received", name="shop.work" if number == 4 else "shop.mail")
    plant.get_topology()
    [workers] = [each for each in plant.list_sections() if each.title == "Workers"]
    assert workers.rows[0][workers.columns.index("Waiting")] == 1


def test_a_worker_is_asked_for_events_once_in_its_life_and_to_stop_when_weir_leaves(far):
    plant = far.plant()
    for _ in range(3):
        far.now += 1.0
        plant.get_topology()
    assert far.events_on == [ONE]
    far.pid = 8
    plant.get_topology()
    assert far.events_on == [ONE, ONE]
    plant.close()
    assert far.events_off == [ONE]
    assert far.listener.closed


def test_a_worker_that_its_owner_started_with_events_is_not_asked_to_stop(far):
    far.sending.add((ONE, far.pid))
    plant = far.plant()
    plant.get_topology()
    plant.close()
    assert far.events_off == []


def shown(plant, *columns):
    [workers] = [each for each in plant.list_sections() if each.title == "Workers"]
    return [workers.rows[0][workers.columns.index(name)] for name in columns]


def with_tasks(far, plant):
    far.stats, far.begun[ONE] = {"uptime": 100}, 50
    plant.get_topology()
    for number in range(3):
        task(far, number, "received")
    task(far, 0, "started")
    far.begun[ONE] += 1
    far.now += 1.0
    plant.get_topology()
    assert shown(plant, "Busy", "Waiting") == [1, 2]


@pytest.mark.parametrize("stats, begun", [({"uptime": 1}, 60), ({}, 0)])
def test_a_worker_that_was_killed_and_began_anew_under_its_pid_has_nothing_at_work_and_is_asked_again(
    far, stats, begun
):
    plant = far.plant()
    with_tasks(far, plant)
    far.sending.clear()
    far.now, far.stats, far.begun[ONE] = far.now + 1.0, stats, begun
    plant.get_topology()
    assert shown(plant, "Busy", "Waiting") == [0, 0]
    assert far.events_on == [ONE, ONE]


def test_where_remote_control_is_switched_off_the_queues_are_seen_and_it_is_said(far):
    far.silent = True
    far.queues["celery"] = 12
    plant = far.plant()
    topology = plant.get_topology()
    assert list(topology.operators) == ["queue celery"]
    assert not inputs.list_steered_paths(topology)
    assert "worker_enable_remote_control" in plant.list_missing()[0]
    assert plant.list_sections()[2].rows[0][:2] == ["celery", 12]


@pytest.mark.parametrize("beating", [0, 1])
def test_workers_without_heartbeats_are_seen_where_others_are_heard(beating):
    far = FakeCelery({f"w{n}@a": 2 for n in range(3)})
    far.listener.count_workers = lambda: beating or None
    plant = far.plant()
    for _ in range(12):
        far.now += 1.0
        topology = plant.get_topology()
    assert len(topology.operators) == 1 + 3
    far.processes |= {"w3@a": 2, "w4@a": 2}
    for _ in range(31):
        far.now += 1.0
        topology = plant.get_topology()
    assert len(topology.operators) == 1 + 5


def test_a_large_app_is_seen_with_the_queues_of_the_same_workers_as_one_source():
    far = FakeCelery({f"w{n}@a": 2 for n in range(101)}, queues=[f"q{n}" for n in range(10)])
    for n in range(101):
        far.paused.add((f"w{n}@a", "q9" if n else "q8"))  # the first takes q9, and the others q8
    plant = far.plant(events="listen")
    for _ in range(20):
        far.now += 1.0
        far.begun = {worker: count + 1 for worker, count in far.begun.items()}
        topology = plant.get_topology()
    sources = [each for each in topology.operators.values() if each.kind == "source"]
    assert sorted(each.name for each in sources) == ["queue q0 and 7 more", "queue q8", "queue q9"]
    assert len(topology.paths) == 101 + 100 + 1
    assert any("10 queues are shown as 3 sources" in each for each in plant.list_missing())


def test_a_worker_that_answers_late_once_is_as_it_was_and_one_that_stays_away_is_gone(far):
    plant = far.plant()
    plant.get_topology()
    far.silent = True
    far.now += 2.0
    assert plant.get_topology().operators[ONE].parallelism == 2
    far.now += 10.0
    assert ONE not in plant.get_topology().operators


def rates(plant, far, begun, growth=0):
    """Advance one second in which pools start tasks and the queue grows; return worker → its arrivals."""
    far.now += 1.0
    far.queues["celery"] += growth
    for worker, count in begun.items():
        far.begun[worker] += count
    operators = plant.get_topology().operators.values()
    return {each.name: each.measure("inputs") for each in operators if each.kind == "operator"}


def test_a_pool_that_grows_beside_another_brings_no_arrivals_and_has_its_part_of_them():
    far = FakeCelery({ONE: 4, TWO: 4})
    far.queues["celery"] = 1_000
    plant = far.plant(events="listen")
    for _ in range(60):
        found = rates(plant, far, {ONE: 2, TWO: 2})
    assert found == pytest.approx({ONE: 20.0, TWO: 20.0})  # in ten seconds
    far.processes[ONE] = far.wanted[ONE] = 12
    for _ in range(60):
        found = rates(plant, far, {ONE: 3, TWO: 1})
        assert found == pytest.approx({ONE: 30.0, TWO: 10.0})


def test_a_worker_that_goes_or_comes_brings_no_arrivals_and_takes_none_away():
    far = FakeCelery({ONE: 4, TWO: 4})
    far.queues["celery"] = 1_000
    plant = far.plant(events="listen")
    for _ in range(60):
        rates(plant, far, {ONE: 2, TWO: 2})
    del far.processes[TWO]
    for _ in range(30):  # for 8 s the other may only be late
        found = rates(plant, far, {ONE: 2}, growth=2)
    assert found == pytest.approx({ONE: 40.0}, rel=0.15)
    far.processes[TWO], far.begun[TWO], far.pid = 4, 50_000, 8  # a worker that worked elsewhere until now
    for _ in range(30):
        found = rates(plant, far, {ONE: 2, TWO: 2})
        assert sum(found.values()) == pytest.approx(40.0, rel=0.15)


def test_of_workers_that_take_other_queues_besides_each_has_its_part_of_the_queue_that_they_share():
    far = FakeCelery({ONE: 2, TWO: 2}, queues=["celery", "mail"])
    far.paused.add((TWO, "mail"))
    plant = far.plant(events="listen")
    for _ in range(60):
        far.queues["mail"] += 1
        found = rates(plant, far, {ONE: 2, TWO: 2}, growth=2)
    assert found == pytest.approx({ONE: 40.0, TWO: 30.0}, rel=0.1)


def test_a_pool_that_was_ordered_to_grow_is_not_ordered_twice(far):
    plant = far.plant()
    plant.set_parallelism({ONE: 6})
    plant.set_parallelism({ONE: 6})  # the first order is not executed yet: Celery forks every five seconds
    plant.set_parallelism({ONE: 7})
    far.run(6.0)
    assert far.processes[ONE] == 7
    assert far.orders == 2


def test_only_idle_processes_end(far):
    far.processes[ONE] = far.wanted[ONE] = 6
    far.busy[ONE] = 4
    far.plant().set_parallelism({ONE: 1})
    assert far.processes[ONE] == 4
    far.busy[ONE] = 0
    far.run(6.0)
    far.plant().set_parallelism({ONE: 1})
    assert far.processes[ONE] == 1


def test_a_pool_with_celery_s_own_autoscaler_or_without_processes_is_left_alone(far):
    for stats, said in (
        ({"autoscaler": {"max": 10}}, "--autoscale"),
        ({"pool": {"implementation": "celery.concurrency.thread:TaskPool", "max-concurrency": 4}}, "thread"),
        ({"pool": {"implementation": "celery.concurrency.gevent:TaskPool", "max-concurrency": 4}}, "gevent"),
    ):
        far.stats = stats
        assert said in far.plant().get_topology().operators[ONE].fixed
        with pytest.raises(BadInput, match="can't be set"):
            far.plant().set_parallelism({ONE: 3})
    assert far.orders == 0


def test_a_worker_that_refuses_or_does_not_answer_is_said_so(far):
    plant = far.plant()
    far.resize = lambda *_: {"error": "ValueError('no')"}
    with pytest.raises(InvalidPlantResponse, match=r"celery@one rejected.*no"):
        plant.set_parallelism({ONE: 3})
    far.resize = lambda *_: None
    with pytest.raises(PlantUnavailable, match="did not respond"):
        far.plant().set_parallelism({ONE: 4})


def test_a_broker_that_is_away_makes_the_plant_silent(far):
    def away(*_, **__):
        raise ConnectionRefusedError("refused")

    far.broadcast = away
    with pytest.raises(PlantUnavailable, match="can't be reached"):
        far.plant().get_topology()


def test_its_page_shows_tasks_with_arguments_errors_and_rate_limits(far):
    plant = far.plant()
    plant.get_topology()
    task(far, 1, "received", args="(1,)", kwargs="{'password': 'x'}")
    task(far, 1, "started")
    task(far, 1, "failed", exception="ValueError('no such order')", traceback="Traceback …")
    sections = {each.title: each for each in plant.list_sections()}
    assert sections["Last tasks"].rows[0][1:4] == ["shop.work", "(1,) {'password': •••}", "failed"]
    assert sections["Last errors"].rows[0][2:] == ["ValueError('no such order')", "Traceback …"]
    limits = {row[0]: row[-1] for row in sections["Task types"].rows}
    assert limits == {"shop.work": None, "shop.mail": "10/m"}
    for each in sections.values():
        assert all(len(row) == len(each.columns) for row in each.rows)


def inspected(far, **options):
    address = PlantAddress(name="shop", url="redis://broker.example", options=options)
    return inspect(address, lambda _: far.plant(events="listen"), far.run)


def test_an_inspection_says_what_is_there_and_changes_nothing(far):
    found = inspected(far)
    assert found.what == "A Celery app: 1 queue, 1 worker with 2 processes."
    assert [each.name for each in found.parts] == ["queue celery", ONE]
    assert any("-E" in each for each in inspected(far, events="listen").needs)
    assert not {"enable_events", "pool_grow", "pool_shrink"} & set(far.asked)


def test_where_one_of_several_workers_fails_those_before_it_are_called_back():
    far = FakeCelery({ONE: 4, TWO: 2})
    far.late = {"pool_grow": [TWO]}
    with pytest.raises(PlantUnavailable, match=f"{TWO} did not respond.*were reverted"):
        far.plant().set_parallelism({ONE: 2, TWO: 5})
    far.run(5.0)
    assert far.processes == {ONE: 4, TWO: 2}


def test_a_worker_that_grows_and_can_not_be_called_back_is_named_where_another_one_fails():
    far = FakeCelery({ONE: 2, TWO: 2})
    far.late = {"pool_grow": [TWO]}
    with pytest.raises(PlantUnavailable, match=f"Part of the change may be in effect: {ONE} could not be reverted"):
        far.plant().set_parallelism({ONE: 3, TWO: 5})
    assert far.noted.get(ONE) == {"pid": 7, "processes": 3}
