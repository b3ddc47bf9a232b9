"""The audit log: who changed what, why, and from where.

Entries are written in the same transaction as the change; for actions outside the database, before they are attempted
(`attempt`). The database rejects changes and deletions of entries (`console.storage.append_only`), and the entries are
a chain (`console.audit.chain`): write an entry as the last step of a transaction, since all writers take turns.
"""

import ipaddress
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from django.db import transaction
from django.db.models import Q, QuerySet

from common.checks import make_storable
from common.errors import BadInput, Forbidden
from console.audit import chain, refusals
from console.models import AuditEntry

MAXIMUM_TEXT = 200


class Author(Protocol):
    """The author of an action, as the audit log names them."""

    @property
    def name(self) -> str: ...

    @property
    def address(self) -> str | None: ...

    @property
    def request_id(self) -> str: ...

    @property
    def account_key(self) -> str | None:
        """Return the key that an account's sessions and tokens share; None for a command of the host."""
        ...


def record(
    actor: Author, action: str, target: str, *, reason: str = "", before: object = None, after: object = None
) -> AuditEntry | None:
    """Record one change.

    `before` and `after` are JSON values small enough for a table row; a target that is too long for its column (many
    queues at once) is truncated.

    Actions that every viewer may repeat are limited (`console.audit.refusals`): returns None for an entry that was only
    counted. Raises `RateLimited`; the action must then not be done.
    """
    longest = refusals.MAX_TARGET
    is_folded = refusals.is_of(action, refusals.FOLDED)
    # The entry of an export's end is limited together with the entry of its start.
    is_counted = refusals.is_of(action, refusals.BUDGETED) and not action.endswith(".end")
    is_budgeted = is_counted and actor.account_key is not None
    if is_folded or is_budgeted:
        # By action: failed logins of an attacker must not hide the logins of the account's user.
        place = f"{actor.name} {action}"
        content = (target, reason, actor.address, repr(before), repr(after))
        most = refusals.MAX_A_MINUTE if is_folded else sys.maxsize
        folded = refusals.entry_fold.ask(place, content, most)
        if folded is None:
            return None
        if is_budgeted:
            refusals.spend_budget(action, str(actor.account_key))
        if folded:
            after = {"repeats_not_noted": folded, "about": after}
        transaction.on_commit(lambda: refusals.entry_fold.note(place, content), robust=True)
    return chain.append(
        actor=actor.name,
        action=action,
        target=target if len(target) <= longest else f"{target[: longest - 1]}…",
        reason=reason,
        before=before,
        after=after,
        address=actor.address,
        request_id=actor.request_id,
    )


@contextmanager
def record_attempt(
    actor: Author,
    action: str,
    target: str,
    *,
    reason: str = "",
    before: object = None,
    after: Mapping[str, Any] | None = None,
) -> Iterator[None]:
    """Record an action outside the database, where nothing is rolled back, before it is attempted.

    Don't open a transaction around it; an exception is recorded as `failed.{action}`.
    """
    record(actor, action, target, after=after, reason=reason, before=before)
    try:
        yield
    except Exception as error:
        # It may quote another service.
        why = make_storable(str(error)[:MAXIMUM_TEXT]) or type(error).__name__
        record(actor, f"failed.{action}", target, after={"error": why}, reason=reason, before=before)
        raise


def record_refusal(actor: Author, action: str, target: str = "", reason: str = "", *, after: object = None) -> None:
    """Record the rejection of a dangerous action as `refused.{action}`, in a transaction of its own.

    The rejected request's transaction is rolled back, the entry stays. Equal ones and floods are folded
    (`console.audit.refusals`).

    target: what was to be changed; "" for the request's method and path. reason: why it was rejected, without secrets
    and contents of files. Rejections by `access.demand` are already recorded there.
    """
    refusals.note(refusals.Refusal(actor.name, action, target, reason, actor.address, actor.request_id, after))


@contextmanager
def audit_refusals(actor: Author, action: str, target: str, fields: Collection[str]) -> Iterator[None]:
    """Record a `BadInput` about one of these fields, or a `Forbidden` of any field, and re-raise it."""
    try:
        yield
    except BadInput as error:
        if error.field in fields or isinstance(error, Forbidden):
            record_refusal(actor, action, target, f"{error.field} {error.message}")
        raise


@dataclass(frozen=True)
class AuditFilter:
    """A filter of entries; empty fields match all.

    action: one, or a family such as `override`. text: part of the reason. request: an id of a request. since ≤ at <
    until.
    """

    actor: str = ""
    action: str = ""
    target: str = ""
    text: str = ""
    address: str = ""
    request: str = ""
    since: datetime | None = None
    until: datetime | None = None

    def check(self) -> "AuditFilter":
        """Return itself. Raises `BadInput` that names an invalid field."""
        if len(self.text) > MAXIMUM_TEXT:
            raise BadInput("text", f"must have at most {MAXIMUM_TEXT} characters, not {len(self.text)}.")
        if self.address and not _is_address(self.address):
            raise BadInput("address", "must be an IP address, such as 192.0.2.7.")
        if self.since and self.until and self.since >= self.until:
            raise BadInput("to", "must be after from.")
        return self

    def choose(self, entries: QuerySet[AuditEntry]) -> QuerySet[AuditEntry]:
        """Return the matching entries."""
        exact = {"actor": self.actor, "target": self.target, "address": self.address, "request_id": self.request}
        entries = entries.filter(**{name: value for name, value in exact.items() if value})
        if self.action:
            family = Q(action__startswith=f"{self.action}.")
            entries = entries.filter(Q(action=self.action) | family)
        if self.text:
            entries = entries.filter(reason__icontains=self.text)
        if self.since:
            entries = entries.filter(at__gte=self.since)
        return entries.filter(at__lt=self.until) if self.until else entries


def _is_address(text: str) -> bool:
    """Return whether PostgreSQL accepts it as an address.

    It does not accept an address with the name of an interface (`fe80::1%eth0`).
    """
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text
