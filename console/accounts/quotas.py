"""How much a token may publish: events per second and bytes per second, shared by all web processes.

Each quota is a token bucket on the control server. It holds BURST_SECONDS of its rate at most and fills by
the server's clock. A request is admitted while no bucket is below 0, then takes what it costs, also more than
there is: the debt delays the next request. So a body of any size passes once, and the average never exceeds
the rate by more than the burst and one request. Levels: a hash `weir:quota:{subject}`, gone when full.
"""

import math
from dataclasses import dataclass

from console.accounts.access import Actor
from console.connections.control_server import control
from queues import keys
from queues.lua.script import script
from workers.steering import plant_settings

BURST_SECONDS = 10


@dataclass(frozen=True)
class Quota:
    """What one subject may publish; `subject` is a token or, for a session, its user."""

    subject: str
    events_per_second: int
    bytes_per_second: int

    def wait_seconds(self, size_bytes: int) -> int:
        """0 when a request of that size is admitted and counted, else whole seconds until one would be.

        Raises redis.RedisError when the control server does not answer.
        """
        return math.ceil(self._take(0, size_bytes, ask=True) / 1000)

    def charge(self, events: int, size_bytes: int) -> None:
        """Count what an admitted request turned out to hold besides. Raises redis.RedisError."""
        self._take(events, size_bytes, ask=False)

    def _take(self, events: int, size_bytes: int, ask: bool) -> int:
        rates = (self.events_per_second, self.bytes_per_second, BURST_SECONDS)
        words = (keys.QUOTA.build(self.subject), *rates, events, size_bytes, int(ask))
        return int(control().eval(script("control/take_quota"), 1, *words))


def quota_of(actor: Actor) -> Quota:
    """The token's own quota where it has one, else the plant's settings. A token that was made with another
    shares that one's, else many children would publish many times as much.
    """
    token = actor.token and (actor.token.parent or actor.token)
    own_events = token.quota_events_per_second if token else None
    own_bytes = token.quota_bytes_per_second if token else None
    return Quota(
        f"token:{token.pk}" if token else f"user:{actor.user.pk if actor.user else 0}",
        own_events or plant_settings.value("quota.events_per_second"),
        own_bytes or plant_settings.value("quota.bytes_per_second"),
    )
