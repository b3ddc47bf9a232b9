"""Groups of failures with the same fingerprint."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from workers.task_history.fingerprint import normalize_message
from workers.task_history.models import FailureGroup, TaskFeed
from workers.task_history.record import FAILED, TaskRecord

HOUR_SECONDS = 3_600
MAX_HOURS = 168
MAX_NAMES = 50
LIMIT = 100
# All failures are new to a plant that was attached recently.
LEARNING_SECONDS = 3_600.0


@dataclass(frozen=True)
class TaskFailure:
    """One failure of a task, to be counted."""

    record: TaskRecord
    at: float


def count_failures(plant: str, failures: Iterable[TaskFailure]) -> None:
    """Count failures in their groups. Call it in the transaction that stores their records."""
    by_fingerprint: dict[str, list[TaskFailure]] = {}
    for failure in failures:
        by_fingerprint.setdefault(failure.record.failure, []).append(failure)
    known = {
        group.fingerprint: group
        for group in FailureGroup.objects.select_for_update().filter(plant=plant, fingerprint__in=by_fingerprint)
    }
    for fingerprint, members in by_fingerprint.items():
        first = members[0].record
        group = known.get(fingerprint) or FailureGroup(
            plant=plant,
            fingerprint=fingerprint,
            name=first.name[:255],
            error=normalize_message(first.error)[:300],
            first_seen=members[0].at,
            last_seen=members[0].at,
        )
        for failure in members:
            _add(group, failure)
        group.save()


def _add(group: FailureGroup, failure: TaskFailure) -> None:
    group.count += 1
    group.first_seen = min(group.first_seen, failure.at)
    group.last_seen = max(group.last_seen, failure.at)
    hour = str(int(failure.at // HOUR_SECONDS))
    group.hours[hour] = group.hours.get(hour, 0) + 1
    for old in sorted(group.hours, key=int)[:-MAX_HOURS]:
        del group.hours[old]
    for names, name in ((group.queues, failure.record.queue), (group.workers, failure.record.worker)):
        if name and (name in names or len(names) < MAX_NAMES):
            names[name] = names.get(name, 0) + 1
    group.last_task = failure.record.id


def list_groups(
    plants: Sequence[str],
    *,
    since: float | None = None,
    new_since: float | None = None,
    name: str = "",
    limit: int = LIMIT,
) -> list[FailureGroup]:
    """Return groups, the last seen first. since: seen since then; new_since: first seen since then."""
    groups = FailureGroup.objects.filter(plant__in=plants)
    if since is not None:
        groups = groups.filter(last_seen__gte=since)
    if new_since is not None:
        groups = groups.filter(first_seen__gte=new_since)
    if name:
        groups = groups.filter(name=name)
    return list(groups.order_by("-last_seen", "-pk")[:limit])


def count_per_hour(group: FailureGroup, now: float, hours: int = 24) -> list[int]:
    """Return the failures of each of the last hours, the current one last."""
    last = int(now // HOUR_SECONDS)
    return [int(group.hours.get(str(hour), 0)) for hour in range(last - hours + 1, last + 1)]


def list_new_groups(since: float) -> list[FailureGroup]:
    """Return the groups of attached plants that were first seen since then, newest first.

    Groups of the first hour of a plant's history are left out: all its failures are new then.
    """
    # Only a recorder has a fencing number. Weir's own failures have alerts of their own.
    began = dict(TaskFeed.objects.filter(fence__gt=0).values_list("plant", "began_at"))
    groups = FailureGroup.objects.filter(first_seen__gte=since, plant__in=began).order_by("-first_seen", "-pk")[:LIMIT]
    return [group for group in groups if group.first_seen >= began[group.plant] + LEARNING_SECONDS]


def list_recent_groups(since: float) -> list[FailureGroup]:
    """Return the groups of attached plants with failures since then, the last seen first."""
    return list_groups(list(TaskFeed.objects.filter(fence__gt=0).values_list("plant", flat=True)), since=since)


def is_failure(record: TaskRecord) -> bool:
    return record.state == FAILED and bool(record.failure)
