"""The state of a loop: whether it ticks, whether it has a valid measurement, and who controls."""

from collections.abc import Iterator, Mapping

from workers.alerts.conditions.condition import describe_loop
from workers.alerts.conditions.evidence import STALE
from workers.documents.loops import LoopStatus
from workers.documents.states import SubjectState
from workers.snapshot.states.judgement import Fault, WatchedSnapshot

WORDS: Mapping[str, str] = {"hold": "On hold", "manual": "Manual", "advise": "Advise only", "auto": "Automatic"}


def build_loop_state(watched: WatchedSnapshot, name: str, loop: LoopStatus) -> SubjectState:
    """Return the state of one loop."""
    word = WORDS.get(loop.mode, loop.mode)
    return watched.get_state("loop", name, list(_iterate_faults(watched, name, loop)), word=word)


def _iterate_faults(watched: WatchedSnapshot, name: str, loop: LoopStatus) -> Iterator[Fault]:
    labels = {"loop": name, **loop.target}
    if loop.at is None or not loop.interval_seconds:
        return
    # The absolute difference: a clock set back must not make a loop seem busy for that time.
    late = abs(watched.at - loop.at)
    silent = f"{describe_loop(name)} has made no decision for {late:.0f} s."
    faults = watched.find_faults("loop", name, "loop_silent", late / loop.interval_seconds, silent, labels)
    yield from faults
    if loop.blind_since is not None and not faults:
        seconds = max(0.0, loop.at - loop.blind_since) if loop.limited_by == STALE else 0.0
        blind = f"{describe_loop(name)} has had no valid measurement for {seconds:.0f} s."
        yield from watched.find_faults("loop", name, "loop_stale", seconds, blind, labels)
