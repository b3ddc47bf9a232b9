"""The alerter as it runs: one of two works, the other takes over when it dies, and nothing is told twice."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import orjson
import pytest

from queues import keys
from tests.waiting import MAX_SECONDS, until
from tests.workers.alerts.checks import lost, node, plant, rule, the_alert
from tests.workers.alerts.receiving import hook
from workers.alerts.alerter import Alerter
from workers.alerts.evaluation import evaluator
from workers.alerts.lifecycle.models import Alert, Delivery
from workers.coordination.leases import Lease

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.django_db


def publish(control, snapshot: dict, seq: int) -> None:
    control.set(keys.SNAPSHOT, orjson.dumps({**snapshot, "seq": seq, "at": time.time()}))


def test_of_two_alerters_one_checks_and_the_other_takes_over(control):
    rule()
    first, second = Alerter(control), Alerter(control)
    publish(control, lost(), 1)
    now = time.time()
    assert first.step(now, 100.0) is not None and second.step(now, 100.0) is None
    assert Alert.objects.count() == 1
    first.close()
    assert second.step(now + 2, 102.0) is not None
    assert Delivery.objects.count() == 1


def test_what_can_not_be_read_is_an_observer_that_is_silent_and_ends_no_check(control):
    silent = {"condition": "observer_silent", "title": "Nobody observes", "threshold": 10}
    rule("observer-silent", **silent, keep_seconds=0)
    alerter, now = Alerter(control), time.time()
    publish(control, plant(), 1)
    alerter.step(now, 100.0)
    control.hset(keys.PRODUCERS, mapping={"shop|orders": "[", "till|orders": '{"at": 9}'})
    control.set(keys.AUDIT_VERDICT, '{"newer": 1}')
    for seconds, stored in ((2, '{"seq": "one"}'), (20, '{"seq": "two"}')):
        control.set(keys.SNAPSHOT, stored)
        assert alerter.step(now + seconds, 100.0 + seconds) is not None
    assert the_alert().state == "firing"


def test_a_control_server_that_came_back_empty_stops_nobody(control):
    rule()
    publish(control, lost(), 1)
    now = time.time()
    alerter = Alerter(control)
    for at in range(3):
        alerter.close()
        alerter.step(now + at, 100.0 + at)
    control.flushall()
    publish(control, lost(), 2)
    assert alerter.step(now + 7, 107.0) is not None, "nor whoever has run all the time"
    alerter.close()
    assert Alerter(control).step(now + 9, 109.0) is not None


def test_of_two_alerters_that_two_primaries_gave_one_number_the_second_checks_nothing(control, monkeypatch):
    first, second = Alerter(control), Alerter(control)
    publish(control, lost(), 1)
    now = time.time()
    assert first.step(now, 100.0) is not None
    control.flushall()  # the other primary knows of no lease
    publish(control, lost(), 1)
    given = evaluator.get_greatest_fence()
    # Their clocks agree to a microsecond, and it asked before the first had written.
    monkeypatch.setattr(Lease, "acquire", lambda self, at_least=0: given)
    assert second.step(now, 100.0) is None


@pytest.mark.django_db(transaction=True)
def test_it_runs_until_it_is_asked_to_stop(control):
    stop = threading.Event()
    running = threading.Thread(target=Alerter(control).run, args=(stop,))
    running.start()
    stop.set()
    running.join(MAX_SECONDS)
    assert not running.is_alive()


class Process:
    """`manage.py alert` as it runs in a plant, on a database and a control server of its own."""

    def __init__(self, control_url: str, data: Path) -> None:
        database = f"sqlite:///{data / 'weir.sqlite3'}"
        self.environment = {
            **os.environ,
            "WEIR_DATA": str(data),
            "REDIS_URL": control_url,
            "DATABASE_URL": database,
            "WEIR_NODES": "n1=redis://127.0.0.1:1/0",
            "WEIR_ADMIN_PASSWORD": "a long enough pass phrase",
        }
        self.child: subprocess.Popen[bytes] | None = None

    def manage(self, *arguments: str) -> None:
        command = [sys.executable, "manage.py", *arguments]
        subprocess.run(command, cwd=ROOT, env=self.environment, check=True, capture_output=True)

    def start(self) -> None:
        command = [sys.executable, "manage.py", "alert"]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.child = subprocess.Popen(command, cwd=ROOT, env=self.environment, **quiet)

    def kill(self) -> None:
        if self.child is not None:
            self.child.send_signal(signal.SIGKILL)
            self.child.wait(MAX_SECONDS)
            self.child = None


TELL_HOOK = """
from django.utils import timezone
from workers.alerts.delivery import receivers
from workers.alerts.rules import rules
receivers.define("hook", "webhook", {{"url": "http://127.0.0.1:{port}/"}})
tell = [{{"after_minutes": 0, "receivers": ["hook"]}}]
rules.define("node-lost", {{"escalation": tell, "group_by": ["node"]}}, timezone.now())
"""


@pytest.mark.slow
@pytest.mark.faults
def test_killed_at_any_instant_it_notifies_of_each_alert_once(control_server, control, tmp_path):
    """kill -9 at eight random instants, while twelve nodes are lost one after the other: each is told, by one
    message (a repetition has the same key).
    """
    process, chance = Process(control_server.url, tmp_path), random.Random(7)
    with hook() as reporter:
        notify = ("shell", "-c", TELL_HOOK.format(port=reporter.port))
        for arguments in (("migrate", "--skip-checks", "--verbosity=0"), ("seed",), notify):
            process.manage(*arguments)
        names = [f"m{at}" for at in range(12)]
        try:
            for seq in range(1, 9):
                process.start()
                end = time.monotonic() + chance.uniform(1.5, 6.0)
                lose(control, names[: max(1, round(seq * 12 / 8))], end)
                process.kill()
            process.start()
            until(lambda: lose(control, names) or notified(reporter).keys() >= set(names), every_seconds=0.5)
        finally:
            process.kill()
        assert {name: len(keys) for name, keys in notified(reporter).items()} == dict.fromkeys(names, 1)


def lose(control, names: list[str], end: float = 0.0) -> None:
    """Snapshots in which these nodes are lost, one each half second until `end`; one at least."""
    while True:
        nodes = {name: node("OFFLINE", 14.0) for name in names}
        publish(control, {**plant(), "nodes": nodes}, time.monotonic_ns())
        if time.monotonic() >= end:
            return
        time.sleep(0.5)


def notified(reporter) -> dict[str, set[str]]:
    """{node: keys of the messages that told of it}."""
    found: dict[str, set[str]] = {}
    for headers, body in list(reporter.posts):
        for alert in orjson.loads(body)["alerts"]:
            if alert["rule"] == "node-lost":
                found.setdefault(alert["labels"]["node"], set()).add(headers["Idempotency-Key"])
    return found
