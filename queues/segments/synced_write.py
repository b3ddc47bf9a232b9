"""Writes that return only when they are on the disks that a queue's durability requires.

Each is followed by WAITAOF on the same connection: it waits for the connection's last write, and returns how many local
disks and replicas have synced it. With too few, the write may be stored or not, like a write whose reply was lost.

A replica reports what it has synced once per second, and when it is asked. WAITAOF asks at once, which is before the
sync. WAIT precedes it for this reason: it returns when the replica has received and synced the write, so that WAITAOF
asks afterwards.
"""

from collections.abc import Sequence
from typing import Any

import redis
from redis.commands.core import Script
from redis.exceptions import NoScriptError

from queues.durability import Durability

# Longer than a sync takes on a busy disk, and shorter than the timeout of a connection to durable queues.
SYNC_MILLISECONDS = 1_000


class NotSynced(redis.TimeoutError):
    """Raised when too few disks have a write in time: it may be lost if a host loses power."""


def encode_waits(durability: Durability) -> bytes:
    """Return the commands that wait, as sent to the server; empty if the durability requires no sync."""
    return b"".join(
        b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word.encode()) for word in words)
        for words in list_waits(durability)
    )


def list_waits(durability: Durability) -> list[tuple[str, ...]]:
    """Return the commands that wait for a sync. The reply of the last one says where the write is synced."""
    replicas, limit = str(durability.replicas), str(SYNC_MILLISECONDS)
    received = [("WAIT", replicas, limit)] if durability.replicas else []
    return [*received, ("WAITAOF", str(durability.disks), replicas, limit)] if durability.waits else []


def check_synced(durability: Durability, reply: Sequence[int]) -> None:
    """Raise `NotSynced` if the reply names fewer disks than required."""
    disks, replicas = reply
    if disks < durability.disks:
        raise NotSynced(f"the server has not synced its file to disk within {SYNC_MILLISECONDS / 1000:g} s")
    if replicas < durability.replicas:
        raise NotSynced(f"no replica has synced its file to disk within {SYNC_MILLISECONDS / 1000:g} s")


def run_synced(node: redis.Redis, durability: Durability, script: Script, keys: list[str], words: list[Any]) -> Any:
    """Return the reply of a script once its writes are synced. Raises `NotSynced` and redis-py's errors."""
    text: Any = script.script
    with node.pipeline(transaction=False) as pipe:
        for is_known in (True, False):
            run = pipe.evalsha if is_known else pipe.eval
            run(script.sha if is_known else text, len(keys), *keys, *words)
            for words_of_wait in list_waits(durability):
                pipe.execute_command(*words_of_wait)
            reply, *_, synced = pipe.execute(raise_on_error=False)
            if not isinstance(reply, NoScriptError):
                break
    for answer in (reply, synced):
        if isinstance(answer, Exception):
            raise answer
    check_synced(durability, synced)
    return reply
