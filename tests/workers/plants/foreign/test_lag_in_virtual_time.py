"""Replicas follow the lag of their group in virtual time.

There are never more than partitions, and no runaway if consumers commit every five seconds.
"""

from dataclasses import dataclass, field

import pytest

from controllers import catalog
from controllers.framework.law import decide_next
from controllers.parallelism.measured_topology import Link, MeasuredOperator, MeasuredTopology
from controllers.parallelism.queueing_law import observe
from workers.documents.plants import PlantStatus
from workers.plants.foreign.group_measures import GroupMeasures
from workers.plants.foreign.kafka.group_lag import GroupLags
from workers.plants.foreign.kafka.reading import ClusterReading, Group, Offsets

PER_REPLICA, READING_SECONDS, TICK_SECONDS = 60.0, 2, 6
OPTIONS = {"shop": {"lag": "worker=events/billing"}, "events": {}}


@dataclass
class VirtualShop:
    """Consumers that read PER_REPLICA events per second each, and commit every `commit_seconds`."""

    commit_seconds: int
    partitions: int = 6
    replicas: int = 1
    sent: float = 0.0
    read: float = 0.0
    committed: float = 0.0
    lags: GroupLags = field(default_factory=GroupLags)
    measures: GroupMeasures = field(default_factory=GroupMeasures)

    def pass_second(self, at, per_second):
        self.sent += per_second
        self.read = min(self.sent, self.read + PER_REPLICA * min(self.replicas, self.partitions))
        if at % self.commit_seconds == 0:
            self.committed = self.read

    def get_topology(self, at):
        """Return the topology as it is read and joined."""
        numbers = range(self.partitions)
        offsets = {("orders", each): Offsets(0, round(self.sent / self.partitions)) for each in numbers}
        committed = {("orders", each): round(self.committed / self.partitions) for each in numbers}
        groups = {"billing": Group("empty", (), committed)}
        self.lags.follow(ClusterReading(at, at, {"orders": ("one", self.partitions)}, offsets, groups))
        operators = {
            "outside": MeasuredOperator("outside", "source", 1, fixed="outside"),
            "worker": MeasuredOperator("worker", "operator", self.replicas, 1, 20),
        }
        shop = MeasuredTopology("shop", at, 30.0, operators, (Link("outside", "worker"),))
        statuses = {
            "shop": PlantStatus(kind="kubernetes", state="seen", topology=shop.to_document()),
            "events": PlantStatus(kind="kafka", state="seen", groups=self.lags.list_groups()),
        }
        return self.measures.join_groups(statuses, OPTIONS)["shop"]

    def run(self, begin, seconds, per_second):
        """Return the number of replicas at each decision of a loop."""
        law, found = catalog.get_law("parallelism_queueing"), []
        parameters = catalog.read_parameters(law, {"bound_seconds": 5.0, "maximum": 20})
        for at in range(begin, begin + seconds):
            self.pass_second(at, per_second)
            if at % READING_SECONDS:
                continue
            topology = self.get_topology(float(at))
            if at % TICK_SECONDS == 0:
                _, decision = decide_next(law, parameters, {}, observe(topology))
                self.replicas = (decision.action or {"tasks": {}})["tasks"].get("worker", self.replicas)
                found.append(self.replicas)
        return found


@pytest.mark.parametrize("commit_seconds", [1, 5])
def test_replicas_follow_what_comes_and_go_again_however_seldom_offsets_are_committed(commit_seconds):
    shop = VirtualShop(commit_seconds)
    high = shop.run(0, 240, 150.0)
    assert 3 <= high[-1] <= 5 and shop.sent - shop.read < 300
    low = shop.run(240, 120, 30.0)
    assert low[-1] == 1 and set(low[-10:]) == {1}


def test_no_more_replicas_are_wanted_than_there_are_partitions():
    assert max(VirtualShop(1, partitions=2).run(0, 120, 600.0)) == 2
