"""Temporary stops of a queue's intake or consumption, holds of its circuit, and drains of a worker host.

They are authorized and audited, for pages and API. Each is an override: it has a reason and an expiry, and can be ended
early.
"""

from collections.abc import Mapping
from datetime import datetime

import redis
from django.db import transaction

from common.errors import BadInput
from console.accounts.access import Actor, require_permission
from console.actions.shorter_stop import require_later_end
from console.audit import audit_log
from queues import pausing, projection
from queues.circuit_hold import HOLDS
from queues.models import Queue
from workers.consumer.destination import get_destination_name
from workers.documents.hosts import ReportedHost
from workers.models import Override
from workers.pool.orders import is_at_work, read_host_reports
from workers.steering import overrides
from workers.steering.overrides import Expiry
from workers.steering.scope import CIRCUIT, DRAINING, Scope

CONTROL_ROLE = "control"  # its hosts run the loops and end drains


@transaction.atomic
def pause_queue(
    actor: Actor, queue: str, part: str, *, reason: str, now: datetime, expiry: Expiry, control: redis.Redis
) -> Override:
    """Pause the intake or the consumption of a queue until the expiry.

    A pause that ends no later is replaced. Nothing is lost: acknowledged events wait, and claimed events are finished.
    Raises `BadInput` that names queue, part, reason, or expiry.
    """
    require_permission(actor, "queue.pause", [queue])
    if not Queue.objects.filter(name=queue).exists():
        raise BadInput("queue", f"{queue[:40]} is not a queue.")
    if part not in pausing.PARTS:
        raise BadInput("part", f"must be {' or '.join(pausing.PARTS)}, not {part[:40]!r}.")
    scope = Scope(queue=queue)
    require_later_end(scope, part, overrides.PAUSED, expiry, now, "part")
    return _stop(actor, "queue.pause", part, overrides.PAUSED, scope, expiry, reason, now, control)


@transaction.atomic
def hold_circuit(
    actor: Actor, queue: str, circuit: str, *, reason: str, now: datetime, expiry: Expiry, control: redis.Redis
) -> Override:
    """Hold the circuit of a queue's destination until the expiry: open or closed (`queues.circuit_hold`).

    An earlier hold is replaced. Raises `BadInput` that names queue, circuit, reason, or expiry.
    """
    require_permission(actor, "queue.circuit", [queue])
    row = Queue.objects.filter(name=queue).first()
    if row is None:
        raise BadInput("queue", f"{queue[:40]} is not a queue.")
    if row.kind != Queue.Kind.JOBS or not get_destination_name(row.handler, row.handler_options):
        raise BadInput("queue", f"{queue} has no circuit: its events are not sent to a destination.")
    if circuit not in HOLDS:
        raise BadInput("circuit", f"must be {' or '.join(HOLDS)}, not {circuit[:40]!r}.")
    return _stop(actor, "queue.circuit", CIRCUIT, circuit, Scope(queue=queue), expiry, reason, now, control)


@transaction.atomic
def drain_host(
    actor: Actor, host: str, *, reason: str, now: datetime, expiry: Expiry, control: redis.Redis
) -> Override:
    """Give a worker host no new work until the expiry. Running work is finished.

    Raises `BadInput` that names host, reason, or expiry.
    """
    require_permission(actor, "host.drain", subjects=[f"host/{host}"])
    hosts = read_host_reports(control)
    if host not in hosts:
        raise BadInput("host", f"{host[:100]} is not reporting. The worker hosts are {', '.join(hosts) or 'none'}.")
    projection.lock_revision()  # a second user who drains the last host at once sees the other's drain
    if hosts[host].role == CONTROL_ROLE and not _has_other_control_host(host, hosts, now):
        raise BadInput(
            "host", (f"{host} is the only host that runs the control loops. Start another host of role control first.")
        )
    scope = Scope(host=host)
    require_later_end(scope, DRAINING, overrides.DRAINED, expiry, now, "host")
    return _stop(actor, "host.drain", DRAINING, overrides.DRAINED, scope, expiry, reason, now, control)


def _has_other_control_host(host: str, hosts: Mapping[str, ReportedHost], now: datetime) -> bool:
    """Return whether other hosts of role control are running and not drained."""
    drained = overrides.list_active(now).filter(name=DRAINING).exclude(host="")
    stopped = {host, *drained.values_list("host", flat=True)}
    return any(
        report.role == CONTROL_ROLE and name not in stopped and is_at_work(report, now.timestamp())
        for name, report in hosts.items()
    )


def _stop(
    actor: Actor,
    action: str,
    name: str,
    value: str,
    scope: Scope,
    expiry: Expiry,
    reason: str,
    now: datetime,
    control: redis.Redis,
) -> Override:
    made = overrides.set_override(
        name=name,
        value=value,
        owner=actor.account,
        reason=reason,
        now=now,
        control=control,
        **scope.get_field_values(),
        **vars(expiry),
    )
    end = made.expires_at.isoformat() if made.expires_at else None
    before, after = {name: made.instead_of}, {name: made.value, "expires_at": end}
    if made.replaces:
        before = {name: made.replaces[0]["value"], "replaces": made.replaces}
    audit_log.record(actor, action, str(scope), reason=made.reason, before=before, after=after)
    return made


def find_active(scope: Scope, name: str, now: datetime) -> Override:
    """Return the pause or drain in force. Raises `BadInput` if there is none."""
    held = overrides.list_active(now).filter(name=name, **scope.get_field_values())
    stop = held.select_related("owner").first()
    if stop is None:
        what = {DRAINING: f"{scope} is not draining", CIRCUIT: f"the circuit of {scope} is not held"}.get(
            name, f"{name} of {scope} is not paused"
        )
        raise BadInput("part", f"{what}. Nothing was changed.")
    return stop
