"""Reconnection of Celery to its broker as soon as the broker answers.

Kombu's own pauses are 2, 4, 6 … 30 s: a control server that takes 7 s to load its file would be found after 12 s, and
no loop ticks until then.
"""

from typing import Any, Self

from celery.app.amqp import AMQP
from kombu import Connection

from queues.control.connection import know_of_refused_writes

know_of_refused_writes()  # otherwise a worker would exit when the control server's disk is full

PAUSES_SECONDS = {"interval_start": 0.2, "interval_step": 0.2, "interval_max": 1.0}


class PromptConnection(Connection):
    """A connection that is retried every second without a limit (CELERY_BROKER_CONNECTION_MAX_RETRIES)."""

    def ensure_connection(self, *arguments: Any, **options: Any) -> Self:
        """Connect like kombu, with shorter pauses where the caller passes none."""
        super().ensure_connection(*arguments, **{**PAUSES_SECONDS, **options})
        return self


class PromptConnections(AMQP):
    """Celery's AMQP with such connections."""

    Connection = PromptConnection
    BrokerConnection = PromptConnection
