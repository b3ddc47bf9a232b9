"""The faults of a schedule, chosen by its seed, and the search for the fewest that still show a violation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

SERVERS = ("control", "n1", "n2", "n3")
PROGRAMS = ("p1", "w1", "w2", "m1", "m2")  # producer, workers, movers
HOSTS = (*SERVERS, *PROGRAMS)
CRASH, PAUSE, CLOCK, ONE_WAY, PARTITION, ISOLATE = "crash", "pause", "clock", "one-way cut", "partition", "isolate"
OVERTAKE = "overtake"  # pauses a worker that holds a block until another worker has taken the block
KINDS = (CRASH, CRASH, PAUSE, PAUSE, OVERTAKE, OVERTAKE, CLOCK, ONE_WAY, PARTITION, ISOLATE)
WORK_SECONDS = 2.0
MAX_FAULT_SECONDS = 1.5  # more than workers may be silent, and than a lease lasts
MAX_OVERTAKE_SECONDS = 4.0  # the other worker may be busy for some time
WORKERS = ("w1", "w2")
MIN_FAULTS, MAX_FAULTS = 2, 6
STEPS_SECONDS = (-3600, -600, -5, 5, 600, 3600)


@dataclass(frozen=True)
class Fault:
    """A fault of a host from `at_seconds` for `seconds`. others: the hosts that it can't reach; step: of its clock."""

    kind: str
    host: str
    at_seconds: float
    seconds: float
    others: tuple[str, ...] = ()
    step_seconds: int = 0

    def describe(self) -> str:
        what = f" from {', '.join(self.others)}" if self.others else ""
        what += f" by {self.step_seconds:+d} s" if self.step_seconds else ""
        return f"{self.at_seconds:.2f} s: {self.kind} {self.host}{what} for {self.seconds:.2f} s"


def draw_faults(seed: int) -> list[Fault]:
    """Return the faults of a schedule in the order of their times."""
    chance = Random(seed)
    faults = [_draw_fault(chance) for _ in range(chance.randint(MIN_FAULTS, MAX_FAULTS))]
    return sorted(faults, key=lambda fault: fault.at_seconds)


def _draw_fault(chance: Random) -> Fault:
    kind, host = chance.choice(KINDS), chance.choice(HOSTS)
    at_seconds, seconds = chance.uniform(0.2, WORK_SECONDS - 0.5), chance.uniform(0.1, MAX_FAULT_SECONDS)
    others = [name for name in HOSTS if name != host]
    if kind == CLOCK:
        host = chance.choice(SERVERS) if chance.random() < 0.7 else host
        return Fault(kind, host, at_seconds, seconds, step_seconds=chance.choice(STEPS_SECONDS))
    if kind in (ONE_WAY, PARTITION):
        cut = chance.sample(others, chance.randint(1, 4))
        return Fault(kind, host, at_seconds, seconds, tuple(sorted(cut)))
    if kind == OVERTAKE:
        return Fault(kind, chance.choice(WORKERS), at_seconds, MAX_OVERTAKE_SECONDS)
    if kind == PAUSE and chance.random() < 0.6:
        return Fault(kind, chance.choice(WORKERS), at_seconds, seconds)
    return Fault(kind, host, at_seconds, seconds, tuple(others) if kind == ISOLATE else ())


def shrink_faults(faults: Sequence[Fault], fails: Callable[[Sequence[Fault]], bool]) -> list[Fault]:
    """Return a part of the faults that still fails, and of which none can be left out."""
    left, place = list(faults), 0
    while place < len(left):
        fewer = left[:place] + left[place + 1 :]
        if fails(fewer):
            left = fewer
        else:
            place += 1
    return left
