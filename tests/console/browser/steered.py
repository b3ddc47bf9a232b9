"""Run by itself, with a console's environment: its database gets an application whose tasks three laws watch.

The pipeline does as it is asked, the decisions are the laws' own, three quarters of an hour are history.
"""

from datetime import UTC, datetime, timedelta

import django

from queues import keys

django.setup()

from console.connections.control_server import control  # noqa: E402
from tests.workers.control.task_plant import SECONDS, TaskPlant  # noqa: E402

TICKS = 270


def main():
    server = control()
    server.delete(keys.METRICS)
    plant = TaskPlant(server, datetime.now(UTC) - timedelta(seconds=SECONDS * TICKS + 5))
    for _ in range(TICKS):
        plant.tick()


if __name__ == "__main__":
    main()
