"""Celery events as received: in any order, with any missing, on a connection that breaks: counts stay right."""

from contextlib import contextmanager, suppress
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workers.plants.foreign.celery_app.far import FakeCelery
from tests.workers.plants.foreign.celery_app.test_celery_plant import shown
from workers.plants.foreign.celery_app.events import EventListener, TaskEvents, select_recent_seconds

WORKER = "celery@one"


def events(*kinds, uuid="a", at=1_000.0, now=50.0, into=None, **more):
    heard = into or TaskEvents()
    for number, kind in enumerate(kinds):
        event = {"type": f"task-{kind}", "hostname": WORKER, "uuid": uuid, "timestamp": at + number}
        heard.apply({**event, "name": "shop.work", **more}, now + number)
    return heard


def test_a_task_waits_runs_and_ends():
    heard = events("received")
    pool = heard.pools[WORKER]
    assert (pool.waiting, pool.received, pool.started) == ({"a"}, 1, 0)
    events("started", at=1_002.0, into=heard)
    assert not pool.waiting
    assert list(pool.running) == ["a"]
    events("succeeded", runtime=0.25, now=52.0, into=heard)
    assert not pool.running
    assert select_recent_seconds(pool.runs, 52.0) == [0.25]
    assert select_recent_seconds(pool.waits, 52.0) == [2.0]
    assert heard.get_latest()[0].state == "succeeded"


def test_an_error_is_kept_with_its_traceback_and_without_its_secret():
    heard = events("received", "started", "failed", exception="KeyError('token=abc')", traceback="File x\nKeyError")
    task = heard._tasks.get("a")
    assert (task.state, heard.pools[WORKER].failed) == ("failed", 1)
    assert "abc" not in task.error
    assert "File x" in heard.list_errors()[0].traceback
    assert select_recent_seconds(heard.pools[WORKER].runs, 52.0) == [1.0]


def test_an_attempt_that_failed_stays_as_it_was_when_the_task_is_tried_again():
    heard = events("received", "started", "retried", exception="RuntimeError('refused')", traceback="one")
    events("received", "started", "failed", exception="RuntimeError('gone')", traceback="two", into=heard)
    events("received", "started", "succeeded", runtime=0.1, into=heard)
    said = [(each.state, each.error, each.traceback) for each in heard.list_errors()]
    assert said == [("failed", "RuntimeError('gone')", "two"), ("retried", "RuntimeError('refused')", "one")]


def test_a_worker_that_was_started_anew_has_nothing_waiting_and_one_that_left_is_gone():
    heard = events("received", "started")
    for pid in (1, 2):
        heard.apply({"type": "worker-heartbeat", "hostname": WORKER, "pid": pid}, 60.0)
    assert not heard.pools[WORKER].running
    heard.apply({"type": "worker-offline", "hostname": WORKER, "pid": 2}, 61.0)
    assert heard.list_beating_workers(61.0) == []


@pytest.mark.parametrize(("active", "running"), [(0, []), (1, ["a"])])
def test_a_worker_that_comes_online_under_its_pid_goes_on_with_its_tasks_and_takes_the_others_anew(active, running):
    heard = events("received", "started")
    events("received", uuid="b", into=heard)
    for kind in ("heartbeat", "online"):
        heard.apply({"type": f"worker-{kind}", "hostname": WORKER, "pid": 1, "active": active}, 60.0)
    pool = heard.pools[WORKER]
    assert (pool.waiting, list(pool.running), pool.sends_tasks) == (set(), running, bool(running))


def test_a_worker_that_is_silent_is_not_waited_for():
    heard = events("received", now=50.0)
    assert heard.list_beating_workers(50.0) == []  # from tasks alone: which other workers exist is unknown
    heard.apply({"type": "worker-heartbeat", "hostname": WORKER, "pid": 1}, 50.0)
    assert heard.list_beating_workers(60.0) == [WORKER]
    heard.apply({"type": "task-received", "hostname": WORKER, "uuid": "2"}, 80.0)
    assert heard.list_beating_workers(90.0) == []


JUNK = st.one_of(st.none(), st.integers(), st.text(max_size=5), st.lists(st.integers(), max_size=2))
EVENT = st.fixed_dictionaries(
    {"type": st.sampled_from(["task-received", "task-started", "task-succeeded", "task-failed", "worker-online"])},
    optional={
        "hostname": st.one_of(st.just(WORKER), JUNK),
        "uuid": st.one_of(st.sampled_from("ab"), JUNK),
        **dict.fromkeys(("timestamp", "name", "args", "kwargs", "runtime", "retries", "eta", "exception", "pid"), JUNK),
    },
)


@given(st.lists(EVENT, max_size=30))
def test_events_that_can_t_be_understood_harm_nothing(stream):
    heard = TaskEvents()
    for number, event in enumerate(stream):
        heard.apply(event, float(number))
    for pool in heard.pools.values():
        assert len(pool.waiting) + len(pool.running) <= 2
        assert all(seconds >= 0 for seconds in select_recent_seconds(pool.runs, 100.0) if isinstance(seconds, float))
    heard.get_latest()


class BrokenLine:
    """The events of an app: `connections` are the events of each connection before it breaks."""

    def __init__(self, *connections):
        self._connections = iter(connections)
        self.events = SimpleNamespace(Receiver=lambda connection, handlers: Reader(connection, handlers["*"]))

    @contextmanager
    def connection_for_read(self):
        yield next(self._connections)


class Reader:
    def __init__(self, events, handle):
        self._events, self._handle = iter(events), handle

    @contextmanager
    def consumer_context(self, wakeup):
        yield self, None, None

    def drain_events(self, timeout):
        event = next(self._events, None)
        if event is None:
            raise OSError("broken")
        self._handle(event)


def task(number, kind):
    return {"type": f"task-{kind}", "hostname": WORKER, "uuid": str(number), "name": "shop.work", "timestamp": 5.0}


def listening(far, *connections):
    far.listener = EventListener(BrokenLine(*connections), TaskEvents(), lambda: far.now)
    far.listener.start = lambda: None
    return far.listener


def hear(listener):
    with suppress(OSError):
        listener._receive()


def observed(far, plant):
    far.now += 1.0
    plant.get_topology()
    return shown(plant, "Busy", "Waiting")


def test_tasks_that_ended_while_the_line_was_broken_do_not_wait_for_ever():
    far = FakeCelery({WORKER: 2})
    before = [task(number, "received") for number in range(10)] + [task(0, "started"), task(1, "started")]
    listener = listening(far, before, [], [task(20, "received"), task(20, "started"), task(21, "received")])
    plant = far.plant()
    plant.get_topology()
    hear(listener)
    assert observed(far, plant) == [2, 8]
    far.busy[WORKER], far.reserved = 1, [{"name": "shop.work"}] * 3  # all others have ended meanwhile
    hear(listener)
    assert observed(far, plant) == [1, 3]  # as reported by remote control
    assert far.events_on == [WORKER, WORKER]
    hear(listener)
    assert observed(far, plant) == [1, 1]  # events arrive again


def test_until_the_worker_was_asked_anew_its_events_are_not_believed_either():
    far = FakeCelery({WORKER: 2})
    listener = listening(far, [task(1, "received")], [])
    plant = far.plant()
    plant.get_topology()
    hear(listener)
    assert plant._requests.sends(WORKER)
    hear(listener)  # between two steps of an observation
    assert not plant._requests.sends(WORKER)
