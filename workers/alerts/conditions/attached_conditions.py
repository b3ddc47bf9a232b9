"""Conditions of attached plants: silence, missing workers, queues without consumers, consumer lag, and sensors."""

from collections.abc import Iterator

from controllers.framework.reason import format_count
from workers.alerts.conditions.condition import Reading, ShippedRule, register_condition
from workers.alerts.conditions.evidence import Evidence, FailingTask, NewFailures
from workers.documents.plants import SensorStatus
from workers.plants.reached import explain_fault

SEEN, UNSEEN = "seen", "unseen"
NAMED = 3  # workers or groups named in a sentence
# A plant that an observer has just started to observe has this long to answer.
FIRST_SECONDS = 60.0
SENSOR_SERIES = ("plants.{plant}.sensors.{sensor}.value",)


@register_condition(
    "Time for which an attached plant has not been observed.",
    unit="s",
    label="plant",
    elapses=True,
    rule=ShippedRule("plant-silent", "Plant {plant} is not observed", 60, 10),
    impact="The plant's loops take no action. The plant itself may still be running.",
    first_step="Check the plant's address from another host. If it changed, update it under Plants.",
)
def plant_silent(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for plant, row in evidence.plant.plants.items():
        why = f" {row.error.rstrip('.')}." if row.error else ""
        said = f"Plant {plant} has not been observed for {row.silent_seconds:.0f} s.{why}"
        begins = row.state == UNSEEN and row.silent_seconds < FIRST_SECONDS
        yield Reading({"plant": plant}, None if begins else row.silent_seconds, said)


@register_condition(
    "Time since workers of an attached plant stopped responding without reporting a shutdown.",
    unit="s",
    label="plant",
    elapses=True,
    rule=ShippedRule("workers-missed", "Workers of {plant} are not responding", 60, 10),
    impact="Tasks of these workers may wait until the broker redelivers them.",
    first_step="Restart the workers on their host. The plant's page lists them.",
)
def workers_missed(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    """Return one alert for each plant: a host that ends takes many workers with it."""
    for plant, row in evidence.plant.plants.items():
        # Those that answered last come first.
        names = sorted(row.missed_workers, key=lambda name: (row.missed_workers[name], name))
        if row.state != SEEN:
            said = f"Workers of {plant}: unknown, because the plant is not observed."
        elif not names:
            said = f"All workers of {plant} that responded recently still respond."
        else:
            more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
            has = "has" if len(names) == 1 else "have"
            of = f"{format_count(len(names), 'worker')} of {plant}"
            said = f"{of} {has} stopped responding: {', '.join(names[:NAMED])}{more}."
        longest = max(row.missed_workers.values(), default=0.0)
        yield Reading({"plant": plant}, longest if row.state == SEEN else None, said)


@register_condition(
    "Time for which tasks have waited in a queue of an attached plant without a consumer.",
    unit="s",
    label="plant_queue",
    elapses=True,
    rule=ShippedRule("queue-unserved", "Queue {plant_queue} of {plant} has no consumers", 60, 10),
    impact="Tasks in the queue wait and do not start.",
    first_step="Start a worker for this queue, or check the queue name in the code that sends tasks.",
)
def queue_unserved(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for plant, row in evidence.plant.plants.items():
        for name, queue in row.unserved_queues.items():
            tasks = f"{format_count(queue.waiting, 'task')} {'waits' if queue.waiting == 1 else 'wait'}"
            said = f"No worker has consumed from {name} of {plant} for {queue.seconds:.0f} s; {tasks}."
            yield Reading({"plant": plant, "plant_queue": name}, queue.seconds if row.state == SEEN else None, said)


@register_condition(
    "Groups of failed tasks of an attached plant that are first seen in the window.",
    unit="groups",
    label="plant",
    source="records",
    counts=True,
    rule=ShippedRule("failure-group-new", "New failure in {plant}", 1, 1, window_seconds=3600),
    impact="Tasks of the plant fail for a reason that Weir has not seen before.",
    first_step="Open the failure group, and compare its first failure with the last deploy.",
)
def failure_group_new(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    """Return one alert for each plant: a deploy that breaks many kinds of tasks makes many groups."""
    by_plant: dict[str, list[NewFailures]] = {}
    for group in evidence.new_failures:
        if group.first_seen >= evidence.now - window_seconds:
            by_plant.setdefault(group.plant, []).append(group)
    for plant, groups in by_plant.items():
        shown = "; ".join(
            f"{group.task}: {group.error} ({format_count(group.count, 'failure')})" for group in groups[:NAMED]
        )
        more = f"; and {len(groups) - NAMED:,} more" if len(groups) > NAMED else ""
        said = f"{format_count(len(groups), 'new failure group')} in {plant}: {shown}{more}."
        yield Reading({"plant": plant}, float(len(groups)), said)


# A rule for all failures would repeat each failing task of a plant, so people choose the tasks.
@register_condition(
    "Different failures of a task of an attached plant in the window. Choose the tasks with the label task_name.",
    unit="failures",
    label="task_name",
    source="records",
    counts=True,
    impact="The task failed, and its effects are missing.",
    first_step="Open the failures of the task, and compare them with the last deploy.",
)
def task_failing(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    """Return one alert for each name of a task: it stays open while the task fails again within the window."""
    by_task: dict[tuple[str, str], list[FailingTask]] = {}
    for group in evidence.failing_tasks:
        if group.last_seen >= evidence.now - window_seconds:
            by_task.setdefault((group.plant, group.task), []).append(group)
    for (plant, task), groups in by_task.items():
        errors = "; ".join(group.error for group in groups[:NAMED])
        more = f"; and {len(groups) - NAMED:,} more" if len(groups) > NAMED else ""
        said = f"{task} of {plant} failed: {errors}{more}."
        yield Reading({"plant": plant, "task_name": task}, float(len(groups)), said)


@register_condition(
    "Age of the event that a consumer group reads next.",
    unit="s",
    label="group",
    series=("plants.{plant}.groups.{group}.lag_seconds",),
    has_preview=False,
    rule=ShippedRule("consumer-lag", "Group {group} of {plant} falls behind", 60, 30, for_seconds=60),
    impact="The group processes events late. Events that the topic's retention deletes first are lost.",
    first_step="Check on the plant's page whether the group has members, and whether only one partition is late.",
)
def consumer_lag(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    """Return how large the lag is; the sentence also says whether it shrinks."""
    for plant, row in evidence.plant.plants.items():
        for name, group in row.groups.items():
            if group.lag_events is None:  # Nothing that it reads counts.
                continue
            lag = group.lag_seconds if row.state == SEEN else None
            said = f"Group {name} of {plant}: lag unknown."
            if lag is not None:
                least, rates = "at least " if group.at_least else "", ""
                if group.in_per_second is not None and group.out_per_second is not None:
                    arriving, reading = f"{group.in_per_second:,.0f}", f"{group.out_per_second:,.0f}"
                    rates = f"; {arriving} events/s arrive, {reading} events/s are read"
                behind = f"Group {name} of {plant} is {least}{lag:,.0f} s behind ({group.lag_events:,} events)"
                said = f"{behind}{rates}. Members: {len(group.members):,}."
            yield Reading({"plant": plant, "group": name}, lag, said)


@register_condition(
    "Number of operators of an attached plant whose tasks differ from the requested number.",
    unit="operators",
    label="plant",
    rule=ShippedRule("order-unreached", "Tasks of {plant} differ from the request", 1, 1),
    impact="The plant's loops take no action, and its operators keep their current tasks.",
    first_step="Find out whether another controller sets the tasks, or why the plant rejects changes. "
    "Then resume the loops.",
)
def order_unreached(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for name, plant in evidence.plant.plants.items():
        wrong = [reason for reason in map(explain_fault, plant.orders, plant.orders.values()) if reason]
        more = f" ({len(wrong)} operators)" if len(wrong) > 1 else ""
        said = f"Plant {name}: {wrong[0]}{more}." if wrong else f"Plant {name}: its tasks are as requested."
        yield Reading({"plant": name}, float(len(wrong)) if plant.state == SEEN else None, said)


# A rule of a sensor's value is for people: only the author of the declaration knows how much of it is too much.
@register_condition(
    "Value of a declared plant's sensor, with the title and unit of its declaration.",
    label="sensor",
    series=SENSOR_SERIES,
)
def sensor_above(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for labels, title, sensor in _iterate_sensors(evidence):
        value = sensor.known_value
        said = "unknown" if value is None else f"{value:.4g}{f' {sensor.unit}' if sensor.unit else ''}"
        yield Reading(labels, value, f"{title}: {said}.")


register_condition(
    "Value of a declared plant's sensor whose low values are critical.",
    name="sensor_below",
    label="sensor",
    direction="below",
    series=SENSOR_SERIES,
)(sensor_above)


@register_condition(
    "Time for which a declared plant's sensor has had no value.",
    unit="s",
    label="sensor",
    elapses=True,
    rule=ShippedRule("sensor-silent", "Sensor {sensor} of {plant} has no value", 60, 10),
    impact="Loops that need the sensor take no action and keep their last value.",
    first_step="Read the source's error in the alert. Run the same query manually.",
)
def sensor_silent(evidence: Evidence, window_seconds: float) -> Iterator[Reading]:
    for labels, title, sensor in _iterate_sensors(evidence):
        why = f" {sensor.error.rstrip('.')}." if sensor.error else ""
        yield Reading(labels, sensor.silent_seconds, f"{title}: no value for {sensor.silent_seconds:.0f} s.{why}")


def _iterate_sensors(evidence: Evidence) -> Iterator[tuple[dict[str, str], str, SensorStatus]]:
    """Return (labels, title, status) of each sensor."""
    for plant, status in evidence.plant.plants.items():
        for name, sensor in status.sensors.items():
            yield {"plant": plant, "sensor": name}, f"{sensor.title or f'Sensor {name}'} of {plant}", sensor
