"""Dead letters of the pipeline in the task history.

The processes of the pipeline have no database. The upkeep reads their dead letters from the nodes, each once: a cursor
for each queue and node is the last letter that was stored.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import redis

from common.errors import MalformedEvent, WeirError
from queues import keys
from queues.control.replies import expect_bytes
from queues.segments.dead_letters import DeadLetter, DeadLetters
from workers.task_history.own_tasks import build_letter_record, iterate_events
from workers.task_history.record import TaskRecord
from workers.task_history.recorder import record_finished

WORKER = "pipeline"  # the worker of a letter that the pipeline wrote
FIRST_SECONDS = 3_600.0  # age of the oldest letter that is stored if there is no cursor
AT_ONCE, MAX_READ = 20, 500  # letters of a queue on a node, in one request and in one call


def record_new_letters(
    plant: str,
    containers: Iterable[tuple[str, str]],
    control: redis.Redis,
    open_letters: Callable[[str, str], DeadLetters],
    away: set[str],
    now: float,
) -> None:
    """Store the dead letters that the pipeline has written since the last call.

    containers: (queue, node). away: nodes that are left out; one that is unavailable is added. Raises DatabaseError:
    the next call stores the letters.
    """
    cursors = expect_bytes(control).hgetall(keys.STORED_LETTERS)
    for queue, node in containers:
        if node in away:
            continue
        field = f"{queue}/{node}"
        after = cursors.get(field.encode(), b"%d-0" % round((now - FIRST_SECONDS) * 1_000)).decode()
        try:
            for letters in _iterate_pages(open_letters(queue, node), after):
                record_finished(plant, [record for letter in letters for record in _build_records(queue, letter, now)])
                control.hset(keys.STORED_LETTERS, field, letters[-1].dead_id)
        except WeirError:
            away.add(node)


def _iterate_pages(letters: DeadLetters, after: str) -> Iterator[Sequence[DeadLetter]]:
    for _ in range(MAX_READ // AT_ONCE):
        page = letters.read(AT_ONCE, after)
        if page:
            yield page
        if len(page) < AT_ONCE:
            return
        after = page[-1].dead_id


def _build_records(queue: str, letter: DeadLetter, now: float) -> Iterator[TaskRecord]:
    """Return a record for each event. A letter that was moved from another node, or amended, is stored already."""
    is_new = letter.dead_id.startswith(f"{letter.at_seconds * 1_000:.0f}-")
    if letter.worker != WORKER or letter.fixes or not is_new:
        return
    try:
        events = list(iterate_events(letter.batch))
    except MalformedEvent:
        events = [(letter.dead_id, "")]
    for event_id, content in events:
        yield build_letter_record(queue, f"read {queue}", event_id, content, letter.error, now, letter.at_seconds)
