"""The programs of the simulated installation, each a function that runs in a process until that crashes."""

import json
import logging
import random
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import Any

from django.conf import settings
from django.db import OperationalError

from bench.simulation import context, threads
from bench.simulation.calls import CRASH_AFTER, CRASH_BEFORE, LOST_REPLY, LOST_REQUEST, POST
from bench.simulation.errors import EXPECTED, UNAVAILABLE, describe_error
from bench.simulation.names import BROKER_HOST, BROKER_PORT, NODES, QUEUES, RECEIVER, SHOP, SHOP_QUEUE
from bench.simulation.person import run_person
from bench.simulation.plant import Delivered, Installation
from common.errors import NodeFull, NodeUnavailable, WeirError
from common.stored_document import encode_document
from queues import keys, pausing
from queues.events.block import cut, from_events
from queues.nodes import agent
from queues.publishing.splitter import Splitter
from queues.segments.segment import Segment
from queues.topology import Topology
from workers import tasks
from workers.alerts.alerter import Alerter
from workers.alerts.delivery import dispatcher
from workers.alerts.delivery.message_text import Failed
from workers.consumer import worker
from workers.consumer.work_report import WorkReporter
from workers.control import engine
from workers.coordination import plant_clock
from workers.coordination.connections import control_server, create_connection
from workers.coordination.plant_clock import PlantClock, get_plant_clock
from workers.documents.hosts import ReportedHost
from workers.plants.foreign.celery_app import broker as celery_broker
from workers.plants.steered import NotObserved, SteeredPlant, open_published_plant
from workers.retries import runner
from workers.retries.outlets import open_plan_outlet
from workers.snapshot.local import LocalPlant
from workers.snapshot.observer import Observer
from workers.task_history.record import SUCCEEDED, TaskRecord
from workers.task_history.recorder import record_finished

logger = logging.getLogger(__name__)
BROKER = "simulation:broker"  # the list of ordered workers
JOBS_HOST = "jobs@c1"
TICK_SECONDS, UPKEEP_SECONDS, RETRY_SECONDS = 1.0, 5.0, 2.0
DELIVERED_TWICE = 0.15  # share of the tasks that both control workers run
CLAIM_IDLE_SECONDS = 6.0
# About as much as arrives, so that blocks wait when a node is drained.
WORK_SECONDS = 0.7
Program = Callable[[], None]


def list_programs(plant: Installation) -> Iterator[tuple[str, str, Program]]:
    """Return (name, host, program) of each process."""
    for turn, host in enumerate(("a", "b")):
        yield f"control-{host}", host, lambda turn=turn: run_control_worker(plant, turn)  # type: ignore[misc]
        yield f"observer-{host}", host, run_observer
        yield f"alerter-{host}", host, run_alerter
    for name in NODES:
        yield f"agent-{name}", name, lambda name=name: run_agent(name)  # type: ignore[misc]
    yield "jobs", "c1", lambda: run_jobs(plant)
    yield "producer", "p1", lambda: run_producer(plant)
    yield "shop", "c2", lambda: run_shop(plant)
    yield "person", "desk", lambda: run_person(plant)


def replace_surroundings(plant: Installation) -> None:
    """Replace what sends orders and messages out of Weir, and note which decisions the remedy ladder requests."""
    sender: Any = worker
    broker: Any = celery_broker
    sender.current_app = _Broker(plant)
    channels: Any = dispatcher.CHANNELS
    channels["webhook"] = lambda message, at: _receive(plant, message)
    broker.resolve_host = lambda host, port, is_tls: host
    steered: Any = SteeredPlant
    request_decisions = steered.request_decisions

    def note_and_request(self: SteeredPlant, loops: Collection[str]) -> None:
        plant.seen.requested.update(dict.fromkeys(loops, plant.scheduler.now))
        request_decisions(self, loops)

    steered.request_decisions = note_and_request


def run_control_worker(plant: Installation, turn: int) -> None:
    """Run the tasks of a control worker as the beat sends them, each in a thread of its own.

    turn: which of the two workers takes the even tasks (0), and which one the odd ones (1).
    """
    jobs: tuple[tuple[str, float, Callable[[], object]], ...] = (
        ("tick", TICK_SECONDS, _tick),
        ("advance", TICK_SECONDS, tasks.advance),
        ("upkeep", UPKEEP_SECONDS, tasks.upkeep),
        ("retries", RETRY_SECONDS, _advance_retries),
    )
    started = [
        threads.Thread(target=_repeat, args=(plant, turn, name, seconds, job), name=name) for name, seconds, job in jobs
    ]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()


def _repeat(plant: Installation, turn: int, name: str, seconds: float, job: Callable[[], object]) -> None:
    """Run each second task, each one while the other worker is away, and some that the other one runs, too."""
    [other] = {"control-a", "control-b"} - {plant.network.get_process().name}
    while True:
        time.sleep(seconds - (time.time() - 0.4) % seconds)
        is_own = round(time.time() // seconds) % 2 == turn or not plant.processes[other].is_alive
        if not is_own and plant.random.random() >= DELIVERED_TWICE:
            continue
        try:
            job()
        except Exception as error:
            if not isinstance(error, EXPECTED):
                logger.exception("%s", name)
                plant.seen.problems.append(f"{name} raised {describe_error(error)}")


def _tick() -> None:
    control = control_server()
    with suppress(NotObserved):
        engine.tick_due(open_published_plant(control), context.get_time(), control, clock=time.monotonic)


def _advance_retries() -> None:
    for plant in runner.list_active_plants():
        runner.advance(plant, control_server(), open_plan_outlet)


def run_observer() -> None:
    control = control_server()
    plant = LocalPlant(control, time.time, time.monotonic, plant_time=get_plant_clock().get_unix_time)
    Observer(control, plant, clock=time.time, monotonic=time.monotonic).run(_new_event())


def run_alerter() -> None:
    Alerter(control_server(2.0)).run(_new_event())


def run_agent(name: str) -> None:
    agent.run(
        agent.Agent(name, agent.connect(settings.REDIS_URL), clock=time.time, monotonic=time.monotonic), _new_event()
    )


def _new_event() -> threading.Event:
    event: Any = threads.Event()
    return event  # type: ignore[no-any-return]


class _Broker:
    """A stand-in for the Celery app: the tasks of workers are a list on the control server."""

    def __init__(self, plant: Installation) -> None:
        self._plant = plant

    def send_task(self, name: str, args: tuple[str, str, str], expires: float, **options: object) -> None:
        queue, node, worker_id = args
        control_server().rpush(BROKER, f"{queue} {node} {worker_id} {time.time() + expires}")
        self._plant.seen.sent.append(worker_id)


def run_jobs(plant: Installation) -> None:
    """Report a host, and run one ordered worker after the other."""
    control, clock = control_server(), get_plant_clock().get_unix_time
    reported_at = 0.0
    while True:
        time.sleep(0.25)
        with suppress(WeirError, *UNAVAILABLE):
            if time.monotonic() - reported_at >= 1.0:
                reported_at = time.monotonic()
                report = ReportedHost(
                    role="jobs", slots=4, pid=1, resizable=True, started_with=4, trouble="", at=clock()
                )
                control.hset(keys.HOSTS, JOBS_HOST, encode_document(report))
            order: Any = control.lpop(BROKER)
            if order is not None:
                queue, node, worker_id, expires_at = order.decode().split(" ")
                if time.time() < float(expires_at):
                    _work(plant, control, queue, node, worker_id, clock())


def _work(plant: Installation, control: Any, queue: str, node: str, worker_id: str, at: float) -> None:
    reporter = WorkReporter(control, queue, node, worker_id)
    if not reporter.begin(at):
        return
    seen = plant.seen
    seen.started[worker_id] = seen.started.get(worker_id, 0) + 1
    if pausing.load_pauses(control, [queue], pausing.CONSUMPTION):
        return
    topology = Topology.from_json(control.get(keys.TOPOLOGY))
    segment = Segment(create_connection(topology.get_node(node).url, 1.0), queue)
    for _ in range(20):
        claimed = segment.claim(worker_id, 4, CLAIM_IDLE_SECONDS)
        if not claimed:
            return
        for block in claimed:
            time.sleep(WORK_SECONDS)
            seen.handled[block.block_id] = seen.handled.get(block.block_id, 0) + 1
        segment.acknowledge([block.entry_id for block in claimed])


def run_producer(plant: Installation) -> None:
    """Publish a block now and then, to the containers by their points, and elsewhere if a node is away."""
    control, numbers = control_server(), random.Random(plant.random.random())
    while True:
        time.sleep(numbers.uniform(0.1, 1.0) if plant.is_load_on else 5.0)
        if not plant.is_load_on:
            continue
        with suppress(WeirError, *UNAVAILABLE):
            topology = Topology.from_json(control.get(keys.TOPOLOGY))
            queue = numbers.choice(QUEUES)
            _publish(plant, topology, queue, numbers)


def _publish(plant: Installation, topology: Topology, queue: str, numbers: random.Random) -> None:
    at_us = round(time.time() * 1e6)
    batch = from_events([{"id": f"e{at_us}", "time": at_us / 1e6, "type": "order", "value": 1.0}], at_us)
    [block] = cut(batch, lambda: f"b{numbers.getrandbits(60):x}")
    splitter = Splitter(topology.queue(queue).live_points)
    for _ in range(3):
        node = splitter.pick_container()
        try:
            Segment(create_connection(topology.get_node(node).url, 1.0), queue).publish([block])
        except (NodeUnavailable, NodeFull):
            if len(splitter.available) > 1:
                splitter.exclude(node)
            continue
        plant.seen.published[block.block_id] = time.time()
        return


def run_shop(plant: Installation) -> None:
    """Run the tasks of the attached app one after the other, and record what became of them."""
    broker = create_connection(f"redis://{BROKER_HOST}:{BROKER_PORT}/0")
    while True:
        time.sleep(0.2)
        with suppress(*UNAVAILABLE):
            message: Any = broker.rpop(SHOP_QUEUE)
            if message is not None:
                task_id = json.loads(message)["headers"]["id"]
                plant.seen.retried[task_id] = plant.seen.retried.get(task_id, 0) + 1
                _record_outcome(task_id)


def _record_outcome(task_id: str) -> None:
    at = time.time()
    record = TaskRecord(id=task_id, state=SUCCEEDED, at=at, plant=SHOP, name="shop.pay", received=at, ended=at)
    while True:
        try:
            record_finished(SHOP, [record])
        except OperationalError:
            time.sleep(1.0)
        else:
            return


def _receive(plant: Installation, message: Any) -> None:
    """Take a message, as its receiver: the request and the answer may be lost separately."""
    network, faults = plant.network, plant.network.faults
    process = network.get_process()
    fault = faults.meet_command([POST], RECEIVER)
    kind = "" if fault is None else fault.kind
    if kind == CRASH_BEFORE:
        faults.crash_now()
    network.travel(process.host)
    if kind == LOST_REQUEST or plant.scheduler.now < plant.receiver_fails_until:
        raise Failed("desk responded HTTP 503.")
    content = message.content
    plant.seen.delivered.append(Delivered(plant.scheduler.now, message.key, content["kind"], content["alerts"]))
    if kind == CRASH_AFTER:
        faults.crash_now()
    if kind == LOST_REPLY:
        raise Failed("desk did not respond.")
    network.travel(process.host)


class _ProcessClock(PlantClock):
    """A plant clock whose state belongs to the current simulated process, since all share one module."""

    def __getattribute__(self, name: str) -> Any:
        if name in _CLOCK_STATE:
            return _get_clock_state().get(name, _CLOCK_STATE[name])
        return super().__getattribute__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _CLOCK_STATE:
            _get_clock_state()[name] = value
        else:
            super().__setattr__(name, value)


_CLOCK_STATE: dict[str, Any] = {"_asked_at": None, "_stepped": 0.0, "_behind": 0.0, "_is_known": False}


def _get_clock_state() -> dict[str, Any]:
    process = context.scheduler().process if context.is_running() else None
    return process.memory.setdefault("plant clock", {}) if process is not None else {}


def separate_plant_clocks() -> None:
    """Give each process its own view of the plant's clock."""
    clock: Any = plant_clock.get_plant_clock()
    clock.__class__ = _ProcessClock
