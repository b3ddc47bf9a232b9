"""A plan: what each loop should do now, what that costs, and which limits cost most.

The course with whole numbers of units gives setpoints, and the fewest and most units that it has before the next plan
are their bounds. Shadow prices are the dual values of the course with fractions: they say what one unit more of a
limit would save. An hour of them is their sum over the horizon, divided by its hours. `spread` asks what the plan
would do with another load: that of the upper end of the forecast's 80 % interval.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from controllers.framework.reason import format_count, measure
from controllers.planning.inputs import HOUR_SECONDS, Floats, PlanInputs, PlannerParameters
from controllers.planning.model import PlantModel
from controllers.planning.program import NoPlanError, PlannedCourse, solve_course
from controllers.planning.rounding import round_units

UPPER_BAND = 1.2816  # deviations: the 90 % quantile, the upper end of an 80 % interval
# Savings below this (money per hour) and lateness below this share of a bad second are not worth a sentence.
MIN_SAVING, MIN_LATE_SHARE = 0.01, 0.02
MAX_SENTENCES, MAX_WAYS_OUT, MAX_HOLDS = 5, 3, 5
# What relaxing means: the bound times this, and these numbers of additional units.
BOUND_FACTORS, MORE_UNITS, AVOIDED_SHARE = (1.5, 2.0, 4.0, 8.0), (1, 2, 4, 8), 0.8
PENALTIES = ("over", "short", "short_nodes")


@dataclass(frozen=True)
class PlanOutlook:
    """What a course expects over its horizon. `waiting_events` and `cost_per_hour` are means of its first minutes."""

    cost: float
    cost_per_hour: float
    waiting_events: float
    wait_seconds: Mapping[str, float]  # queue → longest waiting time
    bad_seconds: Mapping[str, float]
    lost_events: Mapping[str, float]


@dataclass(frozen=True)
class BindingLimit:
    """A limit that costs money: one unit more would save `saving_per_hour`."""

    kind: str  # maximum, slots, bound, hold
    name: str
    saving_per_hour: float
    sentence: str


@dataclass(frozen=True)
class WayOut:
    """A change that avoids at least `AVOIDED_SHARE` of the bad seconds, and what it costs more than the plan.

    The cost contains units, changes, and lost events, but no price of bad seconds.
    """

    kind: str  # bound, units, shed
    name: str
    amount: float
    bad_seconds: float
    extra_per_hour: float
    sentence: str


@dataclass(frozen=True)
class PlantPlan:
    """Setpoints by loop, and their explanation. A queue without an admission rate admits everything."""

    units: Mapping[str, int]
    unit_bounds: Mapping[str, tuple[int, int]]
    admit_per_second: Mapping[str, float]
    shed_shares: Mapping[str, Mapping[str, float]]
    outlook: PlanOutlook
    limits: tuple[BindingLimit, ...] = ()
    units_at_upper_band: Mapping[str, int] = field(default_factory=dict)
    ways_out: tuple[WayOut, ...] = ()
    course: PlannedCourse | None = field(default=None, repr=False, compare=False)

    @property
    def broken_promises(self) -> dict[str, float]:
        """Return the queues whose promise the plan can't keep, and their expected bad seconds."""
        seconds = self.outlook.bad_seconds
        return {name: late for name, late in seconds.items() if late >= MIN_LATE_SHARE * HOUR_SECONDS / 60}

    def list_sentences(self) -> list[str]:
        """Return the explanation: broken promises and ways out, binding limits, and the upper band."""
        sentences = [
            f"The promise of {name} can't be kept: {measure(round(seconds))} bad seconds are expected."
            for name, seconds in self.broken_promises.items()
        ]
        sentences += [way.sentence for way in self.ways_out]
        sentences += [limit.sentence for limit in self.limits]
        changes = [
            f"{count} instead of {self.units[name]} of {name}"
            for name, count in self.units_at_upper_band.items()
            if count != self.units[name]
        ]
        if changes:
            sentences.append(f"If the load is at the upper end of its forecast, the plan needs {', '.join(changes)}.")
        return sentences


def compute_plan(model: PlantModel, parameters: PlannerParameters, *, explain: bool = True) -> PlantPlan:
    """Return the plan for a model that was checked. Raise `NoPlanError` if there is none."""
    return plan_inputs(PlanInputs.build(model, parameters), explain=explain)


def plan_inputs(inputs: PlanInputs, *, explain: bool = True) -> PlantPlan:
    """Return the plan for inputs; without an explanation it takes two solutions. Raise `NoPlanError`."""
    relaxed = solve_course(inputs)
    units = round_units(relaxed)
    try:
        course = solve_course(inputs, units)
    except NoPlanError:
        # Whole numbers may miss what fractions just reached. They are within all limits of the groups themselves.
        course = relaxed
    plan = PlantPlan(
        units,
        _compute_unit_bounds(course),
        compute_admission(course, 0),
        compute_shed_shares(course, 0),
        build_outlook(course),
        course=course,
    )
    if not explain:
        return plan
    limits = sorted(_iterate_limits(inputs, relaxed, plan.outlook), key=lambda limit: -limit.saving_per_hour)
    upper = PlanInputs.build(inputs.model, inputs.parameters, UPPER_BAND)
    try:
        at_upper_band = round_units(solve_course(upper))
    except NoPlanError:
        at_upper_band = {}
    plan = replace(plan, limits=tuple(limits[:MAX_SENTENCES]), units_at_upper_band=at_upper_band)
    return replace(plan, ways_out=find_ways_out(inputs, plan)) if plan.broken_promises else plan


def compute_admission(course: PlannedCourse, step: int) -> dict[str, float]:
    """Return queue → events/s that producers may insert in a step, for queues whose producers hold events back."""
    inputs, held = course.inputs, course.values["held"]
    rates = {}
    for at, (name, queue) in enumerate(inputs.model.queues.items()):
        before = held[at, step - 1] if step else queue.held_events
        if held[at, step] > 1.0:
            shed = course.values["shed"][inputs.owners == at, step].sum()
            rates[name] = max(
                0.0, float(inputs.rates[at, step] - shed - (held[at, step] - before) / inputs.steps[step])
            )
    return rates


def compute_shed_shares(course: PlannedCourse, step: int) -> dict[str, dict[str, float]]:
    """Return queue → type → share to shed in a step."""
    inputs, shares = course.inputs, dict[str, dict[str, float]]()
    for at, (queue, kind) in enumerate(inputs.types):
        offered = float(inputs.get_type_share(queue, kind)[step] * inputs.rates[inputs.owners[at], step])
        shed = float(course.values["shed"][at, step])
        if shed > 1e-6 * max(offered, 1.0) and offered > 0:
            highest = inputs.model.queues[queue].types[kind].max_shed_share
            shares.setdefault(queue, {})[kind] = min(highest, shed / offered)
    return shares


def build_outlook(course: PlannedCourse) -> PlanOutlook:
    """Return what a course expects."""
    inputs, steps, values = course.inputs, course.inputs.steps, course.values
    names = list(inputs.model.queues)
    waiting = values["wait"] + values["held"]
    allowed = np.maximum(inputs.compute_allowed_waiting(), 1e-6)
    late = np.minimum(1.0, values["over"] / allowed) @ steps
    wait = np.where(waiting > 1.0, waiting / np.maximum(values["serve"], 1e-6), 0.0)
    lost = values["lost"] @ steps
    shed = np.bincount(inputs.owners, weights=values["shed"] @ steps, minlength=len(names)) if names else lost
    first = max(1, int(np.searchsorted(inputs.begins, inputs.parameters.verdict_seconds - 1e-9)))
    part = steps[:first]
    # The program counts a long delay more than once; a second is bad only once.
    prices = inputs.list_queue_values("bad_second_price")[:, None] * steps
    costs = {**course.parts, "over": np.minimum(course.parts["over"], prices)}
    spent = sum(float(cost[:, :first].sum()) for cost in costs.values())
    return PlanOutlook(
        sum(float(cost.sum()) for cost in costs.values()),
        spent / float(part.sum()) * HOUR_SECONDS,
        float(waiting[:, :first].sum(axis=0) @ part / part.sum()),
        dict(zip(names, wait.max(axis=1).tolist(), strict=True)),
        dict(zip(names, late.tolist(), strict=True)),
        dict(zip(names, (lost + shed).tolist(), strict=True)),
    )


def _compute_unit_bounds(course: PlannedCourse) -> dict[str, tuple[int, int]]:
    """Return the fewest and the most units of each group until the next plan is effective."""
    inputs, bounds = course.inputs, dict[str, tuple[int, int]]()
    for (name, group), row in zip(inputs.model.groups.items(), course.values["units"], strict=True):
        part = row[: inputs.locate_orders(group) + 2]
        bounds[name] = (math.floor(part.min() + 1e-6), math.ceil(part.max() - 1e-6))
    return bounds


def _iterate_limits(inputs: PlanInputs, relaxed: PlannedCourse, outlook: PlanOutlook) -> Iterator[BindingLimit]:
    """Yield the limits that cost money, each with what one unit more would save, which is at most the whole cost."""
    hours = float(inputs.steps.sum()) / HOUR_SECONDS
    most = outlook.cost / hours
    for name, pool in inputs.model.pools.items():
        # A slot that can be ordered costs its share of a host. Only what exceeds that shows a limit.
        paid = pool.price_per_hour / HOUR_SECONDS / pool.slots * inputs.steps
        duals = relaxed.duals[f"pool {name}"] + paid
        yield from _describe_saving("slots", name, duals, hours, most, f"One more slot of {name}")
    held = [name for name, group in inputs.model.groups.items() if group.fixed is not None]
    for at, (name, group) in enumerate(inputs.model.groups.items()):
        if group.fixed is None:
            can_order = inputs.begins >= group.start_seconds - 1e-9
            duals = np.where(can_order, relaxed.highest_duals[at], 0.0)
            yield from _describe_saving(
                "maximum", name, duals, hours, most, f"One more unit of {name} above its maximum"
            )
    for at, name in enumerate(inputs.model.queues):
        if -float(relaxed.duals["bound"][at] @ inputs.rates[at]) / hours >= MIN_SAVING:
            yield from _price_bound(inputs, relaxed, name, hours, most)
    for name in held[:MAX_HOLDS]:
        yield from _price_hold(inputs, relaxed, name, hours)


def _describe_saving(
    kind: str, name: str, duals: Floats, hours: float, most: float, subject: str
) -> Iterator[BindingLimit]:
    saving = min(-float(duals.sum()) / hours, most)
    if saving >= MIN_SAVING:
        yield BindingLimit(kind, name, saving, f"{subject} would save {measure(saving)} money/h.")


def _price_bound(
    inputs: PlanInputs, relaxed: PlannedCourse, name: str, hours: float, most: float
) -> Iterator[BindingLimit]:
    """Yield the price of a bound: what twice its time would save, in money and in events."""
    bound = inputs.model.queues[name].bound_seconds
    try:
        longer = solve_course(replace(inputs, model=change_queue(inputs.model, name, bound_seconds=2 * bound)))
    except NoPlanError:
        return
    saving = min((relaxed.cost - longer.cost) / hours, most)
    lost = [sum(build_outlook(course).lost_events.values()) / hours for course in (relaxed, longer)]
    if saving >= MIN_SAVING:
        events = f" and {measure(round(lost[0] - lost[1]))} lost events/h" if lost[0] - lost[1] >= 1 else ""
        cost = f"costs {measure(saving)} money/h{events}"
        yield BindingLimit(
            "bound",
            name,
            saving,
            f"The {measure(bound)} s bound of {name} {cost}, compared with {measure(2 * bound)} s.",
        )


def change_queue(model: PlantModel, name: str, **values: object) -> PlantModel:
    """Return the model with other values of a queue."""
    changed = msgspec.structs.replace(model.queues[name], **values)
    return msgspec.structs.replace(model, queues={**model.queues, name: changed})


def _price_hold(inputs: PlanInputs, relaxed: PlannedCourse, name: str, hours: float) -> Iterator[BindingLimit]:
    """Yield the price of a hold: what the plan would cost less without it."""
    try:
        free = solve_course(replace(inputs, model=release_hold(inputs.model, name)))
    except NoPlanError:
        return
    saving = (relaxed.cost - free.cost) / hours
    if saving >= MIN_SAVING:
        count = inputs.model.groups[name].fixed
        sentence = f"The hold of {name} at {count} costs {measure(saving)} money/h."
        yield BindingLimit("hold", name, saving, sentence)


def release_hold(model: PlantModel, name: str) -> PlantModel:
    """Return the model without the hold of a group."""
    return _change_group(model, name, fixed=None)


def _change_group(model: PlantModel, name: str, **values: object) -> PlantModel:
    for part in ("stages", "nodes", "pools"):
        groups = getattr(model, part)
        if name in groups:
            changed = {**groups, name: msgspec.structs.replace(groups[name], **values)}
            return msgspec.structs.replace(model, **{part: changed})
    raise KeyError(name)


def find_ways_out(inputs: PlanInputs, plan: PlantPlan) -> tuple[WayOut, ...]:
    """Return the cheapest changes that keep the promises: a longer bound, more of what is exhausted, or lost events."""
    ways, hours = list[WayOut](), float(inputs.steps.sum()) / HOUR_SECONDS
    broken = plan.broken_promises
    before = sum(broken.values())
    assert plan.course is not None
    for kind, name, changes in _iterate_changes(inputs.model, plan):
        for amount, model, text in changes:
            try:
                course = solve_course(replace(inputs, model=model))
            except NoPlanError:
                continue
            seconds = build_outlook(course).bad_seconds
            late = sum(seconds[queue] for queue in broken)
            if late <= (1 - AVOIDED_SHARE) * before:
                extra = (_sum_cost_without_penalties(course) - _sum_cost_without_penalties(plan.course)) / hours
                does = f"costs {measure(extra)} money/h" if extra >= 0 else f"saves {measure(-extra)} money/h"
                sentence = (
                    f"{text}: {measure(round(late, 1))} instead of {measure(round(before, 1))} bad seconds; {does}."
                )
                ways.append(WayOut(kind, name, amount, late, extra, sentence))
                break
    return tuple(sorted(ways, key=lambda way: way.extra_per_hour)[:MAX_WAYS_OUT])


def _sum_cost_without_penalties(course: PlannedCourse) -> float:
    return sum(float(cost.sum()) for name, cost in course.parts.items() if name not in PENALTIES)


Change = tuple[float, PlantModel, str]


def _iterate_changes(model: PlantModel, plan: PlantPlan) -> Iterator[tuple[str, str, list[Change]]]:
    """Yield changes that could keep the broken promises, each with growing amounts."""
    for name in plan.broken_promises:
        queue = model.queues[name]
        longer: list[Change] = []
        for bound in (factor * queue.bound_seconds for factor in BOUND_FACTORS):
            changed = change_queue(model, name, bound_seconds=bound)
            longer.append((bound, changed, f"A bound of {measure(bound)} s for {name}"))
        yield "bound", name, longer
        types = {kind: msgspec.structs.replace(of, max_shed_share=1.0) for kind, of in queue.types.items()}
        if types != queue.types:
            changed = change_queue(model, name, types=types)
            yield "shed", name, [(1.0, changed, f"Shedding all types of {name} if needed")]
    for name, group in model.groups.items():
        if plan.units[name] >= group.range[1]:
            fuller: list[Change] = []
            for more in MORE_UNITS:
                fixed = None if group.fixed is None else group.fixed + more
                changed = _change_group(
                    model, name, maximum=group.range[1] + more, fixed=fixed, units=group.units + more
                )
                fuller.append((float(more), changed, f"{format_count(more, 'additional unit')} of {name}"))
            yield "units", name, fuller
