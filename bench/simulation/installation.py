"""Makes this process a simulation: clocks, threads, network, database, and random numbers are simulated from then on.

`install_clocks` comes before the first import of Weir's code, because some modules import a clock by its name.
"""

import os
import random
import secrets
import time
import uuid
from pathlib import Path
from typing import Any

from bench.simulation import context

SETTINGS = "console.settings"
# Modules that call `datetime.now`
CLOCK_MODULES = ("django.utils.timezone", "workers.tasks", "workers.alerts.alerter")
THREAD_MODULES = ("workers.coordination.leases", "workers.alerts.alerter", "workers.snapshot.observer")
ENVIRONMENT = {
    "DJANGO_SETTINGS_MODULE": SETTINGS,
    "REDIS_URL": "redis://s1:6379/0",
    "WEIR_SECRET_KEY": "simulation",
    "WEIR_ALLOWED_HOSTS": "localhost",
}


class Randomness:
    """The random numbers of the simulated code, which follow from the seed."""

    def __init__(self) -> None:
        self.numbers = random.Random(0)

    def token_hex(self, size: int = 16) -> str:
        return self.numbers.randbytes(size).hex()

    def uuid4(self) -> uuid.UUID:
        return uuid.UUID(bytes=self.numbers.randbytes(16), version=4)


RANDOMNESS = Randomness()


def install_clocks() -> None:
    """Make the clocks of `time` virtual while a simulation runs."""
    clocks: Any = time
    clocks.time = context.virtual(time.time, context.read_wall_clock)
    clocks.monotonic = context.virtual(time.monotonic, context.read_monotonic_clock)
    clocks.sleep = context.sleep(time.sleep)


def set_up(folder: Path) -> None:
    """Set Django up with its files in a folder, and replace what is not simulated otherwise."""
    os.environ.update(ENVIRONMENT, WEIR_DATA=str(folder), DATABASE_URL=f"sqlite:///{folder}/weir.sqlite3")
    import django

    django.setup()
    _replace_modules_parts()
    sources: Any = secrets
    sources.token_hex = RANDOMNESS.token_hex
    ids: Any = uuid
    ids.uuid4 = RANDOMNESS.uuid4
    system: Any = os
    system.getloadavg = lambda: (0.0, 0.0, 0.0)


def _replace_modules_parts() -> None:
    import importlib

    from bench.simulation import threads

    for name in CLOCK_MODULES:
        module: Any = importlib.import_module(name)
        module.datetime = context.VirtualDatetime
    for name in THREAD_MODULES:
        module = importlib.import_module(name)
        module.threading = threads
    dispatcher: Any = importlib.import_module("workers.alerts.delivery.dispatcher")
    dispatcher.ThreadPoolExecutor, dispatcher.wait = threads.ThreadPoolExecutor, threads.wait
