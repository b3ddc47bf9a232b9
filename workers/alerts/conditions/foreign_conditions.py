"""Conditions of plants that others built: how far the consumer groups of a log are behind."""

from collections.abc import Iterator

from controllers.framework.reason import counted
from workers.alerts.conditions.condition import Condition, Reading
from workers.alerts.conditions.evidence import Evidence
from workers.documents.consumer_groups import ConsumerGroup

SEEN, UNSEEN = "seen", "unseen"


def _consumer_lag(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for plant, row in evidence.plant.plants.items():
        for name, group in row.groups.items():
            if group.lag_events is None:  # nothing that it reads counts
                continue
            lag = group.lag_seconds if row.state == SEEN else None
            yield Reading({"plant": plant, "group": name}, lag, _said(name, plant, group, lag))


def _said(name: str, plant: str, group: ConsumerGroup, lag: float | None) -> str:
    """How far behind, and whether it gets better."""
    if lag is None:
        return f"Group {name} of {plant}: its lag is not known."
    least = "at least " if group.at_least else ""
    behind = f"Group {name} of {plant} is {least}{lag:,.0f} s behind ({group.lag_events:,} events)"
    rates = ""
    if group.in_per_second is not None and group.out_per_second is not None:
        rates = f"; {group.in_per_second:,.0f}/s come, {group.out_per_second:,.0f}/s are read"
    return f"{behind}{rates}, by {counted(len(group.members), 'member')}."


CONDITIONS = (
    Condition(
        "consumer_lag",
        "How old the event is that a consumer group reads next.",
        "s",
        "group",
        _consumer_lag,
        series=("plants.{plant}.groups.{group}.lag_seconds",),
    ),
)
