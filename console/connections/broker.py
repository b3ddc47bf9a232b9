"""Where Celery's broker is: on the control server, by whatever form its address has."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from queues.control.address import sentinels_of

TRANSPORT = "console.connections.broker_transport:AcknowledgedTransport"
# A server that vanished without a word is left after BRPOP's 10 s and at most twice this. Without these, a
# connection over a network that was cut for a minute stands still for up to another one afterwards.
HEALTH_SECONDS = 2
SOCKET_SECONDS = 5.0
PATIENCE: Mapping[str, Any] = {
    "socket_timeout": SOCKET_SECONDS,
    "socket_connect_timeout": SOCKET_SECONDS,
    "health_check_interval": HEALTH_SECONDS,
}


@dataclass(frozen=True)
class BrokerSettings:
    """What differs by address. transport: kombu's own for the URL where it is None."""

    url: str
    transport: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


def settings_of(url: str) -> BrokerSettings:
    """Raises BadInput naming REDIS_URL."""
    sentinels = sentinels_of(url)
    if sentinels is None:
        return BrokerSettings(url, options=PATIENCE)
    options = {
        "master_name": sentinels.name,
        "sentinel_kwargs": sentinels.sentinel_options,
        **PATIENCE,
    }
    return BrokerSettings(sentinels.broker_url, TRANSPORT, options)
