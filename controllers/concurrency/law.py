"""The concurrency law: as many threads as increase the throughput, and no more (Tang et al.).

`method` tcc is the automaton of the paper (`controllers.concurrency.tcc`). Method explorer probes a few sizes and fits
a curve (`controllers.concurrency.explorer`); it falls back to TCC for a cycle if no curve fits. Both use only the times
between completions, without idle time, and decide once there are enough samples (`controllers.concurrency.throughput`).

In the steady state the next exploration starts after `steady_seconds`, or when the throughput has changed by `change`
and by more than chance. Before that, the law tries one more step from time to time, because a pool at its knee cannot
notice new capacity (`controllers.concurrency.trial`).

The law holds, with a reason, when it cannot decide: nothing was processed, there is one sample, the samples have no
time between them, or the pool does not have the ordered size. If a pool keeps another size for `patience` observations,
that size counts as its limit until the next exploration. The law never orders fewer than one thread or a size outside
the range.

Three or more pools share fairly only if they explore at about the same time (Tang, 3.3). So explorations are numbered:
a pool that starts one takes the next number, and a steady pool that reads a greater number (`epoch`) starts too. A pool
that is exploring counts as having the newest number. While others explore, the explorer walks as TCC does: points
measured one after the other, with the other pools at changing sizes, lie on no curve (three pools settled at 13, 2, and
2 threads, where TCC has 5 each). A pool that aims at the peak ignores the others. All pools start from their average
size (`mean_threads`), because each grows by a share of its size. A pool that settles with far fewer threads tries one
more step at once, because it may have stopped while the others grew.

A search that starts by removing threads needs a pool that can remove them. The pool of an attached plant may end only
idle threads (`ends_idle`), and a measured pool has none: there, the search starts at the current size and goes up. A
reduction at the end waits for idle threads.

A pool that is not controlled (`steered` is false, for example in advise mode) is only measured at its current size;
when an exploration is due, its first step is the advice. The law explores as soon as the pool is controlled.
"""

import math
from collections.abc import Sequence

from msgspec.structs import replace

from common.errors import BadInput
from common.parameter import check_range
from common.stored_document import convert_to_plain
from controllers.concurrency import explorer, tcc, trial
from controllers.concurrency.explorer import CurveSearch
from controllers.concurrency.memory import Memory, check_memory, start_at_rest, start_exploration
from controllers.concurrency.parameters import ConcurrencyObservation, ConcurrencyParameters
from controllers.concurrency.tcc import Cycle
from controllers.concurrency.throughput import ThroughputMoments, ThroughputSample
from controllers.concurrency.trial import Origin, Trial
from controllers.design.friendliness import compute_minimum_q, compute_minimum_w
from controllers.framework.decision import Decision, Expectation, Json
from controllers.framework.law import Law, Remedy, Values
from controllers.framework.reason import format_count, format_no_action, format_reason, measure

Exploration = Cycle | CurveSearch
# Significance that a change of throughput needs: a probability of 0.1 % per check.
CHANGE_Z = 3.3
# After a size change the pool warms up and is measured again; its effect is visible then.
EFFECT_SECONDS = 30.0
# Where pools start alike, a pool starts with at most this multiple of its size and at least this fraction of
# it, because it may be alone with its bottleneck.
MAX_TIMES_OWN = 3.0


class Concurrency(Law[ConcurrencyParameters, ConcurrencyObservation, Memory]):
    """The concurrency law; see the module for what it explores and when it holds."""

    name = "concurrency"
    Parameters, Observation, State = ConcurrencyParameters, ConcurrencyObservation, Memory
    actuator = "threads"
    counts = True
    lasting = True
    remedy = Remedy("workers")
    guard_defaults = {"minimum": 1.0, "maximum": 1_000.0}

    def check(self, parameters: ConcurrencyParameters) -> None:
        """Raise `BadInput` if p, q, and w are not friendly (Theorem 1) or the range excludes the start."""
        p, q, w = parameters.p, parameters.q, parameters.w
        if q <= compute_minimum_q(p):
            raise BadInput(
                "parameters.q",
                f"breaks condition (1), q > p(p+1)/(p+2): for p = {p:g},"
                f" q must be more than {compute_minimum_q(p):.6g}",
            )
        if q >= p:
            raise BadInput("parameters.q", f"must be less than p ({p:g}): no step gains more than its share")
        if w < compute_minimum_w(p, q):
            raise BadInput(
                "parameters.w",
                f"breaks condition (2), w >= 1 - (p/q - 1)^2: for p = {p:g} and q = {q:g}, w must be at least "
                f"{compute_minimum_w(p, q):.6g}",
            )
        check_range(parameters.minimum, parameters.maximum)
        if parameters.most_samples < parameters.initial_samples:
            raise BadInput(
                "parameters.most_samples", f"must be at least initial_samples ({parameters.initial_samples})"
            )

    def start(self, parameters: ConcurrencyParameters) -> Memory:
        """Return an exploration from the start size, moved into the range if necessary."""
        return start_exploration(parameters, _clip_threads(parameters, parameters.start))

    def check_state(self, parameters: ConcurrencyParameters, state: Memory, where: str) -> None:
        """Raise `BadInput` if samples or points contradict each other."""
        check_memory(state, where)

    def resume(self, state: Memory) -> Memory:
        """Return the state after a hold: measurements from before the hold are dropped."""
        return replace(state, sample=ThroughputSample(), refused=0)

    def correct(
        self, parameters: ConcurrencyParameters, before: Memory, after: Memory, action: Values | None
    ) -> Memory:
        """Return the state with the pool's ordered size; without an action, the previous state.

        A pool that is not controlled keeps its state, because nothing was assumed about it.
        """
        if after.followed or action is None:
            return after if after.followed else before
        return _set_to(after, before.threads, int(action["threads"]))

    def decide(
        self, parameters: ConcurrencyParameters, state: Memory, observation: ConcurrencyObservation
    ) -> tuple[Memory, Decision]:
        """Return the number of threads to run, or no action while more samples are needed."""
        parameters = _limit_parameters(parameters, state.limit)
        memory = _follow_pool(parameters, state, observation.threads, observation.steered)
        return _decide_phase(parameters, memory, observation)


LAW = Concurrency()


def _decide_phase(
    parameters: ConcurrencyParameters, memory: Memory, seen: ConcurrencyObservation
) -> tuple[Memory, Decision]:
    exploration, threads = memory.exploration, seen.threads
    if not memory.followed:
        if memory.threads != _clip_threads(parameters, memory.threads):
            return _move_into_range(parameters, memory)
        if threads != memory.threads:
            return _handle_refusal(parameters, memory, threads, seen.trouble)
    memory = _start_as_walk(parameters, memory, seen)
    # Threads of an earlier time started what a pool without threads finishes: it measures nothing.
    finished = seen.interdeparture_seconds if threads else ()
    memory = replace(memory, sample=memory.sample.add_samples(finished), refused=0)
    now = memory.sample.measure(threads)
    if memory.origin is None and now is not None:
        memory = replace(memory, origin=Origin(threads, now.throughput_per_second))
    called = _is_called(memory, seen)
    if (now is None or memory.sample.count < 2) and not called:
        return memory, Decision(
            None, format_no_action(_explain_missing_rate(memory.sample)), _build_terms(memory, None), "samples"
        )
    if exploration.phase == "steady":
        return _decide_when_steady(parameters, memory, now, seen)
    if not memory.followed:
        memory = replace(memory, epoch=max(memory.epoch, seen.epoch or 0))
    assert now is not None
    return _explore(parameters, memory, now)


def _follow_pool(parameters: ConcurrencyParameters, memory: Memory, threads: int, steered: bool) -> Memory:
    """Return a memory at the pool's size if nobody controls the pool, or nobody did until now."""
    if steered and not memory.followed:
        return memory
    if memory.exploration.phase == "steady" and memory.exploration.threads == threads:
        return replace(memory, followed=True)
    return start_at_rest(parameters, memory, threads)


def _may_share_bottleneck(parameters: ConcurrencyParameters, seen: ConcurrencyObservation) -> bool:
    """Return whether other pools explore that may share the bottleneck."""
    return seen.epoch is not None and parameters.aim != "peak"


def _start_as_walk(parameters: ConcurrencyParameters, memory: Memory, seen: ConcurrencyObservation) -> Memory:
    """Return the memory with a search that just started as a walk, where others explore too."""
    search = memory.exploration
    if not isinstance(search, CurveSearch) or search.phase == "steady" or not _may_share_bottleneck(parameters, seen):
        return memory
    return replace(
        memory, exploration=Cycle(phase="base", threads=search.threads, steps=search.steps), sample=ThroughputSample()
    )


def _is_called(memory: Memory, seen: ConcurrencyObservation) -> bool:
    """Return whether another pool started an exploration that this steady pool has to join."""
    newer = seen.epoch is not None and seen.epoch > memory.epoch
    return newer and seen.steered and memory.exploration.phase == "steady"


def _limit_parameters(parameters: ConcurrencyParameters, limit: int | None) -> ConcurrencyParameters:
    """Return the parameters with the maximum that the pool was found to have."""
    if limit is None:
        return parameters
    return replace(parameters, maximum=max(parameters.minimum, min(parameters.maximum, limit)))


def _clip_threads(parameters: ConcurrencyParameters, threads: int) -> int:
    return min(max(threads, parameters.minimum), parameters.maximum)


def _move_into_range(parameters: ConcurrencyParameters, memory: Memory) -> tuple[Memory, Decision]:
    exploration = memory.exploration
    threads = _clip_threads(parameters, exploration.threads)
    after = replace(
        memory,
        exploration=replace(exploration, threads=threads),
        sample=ThroughputSample(),
        refused=0,
        trial=replace(memory.trial, threads=0),
    )
    allowed = f"{parameters.minimum} to {parameters.maximum}"
    cause = f"the range of {allowed} does not include {format_count(memory.threads, 'thread')}"
    return after, _act(after, exploration.phase, _set(threads, cause), "range")


def _set_to(memory: Memory, before: int, threads: int) -> Memory:
    """Return the memory of a pool that a guard set to another size than the law asked for.

    A smaller size that equals `before` counts as the pool's limit, as if the pool had refused more.
    """
    exploration = memory.exploration
    if memory.trial.threads and threads <= exploration.threads:
        return replace(memory, trial=memory.trial.end(grown=False))
    if memory.trial.threads:
        return replace(memory, trial=replace(memory.trial, threads=threads))
    limit = threads if threads == before and threads < exploration.threads else memory.limit
    # No step was made, so there is nothing to compare.
    phase = "max" if threads == before and exploration.phase == "add" else exploration.phase
    rate = 0.0 if exploration.phase == "steady" else exploration.steady_per_second
    after = replace(exploration, threads=threads, phase=phase, steady_per_second=rate)
    return replace(memory, exploration=after, limit=limit)


def _handle_refusal(
    parameters: ConcurrencyParameters, memory: Memory, threads: int, error: str | None
) -> tuple[Memory, Decision]:
    """Handle a pool with another size than ordered: order again, and finally accept the size as its limit."""
    exploration, refused = memory.exploration, memory.refused + 1
    why = f" ({error})" if error else ""
    differs = f"{format_count(threads, 'thread')} instead of {memory.threads}{why}"
    if refused < parameters.patience:
        reason = _set(memory.threads, f"the pool has {differs}; retrying")
        return replace(memory, refused=refused), _act(memory, exploration.phase, reason, "pool")
    limit = memory.limit
    if threads < memory.threads and threads >= parameters.minimum:
        limit = threads
    held = _clip_threads(_limit_parameters(parameters, limit), max(1, threads))
    # No step was made, so there is nothing to compare: everything that can be added was added.
    phase = "max" if exploration.phase == "add" else exploration.phase
    after = Memory(replace(exploration, threads=held, phase=phase), limit=limit, epoch=memory.epoch)
    cause = f"the pool has stayed at {differs}; {threads} counts as its limit"
    return after, _act(after, exploration.phase, _set(held, cause), "pool")


def _explain_missing_rate(sample: ThroughputSample) -> str:
    """Explain why the sample gives no throughput."""
    if sample.count == 0:
        return "no completions, so all threads are idle or stuck"
    if sample.count == 1:
        return "one sample has no variance; more samples are needed"
    return "all completions have the same time, so the rate is unknown"


def _set(threads: int, cause: str, *, before: int | None = None, remarks: Sequence[str] = ()) -> str:
    """Return the reason of a decision about threads; `before` is the measured number of threads."""
    action = f"Set {format_count(threads, 'thread')}"
    if before == threads:
        action = f"Keep {format_count(threads, 'thread')}"
    elif before is not None:
        action = f"{action} ({threads - before:+,})"
    return format_reason(action, cause, remarks=remarks)


def _explore(parameters: ConcurrencyParameters, memory: Memory, now: ThroughputMoments) -> tuple[Memory, Decision]:
    exploration = memory.exploration
    rules = tcc if isinstance(exploration, Cycle) else explorer
    needed = math.ceil(rules.count_needed_samples(parameters, exploration, now))
    if now.samples < needed:
        reason = format_no_action(
            f"{now.samples} of {needed} samples collected", remarks=[_format_step(exploration, now)]
        )
        return memory, Decision(None, reason, _build_terms(memory, now), "samples")
    following: Exploration = rules.step(parameters, exploration, now)
    if isinstance(following, CurveSearch) and following.phase == "tcc":
        # Compared with the best measurement, because the last probe may be far past a cliff.
        best = max(following.points, key=lambda point: point.per_second).threads
        following = tcc.start_cycle(parameters, best, following.steps)
    after = replace(memory, exploration=following, sample=ThroughputSample())
    before = exploration.threads
    reason = _set(
        following.threads, _format_step(exploration, now), before=before, remarks=[f"next phase: {following.phase}"]
    )
    if following.phase == "steady":
        return _settle(parameters, after, reason, now)
    return after, _act(after, following.phase, reason, None, now)


def _settle(
    parameters: ConcurrencyParameters, memory: Memory, reason: str, now: ThroughputMoments
) -> tuple[Memory, Decision]:
    """End the exploration and compare the expected result with the start."""
    threads, origin = memory.exploration.threads, memory.origin
    grown = origin is not None and threads >= trial.step_from(parameters, origin.threads)
    after = replace(memory, trial=replace(memory.trial.end(grown), began_at=0.0))
    return after, _act(after, "steady", reason, None, now, _build_expectation(memory))


def _build_expectation(memory: Memory) -> Expectation | None:
    """Return the expected effect: more threads for throughput, or fewer for their cost."""
    rest, origin = memory.exploration, memory.origin
    if origin is None or rest.threads == origin.threads:
        return None
    if rest.threads < origin.threads:
        fewer = float(origin.threads - rest.threads)
        return Expectation("threads", "down", fewer, EFFECT_SECONDS, before=float(origin.threads))
    gain = rest.steady_per_second - origin.per_second
    if gain <= 0:
        return None
    return Expectation("throughput_per_second", "up", gain, EFFECT_SECONDS, before=origin.per_second)


def _decide_when_steady(
    parameters: ConcurrencyParameters, memory: Memory, now: ThroughputMoments | None, seen: ConcurrencyObservation
) -> tuple[Memory, Decision]:
    """Return the decision in the steady state.

    `now` may be unknown only when joining another pool's exploration.
    """
    if _is_called(memory, seen):
        why = "another host is exploring, and hosts that share a resource explore together"
        return _explore_again(parameters, memory, now, why, False, seen)
    assert now is not None
    if memory.trial.threads:
        return _judge_trial(parameters, memory, now, seen)
    if memory.followed and seen.steered:
        return _explore_again(parameters, memory, now, "the loop controls the pool from now on", True, seen)
    seconds = seen.seconds
    passed = math.fsum(seen.interdeparture_seconds) if seconds is None else float(seconds)
    exploration = replace(memory.exploration, steady_seconds=memory.exploration.steady_seconds + passed)
    checked = now.samples >= parameters.initial_samples
    if checked and exploration.steady_per_second <= 0:
        exploration = replace(exploration, steady_per_second=now.throughput_per_second)
    differs = checked and _has_changed(parameters, exploration, now)
    changed = differs and exploration.doubted
    if not changed and exploration.steady_seconds < parameters.steady_seconds:
        memory = replace(memory, exploration=replace(exploration, doubted=differs))
        may_try = seen.steered and checked and not differs
        if may_try and (cause := _cause_of_trial(parameters, memory, exploration, seen)):
            return _start_trial(parameters, memory, now, cause)
        return _decide_no_action(memory, now, checked, differs)
    was, is_now = exploration.steady_per_second, now.throughput_per_second
    why = (
        f"throughput changed from {measure(was)}/s to {measure(is_now)}/s" if changed else "the next exploration is due"
    )
    return _explore_again(parameters, replace(memory, exploration=exploration), now, why, changed, seen)


def _cause_of_trial(
    parameters: ConcurrencyParameters, memory: Memory, rest: Exploration, seen: ConcurrencyObservation
) -> str | None:
    """Explain why one more step is tried now, or return None."""
    if not _may_share_bottleneck(parameters, seen):
        if trial.is_due(parameters, memory.trial, rest):
            return "testing one more step, because throughput alone cannot show unused capacity"
        return None
    if trial.is_behind(parameters, memory.trial, rest, seen.mean_threads):
        return f"hosts have {seen.mean_threads:.3g} threads on average, so one more step is tested"
    return None


def _decide_no_action(memory: Memory, now: ThroughputMoments, checked: bool, differs: bool) -> tuple[Memory, Decision]:
    # Each check starts a fresh measurement, so that older samples don't hide a change. Only a check that
    # differs is repeated together with the next.
    after = replace(memory, sample=ThroughputSample()) if checked and not differs else memory
    cause = "throughput differs; checking again" if differs else "throughput is steady"
    reason = format_no_action(cause, remarks=[_format_step(memory.exploration, now)])
    return after, Decision(None, reason, _build_terms(after, now))


def _start_trial(
    parameters: ConcurrencyParameters, memory: Memory, now: ThroughputMoments, cause: str
) -> tuple[Memory, Decision]:
    """Add one step for as long as it takes to measure its effect."""
    tried = trial.start_trial(parameters, memory.trial, memory.exploration)
    after = replace(memory, trial=tried, sample=ThroughputSample())
    reason = _set(
        tried.threads, cause, before=memory.exploration.threads, remarks=[_format_step(memory.exploration, now)]
    )
    return after, _act(after, "trial", reason, None, now)


def _judge_trial(
    parameters: ConcurrencyParameters, memory: Memory, now: ThroughputMoments, seen: ConcurrencyObservation
) -> tuple[Memory, Decision]:
    rest, tried = memory.exploration, memory.trial.threads
    needed = math.ceil(trial.count_needed_samples(parameters, rest, now))
    at = f"{measure(now.throughput_per_second)}/s with {format_count(tried, 'thread')} in the trial"
    if now.samples < needed:
        reason = format_no_action(f"{now.samples} of {needed} samples collected", remarks=[at])
        return memory, Decision(None, reason, _build_terms(memory, now), "samples")
    gain = now.throughput_per_second / rest.steady_per_second - 1
    asked = trial.compute_required_share(parameters, rest.threads, tried)
    brought = f"{at} compared with {measure(rest.steady_per_second)}/s: {gain:+.1%}; required: {asked:.1%}"
    if not trial.is_worth(parameters, rest, now):
        after = replace(memory, trial=memory.trial.end(grown=False), sample=ThroughputSample())
        return after, _act(after, "steady", _set(rest.threads, brought, before=tried), None, now)
    if _may_share_bottleneck(parameters, seen):
        return _catch_up(parameters, memory, now, brought)
    following = trial.search_upward(parameters, rest, now)
    origin = Origin(rest.threads, rest.steady_per_second)
    fruitless = Trial(fruitless=memory.trial.fruitless)
    after = Memory(following, epoch=memory.epoch + 1, trial=fruitless, origin=origin)
    reason = _set(following.threads, brought, before=tried, remarks=[f"next phase: {following.phase}"])
    return after, _act(after, following.phase, reason, None, now)


def _catch_up(
    parameters: ConcurrencyParameters, memory: Memory, now: ThroughputMoments, brought: str
) -> tuple[Memory, Decision]:
    """Keep the tested step and allow the next one, without asking other pools to explore."""
    rest = replace(memory.exploration, threads=now.threads, steady_per_second=now.throughput_per_second, doubted=False)
    after = replace(memory, exploration=rest, sample=ThroughputSample(), trial=Trial())
    return after, _act(after, "steady", _set(now.threads, brought, before=memory.exploration.threads), None, now)


def _explore_again(
    parameters: ConcurrencyParameters,
    memory: Memory,
    now: ThroughputMoments | None,
    why: str,
    changed: bool,
    seen: ConcurrencyObservation,
) -> tuple[Memory, Decision]:
    """Make the first step of the next exploration; for a pool that is not controlled it is advice."""
    heard = seen.epoch or 0
    epoch = heard if _is_called(memory, seen) else max(memory.epoch, heard) + 1
    rest = memory.exploration
    after = Memory(
        _restart_exploration(parameters, rest, changed, seen),
        epoch=epoch,
        trial=Trial(fruitless=memory.trial.fruitless),
        origin=None if now is None or memory.trial.threads else Origin(now.threads, now.throughput_per_second),
    )
    before, remarks = rest.threads, [] if now is None else [_format_step(rest, now)]
    reason = _set(after.exploration.threads, why, before=before, remarks=remarks)
    decision = _act(after, after.exploration.phase, reason, None, now)
    return (after if seen.steered else start_at_rest(parameters, memory, memory.exploration.threads)), decision


def _restart_exploration(
    parameters: ConcurrencyParameters, exploration: Exploration, changed: bool, seen: ConcurrencyObservation
) -> Exploration:
    if seen.ends_idle:
        threads = _clip_threads(parameters, exploration.threads)
        return start_exploration(parameters, threads, exploration.steps).exploration
    if parameters.method == "tcc" or _may_share_bottleneck(parameters, seen):
        return tcc.start_cycle(parameters, _begins_with(parameters, exploration, seen), exploration.steps)
    if isinstance(exploration, CurveSearch):
        return explorer.explore_again(parameters, exploration, changed)
    return explorer.explore_again(
        parameters, CurveSearch(phase="steady", threads=exploration.threads, steps=exploration.steps), True
    )


def _begins_with(parameters: ConcurrencyParameters, exploration: Exploration, seen: ConcurrencyObservation) -> int:
    """Return the size at which a walk starts.

    Where other pools walk too, all start alike: each grows by a share of its size, and differences would stay.
    """
    mean, own = seen.mean_threads, exploration.threads
    if mean is None:
        return own
    return _clip_threads(parameters, round(min(max(mean, own / MAX_TIMES_OWN), own * MAX_TIMES_OWN)))


def _has_changed(parameters: ConcurrencyParameters, exploration: Exploration, now: ThroughputMoments) -> bool:
    """Return whether throughput changed by more than `change` and by more than chance."""
    if exploration.steady_per_second <= 0:
        return False
    ratio = now.throughput_per_second / exploration.steady_per_second - 1
    by_chance = CHANGE_Z * now.relative_deviation / math.sqrt(now.samples)
    return abs(ratio) > max(parameters.change, by_chance)


def _format_step(exploration: Exploration, now: ThroughputMoments) -> str:
    rate = f"{measure(now.throughput_per_second)}/s with {format_count(now.threads, 'thread')}"
    return f"the {exploration.phase} phase measured {rate}"


def _build_terms(memory: Memory, now: ThroughputMoments | None) -> dict[str, Json]:
    exploration = memory.exploration
    terms: dict[str, Json] = {
        "phase": "trial" if memory.trial.threads else exploration.phase,
        "threads": memory.threads,
        "steps": exploration.steps,
        "throughput_per_second": None if now is None else now.throughput_per_second,
        "measured_threads": None if now is None else now.threads,
        "samples": 0 if now is None else now.samples,
        "steady_per_second": exploration.steady_per_second or None,
        "epoch": memory.epoch,
    }
    if isinstance(exploration, CurveSearch):
        terms["points"] = [[point.threads, point.per_second] for point in exploration.points]
        terms["curve"] = None if exploration.curve is None else convert_to_plain(exploration.curve)
    return terms


def _act(
    after: Memory,
    phase: str,
    reason: str,
    limited_by: str | None,
    now: ThroughputMoments | None = None,
    expected: Expectation | None = None,
) -> Decision:
    action = {"threads": after.threads, "phase": phase}
    return Decision(action, reason, _build_terms(after, now), limited_by, float(after.threads), expected)
