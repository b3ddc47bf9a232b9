"""`manage.py alert`: evaluates the alert rules and tells receivers, until it is stopped."""

import signal
import threading
from typing import Any

from django.core.management.base import BaseCommand

from workers.alerts.alerter import Alerter
from workers.connections import control_server

CONTROL_TIMEOUT_SECONDS = 2.0


class Command(BaseCommand):
    help = "Looks after alerts: rules every two seconds, messages every second."

    def handle(self, *arguments: Any, **options: Any) -> None:
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        Alerter(control_server(CONTROL_TIMEOUT_SECONDS)).run(stop)
