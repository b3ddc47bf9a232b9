"""`manage.py observe`: one plant snapshot a second, until it is stopped."""

import signal
import threading
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from workers.coordination.connections import control_server
from workers.history.load_forecasts import LoadForecasts
from workers.history.snapshot_archive import Recorder
from workers.plants.foreign.watch import PlantWatch
from workers.snapshot.local import LocalPlant
from workers.snapshot.observer import Observer

CONTROL_TIMEOUT_SECONDS = 2.0


class Command(BaseCommand):
    help = "Watches the plant: a snapshot a second, to the console, the history and the archive."

    def handle(self, *arguments: Any, **options: Any) -> None:
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        control = control_server(CONTROL_TIMEOUT_SECONDS)
        plant = LocalPlant(
            control, others=PlantWatch(), forecasts=LoadForecasts.of(control, settings.WEIR_DATA)
        )
        Observer(control, plant, recorder=Recorder(settings.WEIR_DATA)).run(stop)
