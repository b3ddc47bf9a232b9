"""Feeds of on-call schedules: each is read every five minutes, and the last result is stored.

A receiver of channel `schedule` names the variable with the feed's address, and a receiver for times when nobody is on
call or the feed can't be read: an alert never waits for a calendar. While a feed fails, the last result is valid for
VALID_FOR; then that other receiver is notified, and the page says so.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from common import environment as variables
from common.errors import BadInput
from workers.alerts.delivery import schedule
from workers.alerts.delivery.schedule import Rota
from workers.alerts.lifecycle.models import OnCallFeed, Receiver
from workers.calendars.fetching import fetch_calendar
from workers.coordination.connections import repeat_until_stopped
from workers.host import egress

logger = logging.getLogger(__name__)
READ_SECONDS = 300.0
CHECK_SECONDS = 15.0
VALID_FOR = timedelta(hours=24)


def resolve_recipients(named: Receiver, receivers: Mapping[str, Receiver], now: datetime) -> Sequence[Receiver]:
    """Return the receivers that a receiver resolves to now.

    A schedule resolves to the receivers of the people on call, found by their names or e-mail addresses, or else to the
    one for other times. Any other receiver resolves to itself. `receivers`: the enabled ones.
    """
    if named.channel != Receiver.Channel.SCHEDULE:
        return [named]
    feed = OnCallFeed.objects.filter(receiver=named).first()
    people = list(_match_receivers(list_people_on_call(feed, now), receivers))
    otherwise = receivers.get(named.settings.get("otherwise", ""))
    return people or ([otherwise] if otherwise else [])


def list_people_on_call(feed: OnCallFeed | None, now: datetime) -> list[str]:
    """Return the people on call by the last result, while it is valid."""
    if feed is None or feed.read_at is None or now - feed.read_at > VALID_FOR:
        return []
    return schedule.on_call(map(schedule.shift_of, feed.shifts), now)


def _match_receivers(people: Sequence[str], receivers: Mapping[str, Receiver]) -> Iterator[Receiver]:
    for person in people:
        for receiver in receivers.values():
            addresses = [str(address).lower() for address in receiver.settings.get("addresses", ())]
            if receiver.channel == Receiver.Channel.SCHEDULE:
                continue
            if person.lower() == receiver.name.lower() or person.lower() in addresses:
                yield receiver


class FeedReader:
    """The reader of feeds: `step` reads those that are due; `run` does so until stopped."""

    def __init__(
        self,
        environment: Mapping[str, str] = variables.PROCESS,
        read: Callable[[bytes, datetime], Rota] = schedule.read_bounded_rota,
    ) -> None:
        self._environment, self._read = environment, read

    def step(self, now: datetime) -> int:
        """Read the due feeds; return how many there were. A failed feed keeps its last result and records its error."""
        read = 0
        due = now - timedelta(seconds=READ_SECONDS)
        for receiver in Receiver.objects.filter(channel=Receiver.Channel.SCHEDULE, enabled=True):
            feed = OnCallFeed.objects.get_or_create(receiver=receiver)[0]
            if feed.tried_at is not None and due < feed.tried_at <= now:
                continue
            try:
                rota = self._read(self._fetch_calendar(receiver), now)
                shifts = [shift.document() for shift in rota.shifts]
                kept: dict[str, Any] = {"shifts": shifts, "broken": rota.broken, "read_at": now, "error": ""}
                read += 1
            except BadInput as error:
                kept = {"error": f"{error.field} {error.message}"[:500]}
            if kept.get("broken", feed.broken) != feed.broken:
                for sentence in kept["broken"]:
                    logger.warning("On-call schedule %s: %s", receiver.name, sentence)
            # Somebody may have named another calendar meanwhile.
            source = receiver.settings["secret_environment"]
            same = OnCallFeed.objects.filter(receiver=receiver, receiver__settings__secret_environment=source)
            same.update(tried_at=now, **kept)
        return read

    def run(self, stop: threading.Event) -> None:
        what = "On-call schedules can't be read"
        repeat_until_stopped(stop, CHECK_SECONDS, lambda: self.step(datetime.now(UTC)), what)

    def _fetch_calendar(self, receiver: Receiver) -> bytes:
        """Return the calendar's text. Its address is a secret: no error contains it."""
        name = receiver.settings["secret_environment"]
        egress.check_secret_name(name, "secret_environment")
        url = variables.read_secret(name, self._environment)
        if not url:
            raise BadInput(name, "is not set in the alerter's environment. Set it to the feed's address.")
        return fetch_calendar(url, name)
