"""Conditions of service levels: how fast error budgets burn, and how much of them is used up."""

from collections.abc import Callable, Iterator
from functools import partial

from controllers.design.error_budget import PAIRS, BurnPair
from workers.alerts.conditions.condition import Condition, Reading
from workers.alerts.conditions.evidence import Evidence
from workers.documents.objectives import ObjectiveStatus

WINDOWS = {60: "1 h", 5: "5 min", 360: "6 h", 30: "30 min", 4_320: "3 days"}


def _build_labels(name: str, objective: ObjectiveStatus) -> dict[str, str]:
    about = {"queue": objective.subject} if objective.kind == "queue" and objective.subject else {}
    return {"objective": name, **about}


def _format_windows(pair: BurnPair) -> str:
    return f"{WINDOWS[pair.long_minutes]} and {WINDOWS[pair.short_minutes]}"


def _read_burn_rates(pair: BurnPair, evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for name, objective in evidence.plant.objectives.items():
        rate = objective.burn.get(pair.name)
        speed = "at an unknown rate" if rate is None else f"at {rate:.1f} times the allowed rate"
        left = _compute_left_share(objective)
        said = f"Objective {name}: the error budget burns {speed} over {_format_windows(pair)}. {left}"
        yield Reading(_build_labels(name, objective), rate, said)


def _compute_left_share(objective: ObjectiveStatus) -> str:
    if objective.window_left_share is None:
        return "No data has been counted yet."
    days = f"{objective.window_days:g}-day"
    if objective.window_left_share < 0:
        return f"The {days} budget is overspent by {-100 * objective.window_left_share:.0f} %."
    return f"{100 * objective.window_left_share:.0f} % of the {days} budget is left."


def _find_spent(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for name, objective in evidence.plant.objectives.items():
        share = objective.window_left_share
        spent = None if share is None else 100 * (1 - share)
        said = f"Objective {name}: the target is {100 * objective.target:g} %. {_compute_left_share(objective)}"
        yield Reading(_build_labels(name, objective), spent, said)


def _build_reader(pair: BurnPair) -> Callable[[Evidence, float], Iterator[Reading]]:
    return partial(_read_burn_rates, pair)


CONDITIONS = (
    *(
        Condition(
            f"budget_burn_{pair.name}",
            f"Burn rate of an error budget over {_format_windows(pair)}: the lower of the two.",
            "times",
            "objective",
            _build_reader(pair),
            waits=True,
        )
        for pair in PAIRS
    ),
    Condition("budget_spent", "Share of an error budget that is used up.", "%", "objective", _find_spent, waits=True),
)
