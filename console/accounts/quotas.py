"""Publishing quotas of tokens: events per second and bytes per second, shared by all web processes.

Each quota is a token bucket on the control server. It holds at most BURST_SECONDS of its rate and fills by the server's
clock. A request is admitted while no bucket is below 0, then takes its cost, even if that exceeds the level: the debt
delays the next request. A body of any size therefore passes once, and the average never exceeds the rate by more than
the burst and one request. Levels: a hash `weir:quota:{subject}`, deleted when full.
"""

import math
from dataclasses import dataclass

from console.accounts.access import Actor
from console.connections.control_server import control
from queues import keys
from queues.lua.script import load_script
from workers.steering import plant_settings

BURST_SECONDS = 10


@dataclass(frozen=True)
class Quota:
    """The quota of one subject; `subject` is a token or, for a session, its user."""

    subject: str
    events_per_second: int
    bytes_per_second: int

    def wait_seconds(self, size_bytes: int) -> int:
        """Return 0 if a request of that size is admitted and counted, else the whole seconds to wait.

        Raises `redis.RedisError` if the control server does not answer.
        """
        return math.ceil(self._take(0, size_bytes, ask=True) / 1000)

    def charge(self, events: int, size_bytes: int) -> None:
        """Count the events and bytes that an admitted request additionally contained.

        Raises `redis.RedisError`.
        """
        self._take(events, size_bytes, ask=False)

    def _take(self, events: int, size_bytes: int, ask: bool) -> int:
        rates = (self.events_per_second, self.bytes_per_second, BURST_SECONDS)
        words = (keys.QUOTA.build(self.subject), *rates, events, size_bytes, int(ask))
        return int(control().eval(load_script("control/take_quota"), 1, *words))


def get_actor_quota(actor: Actor) -> Quota:
    """Return the token's own quota if it has one, else the plant's settings.

    A child token shares its parent's quota; otherwise many children could publish many times as much.
    """
    token = actor.token and (actor.token.parent or actor.token)
    own_events = token.quota_events_per_second if token else None
    own_bytes = token.quota_bytes_per_second if token else None
    return Quota(
        f"token:{token.pk}" if token else f"user:{actor.user.pk if actor.user else 0}",
        own_events or plant_settings.get_setting_value("quota.events_per_second"),
        own_bytes or plant_settings.get_setting_value("quota.bytes_per_second"),
    )
