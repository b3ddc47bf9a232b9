"""The outcome of sent tasks, according to the task history."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workers.retries.pacing import RetryOutcome
from workers.task_history.blocks import SETTLE_SECONDS, decode_record, find_rows
from workers.task_history.gaps import list_gaps
from workers.task_history.models import RecentTask, TaskGap
from workers.task_history.record import SUCCEEDED, TaskRecord

AT_ONCE = 500
# How long the events of a task may take from its worker to the history.
LATE_SECONDS = 15.0
MAX_SEARCHED = 20


@dataclass(frozen=True)
class HeardOutcomes:
    """Positions of tasks by what was heard of them: their end, or nothing although they have left their queue."""

    ended: Mapping[int, RetryOutcome]
    unheard: list[int]


def read_outcomes(
    plant: str, open_tasks: Mapping[int, float], ids: Mapping[int, str], now: float, waiting: int
) -> HeardOutcomes:
    """Return the outcomes of sent tasks.

    open_tasks: position → when it was sent; ids: position → id; waiting: messages in the queues. Times are seconds
    since 1970.
    """
    records = _load_recent(plant, {ids[position]: position for position in open_tasks})
    ended = {position: _describe(record) for position, record in records.items() if record.is_finished}
    gaps = list_gaps([plant], min(open_tasks.values(), default=now), now - LATE_SECONDS) if open_tasks else []
    unheard = [position for position, record in records.items() if _may_have_ended(record, gaps, now)]
    # A queue is consumed in its order: what was sent before a known task has left the queue, too.
    last = max(records, default=-1)
    lost = [
        position
        for position, sent_at in open_tasks.items()
        if position not in records and now - sent_at >= LATE_SECONDS and (not waiting or position < last)
    ]
    # If nobody has asked for a while, finished tasks have moved into blocks.
    old = [position for position in lost if now - open_tasks[position] >= SETTLE_SECONDS]
    searched = old[:MAX_SEARCHED]
    rows = find_rows(plant, [ids[position] for position in searched])
    for position in searched:
        record = rows[ids[position]][2] if ids[position] in rows else None
        if record is not None and record.is_finished:
            ended[position] = _describe(record)
    later = set(old[MAX_SEARCHED:])
    unheard += [position for position in lost if position not in ended and position not in later]
    return HeardOutcomes(ended, unheard)


def _load_recent(plant: str, positions: Mapping[str, int]) -> dict[int, TaskRecord]:
    known, records = list(positions), dict[int, TaskRecord]()
    for start in range(0, len(known), AT_ONCE):
        rows = RecentTask.objects.filter(plant=plant, task_id__in=known[start : start + AT_ONCE])
        for task_id, stored in rows.values_list("task_id", "record"):
            records[positions[task_id]] = decode_record(stored, plant)
    return records


def _may_have_ended(record: TaskRecord, gaps: Sequence[TaskGap], now: float) -> bool:
    """Return whether the end of an unfinished task may have been missed."""
    return not record.is_finished and any(
        record.at < gap.until <= now - LATE_SECONDS and gap.worker in ("", record.worker) for gap in gaps
    )


def _describe(record: TaskRecord) -> RetryOutcome:
    duration = None
    if record.ended is not None and record.received is not None:
        duration = max(0.0, record.ended - record.received)
    if record.state == SUCCEEDED:
        return RetryOutcome("", duration)
    return RetryOutcome(record.error.partition("(")[0].strip() or record.state, duration)
