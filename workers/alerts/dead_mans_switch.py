"""An outward dead man's switch.

While observer, alerter, and delivery work, an address is called every few seconds (WEIR_ALIVE_URL, WEIR_ALIVE_SECONDS).
The service behind it, such as Healthchecks, raises the alarm when the calls stop, when no part of Weir is left that
could.

The process that notifies makes the calls, so its own death ends them, too. Of several alerters, one calls.
"""

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import httpx
import msgspec
import redis
from django.db import DatabaseError, close_old_connections, connections
from django.db.models import Max, Q
from django.utils import timezone

from common import environment as variables
from common.errors import BadInput
from common.stored_document import get_decoder
from queues import keys
from workers.alerts.delivery.channels.channel import TIMEOUT_SECONDS
from workers.alerts.lifecycle.models import AlertWatch, Message, Receiver
from workers.coordination.leases import Lease
from workers.host import egress

logger = logging.getLogger(__name__)
OBSERVED_SECONDS = 15.0
CHECKED_SECONDS = 30.0
# A round of sending takes as long as the slowest channel may take.
DELIVERED_SECONDS = 90.0
# A channel that shows a message itself, and one that only holds people's names: nothing is sent to either.
NO_PEOPLE = (Receiver.Channel.BROWSER, Receiver.Channel.SCHEDULE)


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

    def __init__(
        self,
        control: redis.Redis,
        environment: Mapping[str, str] = variables.PROCESS,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._control, self._transport = control, transport
        self._url = variables.ALIVE_URL.get_text(environment)
        self.every_seconds = variables.ALIVE_SECONDS.get_seconds(environment)
        self._lease = Lease(control, "dead-mans-switch", 2 * self.every_seconds + TIMEOUT_SECONDS)

    def step(self, now: datetime) -> bool:
        """Check, and return whether the address was called.

        Only the process with the lease checks and records the result.
        """
        if not self._url or not (self._lease.renew() or self._lease.acquire()):
            return False
        error = describe_failure(self._gather_facts(now)) or self._call()
        noted = {"alive_error": error} if error else {"alive_error": "", "alive_at": now}
        AlertWatch.objects.filter(pk=1).update(**noted)
        if error:
            logger.warning("The dead man's switch was not called: %s", error)
        return not error

    def run(self, stop: threading.Event) -> None:
        """Step until stopped; an error is tried again. A missing call is itself the signal."""
        while self._url and not stop.wait(self.every_seconds):
            try:
                self.step(datetime.now(UTC))
            except Exception as error:
                logger.warning("The dead man's switch was not called: %r", error)
                if isinstance(error, DatabaseError):
                    close_old_connections()
        connections.close_all()

    def _gather_facts(self, now: datetime) -> WatchFacts:
        stored = self._control.get(keys.SNAPSHOT)
        published = get_decoder(_SnapshotTime).decode(stored).at if isinstance(stored, bytes) else None
        watch = AlertWatch.objects.filter(pk=1).first()
        return WatchFacts(
            observed_seconds=None if published is None else now.timestamp() - published,
            checked_seconds=_compute_age_seconds(watch.looked_at if watch else None, now),
            delivered_seconds=_compute_age_seconds(watch.delivered_at if watch else None, now),
            error=find_undelivered_error(),
        )

    def _call(self) -> str:
        """Call the address; return why it was not accepted, "" if it was.

        The address is a secret: no error contains it.
        """
        try:
            egress.check_url(self._url, variables.ALIVE_URL.name)
            with (
                egress.create_client(TIMEOUT_SECONDS, transport=self._transport) as client,
                client.stream("GET", self._url) as response,
            ):
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


def _compute_age_seconds(at: datetime | None, now: datetime) -> float | None:
    return None if at is None else (now - at).total_seconds()
