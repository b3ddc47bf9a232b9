"""Measures of operators that read a log, from the lag of their consumer group at another plant.

The option `lag` of a registration assigns groups: `worker=events/billing` (the operator, the plant, the group). For an
operator of n tasks whose group gets λ events per second and reads μ from p partitions:

    inputs of a task = λ · window / n,  executions = μ · window / n
    latency of the links to it = lag in seconds; if only its minimum is known, lag in events / λ
    service time = min(n, p) / μ while events wait; else its last value
    maximum of tasks = p: a partition has one reader, and more would be idle

Each change of tasks rebalances the group, and no member reads meanwhile. So the median duration of a rebalance is a
price of each change (`MeasuredTopology.change_pause_seconds`).

The operator's own measures (of a Celery worker, a declared operator) are then of other work than the log's, and don't
count. While its group is not observed, its measures are unknown. The first source before it emits λ, unless it reports
more itself.

A group that keeps up doesn't show how much it could process: the service time is unknown until the group is behind for
the first time, and laws hold until then. It is behind if events have waited for BEHIND_SECONDS in a partition in which
an offset was just committed. Between two commits (5 s by default) the lag of any group grows. If that counted as being
behind, the arrivals would be taken for the maximum throughput of its tasks, whatever their number.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

from common.errors import BadInput
from controllers.parallelism.measured_topology import MeasuredOperator, MeasuredTopology
from workers.documents.consumer_groups import ConsumerGroup
from workers.documents.plants import PlantStatus

OPTION, SEEN = "lag", "seen"
HELP = "consumer groups of operators: worker=events/billing (operator=plant/group), separated by commas"
BEHIND_SECONDS = 4.0  # A commit may be one reading old; readings come every 2 s or a little later.
NEW_SHARE = 0.3  # weight of a new service time against the former one
Committed = Mapping[tuple[str, int], int | None]  # (topic, partition) → offset
MAX_ROWS = 100  # rows of measures of an operator with very many tasks


def parse_groups(text: str) -> dict[str, tuple[str, str]]:
    """Return operator → (plant, group). Raise `BadInput`."""
    groups = {}
    for word in text.split(","):
        if not word.strip():
            continue
        operator, is_given, whose = (part.strip() for part in word.partition("="))
        plant, _, group = whose.partition("/")
        if not (operator and is_given and plant and group):
            raise BadInput(OPTION, f"must be operator=plant/group, not {word.strip()[:60]!r}.")
        groups[operator] = plant, group
    return groups


class GroupMeasures:
    """Remembers the service times that groups had when they were behind."""

    def __init__(self) -> None:
        self._service_seconds: dict[tuple[str, str], float] = {}
        self._committed: dict[tuple[str, str], Committed] = {}  # offsets of the previous reading

    def join_groups(
        self, statuses: Mapping[str, PlantStatus], options: Mapping[str, Mapping[str, str]]
    ) -> dict[str, MeasuredTopology]:
        """Return the topologies of the plants that name groups, with measures if both plants are observed."""
        groups = {}
        for name, status in statuses.items():
            text = options[name].get(OPTION, "")
            if text and status.topology is not None and status.state == SEEN:
                groups[name] = self._join_topology(
                    name, MeasuredTopology.from_document(status.topology), statuses, text
                )
        return groups

    def _join_topology(
        self, name: str, topology: MeasuredTopology, statuses: Mapping[str, PlantStatus], text: str
    ) -> MeasuredTopology:
        brought: dict[str, float] = {}  # source → events in the window
        pauses: list[float] = []
        for operator, (plant, group_name) in parse_groups(text).items():
            there = statuses.get(plant)
            group = there.groups.get(group_name) if there is not None and there.state == SEEN else None
            if operator not in topology.operators:
                continue
            if group is None:
                # Its own measures would look complete.
                unmeasured = replace(topology.operators[operator], tasks=())
                topology = _replace_operator(topology, unmeasured, None)
                continue
            topology = self._measure_operator(name, topology, operator, group)
            before = (link.source for link in topology.links if link.target == operator)
            source = next((feeder for feeder in before if topology.operators[feeder].kind == "source"), None)
            if source is not None and group.in_per_second is not None:
                came = group.in_per_second * topology.window_seconds
                brought[source] = brought.get(source, 0.0) + came
            if group.rebalance_seconds is not None:
                pauses.append(group.rebalance_seconds)
        operators = dict(topology.operators)
        for source, came in brought.items():
            # The larger count, because a source's own may include the same events.
            offered = max(came, operators[source].measure("outputs") or 0.0)
            operators[source] = replace(operators[source], tasks=({"outputs": offered},))
        return replace(topology, operators=operators, change_pause_seconds=max(pauses, default=None))

    def _measure_operator(
        self, name: str, topology: MeasuredTopology, operator: str, group: ConsumerGroup
    ) -> MeasuredTopology:
        operator_measures = topology.operators[operator]
        service = self._smooth_service_time(name, operator_measures, group)
        measures = _compute_row_measures(operator_measures, group, service, topology.window_seconds)
        most = max(
            operator_measures.minimum,
            min(operator_measures.maximum, group.partition_count or operator_measures.maximum),
        )
        with_measures = replace(
            operator_measures, tasks=(measures,) * _count_measure_rows(operator_measures), maximum=most
        )
        return _replace_operator(topology, with_measures, _wait_seconds(group))

    def _smooth_service_time(self, name: str, operator: MeasuredOperator, group: ConsumerGroup) -> float | None:
        """Return the service time of one event in one task."""
        before = self._service_seconds.get((name, operator.name))
        is_behind = self._is_behind((name, operator.name), group)
        if not (is_behind and group.out_per_second and operator.parallelism):
            return before
        now = min(operator.parallelism, group.partition_count or math.inf) / group.out_per_second
        smooth = now if before is None else before + NEW_SHARE * (now - before)
        self._service_seconds[name, operator.name] = smooth
        return smooth

    def _is_behind(self, operator: tuple[str, str], group: ConsumerGroup) -> bool:
        """Return whether events wait in a partition in which the group has just committed."""
        rows = {(row.topic, row.partition): row for row in group.partitions}
        before = self._committed.get(operator, {})
        self._committed[operator] = {partition: row.committed for partition, row in rows.items()}
        for partition, row in rows.items():
            earlier = before.get(partition)
            went_on = row.committed is not None and earlier is not None and row.committed > earlier
            if went_on and (row.lag_seconds or 0.0) > BEHIND_SECONDS:
                return True
        return False


def _replace_operator(topology: MeasuredTopology, operator: MeasuredOperator, wait: float | None) -> MeasuredTopology:
    """Return the topology with this operator, and the latency of the links to it."""
    links = [replace(link, latency_seconds=wait) if link.target == operator.name else link for link in topology.links]
    return replace(topology, operators={**topology.operators, operator.name: operator}, links=tuple(links))


def _count_measure_rows(operator: MeasuredOperator) -> int:
    """Return the number of tasks that have a row of measures."""
    return min(operator.parallelism, MAX_ROWS)


def _compute_row_measures(
    operator: MeasuredOperator, group: ConsumerGroup, service: float | None, window_seconds: float
) -> dict[str, float | None]:
    """Return the measures of one row; all tasks are assumed to be alike."""
    count, rows = max(1, operator.parallelism), max(1, _count_measure_rows(operator))
    into, out = group.in_per_second, group.out_per_second
    worked = None if out is None else out * window_seconds / rows
    return {
        "inputs": None if into is None else into * window_seconds / rows,
        "executions": worked,
        "service_seconds": service,
        "latency_seconds": service,
        "utilisation": None if out is None or service is None else min(1.0, out * service / count),
    }


def _wait_seconds(group: ConsumerGroup) -> float | None:
    if group.lag_seconds is not None and not group.at_least:
        return group.lag_seconds
    if group.lag_events is None or not group.in_per_second:
        return group.lag_seconds
    return max(group.lag_seconds or 0.0, group.lag_events / group.in_per_second)
