"""Enforcement of overrides on a node, a queue, or a worker host itself.

A node's thresholds are written to the topology that the agents read, its drain and cordon to its row and the topology,
a queue's pause, the hold of its circuit, and a worker host's drain to expiring keys on the control server. The database
says what is in force; `reconcile` restores keys that a control server has lost.
"""

import math
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any

import redis
from django.db import transaction

from common import checks
from common.errors import BadInput
from queues import circuit_hold, keys, pausing, projection
from queues.control.replies import expect_bytes
from queues.models import Node, Queue
from workers.models import Override
from workers.steering import scope


def enforce(control: redis.Redis | None, override: Override, now: datetime) -> None:
    """Write an override on a node, a queue, or a host itself to where it is enforced. Raises `redis.RedisError`.

    A key is written again after the commit: a reconciliation before it restores what the database says until then.
    """
    if scope.is_node_use(override) and override.node_id is not None:
        in_force = override.ended_at is None and (override.expires_at is None or override.expires_at > now)
        Node.objects.filter(pk=override.node_id).update(**{override.name: in_force})
    if control is None:
        return
    if scope.is_threshold(override) or scope.is_node_use(override):
        projection.project(control, get_node_thresholds(now))
    elif scope.is_itself(override):
        _write(control, override, now)
        transaction.on_commit(partial(_write, control, override, now), robust=True)


def get_node_thresholds(now: datetime) -> dict[str, dict[str, float]]:
    """Return {node: {"busy", "toobusy"}} as in force now: the node's own, or the overrides'.

    For the projection. Two overrides that were in order together may not be once one has expired: then BUSY is put just
    below TOOBUSY, so that the agents always get an order that they accept.
    """
    thresholds = {
        node.name: {name: float(getattr(node, name)) for name in scope.THRESHOLDS} for node in Node.objects.all()
    }
    rows = Override.objects.filter(
        scope.filter_unexpired(now), ended_at__isnull=True, node__isnull=False, name__in=scope.THRESHOLDS
    ).order_by("created_at")
    for override in rows.select_related("node"):
        assert override.node is not None
        thresholds[override.node.name][override.name] = float(override.value)
    ordered = {}
    for name, values in thresholds.items():
        busy, toobusy = (values[threshold] for threshold in scope.THRESHOLDS)
        ordered[name] = {"busy": min(busy, math.nextafter(toobusy, 0.0)), "toobusy": toobusy}
    return ordered


def validate_threshold(
    node: Node, name: str, value: object, now: datetime, beside: Mapping[str, Any]
) -> tuple[float, float]:
    """Return the value of a node's threshold, and the one that it replaces. Raises `BadInput`."""
    if name not in scope.THRESHOLDS:
        raise BadInput("name", f"must be {' or '.join(scope.THRESHOLDS)} for a node, not {name!r}")
    share = float(checks.accept_greater_than(0, 1, "a share of capacity").validate(value, "value"))
    holding = get_node_thresholds(now)[node.name]
    key = name.removesuffix("_threshold")
    others = {override.removesuffix("_threshold"): float(beside[override]) for override in beside}
    proposed = {**holding, **others, key: share}
    if not proposed["busy"] < proposed["toobusy"]:
        busy, toobusy = f"above busy ({holding['busy']:g})", f"below toobusy ({holding['toobusy']:g})"
        raise BadInput("value", f"must be a share {toobusy if key == 'busy' else busy}, not {share:g}")
    return share, holding[key]


def _write(control: redis.Redis, override: Override, now: datetime) -> None:
    end = override.expires_at if override.ended_at is None else now
    assert end is not None  # None of them runs without an end.
    if scope.is_circuit_hold(override):
        held = circuit_hold.CircuitHold(override.value, override.reason, override.owner.get_username())
        circuit_hold.hold(control, override.queue, held, (end - now).total_seconds())
        return
    if not scope.is_drain(override):
        until = pausing.Pause(end.timestamp(), override.reason, override.owner.get_username())
        pausing.pause(control, override.queue, override.name, until, now.timestamp())
        return
    left_ms = round(1000 * (end - now).total_seconds())
    if left_ms > 0:
        control.set(keys.DRAIN.build(override.host), "1", px=left_ms)
    else:
        control.delete(keys.DRAIN.build(override.host))


def _find_key(override: Override) -> str | None:
    """Return the expiring key that enforces an override; None if it is enforced elsewhere."""
    if scope.is_drain(override):
        return keys.DRAIN.build(override.host)
    if scope.is_circuit_hold(override):
        return keys.CIRCUIT_HOLD.build(override.queue)
    return keys.PAUSE.build(override.queue, override.name) if scope.is_pause(override) else None


def reconcile(control: redis.Redis, now: datetime) -> int:
    """Restore the keys of overrides in force and delete all others; return how many were wrong.

    A process that dies between its write and its commit leaves a key without a record, and a control server that lost
    its last second lacks the key of a visible override.
    """
    queues = Queue.objects.values_list("name", flat=True)
    hosts = [name.decode() for name in expect_bytes(control).hkeys(keys.HOSTS)]
    possible = [keys.PAUSE.build(queue, part) for queue in queues for part in pausing.PARTS]
    possible += [keys.CIRCUIT_HOLD.build(queue) for queue in queues]
    possible += [keys.DRAIN.build(host) for host in hosts]
    stored = expect_bytes(control).mget(possible) if possible else []
    there = {key for key, text in zip(possible, stored, strict=True) if text}
    rows = Override.objects.filter(ended_at__isnull=True, expires_at__gt=now).select_related("owner")
    wanted = {key: row for row in rows if (key := _find_key(row)) is not None}
    for key in wanted.keys() - there:
        _write(control, wanted[key], now)
    if left := there - wanted.keys():
        control.delete(*left)
    return len(wanted.keys() ^ there)
