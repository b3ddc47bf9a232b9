"""The law of the planner: a plan in each interval, with its expectation, its verdict, and its authority.

A decision proposes setpoints: units of each group, admission rates, and shed shares. Loops, guards, holds, and
overrides stay in force below it. The law acts only while its own intervals keep their promise (`calibration`);
otherwise, and if there is no plan, the separate loops continue unchanged.
"""

from typing import Annotated

import msgspec

from common.parameter import value
from controllers.framework.decision import Decision, Expectation
from controllers.framework.law import Law, Values
from controllers.framework.reason import format_no_action, format_percent, format_reason, measure
from controllers.planning.calibration import IntervalCalibration
from controllers.planning.inputs import PlanInputs, PlannerParameters
from controllers.planning.model import PlantModel, check_model
from controllers.planning.plan import PlanOutlook, PlantPlan, build_outlook, compute_plan
from controllers.planning.program import NoPlanError, solve_course

MAX_OPEN = 200
MIN_SCALE_EVENTS = 1.0


class PlanningParameters(PlannerParameters, frozen=True, kw_only=True):
    earns_authority: Annotated[
        bool, value("flag", "True: the law acts only while its intervals keep their promise.")
    ] = True


class PlanningObservation(PlantModel, frozen=True, kw_only=True):
    at_seconds: Annotated[float, value("s", "Time of the observation.", 0, 1e13)] = 0.0
    spent: Annotated[
        float | None, value("money", "Cost of the plant since a fixed time, with penalties; null: not known.", 0, 1e15)
    ] = None
    event_seconds: Annotated[
        float | None, value("events s", "Waiting events, summed over time since then; null: not known.", 0, 1e18)
    ] = None


class OpenExpectation(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan expected, until its verdict."""

    at_seconds: Annotated[float, value("s", "Time of the plan.", 0, 1e13)]
    spent: Annotated[float, value("money", "Cost so far at that time.", 0, 1e15)]
    event_seconds: Annotated[float, value("events s", "Waiting so far at that time.", 0, 1e18)]
    kept_cost: Annotated[float, value("money/h", "Expected cost if the plan is not applied.", 0, 1e15)]
    kept_waiting: Annotated[float, value("events", "Expected waiting events if it is not.", 0, 1e15)]
    cost: Annotated[float, value("money/h", "Expected cost.", 0, 1e15)] = 0.0
    cost_interval: Annotated[tuple[float, ...], value("money/h", "Low and high end.", 0, 1e15)] = ()
    waiting: Annotated[float, value("events", "Expected waiting events.", 0, 1e15)] = 0.0
    waiting_interval: Annotated[tuple[float, ...], value("events", "Low and high end.", 0, 1e15)] = ()


class PlanningState(msgspec.Struct, frozen=True, kw_only=True):
    open: Annotated[
        tuple[OpenExpectation, ...], value("expectations", "Expectations without a verdict.", most=MAX_OPEN)
    ] = ()
    cost: Annotated[IntervalCalibration, value("calibration", "Intervals of the cost.")] = IntervalCalibration()
    waiting: Annotated[IntervalCalibration, value("calibration", "Intervals of the waiting events.")] = (
        IntervalCalibration()
    )

    def build_expectation(self, start: OpenExpectation, cost: float, waiting: float) -> OpenExpectation:
        """Return an expectation with these values and their calibrated intervals."""
        return msgspec.structs.replace(
            start,
            cost=cost,
            cost_interval=self.cost.build_interval(cost, scale_cost(cost)),
            waiting=waiting,
            waiting_interval=self.waiting.build_interval(waiting, scale_waiting(waiting)),
        )


class PlantPlanning(Law[PlanningParameters, PlanningObservation, PlanningState]):
    """One plan for the whole plant; see the module."""

    name = "plan"
    Parameters, Observation, State = PlanningParameters, PlanningObservation, PlanningState

    def check_observation(self, parameters: PlanningParameters, observation: PlanningObservation, where: str) -> None:
        check_model(observation, where)

    def resume(self, state: PlanningState) -> PlanningState:
        """Return the state without open expectations: what happened during a hold was not planned."""
        return msgspec.structs.replace(state, open=())

    def decide(
        self, parameters: PlanningParameters, state: PlanningState, observation: PlanningObservation
    ) -> tuple[PlanningState, Decision]:
        """Return the plan's setpoints, or no action if there is no plan or its intervals are not reliable."""
        state = judge(parameters, state, observation)
        try:
            plan = compute_plan(observation, parameters)
        except NoPlanError as error:
            reason = format_no_action(f"there is no plan, because {error}; the separate loops continue")
            return state, Decision(None, reason, {}, "no plan")
        decision = _build_decision(parameters, state, observation, plan)
        kept = estimate_kept_outlook(parameters, observation) or plan.outlook
        return expect(state, observation, kept if decision.action is None else plan.outlook, kept), decision

    def correct(
        self, parameters: PlanningParameters, before: PlanningState, after: PlanningState, action: Values | None
    ) -> PlanningState:
        """Return the state with what is expected if the plan is not applied: a verdict must not blame the model."""
        if action is not None or len(after.open) <= len(before.open):
            return after
        newest = after.open[-1]
        corrected = after.build_expectation(newest, newest.kept_cost, newest.kept_waiting)
        return msgspec.structs.replace(after, open=(*after.open[:-1], corrected))


def estimate_kept_outlook(parameters: PlanningParameters, observation: PlanningObservation) -> PlanOutlook | None:
    """Return what the plant is expected to cost if its units stay as they are; None if they contradict a limit."""
    try:
        return build_outlook(solve_course(PlanInputs.build(observation, parameters).keep_units()))
    except NoPlanError:
        return None


def judge(parameters: PlanningParameters, state: PlanningState, observation: PlanningObservation) -> PlanningState:
    """Return the state after the verdicts that are due: expected against actual cost and waiting."""
    cost, waiting, still_open = state.cost, state.waiting, list[OpenExpectation]()
    for before in state.open:
        seconds = observation.at_seconds - before.at_seconds
        if seconds < parameters.verdict_seconds:
            still_open.append(before)
        elif seconds < 2 * parameters.verdict_seconds:
            if observation.spent is not None:
                actual = max(0.0, observation.spent - before.spent) / seconds * 3_600.0
                low, high = before.cost_interval
                cost = cost.record(before.cost, scale_cost(before.cost), (low, high), actual)
            if observation.event_seconds is not None:
                actual = max(0.0, observation.event_seconds - before.event_seconds) / seconds
                low, high = before.waiting_interval
                waiting = waiting.record(before.waiting, scale_waiting(before.waiting), (low, high), actual)
    return PlanningState(open=tuple(still_open), cost=cost, waiting=waiting)


def expect(
    state: PlanningState, observation: PlanningObservation, outlook: PlanOutlook, kept: PlanOutlook
) -> PlanningState:
    """Return the state with an expectation, if the plant measures what it costs. kept: without the plan."""
    if observation.spent is None or observation.event_seconds is None:
        return state
    start = OpenExpectation(
        at_seconds=observation.at_seconds,
        spent=observation.spent,
        event_seconds=observation.event_seconds,
        kept_cost=kept.cost_per_hour,
        kept_waiting=kept.waiting_events,
    )
    expectation = state.build_expectation(start, outlook.cost_per_hour, outlook.waiting_events)
    return msgspec.structs.replace(state, open=(*state.open, expectation)[-MAX_OPEN:])


def scale_cost(cost_per_hour: float) -> float:
    return max(cost_per_hour, 1e-6)


def scale_waiting(events: float) -> float:
    return max(events, MIN_SCALE_EVENTS)


def _build_decision(
    parameters: PlanningParameters, state: PlanningState, observation: PlanningObservation, plan: PlantPlan
) -> Decision:
    outlook = plan.outlook
    changes = {
        name: (group.ordered, plan.units[name])
        for name, group in observation.groups.items()
        if plan.units[name] != group.ordered
    }
    parts = [
        *(f"set {name} to {after} ({after - before:+,})" for name, (before, after) in changes.items()),
        *(f"admit {measure(rate)} events/s to {name}" for name, rate in plan.admit_per_second.items()),
        *(
            f"shed {format_percent(share)} of {kind}"
            for types in plan.shed_shares.values()
            for kind, share in types.items()
        ),
    ]
    cost_low, cost_high = state.cost.build_interval(outlook.cost_per_hour, scale_cost(outlook.cost_per_hour))
    waiting_low, waiting_high = state.waiting.build_interval(
        outlook.waiting_events, scale_waiting(outlook.waiting_events)
    )
    terms = {
        "units": dict(plan.units),
        "unit_bounds": {name: list(bounds) for name, bounds in plan.unit_bounds.items()},
        "cost_per_hour": round(outlook.cost_per_hour, 6),
        "cost_interval": [round(cost_low, 6), round(cost_high, 6)],
        "waiting_events": round(outlook.waiting_events, 3),
        "waiting_interval": [round(waiting_low, 3), round(waiting_high, 3)],
        "wait_seconds": {name: round(seconds, 3) for name, seconds in outlook.wait_seconds.items()},
        "bad_seconds": {name: round(seconds, 3) for name, seconds in outlook.bad_seconds.items()},
        "lost_events": {name: round(count, 3) for name, count in outlook.lost_events.items()},
        "limits": [
            {"kind": limit.kind, "name": limit.name, "saving_per_hour": round(limit.saving_per_hour, 6)}
            for limit in plan.limits
        ],
        "ways_out": [
            {"kind": way.kind, "name": way.name, "amount": way.amount, "extra_per_hour": round(way.extra_per_hour, 6)}
            for way in plan.ways_out
        ],
        "units_at_upper_band": dict(plan.units_at_upper_band),
        "explanation": plan.list_sentences(),
        "cost_coverage": state.cost.coverage,
        "waiting_coverage": state.waiting.coverage,
    }
    text = ", ".join(parts)
    cause = f"the plant is expected to cost {measure(outlook.cost_per_hour)} money/h"
    if plan.broken_promises:
        cause = f"{cause}, and the promise of {', '.join(plan.broken_promises)} can't be kept"
    if not (state.cost.is_trusted and state.waiting.is_trusted) and parameters.earns_authority:
        reason = format_no_action("the plan's intervals are not reliable yet; the separate loops continue", cause)
        return Decision(None, reason, terms, "calibration")
    if not parts:
        return Decision(None, format_no_action(cause), terms)
    action = {
        "units": {name: after for name, (_, after) in changes.items()},
        "admit_per_second": dict(plan.admit_per_second),
        "shed_shares": {name: dict(shares) for name, shares in plan.shed_shares.items()},
    }
    expected = Expectation("cost_per_hour", "down", outlook.cost_per_hour, parameters.verdict_seconds)
    return Decision(action, format_reason(f"{text[:1].upper()}{text[1:]}", cause), terms, expected=expected)
