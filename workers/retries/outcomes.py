"""What became of sent tasks, by the task history."""

from collections.abc import Mapping
from dataclasses import dataclass

from workers.retries.pacing import RetryOutcome
from workers.task_history.blocks import decode_record, find_rows
from workers.task_history.models import RecentTask
from workers.task_history.record import SUCCEEDED, TaskRecord

AT_ONCE = 500
# A finished task stays among the recent ones for a minute; one that is not there after this time is in a block, or
# none of its events was received.
UNHEARD_SECONDS = 150.0
MAX_SEARCHED = 10


@dataclass(frozen=True)
class HeardOutcomes:
    """Positions of tasks by what was heard of them: their end, or nothing although no message waits any more."""

    ended: Mapping[int, RetryOutcome]
    unheard: list[int]


def hear(
    plant: str, open_tasks: Mapping[int, float], ids: Mapping[int, str], now: float, waiting: int
) -> HeardOutcomes:
    """Return the outcomes of sent tasks.

    open_tasks: position → when it was sent; ids: position → id; waiting: messages in the queues. Times are seconds
    since 1970.
    """
    positions = {ids[position]: position for position in open_tasks}
    known = list(positions)
    ended: dict[int, RetryOutcome] = {}
    unknown = dict(open_tasks)
    for start in range(0, len(known), AT_ONCE):
        rows = RecentTask.objects.filter(plant=plant, task_id__in=known[start : start + AT_ONCE])
        for task_id, finished, stored in rows.values_list("task_id", "finished", "record"):
            position = positions[task_id]
            unknown.pop(position, None)
            if finished:
                ended[position] = _describe(decode_record(stored, plant))
    late = [position for position, sent_at in unknown.items() if now - sent_at >= UNHEARD_SECONDS]
    searched = sorted(late)[:MAX_SEARCHED]
    rows_in_blocks = find_rows(plant, [ids[position] for position in searched])
    found = {positions[task_id]: record for task_id, (_, _, record) in rows_in_blocks.items()}
    ended |= {position: _describe(record) for position, record in found.items() if record.is_finished}
    unheard = [position for position in searched if position not in found and not waiting]
    return HeardOutcomes(ended, unheard)


def _describe(record: TaskRecord) -> RetryOutcome:
    duration = None
    if record.ended is not None and record.received is not None:
        duration = max(0.0, record.ended - record.received)
    if record.state == SUCCEEDED:
        return RetryOutcome("", duration)
    return RetryOutcome(record.error.partition("(")[0].strip() or record.state, duration)
