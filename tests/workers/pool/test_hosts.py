"""What a Celery host says of itself."""

import time
from types import SimpleNamespace

import orjson
import pytest

from queues import keys
from workers.pool import departures, orders
from workers.pool.departures import WARM_UP_SECONDS, Departures
from workers.pool.hosts import FORGOTTEN_SECONDS, HostReport, Pool, list_broker_keys, report
from workers.pool.orders import read_host_reports


class Timer:
    """Celery's timer, wound by hand."""

    def call_repeatedly(self, seconds: float, call, arguments):
        self.seconds, self.call = seconds, lambda: call(*arguments)
        return SimpleNamespace(cancel=lambda: None)


class Processes:
    """Billiard's pool, as far as a host touches it: who is told to leave does so at once."""

    def __init__(self, count: int) -> None:
        self._pool = [SimpleNamespace(pid=pid) for pid in range(1, count + 1)]
        self._processes, self._putlock, self.full = count, None, False

    def apply_async(self, function) -> None:
        assert function.__name__ == "leave"
        self._pool.pop()


class TaskPool:
    """Celery's pool of processes."""

    def __init__(self, count: int) -> None:
        self._pool = Processes(count)

    def grow(self, count: int) -> None:
        if self._pool.full:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        self._pool._processes += count

    def maintain_pool(self) -> None:
        missing = self._pool._processes - len(self._pool._pool)
        self._pool._pool += [SimpleNamespace(pid=100 + at) for at in range(missing)]


@pytest.fixture
def host():
    prefetch = []
    consumer = SimpleNamespace(_update_prefetch_count=prefetch.append)
    return SimpleNamespace(hostname="jobs@here", pool=TaskPool(3), timer=Timer(), consumer=consumer)


def reported(host, now=5.0):
    return report(host.hostname, Pool(host), Departures(3, 0.0), now)


def test_slots_are_the_pools_real_processes_also_after_it_has_grown(host):
    assert reported(host).slots == 3
    Pool(host).bring_to(4)
    assert (reported(host).slots, reported(host).resizable) == (4, True)
    host.pool = SimpleNamespace(_pool=None, num_processes=2)
    assert (reported(host).slots, reported(host).resizable) == (2, False)


def test_a_pool_is_brought_to_a_size_and_fetches_as_much_as_it_can_run(host):
    pool = Pool(host)
    for threads, size in ((5, 5), (5, 5), (2, 2), (0, 1), (-3, 1)):
        pool.bring_to(threads)
        assert pool.size == size == len(pool.slots)
    assert pool.started_with == 3


def test_a_pool_that_refuses_to_grow_says_why_until_it_grows(host, caplog):
    pool, host.pool._pool.full = Pool(host), True
    pool.bring_to(5)
    pool.bring_to(5)
    assert "Resource temporarily unavailable" in pool.last_error and pool.size == 3
    assert len(caplog.records) == 1
    host.pool._pool.full = False
    pool.bring_to(5)
    assert (pool.last_error, pool.size) == ("", 5)


def test_a_pool_of_threads_is_left_as_it_is(host):
    host.pool = SimpleNamespace(_pool=SimpleNamespace(), num_processes=2)
    pool = Pool(host)
    pool.bring_to(9)
    assert (pool.resizable, pool.size, pool.last_error) == (False, 2, "")


def test_a_host_follows_the_order_for_its_own_life_and_goes_back_when_it_lapses(host, control):
    step = HostReport(host)
    step.start(host)
    host.timer.call()
    key = keys.POOL.build("jobs@here")
    orders.order(control, "jobs@here", 6)
    host.timer.call()
    assert len(host.pool._pool._pool) == 6
    control.set(key, orjson.dumps({"threads": 9, "pid": 1}))
    host.timer.call()
    assert len(host.pool._pool._pool) == 3
    control.delete(key)
    host.timer.call()
    assert len(host.pool._pool._pool) == 3


def test_what_workers_complete_is_in_the_report_and_each_note_is_read_once(host, control):
    step = HostReport(host)
    step.start(host)
    began = time.monotonic()
    for slot in (1, 2, 3, 4_000):
        line = departures.CompletionReporter("jobs@here", slot, lambda: began)
        line.record_start(control)
        done = [(began + at / 100, 5) for at in range(1, 200)]
        entry = {"p": slot, "d": orjson.dumps(done), "u": began + 2}
        control.xadd(keys.DONE.build("jobs@here"), entry)
    for _ in range(2):
        host.timer.call()
    step._departures.settle(began + 5, step._pool.slots)
    host.timer.call()
    done = orjson.loads(control.hget("weir:hosts", "jobs@here"))["done"]
    # The fourth is of a host of this name before it.
    assert done["per_second"] == pytest.approx(3 * 5 * 100, rel=0.05)
    assert step._departures.full_seconds == pytest.approx(2.0 - WARM_UP_SECONDS, abs=0.1)


def test_a_host_reports_each_second_and_leaves_the_list_when_it_stops(host, control):
    step = HostReport(host)
    step.start(host)
    assert host.timer.seconds == 1.0
    host.timer.call()
    assert control.hkeys("weir:hosts") == [b"jobs@here"]
    step.stop(host)
    assert control.hlen("weir:hosts") == 0


def test_a_control_server_that_is_away_is_reported_once_and_stops_nobody(host, control_server, caplog):
    step = HostReport(host)
    step.start(host)
    control_server.kill()
    host.timer.call()
    host.timer.call()
    assert len([record for record in caplog.records if "host report" in record.message]) == 1
    control_server.start()
    host.timer.call()
    assert control_server.client().hlen("weir:hosts") == 1


def test_what_a_host_reports_has_the_keys_that_other_versions_know_and_is_read_as_it_was(host, control):
    step = HostReport(host)
    step.start(host)
    host.timer.call()
    stored = orjson.loads(control.hget(keys.HOSTS, "jobs@here"))
    known = "role slots busy at_work pid at resizable started_with trouble done reserved drained ahead_seconds"
    known += " capabilities"
    assert stored.keys() == set(known.split())
    known = "seq recent_seconds full_seconds per_second mix open_seconds open_events"
    assert stored["done"].keys() == set(known.split())
    read = read_host_reports(control)["jobs@here"]
    assert (read.role, read.slots, read.drained, read.at) == ("jobs", 3, False, stored["at"])


def test_a_host_that_was_killed_is_forgotten_a_day_later_when_another_begins(host, control):
    now = time.time()
    ago = {"killed": now - FORGOTTEN_SECONDS - 60, "silent": now - FORGOTTEN_SECONDS + 60}
    rows = {f"jobs@{name}": orjson.dumps({"role": "jobs", "at": at}) for name, at in ago.items()}
    control.hset(keys.HOSTS, mapping={**rows, "jobs@broken": b"[]"})
    sent = {name: list_broker_keys(f"jobs@{name}")[7] for name in ago}
    for key in sent.values():
        control.lpush(key, "a worker that only this host may run")
    HostReport(host).start(host)
    assert control.hkeys(keys.HOSTS) == [b"jobs@silent"]
    assert [name for name, key in sent.items() if control.exists(key)] == ["silent"]
