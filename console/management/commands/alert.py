"""`manage.py alert`: evaluates the alert rules, notifies receivers, checks the audit."""

import signal
import threading
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from console.audit.watch import AuditWatch
from workers.alerts.alerter import Alerter
from workers.coordination.connections import control_server

CONTROL_TIMEOUT_SECONDS = 2.0
JOIN_SECONDS = 5.0


class Command(BaseCommand):
    help = "Evaluates alert rules every two seconds and sends messages every second, the audit every 30 s."

    def handle(self, *arguments: Any, **options: Any) -> None:
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        # Beside it: an audit that was altered is an alert.
        watching = threading.Thread(target=AuditWatch(settings.WEIR_DATA).run, args=(stop,), daemon=True)
        watching.start()
        Alerter(control_server(CONTROL_TIMEOUT_SECONDS)).run(stop)
        watching.join(JOIN_SECONDS)
