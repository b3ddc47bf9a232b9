"""Writes that return only when they are on the disks that a queue's durability requires.

Each is followed by WAITAOF on the same connection: it waits for the connection's last write, and returns how many local
disks and replicas have synced it. With too few, the write may be stored or not, like a write whose reply was lost.
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


def encode_wait(durability: Durability) -> bytes:
    """Return the command that waits, as sent to the server; empty if the durability requires no sync."""
    if not durability.waits:
        return b""
    words = [part.encode() for part in _build_wait(durability)]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def check_synced(durability: Durability, reply: Sequence[int]) -> None:
    """Raise `NotSynced` if the reply names fewer disks than required."""
    disks, replicas = reply
    if disks < durability.disks:
        raise NotSynced(f"the server has not synced its file to disk within {SYNC_MILLISECONDS / 1000:g} s")
    if replicas < durability.replicas:
        raise NotSynced(f"no replica has synced its file to disk within {SYNC_MILLISECONDS / 1000:g} s")


def run_synced(node: redis.Redis, durability: Durability, script: Script, keys: list[str], words: list[Any]) -> Any:
    """Return the reply of a script once its writes are synced. Raises `NotSynced` and redis-py's errors."""
    with node.pipeline(transaction=False) as pipe:
        for text in (script.sha, None):
            pipe.evalsha(text, len(keys), *keys, *words) if text else pipe.eval(script.script, len(keys), *keys, *words)
            pipe.execute_command(*_build_wait(durability))
            reply, synced = pipe.execute(raise_on_error=False)
            if not isinstance(reply, NoScriptError):
                break
    for answer in (reply, synced):
        if isinstance(answer, Exception):
            raise answer
    check_synced(durability, synced)
    return reply


def _build_wait(durability: Durability) -> list[str]:
    return ["WAITAOF", str(durability.disks), str(durability.replicas), str(SYNC_MILLISECONDS)]
