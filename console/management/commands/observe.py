"""`manage.py observe`: one plant snapshot a second, until it is stopped."""

import signal
import threading
from collections.abc import Callable
from contextlib import closing

from django.conf import settings
from django.db import connection

from common import environment as variables
from common import own_process
from console.actions.marks import RolloutMarks
from console.management.one_line import OneLineCommand
from console.storage.database_limits import hold_work_limits
from console.timeline.process_events import ProcessWatch
from console.timeline.restarts import has_log
from queues.nodes.addresses import parse_nodes
from queues.nodes.agent_threads import AgentThreads
from workers.coordination.connections import control_server
from workers.coordination.plant_clock import get_plant_clock
from workers.documents.snapshot import Snapshot
from workers.history.forecasts import ForecastWatch
from workers.history.snapshot_archive import Recorder
from workers.objectives.book import ObjectiveBook
from workers.observability import spans
from workers.plants.foreign.watch import PlantWatch
from workers.snapshot.local import LocalPlant
from workers.snapshot.observer import ConsoleProbe, Observer

CONTROL_TIMEOUT_SECONDS = 2.0


class Command(OneLineCommand):
    help = "Observe the plant: send a snapshot per second to the console, the history, and the archive."
    requires_system_checks = []  # as for `JsonCommand`

    def handle(self, *arguments: object, **options: object) -> None:
        agents = _build_agents()
        own_process.watch(agents.detect_fault)
        hold_work_limits(connection.settings_dict, settings.WEIR_DATABASE_LIMITS)
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        agents.start()
        # What it has enabled at attached plants is disabled when it stops.
        with closing(agents), closing(PlantWatch()) as others:
            _build_observer(others).run(stop)


def _build_agents() -> AgentThreads:
    """Return the agents that run in this process: none, unless the environment requests it."""
    nodes = parse_nodes(variables.NODES.get_text()) if variables.OBSERVER_AGENTS.is_on() else {}
    return AgentThreads([*nodes], settings.REDIS_URL)


def _build_observer(others: PlantWatch) -> Observer:
    control = control_server(CONTROL_TIMEOUT_SECONDS)
    plant = LocalPlant(
        control,
        others=others,
        forecasts=ForecastWatch.load(control, settings.WEIR_DATA),
        console=ConsoleProbe.start(variables.CONSOLE_URL.get_address()),
        plant_time=get_plant_clock().get_unix_time,
        processes=ProcessWatch(settings.WEIR_DATA).list_events if has_log(settings.WEIR_DATA) else None,
    )
    rollouts, collector = RolloutMarks(), _to_the_collector()

    def send(snapshot: Snapshot) -> None:
        rollouts.follow(snapshot)
        if collector is not None:
            collector(snapshot)

    return Observer(control, plant, recorder=Recorder(settings.WEIR_DATA), sent=send, objectives=ObjectiveBook())


def _to_the_collector() -> Callable[[Snapshot], None] | None:
    """Return the exporter of the figures of /metrics, if a collector is configured."""
    if not spans.is_enabled():
        return None
    # Without a collector its client library is not loaded.
    from console.pages.health.exposition import SnapshotCollector
    from workers.observability.figures import FiguresSender

    return FiguresSender(lambda snapshot: SnapshotCollector(snapshot).collect()).add
