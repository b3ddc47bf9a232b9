"""The lease of a backup, during which no block moves between nodes.

Nodes are copied one after the other, so a block that moves during a backup would be in it twice or not at all. A backup
holds its lease; a transfer acquires its own lease first and then checks for a backup. Whichever is first, one of the
two sees the other.
"""

import redis

from queues import keys
from workers.coordination.leases import Lease

NAME = "backup"
SECONDS = 30.0
# Leases of processes that transfer blocks: each running plan, and the cleanup of interrupted transfers.
SETTLING = "settling"
TRANSFERS = ("plan:*", SETTLING)


def create_backup_lease(control: redis.Redis) -> Lease:
    """Return the lease of a backup; one backup runs at a time."""
    return Lease(control, NAME, SECONDS)


def is_copied(control: redis.Redis) -> bool:
    """Return whether a backup of the plant is in progress. Call this while holding a lease of TRANSFERS."""
    return bool(control.exists(keys.LEASE.build(NAME)))


def list_transfer_leases(control: redis.Redis) -> list[str]:
    """List the leases of processes that may be transferring blocks."""
    lease_names = [name for kind in TRANSFERS for name in control.scan_iter(keys.LEASE.build(kind), 1_000)]
    return sorted(name.decode().removeprefix(keys.LEASE.build("")) for name in lease_names)
