"""How Celery comes back to its broker."""

import pytest
from kombu.exceptions import OperationalError

from console.celery import app
from queues.nodes.server import free_port
from workers.coordination.celery_worker import PAUSES_SECONDS


def test_a_broker_that_is_away_is_tried_again_each_second_at_most_and_for_ever():
    pauses: list[float] = []

    def failed(_error, pause_seconds):
        pauses.append(round(pause_seconds, 3))

    away = app.connection_for_read(f"redis://127.0.0.1:{free_port()}/0")
    with away as connection, pytest.raises(OperationalError):
        connection.ensure_connection(failed, 2)
    assert pauses == [0.2, 0.4]
    assert PAUSES_SECONDS["interval_max"] == 1.0 and app.conf.broker_connection_max_retries is None
