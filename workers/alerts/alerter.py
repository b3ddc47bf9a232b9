"""The alerter: checks every two seconds and delivers every second, each under a lease of its own.

The two run in separate threads: a mail server that hangs must not delay the next check.
"""

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import redis
from django.db import DatabaseError, close_old_connections, connections

from common import own_process
from workers.alerts.conditions.evidence import Gatherer
from workers.alerts.delivery import dispatcher
from workers.alerts.evaluation import evaluator
from workers.alerts.evaluation.check import AlertCheck
from workers.alerts.lifecycle.automaton import CHECK_SECONDS
from workers.alerts.lifecycle.models import AlertWatch
from workers.coordination.leases import Lease

logger = logging.getLogger(__name__)
DELIVER_SECONDS = 1.0
DELIVERY_NOTED = timedelta(seconds=5)
# Longer than a check takes. When an alerter dies, another one takes over after this time.
LEASE_SECONDS = 6.0
# One receiver may take 10 s: the lease outlives a round of sending.
DISPATCH_LEASE_SECONDS = 30.0


class Alerter:
    """The alerter: `step` runs one check, `deliver` one delivery; `run` does both until it is stopped."""

    def __init__(self, control: redis.Redis) -> None:
        self._gatherer = Gatherer(control)
        self._lease = Lease(control, "alerter", LEASE_SECONDS)
        self._dispatch_lease = Lease(control, "courier", DISPATCH_LEASE_SECONDS)
        self._delivered_at: datetime | None = None  # as last recorded

    def step(self, now: float, monotonic_seconds: float) -> AlertCheck | None:
        """Run one check; return None while another process has the lease."""
        # Evidence is gathered without the lease, too: a process that takes over must have watched to know
        # ages.
        evidence = self._gatherer.gather(now, monotonic_seconds)
        if not self._acquire_check_lease():
            return None
        assert self._lease.fence is not None
        return evaluator.check(evidence, self._lease.fence)

    def deliver(self, stop: threading.Event | None = None) -> int:
        """Bundle and send until nothing is due or `stop` is set.

        Return 0 while another process has the lease.
        """
        if not (self._dispatch_lease.renew() or self._dispatch_lease.acquire()):
            return 0

        def should_continue() -> bool:
            self._note_delivery()
            return not (stop is not None and stop.is_set()) and self._dispatch_lease.renew()

        return dispatcher.deliver(lambda: datetime.now(UTC), should_continue)

    def _note_delivery(self) -> None:
        """Record for the dead man's switch that delivery works."""
        now = datetime.now(UTC)
        if self._delivered_at is None or abs(now - self._delivered_at) >= DELIVERY_NOTED:
            AlertWatch.objects.filter(pk=1).update(delivered_at=now)
            self._delivered_at = now

    def run(self, stop: threading.Event) -> None:
        """Check and deliver until `stop` is set; log an error once and try again."""
        sending = threading.Thread(
            target=self._repeat, args=(stop, lambda: self.deliver(stop), DELIVER_SECONDS), daemon=True
        )
        sending.start()
        self._repeat(stop, self._check, CHECK_SECONDS)
        sending.join(DISPATCH_LEASE_SECONDS)
        self.close()

    def _check(self) -> None:
        own_process.touch()
        self.step(time.time(), time.monotonic())

    def close(self) -> None:
        """Release the leases, so that another process takes over at once."""
        try:
            self._lease.release()
            self._dispatch_lease.release()
        except redis.RedisError:
            logger.info("The alerter's leases could not be released; they expire automatically.")

    def _repeat(self, stop: threading.Event, act: Callable[[], object], every_seconds: float) -> None:
        failing = False
        while not stop.wait(every_seconds):
            try:
                act()
                failing = False
            except Exception as error:
                # Any error may be gone at the next try; alerting must not end with it.
                if not failing:
                    logger.warning("The alerter failed and will retry: %r", error)
                failing = True
                if isinstance(error, DatabaseError):
                    close_old_connections()
        connections.close_all()

    def _acquire_check_lease(self) -> bool:
        """Return whether this alerter checks.

        It checks if it holds the lease under a number that the database gave to nobody else. A control server that was
        restored, or replaced by another one, may count from an older number.
        """
        if self._lease.renew():
            return True
        fence = self._lease.acquire(evaluator.get_greatest_fence())
        if fence is None or evaluator.claim(fence):
            return fence is not None
        self._lease.release()
        return False
