"""The persistent data of the control server and the nodes, as lines of JSON, and back by plain commands.

A line starts a key: {key, type, expires_ms, …}; the lines after it contain its content, up to a thousand items each,
until the next key. Names and values are base64. It uses plain commands, since no role has RESTORE
(`queues.nodes.server_roles`), and any server of the protocol supports them.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import orjson
import redis
from redis.client import Pipeline

from queues import keys
from queues.control.replies import expect_bytes
from queues.segments.segment import Segment

AT_ONCE = 1_000
# What the plant's processes write again when they start, or what only concerned its running processes.
PASSING = (
    keys.TOPOLOGY.pattern,
    keys.PROMOTIONS.pattern,
    keys.HEARTBEATS.pattern,
    keys.SNAPSHOT.pattern,
    keys.HOLDER.pattern,
    keys.SUBMITTED.pattern,
    keys.RUNNING.pattern,
    keys.HOSTS.pattern,
    keys.POOL.pattern,
    keys.DONE.pattern,
    keys.LEASE.pattern,
    keys.PAUSE.pattern,
    keys.DRAIN.pattern,
    keys.QUOTA.pattern,
    keys.TOKEN_FAILURES.pattern,
    keys.AUDIT_VERDICT.pattern,
    keys.JOB.pattern,
    keys.JOB_WORKERS.pattern,
    keys.PIPELINE.pattern,
    keys.PIPELINE_LOG.pattern,
    keys.PIPELINE_AT_WORK.pattern,
    keys.PIPELINE_SHIPPED.pattern,
    keys.CELERY.pattern,
)
Item = list[Any]


def list_key_patterns(on_nodes: bool) -> list[str]:
    """Return the patterns of the keys that a backup contains."""
    return [key.pattern for key in keys.KEYS if key.on_nodes == on_nodes and key.pattern not in PASSING]


def export_lines(server: redis.Redis, on_nodes: bool) -> Iterator[bytes]:
    """Yield all persistent data of this server. Raises `redis.RedisError`."""
    names = {name for pattern in list_key_patterns(on_nodes) for name in server.scan_iter(pattern, AT_ONCE)}
    for name in sorted(names):
        kind = expect_bytes(server).type(name).decode()
        if kind == "none":  # it ended in the meantime
            continue
        expires_ms = server.pexpiretime(name)
        head = {"key": _encode_base64(name), "type": kind, "expires_ms": expires_ms if expires_ms > 0 else None}
        about = _stream_head(server, name) if kind == "stream" else {}
        yield orjson.dumps({**head, **about})
        # Entries keep arriving: a stream is copied up to its recorded head, and gets that last id.
        content = _stream(server, name, about["last_id"]) if about else CONTENT[kind](server, name)
        for items in _split_into_chunks(content):
            yield orjson.dumps([[_encode_base64(part) for part in item] for item in items])


def load_node(server: redis.Redis, lines: Iterable[bytes]) -> int:
    """Load as `load` does, on a node, and correct its counters of waiting events.

    They were copied before the segments, which were filled and trimmed in the meantime. Raises what `load` does, and
    `WeirError`.
    """
    count = load(server, lines)
    begin, end = keys.SEGMENT.build("\0").split("\0")
    for name in sorted(expect_bytes(server).scan_iter(keys.SEGMENT.pattern, AT_ONCE)):
        Segment(server, name.decode().removeprefix(begin).removesuffix(end)).recount()
    return count


def load(server: redis.Redis, lines: Iterable[bytes]) -> int:
    """Write what `lines_of` returned; return the number of keys. Raises redis.RedisError, ValueError, KeyError."""
    head: dict[str, Any] = {}
    count = 0
    for line in lines:
        document = orjson.loads(line)
        if isinstance(document, dict):
            _finish(server, head)
            head, count = document, count + 1
            continue
        items = [[b64decode(part) for part in item] for item in document]
        with server.pipeline(transaction=False) as pipe:
            _write(pipe, b64decode(head["key"]), head["type"], items)
            pipe.execute()
    _finish(server, head)
    return count


def _read_string(server: redis.Redis, name: bytes) -> Iterator[Item]:
    value = server.get(name)
    if value is not None:
        yield [value]


def _read_sorted_set(server: redis.Redis, name: bytes) -> Iterator[Item]:
    pairs = server.zscan_iter(name, count=AT_ONCE, score_cast_func=bytes)
    yield from ([score, member] for member, score in pairs)


def _stream(server: redis.Redis, name: bytes, last_id: str) -> Iterator[Item]:
    after = b"-"
    while entries := expect_bytes(server).xrange(name, after, last_id, count=100):
        for entry_id, fields in entries:
            yield [entry_id, *(part for pair in fields.items() for part in pair)]
        after = b"(" + entries[-1][0]


CONTENT: Mapping[str, Callable[[redis.Redis, bytes], Iterator[Item]]] = {
    "string": _read_string,
    "hash": lambda server, name: map(list, server.hscan_iter(name, count=AT_ONCE)),
    "list": lambda server, name: ([value] for value in server.lrange(name, 0, -1)),
    "set": lambda server, name: ([value] for value in server.sscan_iter(name, count=AT_ONCE)),
    "zset": _read_sorted_set,
}


def _stream_head(server: redis.Redis, name: bytes) -> dict[str, Any]:
    """Return a stream's data besides its entries: its last id, and its pending entries."""
    read = expect_bytes(server)
    about = read.xinfo_stream(name)
    groups = []
    for group in read.xinfo_groups(name):
        pending: list[Any] = []
        first = "-"
        while page := read.xpending_range(name, group["name"], first, "+", AT_ONCE):
            pending += [
                [entry["message_id"].decode(), _encode_base64(entry["consumer"]), entry["times_delivered"]]
                for entry in page
            ]
            first = f"({pending[-1][0]}"
        given = group["last-delivered-id"].decode()
        groups.append({"name": _encode_base64(group["name"]), "given": given, "pending": pending})
    return {"last_id": about["last-generated-id"].decode(), "groups": groups}


def _write(pipe: Pipeline, name: bytes, kind: str, items: list[Item]) -> None:
    if kind == "string":
        pipe.set(name, items[0][0])
    elif kind == "hash":
        pipe.hset(name, items=[part for item in items for part in item])
    elif kind == "list":
        pipe.rpush(name, *(item[0] for item in items))
    elif kind == "set":
        pipe.sadd(name, *(item[0] for item in items))
    elif kind == "zset":
        pipe.execute_command("ZADD", name, *(part for item in items for part in item))
    else:
        for entry_id, *fields in items:
            pipe.execute_command("XADD", name, entry_id, *fields)


def _finish(server: redis.Redis, head: dict[str, Any]) -> None:
    """Restore what belongs to a key as a whole, once its content is there."""
    if not head:
        return
    name = b64decode(head["key"])
    if head["type"] == "stream":
        _finish_stream(server, name, head)
    if head["expires_ms"]:
        server.pexpireat(name, head["expires_ms"])


def _finish_stream(server: redis.Redis, name: bytes, head: dict[str, Any]) -> None:
    groups = head["groups"]
    if not server.exists(name):
        # An empty stream is created by an entry that is deleted again.
        server.xadd(name, {"-": ""}, id="0-1")
        server.xtrim(name, maxlen=0, approximate=False)
    server.execute_command("XSETID", name, head["last_id"])
    for group in groups:
        of = b64decode(group["name"])
        server.xgroup_create(name, of, group["given"])
        for entry_id, consumer, times in group["pending"]:
            server.xclaim(name, of, b64decode(consumer), 0, [entry_id], retrycount=times, force=True, justid=True)


def _split_into_chunks(items: Iterable[Item]) -> Iterator[list[Item]]:
    chunk: list[Item] = []
    size = 0
    for item in items:
        chunk.append(item)
        size += sum(map(len, item))
        if len(chunk) == AT_ONCE or size > 4 * 2**20:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _encode_base64(part: bytes | str) -> str:
    return b64encode(part if isinstance(part, bytes) else part.encode()).decode()
