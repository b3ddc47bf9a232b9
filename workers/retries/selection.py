"""The dry run of a retry plan: which tasks of a search would be sent again, and why others would not.

A task **succeeded later** if a task with the same name and arguments succeeded after it had failed: a later run of the
same work, another retry, or a person's. A task that was already sent by another retry plan is left to that plan; its
new attempt is a task of its own, which can be retried.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from common.errors import BadInput
from workers.retries.items import RetryItem, is_json_value
from workers.task_history import search
from workers.task_history.query import TaskQuery
from workers.task_history.record import FAILED, FINISHED, REJECTED, REVOKED, SUCCEEDED, TaskRecord

MAX_TASKS = search.MAX_SELECTED
MAX_SUCCEEDED = 1_000_000
MAX_NAMES = 20
SUCCEEDED_ITSELF, SUCCEEDED_LATER, UNFINISHED = "succeeded", "succeeded-later", "unfinished"
WAS_REVOKED, INEXACT, NO_QUEUE, IN_PLAN, REPEATED = "revoked", "arguments", "queue", "in-plan", "repeated"
REASONS = {
    SUCCEEDED_ITSELF: "succeeded",
    SUCCEEDED_LATER: "succeeded later: a task with the same name and arguments succeeded afterwards",
    UNFINISHED: "have not finished",
    WAS_REVOKED: "were revoked",
    INEXACT: "have arguments that are not known exactly: redacted, shortened, or not JSON values",
    NO_QUEUE: "have an unknown queue, and need a destination queue",
    IN_PLAN: "belong to another retry plan",
    REPEATED: "were found twice",
}


@dataclass(frozen=True)
class Selection:
    """The result of a dry run.

    items: the tasks to send, oldest failure first. skipped: reason of REASONS → tasks. found: all tasks of the search;
    is_complete: False if it has more than MAX_TASKS.
    """

    items: list[RetryItem]
    skipped: dict[str, int] = field(default_factory=dict)
    found: int = 0
    is_complete: bool = True

    @property
    def queues(self) -> dict[str, int]:
        return dict(Counter(item.queue for item in self.items))

    @property
    def names(self) -> dict[str, int]:
        return dict(Counter(item.name for item in self.items).most_common(MAX_NAMES))


def select(
    plant: str,
    query: TaskQuery,
    planned: Collection[str] = (),
    destination: str = "",
    with_succeeded: bool = False,
    most: int = MAX_TASKS,
) -> Selection:
    """Return which tasks of a search can be retried.

    planned: ids of tasks in other plans. destination: the queue of all messages; "" for each task's own.
    with_succeeded: also select tasks that succeeded later. Raises BadInput if nothing is found.
    """
    records = list(search.iterate([plant], query, most + 1))
    if not records:
        raise BadInput("query", "matches no task. Search in the task history first.")
    is_complete, records = len(records) <= most, records[:most]
    skipped: Counter[str] = Counter()
    possible: dict[str, TaskRecord] = {}
    for record in records:
        reason = _explain_skip(record, planned, destination)
        if not reason and record.id in possible:
            reason = REPEATED
        if reason:
            skipped[reason] += 1
        else:
            possible[record.id] = record
    if not with_succeeded:
        for task_id in _find_succeeded_later(plant, list(possible.values())):
            del possible[task_id]
            skipped[SUCCEEDED_LATER] += 1
    chosen = sorted(possible.values(), key=lambda record: (record.at, record.id))
    items = [_build_item(record, destination) for record in chosen]
    return Selection(items, dict(skipped), len(records), is_complete)


def _explain_skip(record: TaskRecord, planned: Collection[str], destination: str) -> str:
    """Return the reason for which a task can't be retried; "" if it can."""
    if record.state == SUCCEEDED:
        return SUCCEEDED_ITSELF
    if record.state not in FINISHED:
        return UNFINISHED
    if record.state == REVOKED:
        return WAS_REVOKED
    assert record.state in (FAILED, REJECTED)
    if record.id in planned:
        return IN_PLAN
    if not destination and not record.queue:
        return NO_QUEUE
    arguments = record.parse_arguments()
    if not record.name or arguments is None or not all(map(is_json_value, arguments)):
        return INEXACT
    return ""


def _find_succeeded_later(plant: str, records: Sequence[TaskRecord]) -> set[str]:
    """Return the ids of tasks whose name and arguments succeeded after they had failed."""
    if not records:
        return set()
    names, since = {record.name for record in records}, min(record.at for record in records)
    last: dict[bytes, float] = {}
    for record in _iterate_succeeded(plant, names, since):
        mark = _mark(record)
        last[mark] = max(last.get(mark, 0.0), record.at)
    return {record.id for record in records if last.get(_mark(record), 0.0) > record.at}


def _iterate_succeeded(plant: str, names: Collection[str], since: float) -> Iterable[TaskRecord]:
    several = [""] if len(names) > MAX_NAMES else sorted(names)
    for name in several:
        query = TaskQuery(state=SUCCEEDED, name=name, since=since)
        for record in search.iterate([plant], query, MAX_SUCCEEDED):
            if record.name in names:
                yield record


def _mark(record: TaskRecord) -> bytes:
    text = f"{record.name}\0{record.args or '()'}\0{record.kwargs or '{}'}"
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _build_item(record: TaskRecord, destination: str) -> RetryItem:
    return RetryItem(record.id, record.name, destination or record.queue, record.args, record.kwargs, record.root)
