"""Celery tasks: a worker at a segment, the ticks of the loops, and maintenance."""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, partial

import redis
from celery import current_task, shared_task
from celery.exceptions import SoftTimeLimitExceeded
from django.conf import settings

from common.errors import WeirError
from queues import fairness, keys, pausing, projection
from queues.fairness import LaneWeights
from queues.segments.dead_letters import DeadLetters
from queues.segments.segment import Segment
from queues.topology import Topology
from workers import reports
from workers.batch import runs, task_definitions, task_managers
from workers.batch import worker as batch_worker
from workers.batch.job import JobContext
from workers.consumer.destination import build_limit
from workers.consumer.registry import get_handler
from workers.consumer.work_report import Report, WorkReporter
from workers.consumer.worker import Consumer
from workers.control import advice, engine
from workers.control.engine import AttachedTicks
from workers.control.loops import ensure_loops
from workers.control.parallel_ticks import TickProcesses
from workers.control.parts.kind import PlantInventory
from workers.coordination.connections import control_server, create_connection
from workers.coordination.plant_clock import get_plant_clock
from workers.coordination.tick import TICK
from workers.documents.snapshot import Snapshot
from workers.models import PipelineVersion
from workers.observability.spans import note
from workers.pipeline.declaration.declared import Declarations, DeclarationText
from workers.placement import execution, plans, recovery
from workers.plants.foreign import adapters, interventions, repeated_orders
from workers.plants.foreign.kafka import reset_plans
from workers.plants.registry import LOCAL
from workers.plants.steered import NotObserved, open_published_plant
from workers.pool import hosts
from workers.pool.departures import CompletionReporter
from workers.pool.selection import build_celery_queue
from workers.retries import plans as retry_plans
from workers.retries import runner as retrying
from workers.retries.outlets import open_plan_outlet
from workers.steering import enforcing, overrides
from workers.task_history.own_tasks import record_dead_letters
from workers.task_history.pipeline_letters import record_new_letters

hosts.install()
logger = logging.getLogger(__name__)
_attached_ticks = AttachedTicks()
_attached_retrying = AttachedTicks("The retry plans of %s were not advanced; Weir retries this.")
_attached_undoing = AttachedTicks("The interventions at %s were not undone; Weir retries this.")
END_PAUSES_SECONDS = (1.0, 3.0, 6.0)  # a restart, or a fail-over


@cache
def get_tick_processes() -> TickProcesses:
    """Return the processes that tick loops for this process. They start when they are first needed."""
    return TickProcesses(settings.WEIR_TICK_PROCESSES)


@shared_task(name="workers.tasks.consume", ignore_result=True)
def consume(queue: str, node: str, worker_id: str) -> None:
    """Run one short-lived worker at one container; see `workers.consumer.worker`."""
    note({"weir.queue": queue, "weir.node": node})
    line = CompletionReporter.open(current_task.request.hostname, queue)
    reporter = WorkReporter(control_server(), queue, node, worker_id, line)
    clock = get_plant_clock().get_unix_time
    if not reporter.begin(clock()):
        return
    consumer, trouble = None, ""
    try:
        consumer = create_consumer(reporter, clock)
        consumer.run()
    except (WeirError, redis.RedisError, SoftTimeLimitExceeded) as error:
        # Nothing is lost: another worker takes its claims once they are idle. The queue shows the reason.
        trouble = str(error) or type(error).__name__
        logger.warning("A worker of %s on %s ended early: %s", queue, node, trouble)
    except Exception as error:
        trouble = f"{type(error).__name__}: {error}"
        raise
    finally:
        _report(reporter, consumer.report() if consumer else Report(), trouble)


def _report(reporter: WorkReporter, report: Report, trouble: str) -> None:
    """Send the worker's report, repeated over a restart or a fail-over: otherwise its events are never counted."""
    for pause_seconds in (0.0, *END_PAUSES_SECONDS):
        time.sleep(pause_seconds)
        try:
            reporter.end(report, trouble)
            return
        except redis.RedisError as error:
            logger.warning("A worker of %s on %s cannot report: %s", reporter.queue, reporter.node, error)


def create_consumer(reporter: WorkReporter, clock: Callable[[], float]) -> Consumer:
    """Return the worker itself. Raises WeirError where the queue, the node, or the handler does not exist."""
    topology = Topology.from_json(reporter.control.get(keys.TOPOLOGY))
    spec = topology.queue(reporter.queue)
    segment = Segment(create_connection(topology.get_node(reporter.node).url), reporter.queue)
    handler = get_handler(reporter.queue, spec.handler, spec.handler_options, settings.WEIR_DATA)
    return Consumer(
        spec,
        segment,
        handler,
        reporter.worker_id,
        alive=lambda: reporter.report_alive(clock()),
        paused=lambda: _is_paused(reporter.control, reporter.queue),
        completed=reporter.record_completions,
        weights=lambda: _load_weights(reporter.control, reporter.queue, clock()),
        dead_lettered=lambda letters: record_dead_letters(LOCAL, reporter.queue, letters, clock()),
        limit=build_limit(reporter.control, spec, clock),
    )


def _is_paused(control: redis.Redis, queue: str) -> bool:
    """Return whether a person has paused the queue.

    Where the control server cannot be reached, the worker continues for the rest of its short time.
    """
    try:
        return bool(pausing.load_pauses(control, [queue], pausing.CONSUMPTION))
    except redis.RedisError:
        return False


def _load_weights(control: redis.Redis, queue: str, now: float) -> LaneWeights | None:
    """Return the weights of the queue's lanes; None if it is not fair, or the control server can't be reached."""
    with suppress(redis.RedisError):
        if fair := fairness.load_fairness(control, queue, now):
            return fair.build_lane_weights()
    return None


@shared_task(name=TICK, ignore_result=True)
def tick(law: str = "") -> None:
    """Tick every due loop on one snapshot; none while a plant starts and has no snapshot yet.

    law: an old version's beat, which may run on for a while, names one.
    """
    control, now = control_server(), datetime.now(UTC)
    with suppress(NotObserved):
        engine.tick_due(
            open_published_plant(control), now, control, elsewhere=_attached_ticks.begin, processes=get_tick_processes()
        )


@shared_task(name="workers.tasks.advance", ignore_result=True)
def advance() -> None:
    """Do a second's work on moving things: record lost nodes, restore their points, advance running plans."""
    control, now = control_server(), datetime.now(UTC)
    # Before the first check, no node is known to be lost.
    with suppress(NotObserved):
        recovery.recover(control, open_published_plant(control).observe(), now)
    execution.advance_all(control, now)


def _load_snapshot(control: redis.Redis) -> Snapshot | None:
    with suppress(NotObserved):
        return open_published_plant(control).observe()
    return None


def reconcile_versions(control: redis.Redis) -> None:
    """Write to the control server every active version of a pipeline application that it lacks."""
    declarations = Declarations(control)
    wanted = declarations.load_wanted()
    for version in PipelineVersion.objects.filter(active=True):
        declared = DeclarationText(version.application, version.number, version.text)
        if wanted.get(version.application) != declared:
            declarations.want(declared)


@shared_task(name="workers.tasks.upkeep", ignore_result=True)
def upkeep() -> None:
    """Run periodic maintenance.

    Correct the projection, create loops for new containers, record expiries, send the weekly report, remove ended
    workers and empty containers, and store the pipeline's dead letters in the task history.
    """
    control, now = control_server(), datetime.now(UTC)
    projection.reconcile(control, enforcing.get_node_thresholds(now))
    topology, snapshot = Topology.from_json(control.get(keys.TOPOLOGY)), _load_snapshot(control)
    reconcile_versions(control)
    ensure_loops(PlantInventory(topology, control, snapshot))
    advice.write_due(now)
    advice.propose_due(now)
    task_definitions.ensure_tasks()
    overrides.expire_due(now, control)
    enforcing.reconcile(control, now)
    plans.void_due(now)
    retry_plans.tidy(now)
    reset_plans.tidy(now)
    reports.send_due(now)
    if snapshot is not None:
        execution.tidy(control, snapshot, now)
    sweep(topology)
    record_pipeline_letters(control, topology, now.timestamp())


@shared_task(name="workers.tasks.advance_retries", ignore_result=True)
def advance_retries() -> None:
    """Send the tasks of retry plans, in a thread for each plant: sending goes on between two calls."""
    for plant in retrying.list_active_plants():
        _attached_retrying.begin(plant, partial(retrying.advance, plant, control_server(), open_plan_outlet))


@shared_task(name="workers.tasks.undo_interventions", ignore_result=True)
def undo_interventions() -> None:
    """Undo people's expired interventions at attached plants.

    This uses another thread than the two for all loops: such a plant may be slow.
    """
    control, now = control_server(), datetime.now(UTC).timestamp()
    for row in adapters.list_adapters():
        due = partial(interventions.undo_due, control, [row], now, adapters.open_bounded)
        _attached_undoing.begin(row.name, due)


@shared_task(name="workers.tasks.repeat_orders", ignore_result=True)
def repeat_orders() -> None:
    """Repeat people's orders at attached plants where only idle tasks end.

    This is a separate task: such a plant may be slow.
    """
    if (snapshot := _load_snapshot(control_server())) is not None:
        repeated_orders.repeat(snapshot, adapters.open_bounded)


def sweep(topology: Topology) -> int:
    """Remove ended workers from the segments' groups; return how many.

    An unavailable node is left out: one that is not known to be unavailable is waited for once, however many queues it
    has.
    """
    gone, away = 0, execution.list_away_nodes()
    for queue in topology.queues.values():
        for node in queue.points if queue.kind == "jobs" else ():
            if node in away:
                continue
            try:
                gone += execution.get_segment(topology, queue.name, node).sweep()
            except WeirError:
                away.add(node)
    return gone


def record_pipeline_letters(control: redis.Redis, topology: Topology, now: float) -> None:
    """Store the new dead letters of the pipeline in the task history."""
    queues = [queue.name for queue in topology.queues.values() if queue.kind == "pipeline"]
    containers = [(queue, node) for queue in queues for node in topology.nodes]
    away = execution.list_away_nodes()
    record_new_letters(
        LOCAL,
        containers,
        control,
        lambda queue, node: DeadLetters(execution.get_segment(topology, queue, node)),
        away,
        now,
    )


@shared_task(name="workers.tasks.start_task", ignore_result=True)
def start_task(name: str) -> None:
    """Start a scheduled run of a batch task. If a run is still open, no second one is started."""
    where = JobContext(settings.WEIR_DATA, control_server(), datetime.now(UTC))
    try:
        runs.begin(name, where)
    except WeirError as error:
        logger.warning("Batch task %s was not started: %s", name, error)


@shared_task(name="workers.tasks.manage_tasks", ignore_result=True)
def manage_tasks() -> None:
    """Advance every open run of a batch task; see `workers.batch.task_managers`."""
    task_managers.tick(control_server(), datetime.now(UTC), send_for_worker)


def send_for_worker(run: int, worker: str, destination: str, priority: int) -> None:
    """Request a worker for a run, on one host or any host of a role. The request expires after SUBMISSION_SECONDS."""
    queue = build_celery_queue(destination)
    work_at.apply_async((run, worker), queue=queue, priority=priority, expires=task_managers.SUBMISSION_SECONDS)


@shared_task(name="workers.tasks.work_at", ignore_result=True)
def work_at(run: int, worker: str) -> None:
    """Run one worker at a run of a batch task; see `workers.batch.worker`."""
    host, data = current_task.request.hostname or "", settings.WEIR_DATA
    batch_worker.work_at(run, worker, control_server(), data, lambda: datetime.now(UTC), host)
