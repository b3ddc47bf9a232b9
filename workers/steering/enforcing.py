"""Enforcement of a queue's pause and a worker host's drain: expiring keys on the control server.

The database says what is in force; `reconcile` restores keys that a control server has lost.
"""

from datetime import datetime
from functools import partial
from typing import Any, cast

import redis
from django.db import transaction

from queues import keys, pausing
from queues.models import Queue
from workers.models import Override
from workers.steering.scope import is_drain, is_pause


def enforce(control: redis.Redis, override: Override, now: datetime) -> None:
    """Write the key of an override in force, or delete that of an ended one. Raises `redis.RedisError`.

    Call it again after the commit: a reconciliation before it restores what the database says until then.
    """
    _write(control, override, now)
    transaction.on_commit(partial(_write, control, override, now), robust=True)


def _write(control: redis.Redis, override: Override, now: datetime) -> None:
    end = override.expires_at if override.ended_at is None else now
    assert end is not None  # Neither runs without an end.
    if is_drain(override):
        _drain(control, override.host, end, now)
    else:
        until = pausing.Pause(end.timestamp(), override.reason, override.owner.get_username())
        pausing.pause(control, override.queue, override.name, until, now.timestamp())


def _drain(control: redis.Redis, host: str, until: datetime, now: datetime) -> None:
    left_ms = round(1000 * (until - now).total_seconds())
    if left_ms > 0:
        control.set(keys.DRAIN.build(host), "1", px=left_ms)
    else:
        control.delete(keys.DRAIN.build(host))


def reconcile(control: redis.Redis, now: datetime) -> int:
    """Restore the keys of overrides in force and delete all others; return how many were wrong.

    A process that dies between its write and its commit leaves a key without a record, and a control server that lost
    its last second lacks the key of a visible override.
    """
    queues = Queue.objects.values_list("name", flat=True)
    hosts = [name.decode() for name in cast(list[bytes], control.hkeys(keys.HOSTS))]
    possible = [keys.PAUSE.build(queue, part) for queue in queues for part in pausing.PARTS]
    possible += [keys.DRAIN.build(host) for host in hosts]
    stored = cast(list[Any], control.mget(possible)) if possible else []
    there = {key for key, text in zip(possible, stored, strict=True) if text}
    rows = Override.objects.filter(ended_at__isnull=True, expires_at__gt=now).select_related("owner")
    wanted = {build_override_key(row): row for row in rows if is_pause(row) or is_drain(row)}
    for key in wanted.keys() - there:
        _write(control, wanted[key], now)
    if left := there - wanted.keys():
        control.delete(*left)
    return len(wanted.keys() ^ there)


def build_override_key(override: Override) -> str:
    """Return the key of an override."""
    if is_drain(override):
        return keys.DRAIN.build(override.host)
    return keys.PAUSE.build(override.queue, override.name)
