"""While a backup is made no block goes from one node to another: nodes are copied one after the other, and
what moves between them would be in the backup twice, or not at all.

Who makes the backup holds a lease. Who transfers takes its own lease first and asks then; whoever comes
first, one of the two sees the other.
"""

import redis

from queues import keys
from workers.coordination.leases import Lease

NAME = "backup"
SECONDS = 30.0
# What transfers blocks, by its lease: each running plan, and who settles what was broken off.
SETTLING = "settling"
TRANSFERS = ("plan:*", SETTLING)


def backup_lease(control: redis.Redis) -> Lease:
    """The lease of a backup that is being made; one at a time."""
    return Lease(control, NAME, SECONDS)


def is_copied(control: redis.Redis) -> bool:
    """Whether the plant is being copied now. Ask under a lease of TRANSFERS."""
    return bool(control.exists(keys.LEASE.build(NAME)))


def list_transfer_leases(control: redis.Redis) -> list[str]:
    """The leases of those who may be transferring blocks."""
    found = [name for each in TRANSFERS for name in control.scan_iter(keys.LEASE.build(each), 1_000)]
    return sorted(name.decode().removeprefix(keys.LEASE.build("")) for name in found)
