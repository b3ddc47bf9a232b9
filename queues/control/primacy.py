"""Whether a server is still the primary, according to the majority of its sentinels.

A primary that was frozen while the sentinels promoted another one continues where it was. For an instant it still has
clients whose connections waited, and a replica that was not redirected yet. What these two accept together is lost when
they follow the new primary. Writers therefore query the sentinels afterwards.
"""

import time
from typing import Any
from weakref import WeakKeyDictionary

import redis

# A sentinel that did not answer is skipped for this long: each query would take its whole timeout.
SILENT_SECONDS = 5.0
_silent_until: WeakKeyDictionary[redis.Redis, float] = WeakKeyDictionary()


class NoPrimary(redis.ConnectionError):
    """Raised when the server is no longer the primary, or this can't be determined: the write may be lost."""


def confirm_primary(connection: Any) -> None:
    """Return if a majority of sentinels answers and confirms the server of the connection.

    The newest of their answers must name the server, and none of them may be replacing it. A connection that was not
    made through a sentinel is trusted. Raises `NoPrimary`.
    """
    led_by = getattr(connection, "connection_pool", None)
    manager = getattr(led_by, "sentinel_manager", None)
    if led_by is None or manager is None:
        return
    sentinels = list(manager.sentinels)
    states = [
        state for sentinel in sentinels if (state := _read_primary_state(sentinel, led_by.service_name)) is not None
    ]
    if 2 * len(states) <= len(sentinels):
        raise NoPrimary(
            f"Only {len(states)} of {len(sentinels)} sentinels responded: the control server that stored the "
            "write may no longer be the primary."
        )
    # The sentinel that leads a failover names the old primary until all replicas follow; the others know the
    # new one by then.
    replaced = [state for state in states if "failover_in_progress" in state["flags"]]
    settled = [state for state in states if state not in replaced]
    newest = max(settled, key=lambda state: int(state["config-epoch"]), default=None)
    server = (connection.host, connection.port)
    if newest is None or _get_address(newest) != server or server in map(_get_address, replaced):
        raise NoPrimary(
            "The control server is failing over: the server that stored the write is no longer the primary."
        )


def _get_address(state: dict[str, Any]) -> tuple[str, int]:
    return state["ip"], state["port"]


def _read_primary_state(sentinel: redis.Redis, name: str) -> dict[str, Any] | None:
    """Return what a sentinel knows of the primary; None if it does not answer."""
    if time.monotonic() < _silent_until.get(sentinel, 0.0):
        return None
    asked: Any = sentinel  # redis-py types the reply of a client as either form of it
    try:
        state: dict[str, Any] = asked.sentinel_master(name)
    except redis.RedisError:
        _silent_until[sentinel] = time.monotonic() + SILENT_SECONDS
        return None
    return state
