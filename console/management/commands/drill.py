"""`manage.py drill`: runs the drills that are due, and ends the faults that a killed one has left. ./run starts it."""

import signal
import threading

from django.conf import settings
from django.db import connection

from console.drills.faults import EmbeddedPlant
from console.drills.runner import run_due_drills
from console.management.one_line import OneLineCommand
from console.storage.database_limits import hold_work_limits
from workers.coordination.connections import control_server

CONTROL_TIMEOUT_SECONDS = 2.0
STEP_SECONDS = 1.0


class Command(OneLineCommand):
    help = "Run the drills that are due on the plant of ./run, and end interrupted drills."
    requires_system_checks = []  # as for `JsonCommand`

    def handle(self, *arguments: object, **options: object) -> None:
        hold_work_limits(connection.settings_dict, settings.WEIR_DATABASE_LIMITS)
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        plant = EmbeddedPlant(control_server(CONTROL_TIMEOUT_SECONDS), settings.REDIS_URL)
        try:
            run_due_drills(plant, lambda: stop.wait(STEP_SECONDS))
        finally:
            plant.close()
