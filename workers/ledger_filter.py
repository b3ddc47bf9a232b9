"""Which entries of the ledger are wanted: one filter for page, API, export and command line."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet

from queues.errors import BadInput
from workers.models import LedgerEntry, Loop

MAXIMUM_TEXT = 200
ANY_LIMIT = "any"


@dataclass(frozen=True)
class LedgerFilter:
    """Each field narrows; empty chooses all.

    loop: id or name. law, queue, node: of the loop's target. acted: whether an action was decided.
    limited_by: what limited it, or `any`. text: part of the reason or the error. since ≤ at < until.
    """

    loop: str = ""
    law: str = ""
    queue: str = ""
    node: str = ""
    verdict: str = ""
    mode: str = ""
    acted: bool | None = None
    limited_by: str = ""
    text: str = ""
    since: datetime | None = None
    until: datetime | None = None

    def check(self) -> "LedgerFilter":
        """Itself. Raises `BadInput` naming the field that takes something else."""
        _one_of("verdict", self.verdict, LedgerEntry.Verdict.values)
        _one_of("mode", self.mode, Loop.Mode.values)
        if len(self.text) > MAXIMUM_TEXT:
            raise BadInput("text", f"takes at most {MAXIMUM_TEXT} characters, not {len(self.text)}.")
        if self.since and self.until and self.since >= self.until:
            raise BadInput("to", "takes a time after from.")
        return self

    def choose(self, entries: QuerySet[LedgerEntry]) -> QuerySet[LedgerEntry]:
        """The entries wanted."""
        exact = {"verdict": self.verdict, "mode": self.mode}
        entries = entries.filter(**{name: value for name, value in exact.items() if value})
        if (loops := self._loops()) is not None:
            entries = entries.filter(loop_id__in=loops)
        if self.acted is not None:
            entries = entries.filter(action__isnull=not self.acted)
        if self.limited_by:
            limited = {"limited_by__isnull": False}
            entries = entries.filter(
                **(limited if self.limited_by == ANY_LIMIT else {"limited_by": self.limited_by})
            )
        if self.text:
            entries = entries.filter(Q(reason__icontains=self.text) | Q(error__icontains=self.text))
        if self.since:
            entries = entries.filter(at__gte=self.since)
        return entries.filter(at__lt=self.until) if self.until else entries

    def _loops(self) -> list[int] | None:
        """The loops wanted, None for all: they are few, entries are many, so they are looked up first."""
        if not (self.loop or self.law or self.queue or self.node):
            return None
        loops = Loop.objects.all()
        if self.loop:
            loops = loops.filter(**({"pk": int(self.loop)} if self.loop.isdigit() else {"name": self.loop}))
        targets = {"law": self.law, "target__queue": self.queue, "target__node": self.node}
        loops = loops.filter(**{name: value for name, value in targets.items() if value})
        return list(loops.values_list("pk", flat=True))

    @property
    def is_empty(self) -> bool:
        """Whether it chooses every entry."""
        return replace(self) == LedgerFilter()


def _one_of(field: str, value: str, known: Sequence[Any]) -> None:
    if value and value not in known:
        raise BadInput(field, f"takes {', '.join(known)}, not {value[:40]!r}.")
