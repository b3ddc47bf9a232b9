"""Dead letters of Weir's own queues, requeued by a retry plan.

A script requeues each letter once, as it was shown, so nothing is staged: a letter that a dead process has requeued is
gone. No event says what became of a requeued letter. While a queue gets a new dead letter, one of the requeued ones
counts as failed; the others count as succeeded after DEAD_SECONDS.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from common.errors import NodeFull, NodeUnavailable
from queues import projection
from queues.segments.dead_letters import GONE, WORDS, DeadLetters
from workers.placement.execution import get_segment
from workers.plants.foreign.retry_outlet import RetriedTask
from workers.plants.plant import PlantUnavailable
from workers.retries.items import RetryItem
from workers.retries.outcomes import HeardOutcomes
from workers.retries.pacing import RetryOutcome

DEAD_SECONDS = 30.0
FAILED_AGAIN = "a new dead letter"


class DeadLetterOutlet:
    """The outlet of a plan of dead letters. position: how many of the items earlier processes have requeued."""

    settle_seconds = 0.0

    def __init__(self, items: Sequence[RetryItem], position: int) -> None:
        self._items, self._position = items, position
        self._topology = projection.read_database()
        self._places = sorted({tuple(item.id.split("/")[:2]) for item in items})
        self._dead: int | None = None
        self._refused: dict[int, int] = {}  # position → why, a key of WORDS

    def write_staging(self, tasks: Sequence[RetriedTask]) -> int:
        """Return the number of letters: they stay where they are."""
        return len(tasks)

    def count_staged(self) -> int:
        return len(self._items) - self._position

    def send(self, most: int) -> int:
        """Requeue the next letters. One that has changed or is damaged stays a dead letter, and counts as failed."""
        part = self._items[self._position : self._position + most]
        places: dict[tuple[str, str], dict[str, str]] = {}
        positions: dict[tuple[str, str, str], int] = {}
        for offset, item in enumerate(part):
            queue, node, dead_id, digest = item.id.split("/")
            places.setdefault((queue, node), {})[dead_id] = digest
            positions[queue, node, dead_id] = self._position + offset
        with _convert_errors():
            for (queue, node), shown in places.items():
                answers = DeadLetters(get_segment(self._topology, queue, node)).requeue(shown)
                refused = {dead_id: answer for dead_id, answer in answers.items() if answer < GONE}
                self._refused |= {positions[queue, node, dead_id]: answer for dead_id, answer in refused.items()}
                if self._dead is not None:
                    self._dead -= sum(answer > 0 for answer in answers.values())
        self._position += len(part)
        return len(part)

    def discard(self) -> int:
        """Return the number of letters that are not requeued: they stay where they are."""
        return self.count_staged()

    def count_waiting(self, queues: Sequence[str]) -> int:
        return sum(row["length_blocks"] for row in self._measure())

    def read_outcomes(self, open_tasks: Mapping[int, float], now: float) -> HeardOutcomes:
        """Return what became of requeued letters. open_tasks: position → when it was requeued."""
        dead = sum(row["dead_letters"] for row in self._measure())
        new = max(0, dead - self._dead) if self._dead is not None else 0
        self._dead = dead
        refused, self._refused = self._refused, {}
        ended = {place: RetryOutcome(WORDS[answer]) for place, answer in refused.items() if place in open_tasks}
        oldest = [position for position in sorted(open_tasks, key=open_tasks.__getitem__) if position not in ended]
        ended |= dict.fromkeys(oldest[:new], RetryOutcome(FAILED_AGAIN))
        ended |= {position: RetryOutcome() for position in oldest[new:] if now - open_tasks[position] >= DEAD_SECONDS}
        return HeardOutcomes(ended, [])

    def close(self) -> None: ...

    def _measure(self) -> list[Mapping[str, int]]:
        with _convert_errors():
            return [get_segment(self._topology, queue, node).measure() for queue, node in self._places]


@contextmanager
def _convert_errors() -> Iterator[None]:
    try:
        yield
    except (NodeUnavailable, NodeFull) as error:
        raise PlantUnavailable(str(error)) from error
