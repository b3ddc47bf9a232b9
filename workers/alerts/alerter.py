"""The alerter: checks every two seconds and delivers every second, each under a lease of its own.

The two run in separate threads: a mail server that hangs must not delay the next check.

While observer, alerter, and delivery work, the dead man's switch calls an outward address every few seconds
(WEIR_ALIVE_URL, WEIR_ALIVE_SECONDS). The service behind it, such as Healthchecks, raises the alarm when the calls stop,
when no part of Weir is left that could. The process that notifies makes the calls, so its own death ends them, too. Of
several alerters, one calls.
"""

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import httpx
import msgspec
import redis
from django.db.models import Max, Q
from django.utils import timezone

from common import environment as variables
from common import own_process
from common.errors import BadInput
from common.stored_document import get_decoder
from queues import keys
from workers.alerts.conditions.gatherer import Gatherer
from workers.alerts.delivery import dispatcher
from workers.alerts.delivery.message_text import TIMEOUT_SECONDS
from workers.alerts.evaluation import evaluator
from workers.alerts.evaluation.evaluator import AlertCheck
from workers.alerts.lifecycle.automaton import CHECK_SECONDS
from workers.alerts.lifecycle.models import AlertWatch, Message, Receiver
from workers.coordination.connections import repeat_until_stopped
from workers.coordination.leases import Lease
from workers.host import egress

logger = logging.getLogger(__name__)
DELIVER_SECONDS = 1.0
DELIVERY_NOTED = timedelta(seconds=5)
# Longer than a check takes. When an alerter dies, another one takes over after this time.
LEASE_SECONDS = 6.0
# One receiver may take 10 s: the lease outlives a round of sending.
DISPATCH_LEASE_SECONDS = 30.0
OBSERVED_SECONDS = 15.0
CHECKED_SECONDS = 30.0
# A round of sending takes as long as the slowest channel may take.
DELIVERED_SECONDS = 90.0
# A channel that shows a message itself, and one that only holds people's names: nothing is sent to either.
NO_PEOPLE = (Receiver.Channel.BROWSER, Receiver.Channel.SCHEDULE)


class Alerter:
    """The alerter: `step` runs one check, `deliver` one delivery; `run` does both until it is stopped."""

    def __init__(self, control: redis.Redis) -> None:
        self._gatherer = Gatherer(control)
        self._lease = Lease(control, "alerter", LEASE_SECONDS)
        self._dispatch_lease = Lease(control, "courier", DISPATCH_LEASE_SECONDS)
        self._delivered_at: datetime | None = None  # as last recorded

    def step(self, now: float, monotonic_seconds: float) -> AlertCheck | None:
        """Run one check; return None while another process has the lease.

        This alerter checks if it holds the lease under a number that the database gave to nobody else. A control server
        that was restored, or replaced by another one, may count from an older number.
        """
        # Evidence is gathered without the lease, too: a process that takes over must have watched to know ages.
        evidence = self._gatherer.gather(now, monotonic_seconds)
        if not self._lease.renew():
            fence = self._lease.acquire(evaluator.get_greatest_fence())
            if fence is None:
                return None
            if not evaluator.claim(fence):
                self._lease.release()
                return None
        assert self._lease.fence is not None
        return evaluator.check(evidence, self._lease.fence)

    def deliver(self, stop: threading.Event | None = None) -> int:
        """Bundle and send until nothing is due or `stop` is set. Return 0 while another process has the lease."""
        if not (self._dispatch_lease.renew() or self._dispatch_lease.acquire()):
            return 0

        def should_continue() -> bool:
            # Recorded for the dead man's switch: delivery works.
            now = datetime.now(UTC)
            if self._delivered_at is None or abs(now - self._delivered_at) >= DELIVERY_NOTED:
                AlertWatch.objects.filter(pk=1).update(delivered_at=now)
                self._delivered_at = now
            return not (stop is not None and stop.is_set()) and self._dispatch_lease.renew()

        return dispatcher.deliver(lambda: datetime.now(UTC), should_continue)

    def run(self, stop: threading.Event) -> None:
        """Check and deliver until `stop` is set."""
        what = "The alerter failed and will retry"
        sending = threading.Thread(
            target=repeat_until_stopped, args=(stop, DELIVER_SECONDS, lambda: self.deliver(stop), what), daemon=True
        )
        sending.start()

        def check() -> None:
            own_process.touch()
            self.step(time.time(), time.monotonic())

        repeat_until_stopped(stop, CHECK_SECONDS, check, what)
        sending.join(DISPATCH_LEASE_SECONDS)
        self.close()

    def close(self) -> None:
        """Release the leases, so that another process takes over at once."""
        try:
            self._lease.release()
            self._dispatch_lease.release()
        except redis.RedisError:
            logger.info("The alerter's leases could not be released. They expire automatically.")


@dataclass(frozen=True)
class WatchFacts:
    """The ages that the switch checks.

    Ages are in seconds, and None if it never happened. `error`: the error of a message that no receiver took since one
    was last delivered, "" if there is none.
    """

    observed_seconds: float | None
    checked_seconds: float | None
    delivered_seconds: float | None
    error: str = ""


class _SnapshotTime(msgspec.Struct):
    """The snapshot's timestamp alone."""

    at: float | None = None


def describe_failure(facts: WatchFacts) -> str:
    """Return what does not work, in a sentence; "" while everything does."""
    for what, age, most in (
        ("observer has not published a snapshot", facts.observed_seconds, OBSERVED_SECONDS),
        ("alerter has not evaluated any rules", facts.checked_seconds, CHECKED_SECONDS),
        ("delivery has not run", facts.delivered_seconds, DELIVERED_SECONDS),
    ):
        if age is None or not -most <= age <= most:
            since = "since it was started" if age is None else f"for {age:.0f} s"
            return f"The {what} {since}."
    return f"Messages are not delivered: {facts.error}" if facts.error else ""


class DeadMansSwitch:
    """The dead man's switch.

    `step` runs one check, and one call if everything works. `run` steps until it is stopped.
    """

    def __init__(self, control: redis.Redis, environment: Mapping[str, str] = variables.PROCESS) -> None:
        self._control = control
        self._url = variables.ALIVE_URL.get_text(environment)
        self.every_seconds = variables.ALIVE_SECONDS.get_seconds(environment)
        self._lease = Lease(control, "dead-mans-switch", 2 * self.every_seconds + TIMEOUT_SECONDS)

    def step(self, now: datetime) -> bool:
        """Check, and return whether the address was called. Only the process with the lease checks and records it."""
        if not self._url or not (self._lease.renew() or self._lease.acquire()):
            return False
        stored = self._control.get(keys.SNAPSHOT)
        published = get_decoder(_SnapshotTime).decode(stored).at if isinstance(stored, bytes) else None
        watch = AlertWatch.objects.filter(pk=1).first() or AlertWatch()
        checked, delivered = (
            None if at is None else (now - at).total_seconds() for at in (watch.looked_at, watch.delivered_at)
        )
        observed = None if published is None else now.timestamp() - published
        error = describe_failure(WatchFacts(observed, checked, delivered, find_undelivered_error())) or self._call()
        noted = {"alive_error": error} if error else {"alive_error": "", "alive_at": now}
        AlertWatch.objects.filter(pk=1).update(**noted)
        if error:
            logger.warning("The dead man's switch was not called: %s", error)
        return not error

    def run(self, stop: threading.Event) -> None:
        """Step until stopped. A missing call is itself the signal."""
        if self._url:
            what = "The dead man's switch was not called"
            repeat_until_stopped(stop, self.every_seconds, lambda: self.step(datetime.now(UTC)), what)

    def _call(self) -> str:
        """Call the address; return why it was not accepted, else "". The address is a secret: no error contains it."""
        try:
            egress.check_url(self._url, variables.ALIVE_URL.name)
            with egress.create_client(TIMEOUT_SECONDS) as client, client.stream("GET", self._url) as response:
                status = response.status_code
        except BadInput as error:
            return f"{error.field} {error.message}"
        except httpx.HTTPError as error:
            return f"{variables.ALIVE_URL.name} did not respond: {type(error).__name__}."
        return "" if 200 <= status < 300 else f"{variables.ALIVE_URL.name} returned HTTP {status}."


def find_undelivered_error() -> str:
    """Return the error of the newest message to people that failed, or "" if there is none.

    The message failed twice, or was given up, since one was last delivered. Of several receivers, one that works is
    enough, regardless of earlier messages.
    """
    to_people = Message.objects.exclude(receiver__channel__in=NO_PEOPLE)
    last = to_people.filter(state=Message.State.SENT).aggregate(Max("sent_at"))["sent_at__max"]
    given_up = Q(state=Message.State.FAILED) & ~Q(error__in=Message.NO_FAULT)
    failing = to_people.filter(given_up | Q(state=Message.State.WAITING, tries__gt=1), receiver__enabled=True)
    if last is not None and last <= timezone.now():  # otherwise the clock was set back since
        failing = failing.filter(created_at__gt=last)
    newest = failing.order_by("-pk").first()
    return newest.error or "no error was recorded" if newest else ""
