"""The state that the concurrency law remembers between observations."""

from typing import Annotated

import msgspec

from common.errors import BadInput
from common.parameter import value
from controllers.concurrency.ceiling import Ceiling
from controllers.concurrency.explorer import CurveSearch, check_search
from controllers.concurrency.parameters import MAX_THREADS, ConcurrencyParameters
from controllers.concurrency.tcc import Cycle, check_cycle
from controllers.concurrency.throughput import ThroughputSample, check_sample
from controllers.concurrency.trial import Origin, Trial


class Memory(msgspec.Struct, frozen=True, rename={"exploration": "machine"}):
    """Memory of the law.

    `exploration` is in progress and `sample` belongs to its current size. After `refused` observations of another size
    than ordered, that size becomes the `limit`. `origin` is None while the pool is not measured. `mix` is the mix of
    work for which the exploration started.
    """

    exploration: Annotated[Cycle | CurveSearch, value("exploration", "State of the exploration, by method.")]
    sample: Annotated[ThroughputSample, value("sample", "Samples at the current number of threads.", required=True)] = (
        ThroughputSample()
    )
    refused: Annotated[int, value("observations", "Consecutive observations of a different pool size.", 0, 1e9)] = 0
    limit: Annotated[int | None, value("threads", "Limit of the pool; null: not known.", 1, MAX_THREADS)] = None
    epoch: Annotated[int, value("explorations", "Exploration number, shared by all hosts.", 0, 1e9)] = 0
    followed: Annotated[bool, value("flag", "True: no loop controlled the pool.")] = False
    # The state of an older Weir has none.
    trial: Annotated[Trial, value("trial", "Trial of one more step in the steady state.", or_null=True)] = Trial()
    origin: Annotated[Origin | None, value("pool", "Pool when the exploration started.", or_null=True)] = None
    ceiling: Annotated[Ceiling | None, value("ceiling", "Size past which throughput collapses.", or_null=True)] = None
    overloaded: Annotated[bool, value("flag", "True: more threads reduced the throughput.")] = False
    mix: Annotated[
        dict[str, Annotated[float, value("share", "Share of the time.", 0, 1)]],
        value("share", "Mix of work when the exploration started; empty: unknown."),
    ] = {}

    @property
    def threads(self) -> int:
        """Return the number of threads that the pool should have: on trial, or of the exploration."""
        return self.trial.threads or self.exploration.threads

    @property
    def usual_threads(self) -> int:
        """Return the number of threads before the probe or the trial that is in progress, if any."""
        is_probing = self.exploration.phase != "steady" and self.origin is not None
        return self.origin.threads if is_probing and self.origin else self.exploration.threads

    def find_best_smaller_size(self) -> Origin | None:
        """Return the greatest known throughput of fewer threads than are tested."""
        rest = self.exploration
        if self.trial.threads:
            known = [Origin(rest.threads, rest.steady_per_second)]
        elif isinstance(rest, CurveSearch):
            known = [Origin(point.threads, point.per_second) for point in rest.points]
        else:
            known = [Origin(rest.before.threads, rest.before.throughput_per_second)] if rest.before else []
        fewer = [size for size in (*known, *filter(None, [self.origin])) if size.threads < self.threads]
        return max(fewer, key=lambda size: size.per_second, default=None)


def check_memory(memory: Memory, where: str) -> None:
    exploration = memory.exploration
    if isinstance(exploration, Cycle):
        check_cycle(exploration, f"{where}.machine")
    else:
        check_search(exploration, f"{where}.machine")
    check_sample(memory.sample, f"{where}.sample")
    if memory.ceiling and memory.ceiling.bad <= memory.ceiling.good:
        raise BadInput(f"{where}.ceiling.bad", f"must be more than good ({memory.ceiling.good})")
    is_steady = exploration.phase == "steady" and exploration.threads and exploration.steady_per_second
    if memory.trial.threads and not is_steady:
        raise BadInput(
            f"{where}.trial.threads", "must be 0 unless machine is steady, with threads and steady_per_second above 0"
        )


def start_exploration(parameters: ConcurrencyParameters, threads: int, steps: int = 0) -> Memory:
    if parameters.method == "tcc":
        return Memory(Cycle(phase="base", threads=threads, steps=steps))
    return Memory(CurveSearch(phase="probe", threads=threads, steps=steps))


def start_at_rest(parameters: ConcurrencyParameters, memory: Memory, threads: int) -> Memory:
    """Return a steady memory at the pool's size, without any measurement."""
    kind = Cycle if parameters.method == "tcc" else CurveSearch
    exploration = kind(phase="steady", threads=threads, steps=memory.exploration.steps)
    return Memory(exploration, epoch=memory.epoch, followed=True)
