"""The stream of the scenario `shedding`: arrivals at the running example's operators, and the matches.

O2 has P21 = SEQ(0;0;1) and P22 = AND(1,2,3), each event in one match at most (once); O3 and O4 join the output of P21
and P22 with Q11 and Q12 (Röger, section IV). All windows are of event time and start at a match's first event, so the
matches depend on the admitted events, not on when they are processed. Times in s.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from controllers.simulation.borg_events import EVENTS
from controllers.simulation.scenario import Floats, create_random_generator, resample

Whole = npt.NDArray[np.int64]
# Events/s of types 0 to 3 at O2, and processing times of the patterns per event, at which O2's work is 1.6 s/s.
RATES = np.asarray([40.0, 30.0, 20.0, 25.0])
SECONDS = {"P21": 0.010, "P22": 0.012}
TAKES = {"P21": (0, 1), "P22": (1, 2, 3)}
WORK_PERCENT = 160.0
PLENTY, SCARCE = 20.0, 4.0
# The source of the Borg trace whose events arrive at O2; the other one is matched elsewhere.
BORG_SOURCES = {"borg-1": 0, "borg-2": 1}


@dataclass(frozen=True)
class Stream:
    """Events of O2 by time, with the work of each pattern, and those of Q11 and Q12."""

    times: Floats
    types: Whole
    work: dict[str, Floats]
    chance: dict[str, Floats]  # in [0, 1), decides whether an event is shed
    outside: dict[str, Floats]
    seconds: float


def compute_borg_courses(settings: dict[str, float | str]) -> dict[str, Floats]:
    """Return the events/s of O2's types and of Q11 and Q12 by hour of the trace, with `load_percent` on average.

    Q11 and Q12 are the matches of the other source's events without windows and without shedding.
    """
    source = BORG_SOURCES[str(settings["balance"])]
    inside, other = EVENTS[source], EVENTS[1 - source]
    courses = {f"type-{kind}": row for kind, row in enumerate(inside)}
    courses |= {"Q11": np.minimum(other[0] / 2, other[1]), "Q12": other[1:].min(axis=0)}
    work = sum(SECONDS[name] * inside[list(kinds)].sum(axis=0).mean() for name, kinds in TAKES.items())
    return {name: row * float(settings["load_percent"]) / 100 / work for name, row in courses.items()}


def compute_event_rates(settings: dict[str, float | str]) -> tuple[Floats, dict[str, float]]:
    """Return the events/s of O2's types, and of Q11 and Q12."""
    scale = float(settings["load_percent"]) / WORK_PERCENT
    scarce = {"q11-scarce": "Q11", "q12-scarce": "Q12"}.get(str(settings["balance"]))
    outside = {name: scale * (SCARCE if name == scarce else PLENTY) for name in ("Q11", "Q12")}
    return RATES * scale, outside


def generate(settings: dict[str, float | str], seed: int, profile: Floats | None) -> Stream:
    """Return Poisson arrivals with exponential processing times; `profile` scales the rates per second.

    The Borg trace has a course of its own for each type.
    """
    seconds, shapes = float(settings["seconds"]), dict[str, tuple[float, Floats | None]]()
    if settings["balance"] in BORG_SOURCES:
        shapes = {
            name: (float(course.max()), resample(course, int(seconds)))
            for name, course in compute_borg_courses(settings).items()
        }
    else:
        inside, outside = compute_event_rates(settings)
        shapes |= {f"type-{at}": (float(rate), profile) for at, rate in enumerate(inside)}
        shapes |= {name: (rate, None) for name, rate in outside.items()}
    drawn = {name: _draw_poisson_times(seed, name, rate, seconds, shape) for name, (rate, shape) in shapes.items()}
    per_type = [drawn[f"type-{at}"] for at in range(len(RATES))]
    order = np.argsort(np.concatenate(per_type), kind="stable")
    times = np.concatenate(per_type)[order]
    types = np.repeat(np.arange(len(RATES)), [len(times_of_type) for times_of_type in per_type])[order]
    work = {
        name: create_random_generator(seed, "work", name).exponential(mean, len(times))
        for name, mean in SECONDS.items()
    }
    chance = {name: create_random_generator(seed, "fate", name).random(len(times)) for name in SECONDS}
    return Stream(times, types, work, chance, {name: drawn[name] for name in ("Q11", "Q12")}, seconds)


def _draw_poisson_times(seed: int, name: str, rate: float, seconds: float, profile: Floats | None) -> Floats:
    chance = create_random_generator(seed, "arrivals", name)
    times = np.sort(chance.uniform(0, seconds, chance.poisson(rate * seconds)))
    if profile is None:
        return np.asarray(times)
    kept = chance.random(len(times)) < profile[np.minimum(times.astype(int), len(profile) - 1)]
    return np.asarray(times[kept])


class SequenceMatcher:
    """SEQ(0;0;1) within a window, once: the most advanced machine takes an event, the oldest among equals."""

    def __init__(self, window_seconds: float) -> None:
        self.window = window_seconds
        self.opened: deque[float] = deque()  # start times of machines with one 0
        self.paired: deque[float] = deque()  # start times of machines with two

    def take(self, kind: int, now: float) -> bool:
        """Return whether the event completes a match."""
        waiting = self.opened if kind == 0 else self.paired
        _expire(waiting, now - self.window)
        if kind == 0:
            # Machines pair in the order of their start, so both queues stay in order of age.
            if waiting:
                self.paired.append(self.opened.popleft())
            else:
                self.opened.append(now)
        elif waiting:
            self.paired.popleft()
            return True
        return False


class SetMatcher:
    """AND over kinds within a window, once: the oldest unexpired event of each."""

    def __init__(self, kinds: tuple[int, ...], window_seconds: float) -> None:
        self.window = window_seconds
        self.waiting: dict[int, deque[float]] = {kind: deque() for kind in kinds}

    def take(self, kind: int, now: float) -> bool:
        self.waiting[kind].append(now)
        for queue in self.waiting.values():
            _expire(queue, now - self.window)
            if not queue:
                return False
        for queue in self.waiting.values():
            queue.popleft()
        return True


def _expire(waiting: deque[float], before: float) -> None:
    while waiting and waiting[0] < before:
        waiting.popleft()


def join_events(left: Floats, right: Floats, window_seconds: float) -> Floats:
    """Return the times at which AND(left, right) matches: the oldest unexpired of each, by time."""
    matcher = SetMatcher((0, 1), window_seconds)
    times = np.concatenate([left, right])
    order = np.argsort(times, kind="stable")
    kinds = (order >= len(left)).astype(int)
    matches = [now for now, kind in zip(times[order].tolist(), kinds.tolist(), strict=True) if matcher.take(kind, now)]
    return np.asarray(matches)


def compute_departures(times: Floats, work: Floats) -> Floats:
    """Return when each event leaves a first-come, first-served queue: D_i = max(A_i, D_{i-1}) + S_i."""
    done = np.cumsum(work)
    return np.asarray(done + np.maximum.accumulate(times - done + work))
