"""A process that ticks loops for a control worker: `python -m workers.control.tick_process DESCRIPTOR [OPENER]`.

`workers.control.parallel_ticks` starts it. DESCRIPTOR: the connection to the control worker. OPENER: `module:function`
that returns the plant of a control server. The process ends when the control worker ends, or after it was idle for
IDLE_SECONDS.
"""

import logging
import sys
from collections.abc import Callable
from importlib import import_module
from multiprocessing.connection import Connection
from time import monotonic
from typing import Any

import django
import redis

if __name__ == "__main__":
    django.setup()

from django.conf import settings
from django.db import close_old_connections

from common import own_process
from workers.control import engine
from workers.control.parallel_ticks import Share
from workers.coordination.connections import control_server
from workers.documents.snapshot import Snapshot
from workers.plants.plant import Plant

logger = logging.getLogger(__name__)
IDLE_SECONDS = 600.0
PUBLISHED = "workers.plants.steered:open_published_plant"


def serve(connection: Connection, tick: Callable[[Share], object]) -> None:
    """Tick each share that arrives on the connection, and reply whether it was ticked."""
    while connection.poll(IDLE_SECONDS):
        try:
            share = connection.recv()
        except EOFError:
            return
        try:
            tick(share)
            done = True
        except Exception:
            logger.exception("Failed to tick the loops. The ticks are retried in the next second.")
            done = False
        connection.send(done)


def tick_share(share: Share, plant: Plant, control: redis.Redis) -> None:
    """Tick the loops of a share as the control worker would."""
    close_old_connections()
    engine.tick_share(
        share.due,
        Snapshot.from_json(share.snapshot),
        plant,
        share.now,
        control,
        monotonic,
        monotonic() - share.elapsed_seconds,
        share.part,
        share.parts,
    )


def main(descriptor: str, opener: str = PUBLISHED) -> None:
    # This process needs the configuration of the control worker, because it also sends workers.
    application: Any = import_module(settings.WEIR_CELERY_APPLICATION)
    application.keep_connections()
    own_process.watch()
    module, _, name = opener.partition(":")
    open_plant = getattr(import_module(module), name)
    with Connection(int(descriptor)) as connection:
        serve(connection, lambda share: tick_share(share, open_plant(control_server()), control_server()))


if __name__ == "__main__":
    main(*sys.argv[1:])
