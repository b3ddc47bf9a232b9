"""A Celery app with its owner's transport options works as before while Weir is attached."""

import json
import os
import subprocess
import sys
import time
from contextlib import closing, contextmanager

import pytest
from celery import Celery

from bench.celery.brokers import valkey
from tests.waiting import until
from workers.plants.foreign import celery_app
from workers.plants.foreign.celery_app.transport import BoundedChannel
from workers.plants.foreign.kind import PlantAddress
from workers.plants.plant import InvalidPlantResponse, PlantUnavailable

pytestmark = pytest.mark.slow
PINGS, TASKS = 6, 6
APP = """
import json, os
from celery import Celery
app = Celery("far", broker=os.environ["FAR_BROKER"], backend=os.environ["FAR_BROKER"])
app.conf.broker_transport_options = json.loads(os.environ["FAR_OPTIONS"])
app.conf.result_backend_transport_options = {"global_keyprefix": "results-"}

@app.task(name="far.double")
def double(number):
    return 2 * number
"""
COLON = {"sep": ":", "priority_steps": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], "queue_order_strategy": "priority"}
OTHER_SIGN = {"sep": "|", "global_keyprefix": "far-", "visibility_timeout": 43_200}
OTHER_FANOUT = {"fanout_prefix": "/far.", "fanout_patterns": False}
CASES = [
    (COLON, {"separator": ":"}, True),
    (COLON, {"separator": "any"}, True),
    (COLON, {"transport_options": json.dumps(COLON)}, True),
    (COLON, {"separator": "usual"}, False),
    ({}, {}, True),
    ({}, {"separator": ":"}, False),
    (OTHER_SIGN, {"transport_options": json.dumps(OTHER_SIGN)}, True),
    (OTHER_SIGN, {"prefix": "far-"}, False),
    (OTHER_FANOUT, {"transport_options": json.dumps(OTHER_FANOUT)}, True),
]


class FarApp:
    """The app as its owner runs it: a client, and a worker of `-Q pri` with a log."""

    def __init__(self, broker, options, log):
        self.broker, self.log = broker, log
        self.app = Celery("far", set_as_current=False, broker=broker, backend=broker)
        self.app.conf.broker_transport_options = options
        self.app.conf.result_backend_transport_options = {"global_keyprefix": "results-"}

    def pings(self):
        return [list(self.app.control.inspect(timeout=2.0, limit=1).ping() or {}) for _ in range(PINGS)]

    def results(self):
        sent = [self.app.send_task("far.double", (number,), queue="pri", priority=number) for number in range(TASKS)]
        return [each.get(timeout=30) for each in sent]


@contextmanager
def running(options, folder):
    (folder / "far.py").write_text(APP)
    with valkey(["far"]) as urls, (folder / "log").open("w") as log:
        own = {name: text for name, text in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
        environment = {**own, "FAR_BROKER": urls["far"], "FAR_OPTIONS": json.dumps(options)}
        command = [sys.executable, "-m", "celery", "-A", "far", "worker", "-Q", "pri", "-c", "1"]
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        try:
            far = FarApp(urls["far"], options, folder / "log")
            until(lambda: far.app.control.ping(timeout=1.0, limit=1))
            yield far
        finally:
            process.terminate()
            process.wait(60)


@pytest.mark.parametrize(("options", "registered", "is_seen"), CASES)
def test_an_attached_app_answers_logs_and_works_as_before(options, registered, is_seen, tmp_path, control):
    with running(options, tmp_path) as far:
        before, said = (far.pings(), far.results()), far.log.read_text()
        address = PlantAddress(name="far", url=far.broker, options=registered)
        with closing(celery_app.make(address)) as plant:
            if is_seen:
                until(lambda: "queue pri" in topology_of(plant).operators)
            else:
                with pytest.raises((InvalidPlantResponse, PlantUnavailable)) as refused:
                    topology_of(plant)
                assert is_explained(refused.value)
            during = []
            for _ in range(2):
                during.append((far.pings(), far.results()))
                if is_seen:
                    assert "queue pri" in topology_of(plant).operators
        after = far.pings(), far.results()
        assert before == after == during[0] == during[1]
        assert all(len(answered) == 1 for answered in before[0])
        assert far.log.read_text() == said


def topology_of(plant):
    return plant.get_topology()


def is_explained(error):
    return "separator" in str(error) or "no worker responds" in str(error)


def test_tasks_that_an_app_took_long_ago_are_the_app_s_to_give_back(control):
    """The app's visibility timeout may be longer than kombu's own, for example for tasks with an ETA."""
    taken_at = time.time() - 86_400
    control.zadd("unacked_index", {"tag": taken_at})
    control.hset("unacked", "tag", json.dumps([{"body": "", "properties": {}}, "pri", "pri"]))
    place = control.connection_pool.connection_kwargs
    url = f"redis://{place['host']}:{place['port']}/{place['db']}"
    app = celery_app.create_app(PlantAddress(name="far", url=url))
    with app.connection() as connection:
        channel = connection.channel()
        assert isinstance(channel, BoundedChannel)
        for _ in range(20):
            channel.qos.restore_visible()
            channel.sweep_bindings()
    assert control.hexists("unacked", "tag") and control.zscore("unacked_index", "tag") == taken_at
