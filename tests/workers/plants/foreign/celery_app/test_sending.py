"""Tasks that people start at a Celery app: one contract, for the app in this process and for a real broker."""

import json
import uuid

import pytest
from celery import Celery
from kombu import Connection

from common.errors import BadInput
from queues.nodes.server import free_port
from tests.workers.plants.foreign.celery_app.far import FakeCelery
from workers.plants.foreign.bounded import BoundedPlant
from workers.plants.foreign.celery_app.broker import create_app
from workers.plants.foreign.celery_app.sending import send_task
from workers.plants.foreign.kind import PlantAddress, TaskRequest
from workers.plants.plant import PlantUnavailable

WORKER = "celery@one"


@pytest.fixture(autouse=True)
def loopback(settings):
    settings.WEIR_EGRESS_ALLOW = "127.0.0.0/8"


def a_request(**changed):
    usual = {"id": str(uuid.uuid4()), "name": "shop.work", "queue": "celery", "args": (1, "x"), "kwargs": {"limit": 10}}
    return TaskRequest(**{**usual, **changed})


class Twin:
    """The app in this process."""

    def __init__(self):
        self.far = FakeCelery({WORKER: 2}, ("celery", "mail"))
        self.plant = BoundedPlant("shop", self.far.plant(queues="celery, mail"))

    def received(self):
        return [(sent.id, sent.name, sent.queue, list(sent.args), dict(sent.kwargs)) for sent in self.far.sent]


class RealBroker(Twin):
    """The same workers, and a real broker that keeps the messages."""

    def __init__(self, url):
        super().__init__()
        self.url, app = url, create_app(PlantAddress(name="shop", url=url))
        adapter = self.far.plant(queues="celery, mail")
        adapter._send = lambda request: send_task(app, "shop", request)
        self.plant = BoundedPlant("shop", adapter)

    def messages(self):
        with Connection(self.url) as connection:
            for queue in ("celery", "mail"):
                while message := connection.default_channel.basic_get(queue, no_ack=True):
                    yield queue, message

    def received(self):
        found = []
        for queue, message in self.messages():
            args, kwargs, _ = message.payload
            found.append((message.headers["id"], message.headers["task"], queue, args, kwargs))
        return found


@pytest.fixture(params=["twin", "real broker"])
def app(request, control_server, control):
    return Twin() if request.param == "twin" else RealBroker(control_server.url)


def start(app, request):
    app.plant.check_task(request)
    app.plant.start_task(request)


def test_a_task_arrives_once_with_its_id_and_arguments(app):
    request = a_request(queue="mail")
    start(app, request)
    assert app.received() == [(request.id, "shop.work", "mail", [1, "x"], {"limit": 10})]


@pytest.mark.parametrize(
    ("changed", "field", "said"),
    [
        ({"name": "shop.wrk"}, "task", r"did you mean shop.work\?"),
        ({"name": "os.system"}, "task", "Choose from shop.mail, shop.work"),
        ({"queue": "mial"}, "queue", r"did you mean mail\?"),
        ({"queue": "other"}, "queue", "Choose from celery, mail"),
    ],
)
def test_a_task_that_no_worker_would_run_is_refused_and_not_sent(changed, field, said, app):
    with pytest.raises(BadInput, match=said) as refused:
        start(app, a_request(**changed))
    assert refused.value.field == field and app.received() == []


def test_a_queue_whose_worker_does_not_know_the_task_is_refused():
    """Celery's workers drop such a message."""
    app = Twin()
    app.far.processes["celery@two"] = 2
    answer = app.far.answer
    app.far.answer = lambda command, worker, **more: (
        ["shop.mail"] if (command, worker) == ("registered", "celery@two") else answer(command, worker, **more)
    )
    with pytest.raises(BadInput, match=r"celery@two, which doesn.t know shop\.work"):
        start(app, a_request())


def test_a_paused_queue_takes_a_task_for_later():
    app = Twin()
    app.plant.get_topology()
    app.plant.intervene("pause", "mail", "")
    start(app, a_request(queue="mail"))
    assert len(app.far.sent) == 1


def test_the_message_has_protocol_2_in_json_and_starts_after_its_delay(control_server, control):
    app = RealBroker(control_server.url)
    start(app, a_request(delay_seconds=60.0))
    [(_, message)] = list(app.messages())
    assert (message.content_type, message.headers["lang"], message.headers["retries"]) == ("application/json", "py", 0)
    assert json.loads(message.body)[2] == {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    assert message.headers["eta"] is not None and message.headers["root_id"] == message.headers["id"]


def test_nothing_is_declared_at_the_broker(control_server, control):
    """The app's own bindings and queues are as they were."""
    app = RealBroker(control_server.url)
    before = set(control.keys("*"))
    start(app, a_request())
    assert set(control.keys("*")) - before == {b"celery"}
    control.delete("celery")


def test_a_stock_worker_runs_the_task(control_server, control):
    """A message that a worker of the app decodes and accepts, as it does its own."""
    from celery.worker.request import Request

    stock = Celery("shop", broker=control_server.url, set_as_current=False)

    @stock.task(name="shop.work")
    def work(number, letter, limit):
        return number, letter, limit

    app = RealBroker(control_server.url)
    start(app, a_request())
    [(_, message)] = list(app.messages())
    accepted = Request(message, app=stock, task=work, body=message.body, decoded=False)
    assert (accepted.name, accepted.args, accepted.kwargs) == ("shop.work", [1, "x"], {"limit": 10})
    assert work(*accepted.args, **accepted.kwargs) == (1, "x", 10)


def test_a_broker_that_is_gone_leaves_the_result_unknown(control_server):
    app = create_app(PlantAddress(name="shop", url=f"redis://127.0.0.1:{free_port()}"))
    request = a_request()
    with pytest.raises(PlantUnavailable, match=f"may have been sent: look for its ID {request.id}"):
        send_task(app, "shop", request)
