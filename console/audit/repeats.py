"""Limits for actions that every viewer may repeat, so that nobody can fill the audit log.

The audit log is never deleted. Two limits apply to actions that need no role above viewer:

- **Folding**, in each process: an entry that equals one of the last minute is counted. The next entry of that
  action says how many were counted. For actions that must never be rejected, such as a changed password, each
  process also counts what is above MAX_A_MINUTE.
- **A budget**, on the control server, shared by all processes and all tokens of an account: MAX_AT_ONCE
  entries, then one each SECONDS_FOR_ONE. Beyond it the action is rejected: nothing is done without an entry.
"""

import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import redis

from common.errors import RateLimited
from console.connections.control_server import control
from queues import keys
from queues.lua.script import load_script

logger = logging.getLogger(__name__)
MAX_A_MINUTE = 20
MINUTE_SECONDS = 60.0
MAX_ACTORS = 1_000
MAX_AT_ONCE = 60
SECONDS_FOR_ONE = 10
# Actions, or families of them, that any viewer can repeat. Failed logins are limited by the lockout, and
# tokens are revoked no more often than they are created.
FOLDED = frozenset({"account", "login", "login.confirm", "logout", "session.end"})
BUDGETED = frozenset({"export", "filter", "proposal.make", "token.create"})


@dataclass
class _Minute:
    """The entries recorded for one actor within a minute."""

    since: float
    noted: set[Hashable] = field(default_factory=set)
    uncounted: int = 0


class Fold:
    """Decides which entries are written. Thread-safe; the least recent of MAX_ACTORS actors is forgotten."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._minutes: OrderedDict[str, _Minute] = OrderedDict()
        self._lock = threading.Lock()

    def admit(self, actor: str, content: Hashable) -> int | None:
        """Return None for an entry that is only counted; else the number counted since the last one written.

        `content` is equal for equal entries.
        """
        if (folded := self.ask(actor, content)) is not None:
            self.note(actor, content)
        return folded

    def ask(self, actor: str, content: Hashable, most: int = MAX_A_MINUTE) -> int | None:
        """Answer as `admit`, for an entry that a transaction writes: call `note` when it has ended."""
        with self._lock:
            minute = self._open_current_minute(actor)
            if content in minute.noted or len(minute.noted) >= most:
                minute.uncounted += 1
                return None
            return minute.uncounted

    def note(self, actor: str, content: Hashable) -> None:
        """Remember an entry that was written."""
        with self._lock:
            minute = self._open_current_minute(actor)
            minute.noted.add(content)
            minute.uncounted = 0

    def _open_current_minute(self, actor: str) -> _Minute:
        now = self._monotonic()
        minute = self._minutes.setdefault(actor, _Minute(now))
        self._minutes.move_to_end(actor)
        if now - minute.since >= MINUTE_SECONDS:
            minute.since, minute.noted = now, set()
        while len(self._minutes) > MAX_ACTORS:
            self._minutes.popitem(last=False)
        return minute


fold = Fold()


def is_of(action: str, actions: frozenset[str]) -> bool:
    """Return whether an action, or its family, is among these.

    Of the family `login` only listed actions count.
    """
    return action in actions or (action.partition(".")[0] in actions and not action.startswith("login."))


def spend_budget(action: str, account: str) -> None:
    """Take one entry from the account's budget. Raises `RateLimited`.

    Without the control server, nothing is rejected.
    """
    key = keys.QUOTA.build(f"audit:{account}")
    rate, burst_seconds = 1 / SECONDS_FOR_ONE, MAX_AT_ONCE * SECONDS_FOR_ONE
    try:
        wait_ms = control().eval(load_script("control/take_quota"), 1, key, rate, 1, burst_seconds, 1, 0, 1)
    except redis.RedisError as error:
        logger.warning("The audit rate limit of %s can't be checked: %s", account, error)
        return
    if int(wait_ms):
        seconds = math.ceil(int(wait_ms) / 1000)
        raise RateLimited(
            "audit",
            f"accepts at most {MAX_AT_ONCE} entries such as {action} at once per account, then one every "
            f"{SECONDS_FOR_ONE} s. Nothing was changed; try again in {seconds} s.",
            seconds,
        )
