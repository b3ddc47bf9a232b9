"""`manage.py alert`: evaluates the alert rules, notifies receivers, and checks the audit log.

It also searches the changes before incidents, reads on-call calendars, starts scheduled drills, and calls the dead
man's switch.
"""

import signal
import threading

from django.conf import settings
from django.db import connection
from django.utils import timezone

from common import own_process
from console.actions.lab import drills
from console.audit.check import AuditWatch
from console.incidents.changes import ChangeKeeper
from console.management.one_line import OneLineCommand
from console.storage.database_limits import hold_work_limits
from workers.alerts.alerter import Alerter, DeadMansSwitch
from workers.alerts.delivery.schedule_feed import FeedReader
from workers.coordination.connections import control_server, repeat_until_stopped

CONTROL_TIMEOUT_SECONDS = 2.0
JOIN_SECONDS = 5.0
DRILL_SECONDS = 5.0


def run_drill_schedule(stop: threading.Event) -> None:
    """Start surprise drills when they are due, until it is stopped."""
    what = "Scheduled drills can't be started"
    repeat_until_stopped(stop, DRILL_SECONDS, lambda: drills.start_due(timezone.now()), what)


class Command(OneLineCommand):
    help = "Evaluate alert rules every two seconds, send messages every second, and check the audit log every 30 s."
    requires_system_checks = []  # as for `JsonCommand`

    def handle(self, *arguments: object, **options: object) -> None:
        own_process.watch()
        hold_work_limits(connection.settings_dict, settings.WEIR_DATABASE_LIMITS)
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        # Beside it: an altered audit log is an alert, and the search for changes must delay no alert.
        control = control_server(CONTROL_TIMEOUT_SECONDS)
        runs = (
            AuditWatch(settings.WEIR_DATA).run,
            ChangeKeeper(settings.WEIR_DATA).run,
            DeadMansSwitch(control).run,
            FeedReader().run,
            run_drill_schedule,
        )
        beside = [threading.Thread(target=run, args=(stop,), daemon=True) for run in runs]
        for thread in beside:
            thread.start()
        Alerter(control).run(stop)
        for thread in beside:
            thread.join(JOIN_SECONDS)
