"""Producers that have left are forgotten, and nobody else is."""

import json

import pytest
import redis

from queues import keys
from queues.nodes.server_roles import ROLES, format_access_list
from queues.publishing.producers import LEFT_SECONDS, ProducerReport
from workers.alerts.conditions.gatherer import Gatherer
from workers.snapshot.local import LocalPlant
from workers.snapshot.observer import REMOVAL_SECONDS as EVERY_SECONDS
from workers.snapshot.observer import LeftProducers, Observer

DAY = LEFT_SECONDS
NOW = 1_790_000_000.0


class Time:
    """The wall clock, and a monotonic one, that a test moves."""

    def __init__(self) -> None:
        self.seconds = 5_000.0

    def now(self) -> float:
        return NOW + self.seconds

    def monotonic(self) -> float:
        return self.seconds


def report(control: redis.Redis, name: str, events: int, at: float) -> None:
    found = ProducerReport(control, name, lambda: at)
    found._closing.set()
    found.add("alert", events, 1)
    found.close()


def names(control: redis.Redis) -> list[str]:
    return sorted(each.decode().removesuffix("|alert") for each in control.hkeys(keys.PRODUCERS))


@pytest.fixture
def time():
    return Time()


def passes(left: LeftProducers, time: Time, seconds: float) -> None:
    """Time passes, and each minute somebody is at it."""
    until = time.seconds + seconds
    while time.seconds < until:
        left.step(time.now(), time.seconds)
        time.seconds += EVERY_SECONDS


def test_a_producer_that_was_silent_for_a_day_is_forgotten_and_one_that_was_for_less_is_not(control, time):
    for name, ago in (("run-1", 2 * DAY), ("run-2", DAY + 60), ("shop", DAY - 3_600), ("till", 5)):
        report(control, name, 7, time.now() - ago)
    left = LeftProducers(control)
    passes(left, time, 540)
    assert len(names(control)) == 4, "nobody goes by a time stamp that was seen just now"
    passes(left, time, 180)
    assert names(control) == ["shop", "till"]


def test_a_producer_whose_clock_is_days_off_goes_on_while_it_publishes(control, time):
    left = LeftProducers(control)
    for _ in range(20):
        report(control, "behind", 1, time.now() - 3 * DAY)
        report(control, "ahead", 1, time.now() + 3 * DAY)
        passes(left, time, 300)
    assert json.loads(control.hget(keys.PRODUCERS, "behind|alert") or b"")["events"] == 20
    passes(left, time, DAY - 3_600)
    assert names(control) == ["ahead", "behind"]
    passes(left, time, 7_200)
    assert names(control) == []


def test_rows_that_nobody_can_read_go_after_a_day_too(control, time):
    control.hset(keys.PRODUCERS, mapping={"shop|alert": "[", "web|alert": "3"})
    left = LeftProducers(control)
    passes(left, time, DAY)
    assert names(control) == ["shop", "web"]
    passes(left, time, 120)
    assert names(control) == []


def test_one_that_reports_at_that_very_instant_goes_on_with_its_counts(control, time, monkeypatch):
    for name in ("shop", "run"):
        report(control, name, 7, time.now() - 2 * DAY)
    left = LeftProducers(control)
    passes(left, time, 600)
    forget = left._forget

    def after_its_report(**arguments):
        report(control, "shop", 1, time.now())
        return forget(**arguments)

    monkeypatch.setattr(left, "_forget", after_its_report)
    assert left.step(time.now(), time.seconds) == 1
    assert names(control) == ["shop"]
    assert json.loads(control.hget(keys.PRODUCERS, "shop|alert") or b"")["events"] == 8


@pytest.mark.django_db
@pytest.mark.usefixtures("plant_topology")
def test_an_observer_forgets_them_and_the_rates_of_those_that_stay_do_not_jump(control, time):
    plant = LocalPlant(control, time.now, time.monotonic)
    observer = Observer(control, plant, time.now, monotonic=time.monotonic)
    gatherer = Gatherer(control)
    report(control, "run", 500, time.now() - 2 * DAY)
    seen = []
    for _ in range(70):
        time.seconds += 10.0
        report(control, "shop", 100, time.now())
        snapshot = observer.step()
        assert snapshot is not None
        seen.append(snapshot.producers["shop"].in_per_second)
    gatherer.gather(time.now(), time.seconds)
    assert names(control) == ["shop"]
    assert seen[0] is None and set(seen[1:]) == {10.0}
    assert set(plant._watcher._producer_rates._samples) == {"shop|alert.events"}
    for freshness in (plant._watcher._freshness, gatherer._freshness):
        assert [each for each in freshness._seen if "producer/" in each] == ["producer/shop|alert"]


@pytest.mark.parametrize("role", [each for each in ROLES if each.name == "observer"])
def test_the_observers_user_may_forget_them_and_one_of_before_says_so_once(control, control_server, time, role, caplog):
    report(control, "run", 7, time.now() - 2 * DAY)
    before = role.control.replace(f" ~{keys.PRODUCERS} ", " ")
    assert before != role.control
    for rights, stays in ((before, ["run"]), (role.control, [])):
        user = format_access_list({role.name: rights}, {role.name: "x" * 32}).splitlines()[-1].split()
        control.execute_command("ACL", "SETUSER", role.name, "reset", *user[2:])
        own = control_server.client(username=role.name, password="x" * 32)
        left = LeftProducers(own)
        passes(left, time, 900)
        assert names(control) == stays
    control.execute_command("ACL", "DELUSER", role.name)
    assert len([each for each in caplog.messages if "Failed to remove the rows" in each]) == 1
