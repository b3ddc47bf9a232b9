"""Actions of the loops, one row for each law, with equal actions counted."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db.models import Count, FloatField, Max, QuerySet, Sum
from django.db.models.fields.json import KT
from django.db.models.functions import Cast

from controllers.framework.reason import format_count
from workers.control.kinds.registry import find_display
from workers.models import LedgerEntry, Loop
from workers.steering.scope import list_active_loops

PERIOD = timedelta(hours=1)
TIMES = {1: "once", 2: "twice"}


@dataclass(kw_only=True)
class LawSummary:
    """The actions of a law's loops in the period, and their effects by verdict.

    advised: decisions of loops that only advise; newest: the last action or advice; total: the sum of what the actions
    started, None where there is none.
    """

    law: str
    loops: int
    acted: int = 0
    advised: int = 0
    effects: dict[str, int] = field(default_factory=dict)
    newest: LedgerEntry | None = None
    total: float | None = None

    @property
    def words(self) -> str:
        """Return what the actions did: "changed the limit 6 times"."""
        display = find_display(self.law)
        if not self.acted:
            return f"proposed {format_count(self.advised, 'change')}"
        if display.summed and self.total is not None:
            _, verb, noun = display.summed
            return f"{verb} {format_count(round(self.total), noun)}"
        return f"changed {display.changes} {TIMES.get(self.acted, f'{self.acted:,} times')}"

    @property
    def title(self) -> str:
        """Return the name of the law."""
        name = find_display(self.law).title or self.law.replace("_", " ")
        return name[:1].upper() + name[1:]


@dataclass(frozen=True, kw_only=True)
class LoopActivity:
    """The laws that acted or advised, the most severe effect first, and the number of loops of all others."""

    laws: list[LawSummary]
    idle_loops: int


SEVERE = (LedgerEntry.Verdict.HARMFUL, LedgerEntry.Verdict.INEFFECTIVE)


def summarize_activity(until: datetime) -> LoopActivity:
    """Return what the loops did in the period before an instant. Loops on hold only record what they would do."""
    loops = dict(list_active_loops().values_list("law").annotate(count=Count("pk")).order_by())
    decided = LedgerEntry.objects.filter(at__gt=until - PERIOD, at__lte=until)
    did = decided.filter(acted=True).exclude(mode=Loop.Mode.HOLD)
    groups = did.values_list("loop__law", "verdict", "mode").annotate(count=Count("pk"), newest=Max("pk")).order_by()
    laws: dict[str, LawSummary] = {}
    newest: dict[str, int] = {}
    for law, verdict, mode, count, last in groups:
        summary = laws.setdefault(law, LawSummary(law=law, loops=loops.get(law, 0)))
        newest[law] = max(newest.get(law, 0), last)
        if mode in Loop.ACTING:
            summary.acted += count
            summary.effects[verdict] = summary.effects.get(verdict, 0) + count
        else:
            summary.advised += count
    _add_newest(laws, newest.values())
    for summary in laws.values():
        summary.total = _sum_actions(summary, did)
    rows = sorted(laws.values(), key=_order)
    return LoopActivity(laws=rows, idle_loops=sum(count for law, count in loops.items() if law not in laws))


def _add_newest(laws: dict[str, LawSummary], ids: Iterable[int]) -> None:
    for entry in LedgerEntry.objects.select_related("loop").filter(pk__in=list(ids)):
        laws[entry.loop.law].newest = entry


def _sum_actions(summary: LawSummary, did: QuerySet[LedgerEntry]) -> float | None:
    """Return the sum of a law's actions on this plant; pools of attached plants are set, not started."""
    if (summed := find_display(summary.law).summed) is None or not summary.acted:
        return None
    entries = did.filter(loop__law=summary.law, mode__in=Loop.ACTING).exclude(loop__target__has_key="plant")
    numbers = entries.annotate(number=Cast(KT(f"action__{summed[0]}"), FloatField()))
    found: float | None = numbers.aggregate(total=Sum("number"))["total"]
    return found


def _order(summary: LawSummary) -> tuple[int, ...]:
    """Return the sort key: harmful and ineffective actions first, then the most actions."""
    return (*(-summary.effects.get(verdict, 0) for verdict in SEVERE), -summary.acted, -summary.advised)
