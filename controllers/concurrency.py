"""How many threads work: as many as bring throughput, and no more (Tang et al.).

`method` tcc is the paper's state machine (`controllers.tcc`); explorer probes a few configurations and fits a
curve (`controllers.explorer`), and falls back to TCC for a cycle where none fits. Both see only times between
completions, idle time excluded, and decide when there are samples enough (`controllers.throughput`).

In the steady state the next exploration begins after `steady_seconds`, or when the throughput has changed by
`change` and by more than chance would.

What can't be decided on is held, and says so: nothing was processed, one sample, samples without any time
between them, or a pool that has not become what it was set to. A pool that stays so for `patience`
observations is taken for its limit. There is never less than one thread, nor any number outside the range.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from controllers import explorer, tcc
from controllers.decision import Decision, Json
from controllers.design.friendliness import least_q, least_w
from controllers.explorer import Search, search_from
from controllers.law import Values
from controllers.parameter import Parameter, check_range, read_object, refuse_unknown
from controllers.tcc import Cycle, cycle_from
from controllers.throughput import Measurement, Sample, sample_from
from queues.errors import BadInput

Machine = Cycle | Search

PARAMETERS = (
    Parameter(
        "method",
        "choice",
        "tcc: the state machine. explorer: probes and a fitted curve.",
        "tcc",
        kind="choice",
        choices=("tcc", "explorer"),
    ),
    Parameter("p", "share of the threads", "Added at a time.", 0.25, 0.01, 2),
    Parameter("q", "share of the throughput", "What adding p has to bring.", 0.14, 0.001, 2),
    Parameter("w", "share of the threads", "Taken away before exploring.", 0.39, 0, 0.99),
    Parameter("r", "share of the threads", "Removed at a time.", 0.10, 0.001, 0.9),
    Parameter("keep", "share of the best", "Throughput that removing may leave.", 0.95, 0.1, 1),
    Parameter("alpha", "probability", "Of deciding wrongly.", 0.10, 1e-6, 0.499),
    Parameter("beta", "share", "Width of the zone of indifference.", 0.25, 0.001, 1.9),
    Parameter("start", "threads", "Where exploring begins.", 1, 1, 100_000, "integer"),
    Parameter("minimum", "threads", "Never fewer.", 1, 1, 100_000, "integer"),
    Parameter("maximum", "threads", "Never more.", 1_000, 1, 100_000, "integer"),
    Parameter("initial_samples", "samples", "The fewest anything is decided on.", 30, 2, 100_000, "integer"),
    Parameter(
        "most_samples", "samples", "No configuration is measured longer.", 20_000, 2, 10_000_000, "integer"
    ),
    Parameter("max_factor", "times", "Samples in the max state over those of a step.", 2.0, 1, 100),
    Parameter("steady_seconds", "s", "Until the next exploration.", 300.0, 1, 1e7),
    Parameter("change", "share of the throughput", "A change that calls for one at once.", 0.2, 0.01, 10),
    Parameter(
        "patience", "observations", "A pool that refuses longer is at its limit.", 5, 1, 1_000, "integer"
    ),
    Parameter(
        "aim",
        "choice",
        "friendly: share a bottleneck with others. peak (explorer): the most throughput there is.",
        "friendly",
        kind="choice",
        choices=("friendly", "peak"),
    ),
    Parameter("probe_error", "share", "The explorer's standard error of a point.", 0.01, 1e-4, 0.5),
    Parameter("fit_tolerance", "share", "Error of a curve that is still trusted.", 0.08, 0, 1),
    Parameter("verify_tolerance", "share", "How far a verified point may lie off the curve.", 0.04, 0, 1),
    Parameter("verifications", "times", "Points that lie off are joined so often.", 2, 0, 20, "integer"),
    Parameter("peak_share", "share of the peak", "Enough, where more threads do harm.", 0.998, 0.5, 1),
)
OBSERVATION = (
    Parameter(
        "threads", "threads", "In the pool while this was measured.", 1, 0, 100_000, "integer", required=True
    ),
    Parameter(
        "interdeparture_seconds",
        "s",
        "Between completions, idle time excluded.",
        maximum=1e9,
        kind="numbers",
        required=True,
    ),
    Parameter("seconds", "s", "Since the last observation; not given, the sum of the times.", None, 0, 1e9),
)
STATE_KEYS = ("machine", "sample", "refused", "limit")
# How surely the throughput must differ before a change is believed: a chance of 0.1 % in each look.
CHANGE_Z = 3.3


class Concurrency:
    """Threads by throughput; see the module for what is explored and what is held."""

    name = "concurrency"
    parameters: Sequence[Parameter] = PARAMETERS
    observation: Sequence[Parameter] = OBSERVATION
    actuator: str | None = "threads"
    guard_defaults: Values = {"minimum": 1.0, "maximum": 1_000.0}

    def check(self, parameters: Values) -> None:
        """Raise `BadInput` where p, q and w are not friendly (Theorem 1), or the range excludes the start."""
        p, q, w = (float(parameters[name]) for name in "pqw")
        if q <= least_q(p):
            raise BadInput(
                "parameters.q",
                f"breaks condition (1), q > p(p+1)/(p+2): for p = {p:g} it takes more than {least_q(p):.6g}",
            )
        if q >= p:
            raise BadInput("parameters.q", f"takes less than p ({p:g}): no step brings more than its share")
        if w < least_w(p, q):
            raise BadInput(
                "parameters.w",
                f"breaks condition (2), w >= 1 - (p/q - 1)^2: for p = {p:g} and q = {q:g} it takes at least "
                f"{least_w(p, q):.6g}",
            )
        check_range(parameters)
        if parameters["most_samples"] < parameters["initial_samples"]:
            raise BadInput(
                "parameters.most_samples", f"takes at least initial_samples ({parameters['initial_samples']})"
            )

    def check_observation(self, parameters: Values, observation: Values, where: str) -> None:
        """Whatever was measured can be held on; nothing contradicts."""

    def initial_state(self, parameters: Values) -> Json:
        """Exploring from the start, moved into the range where the range excludes it."""
        at = _into_range(parameters, int(parameters["start"]))
        machine = Cycle("base", at) if parameters["method"] == "tcc" else Search("probe", at)
        return _state(machine, Sample(), 0, None)

    def read_state(self, parameters: Values, document: Json) -> Json:
        """A state that was printed before, or None for the first. Raises `BadInput` naming `state.key`."""
        if document is None:
            return self.initial_state(parameters)
        given = read_object(document, "state")
        refuse_unknown(given, STATE_KEYS, "state")
        try:
            whole = {**self.initial_state(parameters), **given}
            return _state(
                _machine(whole["machine"]), sample_from(whole["sample"]), whole["refused"], whole["limit"]
            )
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise BadInput("state", f"takes what a decision printed as its state ({error})") from error

    def decide(self, parameters: Values, state: Json, observation: Values) -> tuple[Json, Decision]:
        """The threads to run with, or none while more is to be measured."""
        parameters = _limited(parameters, state["limit"])
        machine, threads = _machine(state["machine"]), int(observation["threads"])
        if machine.threads != _into_range(parameters, machine.threads):
            return _moved_into_range(parameters, state, machine)
        if threads != machine.threads:
            return _refused(parameters, state, machine, threads)
        sample = sample_from(state["sample"]).with_more(observation["interdeparture_seconds"])
        now = sample.measured(threads)
        if now is None or sample.count < 2:
            after = _state(machine, sample, 0, state["limit"])
            return after, Decision(None, _held(sample), _terms(machine, None), "samples")
        if machine.phase == "steady":
            return _steady(parameters, state, machine, sample, now, observation)
        return _explore(parameters, state, machine, sample, now)


def _state(machine: Machine, sample: Sample, refused: int, limit: int | None) -> Json:
    kind = "tcc" if isinstance(machine, Cycle) else "explorer"
    return {
        "machine": {"kind": kind, **machine.to_json()},
        "sample": sample.to_json(),
        "refused": refused,
        "limit": limit,
    }


def _machine(document: Mapping[str, Any]) -> Machine:
    rest = {key: value for key, value in document.items() if key != "kind"}
    return cycle_from(rest) if document["kind"] == "tcc" else search_from(rest)


def _limited(parameters: Values, limit: int | None) -> Values:
    """The parameters with the maximum that the pool was found to have."""
    if limit is None:
        return parameters
    return {**parameters, "maximum": max(parameters["minimum"], min(parameters["maximum"], limit))}


def _into_range(parameters: Values, threads: int) -> int:
    return int(min(max(threads, parameters["minimum"]), parameters["maximum"]))


def _moved_into_range(parameters: Values, state: Json, machine: Machine) -> tuple[Json, Decision]:
    threads = _into_range(parameters, machine.threads)
    after = _state(replace(machine, threads=threads), Sample(), 0, state["limit"])
    reason = (
        f"{machine.threads} threads are outside the range of {parameters['minimum']} to "
        f"{parameters['maximum']}; exploring goes on from {threads}."
    )
    return after, _act(machine, threads, reason, "range")


def _refused(parameters: Values, state: Json, machine: Machine, threads: int) -> tuple[Json, Decision]:
    """The pool has other threads than it was set to: it is asked again, and in the end believed."""
    refused = state["refused"] + 1
    if refused < parameters["patience"]:
        after = {**state, "refused": refused}
        reason = (
            f"The pool has {threads} threads and was set to {machine.threads}; what it does says nothing yet."
        )
        return after, _act(machine, machine.threads, reason, "pool")
    limit = state["limit"]
    if threads < machine.threads and threads >= parameters["minimum"]:
        limit = threads
    held = _into_range(_limited(parameters, limit), max(1, threads))
    # No step was made, so there is none to compare: what can be added has been.
    phase = "max" if machine.phase == "add" else machine.phase
    after = _state(replace(machine, threads=held, phase=phase), Sample(), 0, limit)
    reason = f"The pool has stayed at {threads} threads although it was set to {machine.threads}: its limit."
    return after, _act(machine, held, reason, "pool")


def _held(sample: Sample) -> str:
    if sample.count == 0:
        return "Nothing was completed: all idle, or stuck. Threads stay as they are."
    if sample.count == 1:
        return "One sample has no spread; threads stay as they are until there are more."
    return "The completions came all at once, without any time between them; threads stay as they are."


def _explore(
    parameters: Values, state: Json, machine: Machine, sample: Sample, now: Measurement
) -> tuple[Json, Decision]:
    rules = tcc if isinstance(machine, Cycle) else explorer
    needed = math.ceil(rules.needed_samples(parameters, machine, now))
    if now.samples < needed:
        after = _state(machine, sample, 0, state["limit"])
        reason = f"{_at(machine, now)}: {now.samples} of {needed} samples."
        return after, Decision(None, reason, _terms(machine, now), "samples")
    following: Machine = rules.step(parameters, machine, now)
    if following.phase == "tcc":
        following = tcc.exploring_from(parameters, machine.threads, following.steps)
    after = _state(following, Sample(), 0, state["limit"])
    reason = f"{_at(machine, now)}; {_next(machine, following)}."
    return after, _act(following, following.threads, reason, None, now)


def _steady(
    parameters: Values, state: Json, machine: Machine, sample: Sample, now: Measurement, seen: Values
) -> tuple[Json, Decision]:
    given = seen["seconds"]
    passed = math.fsum(seen["interdeparture_seconds"]) if given is None else float(given)
    machine = replace(machine, steady_seconds=machine.steady_seconds + passed)
    looked = now.samples >= parameters["initial_samples"]
    differs = looked and _has_changed(parameters, machine, now)
    changed = differs and machine.doubted
    if not changed and machine.steady_seconds < parameters["steady_seconds"]:
        # Each look measures afresh, so that a change does not drown in what was before; only a look that
        # differs is looked at again together with the next.
        kept = Sample() if looked and not differs else sample
        after = _state(replace(machine, doubted=differs), kept, 0, state["limit"])
        rest = "that is looked at once more" if differs else "nothing calls for another exploration"
        return after, Decision(None, f"{_at(machine, now)}; {rest}.", _terms(machine, now))
    following = _exploring_again(parameters, machine, changed)
    after = _state(following, Sample(), 0, state["limit"])
    why = f"it was {machine.steady_per_second:.4g}" if changed else "it is time to explore again"
    return after, _act(following, following.threads, f"{_at(machine, now)}; {why}.", None, now)


def _exploring_again(parameters: Values, machine: Machine, changed: bool) -> Machine:
    if parameters["method"] == "tcc":
        return tcc.exploring_from(parameters, machine.threads, machine.steps)
    if isinstance(machine, Search):
        return explorer.explored_again(parameters, machine, changed)
    return explorer.explored_again(parameters, Search("steady", machine.threads, steps=machine.steps), True)


def _has_changed(parameters: Values, machine: Machine, now: Measurement) -> bool:
    """By more than `change`, and by more than chance would."""
    if machine.steady_per_second <= 0:
        return False
    ratio = now.throughput_per_second / machine.steady_per_second - 1
    by_chance = CHANGE_Z * now.relative_deviation / math.sqrt(now.samples)
    return abs(ratio) > max(float(parameters["change"]), by_chance)


def _at(machine: Machine, now: Measurement) -> str:
    return f"{machine.phase.capitalize()} at {now.threads} threads: {now.throughput_per_second:.4g}/s"


def _next(before: Machine, after: Machine) -> str:
    if after.phase == "steady":
        return f"steady with {after.threads}"
    direction = "more" if after.threads > before.threads else "fewer"
    if after.threads == before.threads:
        return f"measured again as {after.phase}"
    return f"{after.phase} with {after.threads}, {abs(after.threads - before.threads)} {direction}"


def _terms(machine: Machine, now: Measurement | None) -> dict[str, Json]:
    terms: dict[str, Json] = {
        "phase": machine.phase,
        "threads": machine.threads,
        "steps": machine.steps,
        "throughput_per_second": None if now is None else now.throughput_per_second,
        "samples": 0 if now is None else now.samples,
    }
    if isinstance(machine, Search):
        terms["points"] = [[point.threads, point.per_second] for point in machine.points]
        terms["curve"] = machine.curve
    return terms


def _act(
    machine: Machine, threads: int, reason: str, limited_by: str | None, now: Measurement | None = None
) -> Decision:
    action = {"threads": threads, "phase": machine.phase}
    return Decision(action, reason, _terms(machine, now), limited_by, raw=float(threads))
