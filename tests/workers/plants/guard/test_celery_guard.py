"""The guard of a Celery app on Redis or Valkey, on a real server, with a worker that answers as Celery does."""

import base64
import json
import threading

import pytest
import redis

from workers.plants.foreign.celery_app.leases import RedisLeases
from workers.plants.foreign.leases import lease_seconds
from workers.plants.guard.manifests import build_celery_manifests
from workers.plants.guard.weir_guard import (
    GIVE_UP_SECONDS,
    GUARD,
    LEASES,
    RETRY_SECONDS,
    SETTLE_SECONDS,
    SILENT_SECONDS,
    CeleryGuard,
    RedisServer,
    SystemRefusal,
    build_guard,
)

WORKER, HOLDER, CHANNEL, SEPARATOR = "celery@one", "weir-3f9a12bc/shop", "/0.celery.pidbox", "\x06\x16"
BINDINGS = "_kombu.binding.reply.celery.pidbox"
LAYOUT = {"channels": [CHANNEL], "bindings": BINDINGS, "separator": SEPARATOR, "prefix": ""}
RESUME = {"method": "add_consumer", "arguments": {"queue": "mail"}, "workers": {WORKER: 0.0}}


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


class PidboxWorker:
    """A worker that reads remote control from the server, and answers through kombu's bindings."""

    def __init__(self, server):
        self.server, self.commands, self.processes, self.busy, self.uptime = server, [], 2, 0, 1e12
        self.is_away = False
        self._messages = server.pubsub(ignore_subscribe_messages=True)
        self._messages.subscribe(CHANNEL)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self):
        for message in self._messages.listen():
            document = json.loads(message["data"])
            body = json.loads(base64.b64decode(document["body"]))
            if body["method"] == "stop":
                return
            if WORKER in body["destination"] and not self.is_away:
                self._reply(body, self._answer(body["method"], body["arguments"]))

    def _answer(self, method, arguments):
        if method == "stats":
            return {"uptime": self.uptime, "pool": {"processes": list(range(self.processes))}}
        if method == "active":
            return [{}] * self.busy
        self.commands.append((method, arguments))
        self.processes += {"pool_grow": 1, "pool_shrink": -1}.get(method, 0) * arguments.get("n", 0)
        return {"ok": "done"}

    def _reply(self, body, answer):
        for binding in self.server.smembers(BINDINGS):
            routing_key, _, queue = binding.decode().split(SEPARATOR)
            if routing_key == body["reply_to"]["routing_key"]:
                text = base64.b64encode(json.dumps({WORKER: answer}).encode()).decode()
                message = {"body": text, "headers": {"ticket": body["ticket"]}}
                self.server.lpush(queue, json.dumps(message))

    def close(self):
        body = base64.b64encode(json.dumps({"method": "stop"}).encode()).decode()
        self.server.publish(CHANNEL, json.dumps({"body": body}))
        self._thread.join(10)
        self._messages.close()


@pytest.fixture
def server(control_server):
    with redis.Redis.from_url(control_server.url) as client:
        client.flushdb()
        yield client
        client.flushdb()


@pytest.fixture
def worker(server):
    made = PidboxWorker(server)
    yield made
    made.close()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def said():
    return []


@pytest.fixture
def guard(control_server, clock, said):
    connection = RedisServer(control_server.url)
    yield CeleryGuard(connection, clock=clock, report=said.append)
    connection.close()


@pytest.fixture
def lease(server):
    seconds = iter(range(1_000_000))
    return RedisLeases("shop", server, "", lambda: HOLDER, lambda: LAYOUT, lambda: float(next(seconds)))


def expire(guard, clock):
    guard.step()
    clock.now += lease_seconds()
    guard.step()


def left(server):
    return json.loads(server.hget(LEASES, HOLDER))["items"]


def test_a_lease_that_is_not_renewed_is_carried_out_once(server, worker, guard, clock, lease, said):
    lease.replace([RESUME])
    expire(guard, clock)
    assert worker.commands == [("add_consumer", {"queue": "mail"})]
    assert said == [f"{HOLDER} did not renew its lease. Restored: add_consumer(queue=mail)."]
    assert left(server) == []
    expire(guard, clock)
    assert len(worker.commands) == 1
    assert server.scard(BINDINGS) == 0


def test_a_lease_that_is_renewed_is_left_alone(worker, guard, clock, lease):
    for _ in range(10):
        lease.replace([RESUME])
        guard.step()
        clock.now += lease_seconds() - 1.0
        guard.step()
    assert worker.commands == []


def test_weir_learns_what_was_restored_when_it_is_back(worker, guard, clock, lease):
    lease.replace([RESUME])
    assert lease.replace([RESUME]) == []
    expire(guard, clock)
    assert lease.replace([RESUME]) == [RESUME]
    assert lease.replace([]) == []


@pytest.mark.parametrize(
    ("processes", "busy", "order"), [(8, 0, ("pool_shrink", {"n": 6})), (1, 0, ("pool_grow", {"n": 1}))]
)
def test_a_pool_gets_its_former_size_whatever_it_has_now(server, worker, guard, clock, lease, processes, busy, order):
    worker.processes, worker.busy = processes, busy
    lease.replace([{"pool": WORKER, "processes": 2, "tasks": 5, "at": 0.0}])
    expire(guard, clock)
    clock.now += SETTLE_SECONDS
    guard.step()
    assert worker.commands == [order]
    assert (worker.processes, left(server)) == (2, [])


def test_only_idle_processes_end_and_the_rest_is_tried_again(server, worker, guard, clock, lease):
    worker.processes, worker.busy = 8, 7
    lease.replace([{"pool": WORKER, "processes": 2, "tasks": 8, "at": 0.0}])
    expire(guard, clock)
    assert worker.processes == 7
    worker.busy = 0
    clock.now += SETTLE_SECONDS
    guard.step()
    assert worker.processes == 2


def test_processes_that_are_about_to_end_are_not_counted_as_too_many(worker, guard, clock, lease):
    answer = worker._answer
    worker._answer = lambda method, arguments: (
        worker.commands.append(method) or {"ok": ""} if method == "pool_shrink" else answer(method, arguments)
    )
    worker.processes = 8
    lease.replace([{"pool": WORKER, "processes": 2, "tasks": 8, "at": 0.0}])
    expire(guard, clock)
    clock.now += RETRY_SECONDS
    guard.step()
    assert worker.commands == ["pool_shrink"]


def test_a_pool_that_grows_slowly_is_asked_once(worker, guard, clock, lease):
    answer = worker._answer
    worker._answer = lambda method, arguments: (
        worker.commands.append(method) or {"ok": ""} if method == "pool_grow" else answer(method, arguments)
    )
    lease.replace([{"pool": WORKER, "processes": 4, "tasks": 2, "at": 0.0}])
    expire(guard, clock)
    clock.now += RETRY_SECONDS
    guard.step()
    assert worker.commands == ["pool_grow"]
    clock.now += RETRY_SECONDS
    guard.step()
    assert worker.commands == ["pool_grow", "pool_grow"]


def test_a_worker_that_was_restarted_keeps_the_setup_of_its_owner(server, worker, guard, clock, lease):
    worker.uptime = 5
    at = server.time()[0] - 60
    lease.replace([{**RESUME, "workers": {WORKER: at}}, {"pool": WORKER, "processes": 9, "tasks": 2, "at": at}])
    expire(guard, clock)
    assert worker.commands == []
    assert left(server) == []


def test_a_worker_that_is_away_is_asked_until_it_is_given_up(server, worker, guard, clock, lease):
    worker.is_away = True
    lease.replace([RESUME])
    expire(guard, clock)
    assert left(server) == [RESUME]
    worker.is_away = False
    clock.now += RETRY_SECONDS
    guard.step()
    assert worker.commands == [("add_consumer", {"queue": "mail"})]
    worker.is_away = True
    lease.replace([RESUME])
    expire(guard, clock)
    ended = json.loads(server.hget(LEASES, HOLDER))
    server.hset(LEASES, HOLDER, json.dumps({**ended, "ended_at": ended["ended_at"] - GIVE_UP_SECONDS - 1}))
    clock.now += RETRY_SECONDS
    guard.step()
    assert left(server) == []


def test_a_lease_that_weir_renews_while_it_is_carried_out_stays_weirs(server, worker, guard, clock, lease, said):
    lease.replace([RESUME])
    answer = worker._answer

    def answer_late(method, arguments):
        if method == "add_consumer":
            lease.replace([RESUME])
        return answer(method, arguments)

    worker._answer = answer_late
    expire(guard, clock)
    assert said == [f"{HOLDER} renewed its lease meanwhile."]
    assert "ended_at" not in json.loads(server.hget(LEASES, HOLDER))


def test_the_heartbeat_is_in_the_apps_database(server, guard, lease):
    assert lease.read_guard().alive is False
    guard.step()
    assert lease.read_guard().alive is True
    assert 0 < server.ttl(GUARD) <= SILENT_SECONDS


def test_a_lease_that_the_server_rejects_is_no_failure_of_the_intervention(server, lease):
    server.set(LEASES, "not a hash")
    assert lease.replace([RESUME]) == []
    assert "rejected the lease" in lease.read_guard().error


def test_an_error_of_the_server_is_raised_with_its_message(control_server):
    connection = RedisServer(control_server.url)
    with pytest.raises(SystemRefusal, match="unknown command"):
        connection.command("NOSUCHCOMMAND")
    assert connection.command("PING") == "PONG"
    connection.close()


def test_the_files_start_this_program_without_a_password(control_server):
    program, compose, unit = build_celery_manifests("redis://broker.example:6379/3", "shop", "app:")
    assert program.text.startswith('"""Ends what Weir has set at a system')
    assert '"celery", "redis://shop@broker.example:6379/3", "--prefix", "app:"' in compose.text
    assert "ExecStart=/usr/bin/python3 /usr/local/lib/weir_guard.py celery redis://shop@broker" in unit.text
    made = build_guard(["celery", control_server.url])
    made.step()
    made._server.close()
