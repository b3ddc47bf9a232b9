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

While work waits, threads are removed only if a step up reduced the throughput: an exploration starts at the current
size and goes up, and a smaller size on trial is left at once. A probe that has too few samples after `probe_seconds` is
undone. A probe that completes almost nothing ends at once, before its first sample, and its size becomes the ceiling of
the following probes (`controllers.concurrency.ceiling`). A change of the mix of work is no change of the throughput,
but another mix may need more threads: if work waits then, an exploration starts.

A pool that is not controlled (`steered` is false, for example in advise mode) is only measured at its current size;
when an exploration is due, its first step is the advice. The law explores as soon as the pool is controlled.
"""

import math
from dataclasses import dataclass

from msgspec.structs import replace

from common.errors import BadInput
from common.parameter import check_range
from common.stored_document import convert_to_plain
from controllers.concurrency import explorer, tcc, trial
from controllers.concurrency.ceiling import PAUSE_SECONDS, Ceiling, has_collapsed
from controllers.concurrency.explorer import LOSS_ERRORS, CurveSearch
from controllers.concurrency.memory import Memory, check_memory, start_at_rest, start_exploration
from controllers.concurrency.parameters import ConcurrencyObservation, ConcurrencyParameters
from controllers.concurrency.tcc import Cycle
from controllers.concurrency.throughput import MIN_SAMPLES, ThroughputMoments, ThroughputSample
from controllers.concurrency.trial import Origin, Trial
from controllers.design.friendliness import compute_minimum_q, compute_minimum_w
from controllers.framework.decision import Decision, Expectation, Json
from controllers.framework.law import Law, Remedy, Values
from controllers.framework.reason import format_count, format_no_action, format_reason, measure

Exploration = Cycle | CurveSearch
THREADS = "threads"  # in an action
# Significance that a change of throughput needs: a probability of 0.1 % per check.
CHANGE_Z = 3.3
# After a size change the pool warms up and is measured again; its effect is visible then.
EFFECT_SECONDS = 30.0
# Where pools start alike, a pool starts with at most this multiple of its size and at least this fraction of
# it, because it may be alone with its bottleneck.
MAX_TIMES_OWN = 3.0
# Share of the processing time that must have moved to other kinds of work.
MIX_CHANGE = 0.3
# While work waits, a pool is reduced only if a step up has lost at least this share of the throughput.
OVERLOAD = 0.1


class Concurrency(Law[ConcurrencyParameters, ConcurrencyObservation, Memory]):
    """The concurrency law; see the module for what it explores and when it holds."""

    name = "concurrency"
    Parameters, Observation, State = ConcurrencyParameters, ConcurrencyObservation, Memory
    actuator = THREADS
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
        return _set_to(after, before.threads, int(action[THREADS]))

    def decide(
        self, parameters: ConcurrencyParameters, state: Memory, observation: ConcurrencyObservation
    ) -> tuple[Memory, Decision]:
        """Return the number of threads to run, or no action while more samples are needed."""
        memory = state if state.mix else replace(state, mix=observation.mix)
        if memory.followed or not observation.steered:
            # Nobody controls the pool, or nobody did until now: the memory is at the pool's size.
            if memory.exploration.phase == "steady" and memory.exploration.threads == observation.threads:
                memory = replace(memory, followed=True)
            else:
                memory = start_at_rest(parameters, memory, observation.threads)
        limited = _limit_parameters(parameters, state, _find_floor(memory, observation))
        return _Look(limited, observation, parameters).decide(memory)


LAW = Concurrency()


def _limit_parameters(parameters: ConcurrencyParameters, memory: Memory, floor: int = 1) -> ConcurrencyParameters:
    """Return the parameters with the maximum that the pool was found to have, and its minimum for now."""
    limits = [parameters.maximum, memory.limit, memory.ceiling and memory.ceiling.limit_threads(parameters.p)]
    maximum = max(parameters.minimum, min(limit for limit in limits if limit))
    return replace(parameters, minimum=min(max(parameters.minimum, floor), maximum), maximum=maximum)


def _find_floor(memory: Memory, seen: ConcurrencyObservation) -> int:
    """Return the minimum threads for now: while work waits, those before the exploration, unless they are too many."""
    too_many = memory.overloaded and memory.exploration.phase != "steady"
    return memory.usual_threads if seen.waiting and not too_many and not memory.followed else 1


def _clip_threads(parameters: ConcurrencyParameters, threads: int) -> int:
    return min(max(threads, parameters.minimum), parameters.maximum)


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


@dataclass(frozen=True)
class _Look:
    """The decision on one observation.

    `parameters` have the maximum that the pool was found to have, and the minimum while work waits; `given` don't.
    """

    parameters: ConcurrencyParameters
    seen: ConcurrencyObservation
    given: ConcurrencyParameters

    def decide(self, memory: Memory) -> tuple[Memory, Decision]:
        threads, seen = self.seen.threads, self.seen
        if not memory.followed:
            if memory.threads != _clip_threads(self.parameters, memory.threads):
                return self._move_into_range(memory)
            if threads != memory.threads:
                return self._handle_refusal(memory)
        search = memory.exploration
        phase = search.phase
        if isinstance(search, CurveSearch) and phase != "steady" and self._may_share_bottleneck:
            # A search that just started becomes a walk where others explore too.
            walk = Cycle(phase="base", threads=search.threads, steps=search.steps)
            memory = replace(memory, exploration=walk, sample=ThroughputSample())
        # Threads of an earlier time started what a pool without threads finishes: it measures nothing.
        ceiling = memory.ceiling and memory.ceiling.add_age(self._elapsed_seconds)
        is_draining = ceiling is not None and ceiling.is_draining
        finished = seen.interdeparture_seconds if threads and not is_draining else ()
        sample = memory.sample.add_samples(finished, self._elapsed_seconds)
        memory = replace(memory, sample=sample, refused=0, ceiling=ceiling)
        now = memory.sample.measure(threads)
        if memory.origin is None and now is not None:
            memory = replace(memory, origin=Origin(threads, now.throughput_per_second))
        if (collapsed := self._measure_collapse(memory)) is not None:
            if memory.trial.threads:
                return self._end_trial(memory, collapsed)
            if isinstance(search, Cycle) and phase == "steady":  # the search has ended, so there is no next step
                why = (
                    f"throughput fell to {measure(collapsed.throughput_per_second)}/s, far below that of fewer threads"
                )
                return self._explore_again(memory, collapsed, why, True)
            return self._continue_exploration(memory, collapsed)
        if (now is None or memory.sample.count < 2) and not self._is_called(memory):
            if self._is_overdue(memory):
                return self._undo_probe(memory, now)
            few = {
                0: "no completions, so all threads are idle or stuck",
                1: "one sample has no variance; more samples are needed",
            }
            why = few.get(memory.sample.count, "all completions have the same time, so the rate is unknown")
            return memory, Decision(None, format_no_action(why), self._build_terms(memory, None), "samples")
        if phase == "steady":
            return self._decide_when_steady(memory, now)
        if not memory.followed:
            memory = replace(memory, epoch=max(memory.epoch, seen.epoch or 0))
        assert now is not None
        return self._explore(memory, now)

    @property
    def _may_share_bottleneck(self) -> bool:
        """Return whether other pools explore that may share the bottleneck."""
        return self.seen.epoch is not None and self.parameters.aim != "peak"

    @property
    def _elapsed_seconds(self) -> float:
        """Return the time since the last observation."""
        seen = self.seen
        busy_seconds = math.fsum(seen.interdeparture_seconds) if seen.seconds is None else seen.seconds
        return busy_seconds if seen.elapsed_seconds is None else seen.elapsed_seconds

    def _is_overdue(self, memory: Memory) -> bool:
        """Return whether the test of another size has taken too long."""
        limit = self.parameters.probe_seconds
        return 0 < limit <= memory.sample.elapsed_seconds and memory.threads != memory.usual_threads

    def _measure_collapse(self, memory: Memory) -> ThroughputMoments | None:
        """Return the maximum throughput since the last sample if it is far below that of fewer threads."""
        seconds, events = self.seen.open_seconds or 0.0, self.seen.open_events or 0.0
        if seconds < PAUSE_SECONDS or events <= 0 or memory.followed or (memory.ceiling and memory.ceiling.is_draining):
            return None
        most = ThroughputMoments(memory.threads, seconds / events, 0.0, max(1, memory.sample.count))
        known = memory.find_best_smaller_size()
        return most if known and has_collapsed(most, known.per_second) else None

    def _find_ceiling(self, memory: Memory, now: ThroughputMoments) -> Ceiling | None:
        """Return the ceiling after the decision about a size.

        Where other pools use the same service, a collapse may be the result of their growth.
        """
        ceiling, origin, known = memory.ceiling, memory.origin, memory.find_best_smaller_size()
        if self.parameters.method != "explorer" or self._may_share_bottleneck:
            return ceiling
        if known is None or not has_collapsed(now, known.per_second):
            return ceiling and ceiling.record_size(now.threads)
        usual = origin.threads if origin else 0
        return Ceiling.learn(max(known.threads, usual), now) if now.threads > usual else ceiling

    def _is_called(self, memory: Memory) -> bool:
        """Return whether another pool started an exploration that this steady pool has to join."""
        newer = self.seen.epoch is not None and self.seen.epoch > memory.epoch
        return newer and self.seen.steered and memory.exploration.phase == "steady"

    def _move_into_range(self, memory: Memory) -> tuple[Memory, Decision]:
        exploration = memory.exploration
        threads = _clip_threads(self.parameters, exploration.threads)
        after = replace(
            memory,
            exploration=replace(exploration, threads=threads),
            sample=ThroughputSample(),
            refused=0,
            trial=replace(memory.trial, threads=0),
        )
        allowed = f"{self.parameters.minimum} to {self.parameters.maximum}"
        cause = f"the range of {allowed} does not include {format_count(memory.threads, 'thread')}"
        if self.given.minimum <= memory.threads < threads:
            cause = f"work waits, so the pool is not reduced to {format_count(memory.threads, 'thread')}"
        return self._set_threads(after, exploration.phase, cause, limited_by="range")

    def _handle_refusal(self, memory: Memory) -> tuple[Memory, Decision]:
        """Handle a pool with another size than ordered: order again, and finally accept the size as its limit."""
        exploration, refused, threads = memory.exploration, memory.refused + 1, self.seen.threads
        why = f" ({self.seen.trouble})" if self.seen.trouble else ""
        differs = f"{format_count(threads, 'thread')} instead of {memory.threads}{why}"
        if refused < self.parameters.patience:
            again = replace(memory, refused=refused)
            return self._set_threads(again, exploration.phase, f"the pool has {differs}; retrying", limited_by="pool")
        limit = memory.limit
        if threads < memory.threads and threads >= self.parameters.minimum:
            limit = threads
        held = _clip_threads(_limit_parameters(self.parameters, replace(memory, limit=limit)), max(1, threads))
        # No step was made, so there is nothing to compare: everything that can be added was added.
        phase = "max" if exploration.phase == "add" else exploration.phase
        rest = replace(exploration, threads=held, phase=phase)
        after = Memory(rest, limit=limit, epoch=memory.epoch, mix=memory.mix, ceiling=memory.ceiling)
        cause = f"the pool has stayed at {differs}; {threads} counts as its limit"
        return self._set_threads(after, exploration.phase, cause, limited_by="pool")

    def _explore(self, memory: Memory, now: ThroughputMoments) -> tuple[Memory, Decision]:
        exploration, parameters = memory.exploration, self.parameters
        needed = math.ceil(
            explorer.count_needed_samples(parameters, exploration, now, self.seen.waiting)
            if isinstance(exploration, CurveSearch)
            else tcc.count_needed_samples(parameters, exploration, now)
        )
        if now.samples < needed and not (self._is_overdue(memory) and now.samples >= MIN_SAMPLES):
            return self._wait(memory, now, needed, _format_step(exploration, now))
        return self._continue_exploration(memory, now)

    def _continue_exploration(self, memory: Memory, now: ThroughputMoments) -> tuple[Memory, Decision]:
        exploration, origin, floor = memory.exploration, memory.origin, self.parameters.minimum
        if not memory.overloaded and _is_overload(origin, now):
            memory = replace(memory, overloaded=True)
            floor = 1
        memory = replace(memory, ceiling=self._find_ceiling(memory, now))
        parameters = _limit_parameters(self.given, memory, floor)
        following: Exploration = (
            explorer.step(parameters, exploration, now, self.seen.waiting and not memory.overloaded)
            if isinstance(exploration, CurveSearch)
            else tcc.step(parameters, exploration, now)
        )
        if isinstance(following, CurveSearch) and following.phase == "tcc":
            # Compared with the best measurement, because the last probe may be far past a cliff.
            best = max(following.points, key=lambda point: point.per_second).threads
            following = tcc.start_cycle(parameters, best, following.steps)
        after = replace(memory, exploration=following, sample=ThroughputSample())
        expected = None
        if following.phase == "steady":
            # The exploration ends; its expected result is compared with the start.
            grown = origin is not None and following.threads >= trial.step_from(parameters, origin.threads)
            expected = _build_expectation(after)
            after = replace(after, trial=replace(memory.trial.end(grown), began_at=0.0))
        step, remark = _format_step(exploration, now), f"next phase: {following.phase}"
        return self._set_threads(after, following.phase, step, exploration.threads, remark, now=now, expected=expected)

    def _decide_when_steady(self, memory: Memory, now: ThroughputMoments | None) -> tuple[Memory, Decision]:
        """Return the steady state's decision. `now` may be unknown only when joining another pool's exploration."""
        seen, parameters, rest = self.seen, self.parameters, memory.exploration
        if self._needs_more(memory):
            return self._explore_upward(memory)
        if self._is_called(memory):
            why = "another host is exploring, and hosts that share a resource explore together"
            return self._explore_again(memory, now, why, False)
        assert now is not None
        if memory.trial.threads:
            return self._judge_trial(memory, now)
        if memory.followed and seen.steered:
            return self._explore_again(memory, now, "the loop controls the pool from now on", True)
        passed = math.fsum(seen.interdeparture_seconds) if seen.seconds is None else seen.seconds
        rest = replace(rest, steady_seconds=rest.steady_seconds + passed)
        checked, differs = now.samples >= parameters.initial_samples, False
        if checked and rest.steady_per_second <= 0:
            rest = replace(rest, steady_per_second=now.throughput_per_second)
        if checked and rest.steady_per_second > 0:
            # Throughput has to change by more than `change` and by more than chance.
            ratio = now.throughput_per_second / rest.steady_per_second - 1
            by_chance = CHANGE_Z * now.relative_deviation / math.sqrt(now.samples)
            differs = abs(ratio) > max(parameters.change, by_chance)
        changed = differs and rest.doubted
        if changed or rest.steady_seconds >= parameters.steady_seconds:
            was, is_now = measure(rest.steady_per_second), measure(now.throughput_per_second)
            why = f"throughput changed from {was}/s to {is_now}/s" if changed else "the next exploration is due"
            return self._explore_again(replace(memory, exploration=rest), now, why, changed)
        memory = replace(memory, exploration=replace(rest, doubted=differs))
        step = _format_step(memory.exploration, now)
        may_try = seen.steered and checked and not differs
        if may_try and (cause := self._cause_of_trial(memory, rest)):
            # One more step, for as long as it takes to measure its effect.
            tried = trial.start_trial(parameters, memory.trial, memory.exploration)
            after = replace(memory, trial=tried, sample=ThroughputSample())
            return self._set_threads(after, "trial", cause, rest.threads, step, now=now)
        # Each check starts a fresh measurement, so that older samples don't hide a change. Only a check that
        # differs is repeated together with the next.
        after = replace(memory, sample=ThroughputSample()) if checked and not differs else memory
        cause = "throughput differs; checking again" if differs else "throughput is steady"
        return after, Decision(None, format_no_action(cause, remarks=[step]), self._build_terms(after, now))

    def _needs_more(self, memory: Memory) -> bool:
        """Return whether the pool may need more threads, because the mix of work has changed since it was sized."""
        if not self.seen.waiting or not self.seen.steered or memory.followed:
            return False
        before, now = memory.mix, self.seen.mix
        changed = sum(abs(now.get(work, 0.0) - before.get(work, 0.0)) for work in {*before, *now}) / 2
        return bool(now) and changed >= MIX_CHANGE and memory.threads < self.parameters.maximum

    def _cause_of_trial(self, memory: Memory, rest: Exploration) -> str | None:
        mean = self.seen.mean_threads
        if not self._may_share_bottleneck:
            if trial.is_due(self.parameters, memory.trial, rest):
                return "testing one more step, because throughput alone cannot show unused capacity"
            return None
        if trial.is_behind(self.parameters, memory.trial, rest, mean):
            return f"hosts have {mean:.3g} threads on average, so one more step is tested"
        return None

    def _judge_trial(self, memory: Memory, now: ThroughputMoments) -> tuple[Memory, Decision]:
        rest, tried, parameters = memory.exploration, memory.trial.threads, self.parameters
        needed = math.ceil(trial.count_needed_samples(parameters, rest, now))
        if now.samples < needed and not (self._is_overdue(memory) and now.samples >= MIN_SAMPLES):
            return self._wait(memory, now, needed, _format_trial(tried, now))
        return self._end_trial(memory, now)

    def _end_trial(self, memory: Memory, now: ThroughputMoments) -> tuple[Memory, Decision]:
        rest, tried, parameters = memory.exploration, memory.trial.threads, self.parameters
        memory = replace(memory, ceiling=self._find_ceiling(memory, now))
        gain = now.throughput_per_second / rest.steady_per_second - 1
        asked = trial.compute_required_share(parameters, rest.threads, tried)
        compared = f"{measure(rest.steady_per_second)}/s: {gain:+.1%}; required: {asked:.1%}"
        brought = f"{_format_trial(tried, now)} compared with {compared}"
        if not trial.is_worth(parameters, rest, now):
            after = replace(memory, trial=memory.trial.end(grown=False), sample=ThroughputSample())
            return self._set_threads(after, "steady", brought, tried, now=now)
        if self._may_share_bottleneck:
            # Keep the tested step and allow the next one, without asking other pools to explore.
            kept = replace(rest, threads=now.threads, steady_per_second=now.throughput_per_second, doubted=False)
            after = replace(memory, exploration=kept, sample=ThroughputSample(), trial=Trial())
            return self._set_threads(after, "steady", brought, rest.threads, now=now)
        following = trial.search_upward(parameters, rest, now)
        origin = Origin(rest.threads, rest.steady_per_second)
        fruitless = Trial(fruitless=memory.trial.fruitless)
        epoch, ceiling = memory.epoch + 1, memory.ceiling
        after = Memory(following, epoch=epoch, trial=fruitless, origin=origin, mix=self.seen.mix, ceiling=ceiling)
        remark = f"next phase: {following.phase}"
        return self._set_threads(after, following.phase, brought, tried, remark, now=now)

    def _wait(self, memory: Memory, now: ThroughputMoments, needed: int, remark: str) -> tuple[Memory, Decision]:
        if self._is_overdue(memory):
            return self._undo_probe(memory, now)
        collected, usual = f"{now.samples} of {needed} samples collected", memory.usual_threads
        if memory.threads == usual:
            reason = format_no_action(collected, remarks=[remark])
        else:
            limit = self.parameters.probe_seconds
            left = [f"undone in {limit - memory.sample.elapsed_seconds:,.0f} s"] if limit else []
            probe = f"testing {format_count(memory.threads, 'thread')} instead of {usual}"
            reason = format_no_action(probe, collected, *left, remarks=[remark])
        return memory, Decision(None, reason, self._build_terms(memory, now, needed), "samples")

    def _undo_probe(self, memory: Memory, now: ThroughputMoments | None) -> tuple[Memory, Decision]:
        """Go back to the usual size, because there were too few samples for a decision."""
        tried, usual, origin, rest = memory.threads, memory.usual_threads, memory.origin, memory.exploration
        if not memory.trial.threads:
            per_second = origin.per_second if origin else 0.0
            if isinstance(rest, CurveSearch):
                rest = explorer.settle(rest, usual, per_second)
            else:
                rest = replace(
                    rest, phase="steady", threads=usual, steady_per_second=per_second, steady_seconds=0.0, doubted=False
                )
        ended = replace(memory.trial.end(grown=False), began_at=rest.steady_seconds)
        after = replace(memory, exploration=rest, trial=ended, sample=ThroughputSample())
        collected = format_count(0 if now is None else now.samples, "sample")
        cause = f"the probe had only {collected} after {memory.sample.elapsed_seconds:,.0f} s, so it is undone"
        return self._set_threads(after, "steady", cause, tried, limited_by="samples", now=now)

    def _explore_upward(self, memory: Memory) -> tuple[Memory, Decision]:
        """Test more threads at once, without measuring the usual size, whose throughput the mix does not change."""
        rest = memory.exploration
        is_known = isinstance(rest, CurveSearch) and rest.steady_per_second > 0 and not self._may_share_bottleneck
        cause = "the mix of work has changed and work waits, so more threads are tested"
        if not is_known:
            return self._explore_again(memory, None, cause, True)
        assert isinstance(rest, CurveSearch)
        after = Memory(
            explorer.explore_upward(self.parameters, rest),
            epoch=max(memory.epoch, self.seen.epoch or 0) + 1,
            trial=Trial(fruitless=memory.trial.fruitless),
            origin=Origin(rest.threads, rest.steady_per_second),
            mix=self.seen.mix,
        )
        return self._set_threads(after, after.exploration.phase, cause, memory.threads)

    def _explore_again(
        self, memory: Memory, now: ThroughputMoments | None, why: str, changed: bool
    ) -> tuple[Memory, Decision]:
        """Make the first step of the next exploration; for a pool that is not controlled it is advice."""
        heard, rest = self.seen.epoch or 0, memory.exploration
        after = Memory(
            self._restart_exploration(rest, changed),
            epoch=heard if self._is_called(memory) else max(memory.epoch, heard) + 1,
            trial=Trial(fruitless=memory.trial.fruitless),
            origin=None if now is None or memory.trial.threads else Origin(now.threads, now.throughput_per_second),
            mix=self.seen.mix,
            ceiling=None if changed else memory.ceiling,
        )
        step = "" if now is None else _format_step(rest, now)
        after, decision = self._set_threads(after, after.exploration.phase, why, rest.threads, step, now=now)
        return (after if self.seen.steered else start_at_rest(self.parameters, memory, rest.threads)), decision

    def _restart_exploration(self, exploration: Exploration, changed: bool) -> Exploration:
        parameters, own, steps = self.parameters, exploration.threads, exploration.steps
        if self.seen.ends_idle:
            return start_exploration(parameters, _clip_threads(parameters, own), steps).exploration
        if parameters.method == "tcc" or self._may_share_bottleneck:
            # Where other pools walk too, all start alike: each grows by a share of its size, and differences would
            # stay.
            begin, mean = own, self.seen.mean_threads
            if mean is not None:
                near = min(max(mean, own / MAX_TIMES_OWN), own * MAX_TIMES_OWN)
                begin = _clip_threads(parameters, round(near))
            return tcc.start_cycle(parameters, begin, steps)
        if isinstance(exploration, CurveSearch):
            return explorer.explore_again(parameters, exploration, changed)
        return explorer.explore_again(parameters, CurveSearch(phase="steady", threads=own, steps=steps), True)

    def _set_threads(
        self,
        after: Memory,
        phase: str,
        cause: str,
        before: int | None = None,
        remark: str = "",
        limited_by: str | None = None,
        now: ThroughputMoments | None = None,
        expected: Expectation | None = None,
    ) -> tuple[Memory, Decision]:
        """Return `after` with the decision to run its threads; `before` is the measured number of threads."""
        action = f"{'Keep' if before == after.threads else 'Set'} {format_count(after.threads, 'thread')}"
        if before is not None and before != after.threads:
            action = f"{action} ({after.threads - before:+,})"
        reason = format_reason(action, cause, remarks=[remark] if remark else [])
        terms, ordered = self._build_terms(after, now), {THREADS: after.threads, "phase": phase}
        return after, Decision(ordered, reason, terms, limited_by, float(after.threads), expected)

    def _build_terms(self, memory: Memory, now: ThroughputMoments | None, needed: int | None = None) -> dict[str, Json]:
        exploration, limit = memory.exploration, self.parameters.probe_seconds
        is_testing = memory.threads != memory.usual_threads
        terms: dict[str, Json] = {
            "phase": "trial" if memory.trial.threads else exploration.phase,
            "threads": memory.threads,
            "usual_threads": memory.usual_threads,
            "steps": exploration.steps,
            "throughput_per_second": None if now is None else now.throughput_per_second,
            "measured_threads": None if now is None else now.threads,
            "samples": 0 if now is None else now.samples,
            "needed_samples": needed,
            "undone_after_seconds": max(0.0, limit - memory.sample.elapsed_seconds) if limit and is_testing else None,
            "steady_per_second": exploration.steady_per_second or None,
            "epoch": memory.epoch,
        }
        if isinstance(exploration, Cycle):
            return terms
        curve = None if exploration.curve is None else convert_to_plain(exploration.curve)
        return {**terms, "points": [[point.threads, point.per_second] for point in exploration.points], "curve": curve}


def _is_overload(origin: Origin | None, now: ThroughputMoments) -> bool:
    """Return whether more threads than at the start clearly reduced the throughput."""
    if origin is None or now.threads <= origin.threads:
        return False
    error = now.relative_deviation / math.sqrt(now.samples)
    return now.throughput_per_second * (1 + LOSS_ERRORS * error) < (1 - OVERLOAD) * origin.per_second


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


def _format_step(exploration: Exploration, now: ThroughputMoments) -> str:
    rate = f"{measure(now.throughput_per_second)}/s with {format_count(now.threads, 'thread')}"
    return f"the {exploration.phase} phase measured {rate}"


def _format_trial(threads: int, now: ThroughputMoments) -> str:
    return f"{measure(now.throughput_per_second)}/s with {format_count(threads, 'thread')} in the trial"
