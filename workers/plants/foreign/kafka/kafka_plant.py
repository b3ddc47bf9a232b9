"""A Kafka cluster as a plant: topics are sources, consumer groups the operators behind them.

The latency of a link is the group's lag in seconds on that topic.

Nothing can be set here: Kafka starts no consumers. The system that runs them is controlled (a Celery app, a Kubernetes
Deployment, a declared plant), and may take its measures from here.

The append times of events before the first observation are requested from the broker (ListOffsets), a few times per
reading, until they are known within GAP_SHARE of their age; events themselves are never read.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing

from common.errors import BadInput
from common.stored_document import replace_fields
from controllers.parallelism.measured_topology import MAX_PATHS, Link, MeasuredOperator, MeasuredTopology
from workers.documents.consumer_groups import ConsumerGroup
from workers.documents.plants import FoundPlant, PlantSection, PlantStatus
from workers.plants.foreign.kafka import cluster
from workers.plants.foreign.kafka.cluster import MAX_GROUPS, KafkaCluster, parse_broker, split_names
from workers.plants.foreign.kafka.group_lag import WINDOW_SECONDS, GroupLags, Partition, Question
from workers.plants.foreign.kafka.offset_reset import OffsetReset, execute_reset, plan_reset
from workers.plants.foreign.kafka.rebalances import Rebalances
from workers.plants.foreign.kind import Adapter, PlantAddress, declare_option, describe_topology

MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
OPTIONS = (
    declare_option("groups", "names or patterns of groups (billing-*), separated by commas; empty for all", "Groups"),
    declare_option("topics", "names or patterns of topics, separated by commas; empty for all but __*", "Topics"),
    declare_option("brokers", "further bootstrap brokers, as host:port, separated by commas", "Brokers"),
    declare_option("user", "SASL username; empty for no authentication", "User"),
    declare_option("mechanism", "SASL mechanism", "Mechanism", choices=MECHANISMS, default=MECHANISMS[0]),
)
NOT_SET = "Kafka can't start consumers; attach the system that runs them, with the option lag"
NEEDS = (
    "To control consumers, attach the system that runs them: a Celery app, a Kubernetes Deployment, or a"
    " declared plant. Its option lag selects consumer groups of this plant."
)
SOURCE = "a topic, which only supplies events"
MAX_LINKS = MAX_PATHS - MAX_GROUPS  # a group without a link is a path of its own
GAP_SHARE, MIN_GAP_SECONDS, EARLIEST_SECONDS = 0.05, 0.5, 7 * 86_400.0
QUESTIONS_A_READING = 8  # each halves the remaining interval, for all partitions at once
UNTIMED_SECONDS = 600.0
MAX_SHOWN_FAILURES = 20


class KafkaPlant(Adapter):
    """One cluster, with OPTIONS."""

    def __init__(self, address: PlantAddress, clock: Callable[[], float] = time.time) -> None:
        self._clock, self._name = clock, address.name
        groups, topics = split_names(address.get_option("groups")), split_names(address.get_option("topics"))
        self._cluster = KafkaCluster(address, groups, topics, clock)
        self._lags, self._rebalances = GroupLags(), Rebalances()
        self._groups: Mapping[str, ConsumerGroup] = {}
        self._partitions: Mapping[str, int] = {}  # topic → number of partitions
        self._untimed: dict[Partition, float] = {}  # contradictory partitions → until when

    def get_topology(self) -> MeasuredTopology:
        """Return the topology. Raise `PlantUnavailable` and `InvalidPlantResponse`."""
        reading = self._cluster.read()
        self._lags.follow(reading)
        self._rebalances.follow(reading.groups, reading.described_at)
        self._ask_of_the_past()
        self._groups = {name: self._add_rebalances(name, group) for name, group in self._lags.list_groups().items()}
        self._partitions = reading.topics
        return build_topology(self._name, self._clock(), self._groups, self._partitions)

    def _add_rebalances(self, name: str, group: ConsumerGroup) -> ConsumerGroup:
        return replace_fields(
            group, rebalances=self._rebalances.count(name), rebalance_seconds=self._rebalances.compute_seconds(name)
        )

    def get_details(self) -> PlantStatus:
        return PlantStatus(groups=dict(self._groups))

    def list_sections(self) -> Sequence[PlantSection]:
        """Return what is beyond MAX_LINKS and MAX_PARTITIONS, and what could not be read."""
        said = [
            describe_left_out(self._groups, self._partitions),
            f"{self._cluster.left:,} of the partitions that groups read are not observed: Weir observes the"
            f" first {cluster.MAX_PARTITIONS:,} by name. The actual lag of their groups may be higher, and"
            " their rates are unknown."
            if self._cluster.left
            else "",
            *map(describe_other_group, self.list_other_groups()),
            *self.describe_read_failures(),
        ]
        rows: list[list[str | float | None]] = [[group] for group in said if group]
        return [PlantSection(title="Not observed", columns=["Reason"], rows=rows)] if rows else ()

    def list_other_groups(self) -> Sequence[str]:
        """Return the share groups and Streams groups of the last reading."""
        return self._cluster.other_groups

    def describe_read_failures(self) -> list[str]:
        """Return a sentence for each group, topic and partition that could not be read the last time."""
        failures = sorted(self._cluster.failures.items())
        said = [f"{what} can't be read: {why}" for what, why in failures[:MAX_SHOWN_FAILURES]]
        if len(failures) > MAX_SHOWN_FAILURES:
            said.append(f"{len(failures) - MAX_SHOWN_FAILURES:,} more groups, topics, or partitions can't be read.")
        return said

    def plan_offset_reset(self, group: str, target: str) -> OffsetReset:
        """Return the plan of a reset; change nothing. Raises as `plan_reset` does."""
        return plan_reset(self._cluster, group, target)

    def execute_offset_reset(self, plan: OffsetReset) -> None:
        """Change the offsets as planned. Raises as `execute_reset` does."""
        execute_reset(self._cluster, plan)

    def set_parallelism(self, tasks: Mapping[str, int]) -> None:
        """Raise an error: see NOT_SET."""
        if tasks:
            self.get_topology().check_tasks(tasks)

    def close(self) -> None:
        self._cluster.close()

    def _ask_of_the_past(self) -> None:
        """Request append times; each round halves, on a logarithmic scale, the range of an event's age."""
        now = self._clock()
        self._untimed = {partition: until for partition, until in self._untimed.items() if until > now}
        for _ in range(QUESTIONS_A_READING):
            times: dict[Partition, float] = {}
            for question in self._lags.list_questions(GAP_SHARE, MIN_GAP_SECONDS):
                at = choose_query_time(question, now)
                if at is not None and question.partition not in self._untimed:
                    times.setdefault(question.partition, at)
            if not times:
                return
            ends = self._cluster.ends_at(times)
            for partition, at in times.items():
                history = self._lags.get_history(partition)
                end = ends.get(partition)
                if end is None and partition in ends:
                    end = self._lags.end(partition)  # no event since
                if end is None or not history.insert(at, end):
                    self._untimed[partition] = now + UNTIMED_SECONDS


def describe_other_group(name: str) -> str:
    """Return why a group that is no consumer group is not observed."""
    return (
        f"Group {name} is a share group or a Streams group (Kafka 4). Its members acknowledge single events or use"
        " another protocol, so it has no lag by offset, and no loop can use it. To scale a share group, use measures"
        " of the system that runs its members."
    )


def choose_query_time(question: Question, now: float) -> float | None:
    """Return at which time to request the offset, or None if the answer would be too old to matter."""
    earliest = now - EARLIEST_SECONDS
    if question.after is None:
        return earliest if question.before > earliest else None
    oldest, youngest = now - question.after, max(now - question.before, MIN_GAP_SECONDS / 2)
    return now - math.sqrt(oldest * youngest)


def build_topology(
    plant: str, at: float, groups: Mapping[str, ConsumerGroup], partitions: Mapping[str, int]
) -> MeasuredTopology:
    """Return topics → groups, the MAX_LINKS that are furthest behind; topics without a link are left out."""
    links = _build_links(groups, partitions)[:MAX_LINKS]
    read = {link.source.removeprefix("topics/") for link in links}
    operators = {
        f"topics/{name}": MeasuredOperator(f"topics/{name}", "source", partitions[name], 0, partitions[name], SOURCE)
        for name in sorted(read)
    }
    operators |= {f"groups/{name}": _build_operator(name, group) for name, group in groups.items()}
    return MeasuredTopology(plant, at, WINDOW_SECONDS, operators, tuple(links))


def _build_links(groups: Mapping[str, ConsumerGroup], partitions: Mapping[str, int]) -> list[Link]:
    """Return all links, furthest behind first."""
    links = [
        Link(f"topics/{topic}", f"groups/{name}", _lag_seconds(group, topic))
        for name, group in groups.items()
        for topic in group.topics
        if topic in partitions
    ]
    return sorted(links, key=lambda link: -(link.latency_seconds or 0.0))


def describe_left_out(groups: Mapping[str, ConsumerGroup], partitions: Mapping[str, int]) -> str:
    """Return what is left out as a sentence, or "" for nothing."""
    links = _build_links(groups, partitions)
    if len(links) <= MAX_LINKS:
        return ""
    topics = {link.source for link in links} - {link.source for link in links[:MAX_LINKS]}
    return (
        f"{len(links) - MAX_LINKS:,} of {len(links):,} pairs of a topic and a group (those with the least lag)"
        f" and {len(topics):,} topics are left out, because a topology has at most {MAX_PATHS:,} paths. To"
        " choose the pairs, set the options groups and topics."
    )


def _build_operator(name: str, group: ConsumerGroup) -> MeasuredOperator:
    """Return a group as an operator with its members as tasks.

    The measures are those of all members together, and are stored with the first.
    """
    count = len(group.members)
    measures = {
        "inputs": _format_rate(group.in_per_second),
        "executions": _format_rate(group.out_per_second),
        "latency_seconds": 0.0,
    }
    tasks = (measures,) if count else ()
    return MeasuredOperator(f"groups/{name}", "operator", count, 0, max(count, 1), NOT_SET, tasks=tasks)


def _format_rate(per_second: float | None) -> float | None:
    return None if per_second is None else per_second * WINDOW_SECONDS


def _lag_seconds(group: ConsumerGroup, topic: str) -> float | None:
    """Return the lag of the partition that is furthest behind; a minimum counts as unknown."""
    rows = [row for row in group.partitions if row.topic == topic and row.lag_events is not None]
    if any(row.lag_seconds is None or row.at_least for row in rows):
        return None
    return max((row.lag_seconds or 0.0 for row in rows), default=0.0)


def inspect(address: PlantAddress) -> FoundPlant:
    """Return what exists now; nothing of it can be controlled."""
    with closing(KafkaPlant(address)) as plant:
        inspected = describe_topology("A Kafka cluster.", plant.get_topology(), (NEEDS,))
        groups, unread = plant.get_details().groups, plant.describe_read_failures()
        unread = [*map(describe_other_group, plant.list_other_groups()), *unread]
    said = [_describe_group(name, group) for name, group in groups.items()] or ["No consumer groups found."]
    return replace_fields(inspected, said=said + unread)


def check(address: PlantAddress) -> None:
    """Raise `BadInput` for invalid options."""
    if address.get_option("mechanism") and not address.get_option("user"):
        raise BadInput("user", "is missing. A mechanism requires a user.")
    for broker in split_names(address.get_option("brokers")):
        parse_broker(broker)


def _describe_group(name: str, group: ConsumerGroup) -> str:
    if group.lag_events is None:
        return f"{name}: lag unknown ({group.state})."
    least = "at least " if group.at_least else ""
    behind = f"{group.lag_events:,} events, {least}{group.lag_seconds or 0.0:,.0f} s behind"
    return f"{name}: {behind if group.lag_events else 'no lag'} ({group.state})."
