"""Conditions of service levels: how fast error budgets burn, and how much of them is used up."""

from collections.abc import Iterator

from workers.alerts.conditions.condition import Read, Reading, ShippedRule, register_condition
from workers.alerts.conditions.evidence import Evidence
from workers.documents.objectives import ObjectiveStatus
from workers.objectives.error_budget import PAIRS, BurnPair

WINDOWS = {60: "1 h", 5: "5 min", 360: "6 h", 30: "30 min", 4_320: "3 days"}
OPEN_OBJECTIVE = "Open the objective to see when it was missed, by which subjects, and during which alerts."
# Of a budget of 30 days: 2 % within an hour, 5 % within 6 h, 10 % within 3 days.
BURN_RULES = {
    "fast": ShippedRule("budget-burns-fast", "{objective}: error budget burns fast", 14.4, 14.4, severity="critical"),
    "medium": ShippedRule("budget-burns", "{objective}: error budget burns", 6, 6),
    "slow": ShippedRule("budget-burns-slowly", "{objective}: error budget burns slowly", 1, 1, severity="notice"),
}


def _build_labels(name: str, objective: ObjectiveStatus) -> dict[str, str]:
    about = {"queue": objective.subject} if objective.kind == "queue" and objective.subject else {}
    return {"objective": name, **about}


def _describe_left_share(objective: ObjectiveStatus) -> str:
    if objective.window_left_share is None:
        return "No data has been counted yet."
    days = f"{objective.window_days:g}-day"
    if objective.window_left_share < 0:
        return f"The {days} budget is overspent by {-100 * objective.window_left_share:.0f} %."
    return f"{100 * objective.window_left_share:.0f} % of the {days} budget is left."


def _build_burn_reader(pair: BurnPair, windows: str) -> Read:
    def read_burn_rates(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
        for name, objective in evidence.plant.objectives.items():
            rate = objective.burn.get(pair.name)
            speed = "at an unknown rate" if rate is None else f"at {rate:.1f} times the allowed rate"
            left = _describe_left_share(objective)
            said = f"Objective {name}: the error budget burns {speed} over {windows}. {left}"
            yield Reading(_build_labels(name, objective), rate, said)

    return read_burn_rates


for _pair in PAIRS:
    _windows = f"{WINDOWS[_pair.long_minutes]} and {WINDOWS[_pair.short_minutes]}"
    _long = "long " if _pair.name != "slow" else ""
    register_condition(
        f"Burn rate of an error budget over {_windows}: the lower of the two.",
        name=f"budget_burn_{_pair.name}",
        unit="times",
        label="objective",
        waits=True,
        stopped_by="consumption pause",
        rule=BURN_RULES[_pair.name],
        impact=f"At this rate, the error budget is used up {_long}before its window ends.",
        first_step=OPEN_OBJECTIVE
        if _long
        else "Open the objective, and find the errors that burn the budget every day.",
    )(_build_burn_reader(_pair, _windows))


@register_condition(
    "Share of an error budget that is used up.",
    unit="%",
    label="objective",
    waits=True,
    rule=ShippedRule("budget-spent", "{objective}: error budget is used up", 100, 98),
    impact="The target was missed. Loops no longer use this budget to shed or throttle.",
    first_step="Find the errors that used up the budget. Fix their cause, or lower the target.",
)
def budget_spent(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for name, objective in evidence.plant.objectives.items():
        share = objective.window_left_share
        spent = None if share is None else 100 * (1 - share)
        said = f"Objective {name}: the target is {100 * objective.target:g} %. {_describe_left_share(objective)}"
        yield Reading(_build_labels(name, objective), spent, said)
