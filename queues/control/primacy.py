"""Whether a server is the primary still, by what most of its sentinels say.

A primary that stood still while the sentinels made another one goes on where it was: for an instant it has
clients whose connections waited, and a replica that nobody has turned away yet. What these two took together
is lost when they follow the new primary. So who wrote asks the sentinels afterwards.
"""

import time
from typing import Any
from weakref import WeakKeyDictionary

import redis

# A sentinel that did not answer is left out for so long: each question to it would take its whole timeout.
SILENT_SECONDS = 5.0
_silent_until: WeakKeyDictionary[redis.Redis, float] = WeakKeyDictionary()


class NoPrimary(redis.ConnectionError):
    """The server is the primary no longer, or nobody can say so: what was written may be lost."""


def confirm_primary(connection: Any) -> None:
    """Return when most sentinels answer, the newest of their answers names the connection's server, and none
    of them is replacing it. A connection that no sentinel led to is taken at its word. Raises NoPrimary.
    """
    led_by = getattr(connection, "connection_pool", None)
    manager = getattr(led_by, "sentinel_manager", None)
    if led_by is None or manager is None:
        return
    sentinels = list(manager.sentinels)
    states = [state for sentinel in sentinels if (state := _state(sentinel, led_by.service_name)) is not None]
    if 2 * len(states) <= len(sentinels):
        raise NoPrimary(
            f"{len(states)} of {len(sentinels)} sentinels answer: nobody can say whether the control server "
            "that took the write is the primary."
        )
    # Who leads a fail-over names the old primary until all replicas follow; the others know the new one then.
    replaced = [state for state in states if "failover_in_progress" in state["flags"]]
    settled = [state for state in states if state not in replaced]
    newest = max(settled, key=lambda state: int(state["config-epoch"]), default=None)
    server = (connection.host, connection.port)
    if newest is None or _address(newest) != server or server in map(_address, replaced):
        raise NoPrimary(
            "The control server fails over: what took the write is the primary no longer, or not yet."
        )


def _address(state: dict[str, Any]) -> tuple[str, int]:
    return state["ip"], state["port"]


def _state(sentinel: redis.Redis, name: str) -> dict[str, Any] | None:
    """What a sentinel knows of the primary; None where it does not answer."""
    if time.monotonic() < _silent_until.get(sentinel, 0.0):
        return None
    asked: Any = sentinel  # redis-py types what a client answers as either form of it
    try:
        state: dict[str, Any] = asked.sentinel_master(name)
    except redis.RedisError:
        _silent_until[sentinel] = time.monotonic() + SILENT_SECONDS
        return None
    return state
