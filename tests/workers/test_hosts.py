"""What a Celery host says of itself."""

from types import SimpleNamespace

import pytest
import redis
from celery.worker import state

from tests.servers import Server
from workers.hosts import HostReport, report, role_of, slots_of


class Timer:
    """Celery's timer, wound by hand."""

    def call_repeatedly(self, seconds: float, call, arguments):
        self.seconds, self.call = seconds, lambda: call(*arguments)
        return SimpleNamespace(cancel=lambda: None)


@pytest.fixture
def host():
    processes = [object(), object(), object()]
    pool = SimpleNamespace(_pool=SimpleNamespace(_pool=processes), num_processes=2)
    return SimpleNamespace(hostname="jobs@here", pool=pool, timer=Timer())


def test_the_role_is_what_stands_before_the_machine():
    assert role_of("spark@node-7") == "spark"


def test_slots_are_the_pools_real_processes_also_after_it_has_grown(host):
    assert slots_of(host.pool) == 3
    host.pool._pool._pool.append(object())
    assert slots_of(host.pool) == 4
    assert slots_of(SimpleNamespace(_pool=None, num_processes=1)) == 1


def test_busy_is_what_runs_now(host, monkeypatch):
    monkeypatch.setattr(state, "active_requests", {object(), object()})
    assert report(host.hostname, host.pool, 5.0)["busy"] == 2


def test_a_host_reports_each_second_and_leaves_the_list_when_it_stops(host, control: redis.Redis):
    step = HostReport(host)
    step.start(host)
    assert host.timer.seconds == 1.0
    host.timer.call()
    assert control.hkeys("weir:hosts") == [b"jobs@here"]
    step.stop(host)
    assert control.hlen("weir:hosts") == 0


def test_a_control_server_that_is_away_is_told_once_and_stops_nobody(
    host, control_server: Server, caplog: pytest.LogCaptureFixture
):
    step = HostReport(host)
    step.start(host)
    control_server.kill()
    host.timer.call()
    host.timer.call()
    assert len([record for record in caplog.records if "host report" in record.message]) == 1
    control_server.start()
    host.timer.call()
    assert control_server.client().hlen("weir:hosts") == 1
