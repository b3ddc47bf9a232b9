"""The sources of changes, one function each: they return the changes of a time range.

A change names the parts that it touches as `workers.plants.influences` names them, and its row (`ref`), from which
pages make its link and its undo.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from django.db.models import Count, Max, Q, QuerySet

from console.display.override_words import format_short_value
from console.models import AuditEntry, Mark
from console.timeline.happenings import compute_end
from console.timeline.restarts import PLANT, list_restarts
from controllers.framework.reason import format_count
from workers.history.appearances import Appearance, list_appearances
from workers.models import LedgerEntry, Loop, Override, PipelineVersion, Plan
from workers.plants.influences import format_operator_part
from workers.plants.registry import LOCAL
from workers.retries.models import RetryPlan
from workers.steering.scope import Scope

# Changes by people without a row of their own, and the kind of part that their target names; "": the plant.
AUDITED = {
    "settings.change": "",
    "queue.change": "queue",
    "queue.create": "queue",
    "ladder.cap": "queue",
    "node.use": "node",
    "pipeline.steer": "application",
    "pipeline.stop": "application",
    "pipeline.start": "application",
    "pipeline.restart": "application",
    "process.restart": "process",
    "dead_letters.requeue": "queue",
    "task.run": "",
    "task.change": "",
    "alert_rule.change": "rule",
    "plant.remove": "plant",
    "plant.register": "plant",
    "plant.scale": "plant",
    "plant.intervene": "plant",
    "plant.undo": "plant",
    "plant.resume": "plant",
    "token.revoke": "",
    "token.quota": "",
}
SCALED, FAILED = "plant.scale", "failed."
TRIED = timedelta(seconds=30)  # time within which an attempted action has failed
MAX_TRIED = 10_000
APPEARED = {"came": "appeared", "left": "disappeared", "restarted": "restarted"}
APPEARED_MANY = {"came": "appeared", "left": "disappeared"}  # of events
MAX_ROWS = 300  # of one source
MAX_VALUES = 3  # of one change, in words
REASON_SHOWN = 160


@dataclass(frozen=True, kw_only=True)
class FoundChange:
    """A change as recorded.

    kind: what is counted together ("override", "loop flow"); ref: its row, "override:12"; "" if it has none.
    times: how many times the minimum a rate's change is. over_at: when it ended, which is a separate change;
    None: it is in force, or has no end.
    """

    kind: str
    at: datetime
    parts: frozenset[str] = frozenset()
    words: str
    by: str = ""
    ref: str = ""
    times: float = 1.0
    over_at: datetime | None = None


def find_changes(since: datetime, until: datetime, data: Path, slack: timedelta = timedelta(0)) -> list[FoundChange]:
    """Return the changes of all sources.

    Marks of other hosts may be up to `slack` later, because clocks differ. People's later actions are responses.
    """
    rows = [
        *find_recorded_changes(since, until, data),
        *_find_appearances(since, until, data),
        *_iterate_loop_actions(since, until),
    ]
    outside = Mark.objects.exclude(source="").filter(at__gt=until)
    return [*(row for row in rows if since <= row.at <= until), *_find_mark_changes(outside, until, until + slack)]


def find_recorded_changes(since: datetime, until: datetime, data: Path) -> list[FoundChange]:
    """Return the changes by people and parts, the oldest first.

    The snapshots are left out, which take seconds to read, and so are loops, whose actions are shown with their
    effects.
    """
    rows = [
        *_find_override_changes(since, until),
        *_find_plan_changes(since, until),
        *_find_retry_changes(since, until),
        *_find_declaration_changes(since, until),
        *_find_audited(since, until),
        *_find_mark_changes(Mark.objects.all(), since, until),
        *_iterate_restarts(since, until, data),
    ]
    return sorted((row for row in rows if since <= row.at <= until), key=lambda row: row.at)


def _find_override_changes(since: datetime, until: datetime) -> Iterator[FoundChange]:
    """Return overrides that were set, ended by a person, or expired.

    Overrides that one person set on several loops at once are one change, and so is their end.
    """
    touched = Q(created_at__gte=since) | Q(ended_at__gte=since) | Q(expires_at__gte=since)
    override_rows = Override.objects.filter(touched, created_at__lte=until)
    rows = override_rows.select_related("loop", "node", "owner", "ended_by").order_by("-created_at")[:MAX_ROWS]
    of_laws: dict[str, list[str]] = {}
    for name, law in Loop.objects.values_list("name", "law"):
        of_laws.setdefault(law, []).append(name)
    begun, ended = dict[Any, list[Override]](), dict[Any, list[Override]]()
    for row in rows:
        act = row.name, format_short_value(row.value), row.owner_id, row.reason
        begun.setdefault((*act, _truncate_to_minute(row.created_at)), []).append(row)
        if (end := compute_end(row)) is not None:
            ended.setdefault((*act, _truncate_to_minute(end), *_explain_end(row)), []).append(row)
    for together in begun.values():
        ends = [end for row in together if (end := compute_end(row)) is not None]
        yield FoundChange(
            kind=f"override {together[0].name}",
            at=together[-1].created_at,
            words=f"{_describe_overrides(together)} set: {together[0].reason[:REASON_SHOWN]}",
            by=together[0].owner.get_username(),
            over_at=max(ends) if len(ends) == len(together) else None,
            **_build_part_reference(together, of_laws),
        )
    for together in ended.values():
        how, who = _explain_end(together[0])
        yield FoundChange(
            kind="override ended",
            at=min(end for row in together if (end := compute_end(row)) is not None),
            words=f"{_describe_overrides(together)} {how}",
            by=who,
            **_build_part_reference(together, of_laws),
        )


def _truncate_to_minute(at: datetime) -> datetime:
    return at.replace(second=0, microsecond=0)


def _build_part_reference(together: Sequence[Override], of_laws: dict[str, list[str]]) -> dict[str, Any]:
    """Return the parts and rows of what was set together."""
    parts = frozenset[str]().union(*(_list_override_parts(override, of_laws) for override in together))
    numbers = sorted(override.pk for override in together)
    ref = f"override:{numbers[0]}" if len(numbers) == 1 else f"overrides:{','.join(map(str, numbers))}"
    return {"parts": parts, "ref": ref}


def _explain_end(override: Override) -> tuple[str, str]:
    """Return (how, who ended it); nobody if it expired, even if that was recorded later."""
    at, until = override.ended_at, override.expires_at
    if at is None or (until is not None and until <= at):
        return "expired", ""
    return "ended", override.ended_by.get_username() if override.ended_by else ""


def _list_override_parts(override: Override, of_laws: dict[str, list[str]]) -> frozenset[str]:
    node = override.node.name if override.node else ""
    named = (
        ("loop", override.loop.name if override.loop else ""),
        ("queue", override.queue),
        ("node", node),
        ("host", override.host),
    )
    parts = frozenset(f"{kind}/{name}" for kind, name in named if name)
    return parts or frozenset(f"loop/{name}" for name in of_laws.get(override.law, ()))


def _describe_overrides(together: Sequence[Override]) -> str:
    first, places = together[0], sorted(str(Scope.build(override)) for override in together)
    named, more = ", ".join(places[:MAX_VALUES]), len(places) - MAX_VALUES
    where = f"{named} and {more} more" if more > 0 else named
    return f"Override {first.name.replace('_', ' ')} {format_short_value(first.value)} on {where}"


def _find_plan_changes(since: datetime, until: datetime) -> Iterator[FoundChange]:
    plans = Plan.objects.filter(started_at__range=(since, until)).order_by("-started_at")
    for plan in plans.select_related("owner")[:MAX_ROWS]:
        if plan.owner is None and not plan.law:
            continue  # a recovery responds to the loss of a node, which is found separately
        assert plan.started_at is not None
        nodes = {move[end] for move in plan.moves for end in ("from", "to")} | {plan.empties}
        parts = {f"node/{name}" for name in nodes if name} | {f"queue/{move['queue']}" for move in plan.moves}
        yield FoundChange(
            kind=f"plan {plan.kind}",
            at=plan.started_at,
            parts=frozenset(parts),
            words=f"Plan {plan.pk} started: {plan.title}",
            by=plan.owner.get_username() if plan.owner else plan.law,
            ref=f"plan:{plan.pk}",
        )


def _find_retry_changes(since: datetime, until: datetime) -> Iterator[FoundChange]:
    """Return retry plans that began to send: their tasks are additional load."""
    plans = RetryPlan.objects.filter(started_at__range=(since, until)).defer("items").order_by("-started_at")
    for plan in plans.select_related("owner")[:MAX_ROWS]:
        assert plan.started_at is not None
        is_attached = plan.kind == RetryPlan.Kind.TASKS
        parts = {f"plant/{plan.plant}"} if is_attached else {f"queue/{queue}" for queue in plan.queues}
        tasks = format_count(plan.total, "task" if is_attached else "dead letter")
        yield FoundChange(
            kind=f"retry {plan.kind}",
            at=plan.started_at,
            parts=frozenset(parts),
            words=f"Retry plan {plan.pk} of {plan.plant} started, {tasks}: {plan.reason[:REASON_SHOWN]}",
            by=plan.owner.get_username() if plan.owner else "",
            ref=f"retry:{plan.pk}",
            over_at=plan.ended_at,
        )


def _find_declaration_changes(since: datetime, until: datetime) -> Iterator[FoundChange]:
    versions = PipelineVersion.objects.filter(created_at__range=(since, until)).select_related("owner")
    for version in versions.order_by("-created_at")[:MAX_ROWS]:
        yield FoundChange(
            kind="declaration",
            at=version.created_at,
            parts=frozenset({f"application/{version.application}"}),
            words=f"Application {version.application} declared, version {version.number}: "
            f"{version.reason[:REASON_SHOWN]}",
            by=version.owner.get_username(),
            ref=f"declaration:{version.application}:{version.number}",
        )


def _find_audited(since: datetime, until: datetime) -> Iterator[FoundChange]:
    """Return audited changes without failed attempts, which have changed nothing.

    Tasks of a plant that one author sets repeatedly, as controllers do, are one change, at the newest.
    """
    rows, failed = query_audited(since, until).order_by("-at"), _list_failures(since, until)
    for entry in rows.exclude(action=SCALED)[:MAX_ROWS]:
        if entry.pk not in failed:
            yield _build_change(entry)
    scaled: dict[tuple[str, str], list[AuditEntry]] = {}
    for entry in rows.filter(action=SCALED)[:MAX_ROWS]:
        if entry.pk not in failed:
            scaled.setdefault((entry.actor, entry.target), []).append(entry)
    for newest, *others in scaled.values():
        yield _build_change(newest, len(others))


def _build_change(entry: AuditEntry, before: int = 0) -> FoundChange:
    return FoundChange(
        kind=entry.action,
        at=entry.at,
        parts=_list_entry_parts(entry),
        words=_entry_words(entry) + (f" (and {format_count(before, 'time')} before)" if before else ""),
        by=entry.actor,
        ref=f"audit:{entry.pk}",
    )


def _list_failures(since: datetime, until: datetime) -> set[int]:
    """Return the entries of failed attempts.

    A failure belongs to the newest such attempt of the same person; earlier ones stay done.
    """
    is_either = Q(action__in=AUDITED) | Q(action__startswith=FAILED)
    rows = AuditEntry.objects.filter(is_either, at__range=(since, until + TRIED)).order_by("-pk")
    named = list(rows.values_list("pk", "at", "action", "actor", "target", "reason")[:MAX_TRIED])
    tried: dict[tuple[str, ...], list[tuple[int, datetime]]] = {}
    failed: set[int] = set()
    for pk, at, action, *of in named[::-1]:
        open_tries = tried.setdefault((action.removeprefix(FAILED), *of), [])
        if not action.startswith(FAILED):
            open_tries.append((pk, at))
        elif open_tries:
            newest, begun_at = open_tries.pop()
            failed |= {newest} if at <= begun_at + TRIED else set()
    return failed


def query_audited(since: datetime, until: datetime) -> QuerySet[AuditEntry]:
    """Return audited changes in a time range that may affect how the plant works.

    Of the settings it includes only those of a loop and of publishing limits: a price, a session's length, or the day
    of the report has no effect.
    """
    entries = AuditEntry.objects.filter(at__range=(since, until), action__in=AUDITED)
    steers = Q(target__contains="/") | Q(target__startswith="quota.")
    return entries.filter(~Q(action="settings.change") | steers)


def _list_entry_parts(entry: AuditEntry) -> frozenset[str]:
    kind = AUDITED[entry.action]
    first = entry.target.split(" ")[0].split(",")[0]
    if entry.action == "settings.change" and "/" in first:  # a loop's own parameter
        return frozenset({f"loop/{first}"})
    if not kind:
        return frozenset()
    if first == LOCAL and entry.action == "plant.scale":  # tasks of this plant's operators
        return frozenset(map(format_operator_part, entry.after or {}))
    if kind == "application" and "/" in first:
        application, _, operator = first.partition("/")
        return frozenset({f"application/{application}", f"operator/{application}/{operator}"})
    return frozenset({f"{kind}/{first.partition('/')[0]}"})


def _entry_words(entry: AuditEntry) -> str:
    what = entry.action.replace(".", " ").replace("_", " ").capitalize()
    values = _describe_values(entry)
    reason = f": {entry.reason[:REASON_SHOWN]}" if entry.reason else ""
    return f"{what}, {entry.target}{values}{reason}"


def _describe_values(entry: AuditEntry) -> str:
    """Return the old and the new value; of several values the changed ones, "" if they are too long."""
    before, after = entry.before, entry.after
    if not isinstance(before, dict) or not isinstance(after, dict):
        return f" {before} → {after}" if _is_short(before) and _is_short(after) else ""
    changed = [(name, before.get(name), value) for name, value in after.items() if before.get(name) != value]
    if len(changed) > MAX_VALUES or not all(_is_short(was) and _is_short(now) for _, was, now in changed):
        return ""
    return ",".join(f" {name} {was} → {now}" for name, was, now in changed)


def _is_short(value: object) -> bool:
    return isinstance(value, int | float | str)


def _find_mark_changes(among: QuerySet[Mark], since: datetime, until: datetime) -> Iterator[FoundChange]:
    """Return marks, except notes, which change nothing."""
    marks = among.filter(at__range=(since, until), removed_at=None).exclude(kind=Mark.Kind.NOTE)
    for mark in marks.order_by("-at")[:MAX_ROWS]:
        words = f"{mark.get_kind_display()}: {mark.title}"
        by = mark.source or mark.author
        parts, ref = frozenset(mark.parts), f"mark:{mark.pk}"
        yield FoundChange(kind=mark.kind, at=mark.at, parts=parts, words=words, by=by, ref=ref)


def _iterate_restarts(since: datetime, until: datetime, data: Path) -> Iterator[FoundChange]:
    for restart in list_restarts(data, since, until)[-MAX_ROWS:]:
        how = f" (previous run: {restart.how})" if restart.how else ""
        parts = frozenset() if restart.name == PLANT else frozenset({f"process/{restart.name}"})
        words = f"Weir started{how}" if restart.name == PLANT else f"Process {restart.name} restarted{how}"
        yield FoundChange(kind="restart", at=restart.at, parts=parts, words=words)


def _iterate_loop_actions(since: datetime, until: datetime) -> Iterator[FoundChange]:
    """Return a loop's actions as one change, at the newest; harmful ones as another."""
    done = LedgerEntry.objects.filter(at__range=(since, until), acted=True, mode__in=Loop.ACTING)
    harmful = Q(verdict=LedgerEntry.Verdict.HARMFUL)
    for condition, kind in ((~harmful, "loop"), (harmful, "harmful")):
        groups = (
            done.filter(condition)
            .order_by()
            .values("loop__name", "loop__law")
            .annotate(count=Count("pk"), newest=Max("pk"), newest_at=Max("at"))
        )
        rows = list(groups[:MAX_ROWS])
        newest = [row["newest"] for row in rows]
        reasons = dict(LedgerEntry.objects.filter(pk__in=newest).values_list("pk", "reason"))
        for row in rows:
            times = "once" if row["count"] == 1 else f"{row['count']} times, most recently"
            said = " with harmful effect" if kind == "harmful" else ""
            yield FoundChange(
                kind=f"{kind} {row['loop__law']}",
                at=row["newest_at"],
                parts=frozenset({f"loop/{row['loop__name']}"}),
                words=f"Loop {row['loop__name']} acted{said} {times}: {reasons.get(row['newest'], '')[:REASON_SHOWN]}",
                by=row["loop__law"],
                ref=f"entry:{row['newest']}",
            )


def _find_appearances(since: datetime, until: datetime, data: Path) -> Iterator[FoundChange]:
    for appearance in list_appearances(data, since.timestamp(), until.timestamp()):
        kind = appearance.part.partition("/")[0]
        yield FoundChange(
            kind=f"{kind} {appearance.how}",
            at=datetime.fromtimestamp(appearance.at, UTC),
            parts=frozenset({appearance.part}),
            words=_describe_appearance(appearance),
            ref=f"part:{appearance.part}",
            times=appearance.times,
        )


def _describe_appearance(found: Appearance) -> str:
    kind, _, name = found.part.partition("/")
    subject = f"{kind.capitalize()} {name.replace('/', ' of type ', 1) if kind == 'type' else name}"
    if kind == "type":
        application, _, type_name = name.partition("/")
        subject = f"Events of type {type_name} at {application}"
    verbs = APPEARED_MANY if kind == "type" else APPEARED
    if found.how in verbs:
        rate = "" if found.after is None else f", {found.after:,.4g} events/s"
        return f"{subject} {verbs[found.how]}{rate}"
    return f"{subject} {found.how}: {found.before or 0:,.4g} → {found.after or 0:,.4g} events/s"
