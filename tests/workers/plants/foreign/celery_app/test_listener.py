"""Events of an app on a connection that breaks: a state that missed events does not stay."""

from contextlib import contextmanager, suppress
from types import SimpleNamespace

from tests.workers.plants.foreign.celery_app.far import FakeCelery
from tests.workers.plants.foreign.celery_app.test_celery_plant import shown
from workers.plants.foreign.celery_app.events import EventListener, TaskEvents

ONE = "celery@one"


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
    return {"type": f"task-{kind}", "hostname": ONE, "uuid": str(number), "name": "shop.work", "timestamp": 5.0}


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
    far = FakeCelery({ONE: 2})
    before = [task(number, "received") for number in range(10)] + [task(0, "started"), task(1, "started")]
    listener = listening(far, before, [], [task(20, "received"), task(20, "started"), task(21, "received")])
    plant = far.plant()
    plant.get_topology()
    hear(listener)
    assert observed(far, plant) == [2, 8]
    far.busy[ONE], far.reserved = 1, [{"name": "shop.work"}] * 3  # all others have ended meanwhile
    hear(listener)
    assert observed(far, plant) == [1, 3]  # as reported by remote control
    assert far.events_on == [ONE, ONE]
    hear(listener)
    assert observed(far, plant) == [1, 1]  # events arrive again


def test_until_the_worker_was_asked_anew_its_events_are_not_believed_either():
    far = FakeCelery({ONE: 2})
    listener = listening(far, [task(1, "received")], [])
    plant = far.plant()
    plant.get_topology()
    hear(listener)
    assert plant._requests.sends(ONE)
    hear(listener)  # between two steps of an observation
    assert not plant._requests.sends(ONE)
