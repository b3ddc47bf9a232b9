"""Conditions of attached plants.

They cover whether the plants answer, missing workers, queues without consumers, and the lag of the consumer groups of a
log.
"""

from collections.abc import Iterator

from controllers.framework.reason import format_count
from workers.alerts.conditions.condition import Condition, Reading
from workers.alerts.conditions.evidence import Evidence
from workers.documents.consumer_groups import ConsumerGroup
from workers.documents.plants import PlantStatus

SEEN, UNSEEN = "seen", "unseen"
NAMED = 3  # workers named in a sentence
# A plant that an observer has just started to observe has this long to answer.
FIRST_SECONDS = 60.0


def _plant_silent(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for plant, row in evidence.plant.plants.items():
        why = f" {row.error.rstrip('.')}." if row.error else ""
        said = f"Plant {plant} has not been observed for {row.silent_seconds:.0f} s.{why}"
        begins = row.state == UNSEEN and row.silent_seconds < FIRST_SECONDS
        yield Reading({"plant": plant}, None if begins else row.silent_seconds, said)


def _read_missed_workers(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    """Return one alert for each plant: a host that ends takes many workers with it."""
    for plant, row in evidence.plant.plants.items():
        longest = max(row.missed_workers.values(), default=0.0)
        yield Reading({"plant": plant}, longest if row.state == SEEN else None, _list_missed_workers(plant, row))


def _list_missed_workers(plant: str, row: PlantStatus) -> str:
    """Return the missed workers, those that answered last first."""
    if row.state != SEEN:
        return f"Workers of {plant}: unknown, because the plant is not observed."
    names = sorted(row.missed_workers, key=lambda name: (row.missed_workers[name], name))
    if not names:
        return f"All workers of {plant} that responded recently still respond."
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    of = f"{format_count(len(names), 'worker')} of {plant}"
    has = "has" if len(names) == 1 else "have"
    return f"{of} {has} stopped responding: {', '.join(names[:NAMED])}{more}."


def _queue_unserved(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for plant, row in evidence.plant.plants.items():
        for name, queue in row.unserved_queues.items():
            tasks = f"{format_count(queue.waiting, 'task')} {'waits' if queue.waiting == 1 else 'wait'}"
            said = f"No worker has consumed from {name} of {plant} for {queue.seconds:.0f} s; {tasks}."
            yield Reading({"plant": plant, "plant_queue": name}, queue.seconds if row.state == SEEN else None, said)


def _read_consumer_lag(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for plant, row in evidence.plant.plants.items():
        for name, group in row.groups.items():
            if group.lag_events is None:  # Nothing that it reads counts.
                continue
            lag = group.lag_seconds if row.state == SEEN else None
            yield Reading({"plant": plant, "group": name}, lag, _describe_lag(name, plant, group, lag))


def _describe_lag(name: str, plant: str, group: ConsumerGroup, lag: float | None) -> str:
    """Describe how large the lag is, and whether it shrinks."""
    if lag is None:
        return f"Group {name} of {plant}: lag unknown."
    least = "at least " if group.at_least else ""
    behind = f"Group {name} of {plant} is {least}{lag:,.0f} s behind ({group.lag_events:,} events)"
    rates = ""
    if group.in_per_second is not None and group.out_per_second is not None:
        arriving, reading = f"{group.in_per_second:,.0f}", f"{group.out_per_second:,.0f}"
        rates = f"; {arriving} events/s arrive, {reading} events/s are read"
    return f"{behind}{rates}. Members: {len(group.members):,}."


CONDITIONS = (
    Condition(
        "plant_silent",
        "Time for which an attached plant has not been observed.",
        "s",
        "plant",
        _plant_silent,
        elapses=True,
    ),
    Condition(
        "workers_missed",
        "Time since workers of an attached plant stopped responding without reporting a shutdown.",
        "s",
        "plant",
        _read_missed_workers,
        elapses=True,
    ),
    Condition(
        "queue_unserved",
        "Time for which tasks have waited in a queue of an attached plant without a consumer.",
        "s",
        "plant_queue",
        _queue_unserved,
        elapses=True,
    ),
    Condition(
        "consumer_lag",
        "Age of the event that a consumer group reads next.",
        "s",
        "group",
        _read_consumer_lag,
        series=("plants.{plant}.groups.{group}.lag_seconds",),
    ),
)
