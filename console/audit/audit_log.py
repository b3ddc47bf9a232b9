"""The audit: who changed what, why, from where. Written in the same transaction as the change; of what is
done outside the database, before it is tried (`attempt`).

The database refuses to change or remove what is written (`console.storage.append_only`), and the entries are
a chain (`console.audit.chain`): write an entry as the last thing of a transaction, since all writers take
turns.
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

from console.audit import chain, refusals, repeats
from console.models import AuditEntry
from queues.checks import storable
from queues.errors import BadInput, Forbidden

MAXIMUM_TEXT = 200


class Author(Protocol):
    """Who does something, as the audit names them."""

    @property
    def name(self) -> str: ...

    @property
    def address(self) -> str | None: ...

    @property
    def request_id(self) -> str: ...

    @property
    def account_key(self) -> str | None:
        """What all sessions and tokens of one account have in common; None for a command of the host."""
        ...


def record(
    actor: Author,
    action: str,
    target: str,
    *,
    reason: str = "",
    before: Any = None,
    after: Any = None,
) -> AuditEntry | None:
    """Note one change. `before` and `after` are JSON values small enough to read in a table row; of a target
    that is longer than a row takes (many queues at once) the beginning.

    What every viewer may do again and again is bounded (`console.audit.repeats`): None is returned for an
    entry that was only counted. Raises RateLimited, and then nothing is to be done.
    """
    longest = refusals.LONGEST_TARGET
    is_folded = repeats.is_of(action, repeats.FOLDED)
    # Of an export, the entry that notes its end is bounded with the one that notes its beginning.
    is_counted = repeats.is_of(action, repeats.BUDGETED) and not action.endswith(".end")
    is_budgeted = is_counted and actor.account_key is not None
    if is_folded or is_budgeted:
        # By action: whoever fails to log in as somebody must not hide that somebody's logins.
        place = f"{actor.name} {action}"
        content = (target, reason, actor.address, repr(before), repr(after))
        most = repeats.MAX_A_MINUTE if is_folded else sys.maxsize
        folded = repeats.fold.ask(place, content, most)
        if folded is None:
            return None
        if is_budgeted:
            repeats.spend_budget(action, str(actor.account_key))
        if folded:
            after = {"repeats_not_noted": folded, "about": after}
        transaction.on_commit(lambda: repeats.fold.note(place, content), robust=True)
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
def attempt(
    actor: Author,
    action: str,
    target: str,
    *,
    reason: str = "",
    before: Any = None,
    after: Mapping[str, Any] | None = None,
) -> Iterator[None]:
    """Note what is tried within: outside the database, where nothing is rolled back. The entry stands before
    it is tried, so open no transaction around it; what it raises is noted as `failed.{action}`.
    """
    noted = {"reason": reason, "before": before}
    record(actor, action, target, after=after, **noted)
    try:
        yield
    except Exception as error:
        # It may quote another service.
        why = storable(str(error)[:MAXIMUM_TEXT]) or type(error).__name__
        record(actor, f"failed.{action}", target, after={"error": why}, **noted)
        raise


def record_refusal(
    actor: Author, action: str, target: str = "", reason: str = "", *, after: Any = None
) -> None:
    """Note a refusal of a dangerous kind as `refused.{action}`, in a transaction of its own: the refused
    request's is rolled back, the entry stays. Equal ones and floods are folded (`console.audit.refusals`).

    target: what was to be changed; "" for the request's method and path. reason: why it was refused, without
    secrets and contents of files. What `access.demand` refuses is noted there already.
    """
    refusals.note(
        refusals.Refusal(actor.name, action, target, reason, actor.address, actor.request_id, after)
    )


@contextmanager
def audit_refusals(actor: Author, action: str, target: str, fields: Collection[str]) -> Iterator[None]:
    """Note a `BadInput` that is raised within about one of these fields, or about any that reaches for what
    nobody may have (`Forbidden`), and let it pass.
    """
    try:
        yield
    except BadInput as error:
        if error.field in fields or isinstance(error, Forbidden):
            record_refusal(actor, action, target, f"{error.field} {error.message}")
        raise


@dataclass(frozen=True)
class AuditFilter:
    """Each field narrows; empty chooses all. action: one, or a family such as `override`. text: part of the
    reason. request: an id of a request. since ≤ at < until.
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
        """Itself. Raises `BadInput` naming the field that takes something else."""
        if len(self.text) > MAXIMUM_TEXT:
            raise BadInput("text", f"takes at most {MAXIMUM_TEXT} characters, not {len(self.text)}.")
        if self.address and not _is_address(self.address):
            raise BadInput("address", "takes one IP address, such as 192.0.2.7.")
        if self.since and self.until and self.since >= self.until:
            raise BadInput("to", "takes a time after from.")
        return self

    def choose(self, entries: QuerySet[AuditEntry]) -> QuerySet[AuditEntry]:
        """The entries wanted."""
        exact = {
            "actor": self.actor,
            "target": self.target,
            "address": self.address,
            "request_id": self.request,
        }
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
    """Whether PostgreSQL knows it as an address too: none with the name of an interface (`fe80::1%eth0`)."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text
