"""The address of Celery's broker on the control server, in any of its forms."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from queues.control.address import parse_sentinels

TRANSPORT = "console.connections.broker_transport:AcknowledgedTransport"
# A server that vanished is abandoned after BRPOP's 10 s and at most twice this. Without these, a connection
# over a network that was cut for a minute hangs for up to another minute afterwards.
HEALTH_SECONDS = 2
SOCKET_SECONDS = 5.0
PATIENCE: Mapping[str, object] = {
    "socket_timeout": SOCKET_SECONDS,
    "socket_connect_timeout": SOCKET_SECONDS,
    "health_check_interval": HEALTH_SECONDS,
}


@dataclass(frozen=True)
class BrokerSettings:
    """The settings that depend on the address. transport: None for kombu's own transport of the URL."""

    url: str
    transport: str | None = None
    options: Mapping[str, object] = field(default_factory=dict)


def build_broker_settings(url: str) -> BrokerSettings:
    """Return the settings. Raises `BadInput` that names REDIS_URL."""
    sentinels = parse_sentinels(url)
    if sentinels is None:
        return BrokerSettings(url, options=PATIENCE)
    options = {"master_name": sentinels.name, "sentinel_kwargs": sentinels.sentinel_options, **PATIENCE}
    return BrokerSettings(sentinels.broker_url, TRANSPORT, options)
