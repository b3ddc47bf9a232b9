"""Any sequence of moves, drains, crashes and returns on real servers keeps points, containers and events."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common.errors import BadInput, NoContainerAvailable, NodeUnavailable
from queues import keys, projection
from queues.models import Container, Node, Queue, TopologyRevision
from queues.publishing.client import Client
from queues.topology import Topology
from tests.queues.samples import batch_of
from tests.workers.placement.plan_plant import Plant
from workers.models import Plan
from workers.placement import execution, plans, proposals, recovery
from workers.steering import enforcing

pytestmark = [pytest.mark.django_db, pytest.mark.faults]
NODES = ("n1", "n2", "n3")
SOME = st.sampled_from(NODES)
SHARES = st.tuples(st.integers(0, 10), st.integers(0, 10), st.integers(0, 10)).filter(any)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 40)),
        st.tuples(st.just("work"), SOME),
        st.tuples(st.just("lose"), SOME),
        st.tuples(st.just("return"), SOME),
        st.tuples(st.just("move"), SHARES),
        st.tuples(st.just("drain"), SOME),
        st.tuples(st.just("use"), SOME),
        st.tuples(st.just("back"), st.none()),
        st.tuples(st.just("die"), st.integers(1, 6)),
        st.tuples(st.just("pass"), st.sampled_from([1, 4, 13])),
    ),
    min_size=4,
    max_size=14,
)


RETURN_SECONDS = 4  # a node is heard for certain after two beats; then a plan brings it a container


class Died(BaseException):
    """The process ends here: nothing behind it is done, nothing catches it."""


class Story:
    """One plant, what is done to it, and what of it must always hold."""

    def __init__(self, control, servers, user):
        for model in (Plan, Container, Queue, Node, TopologyRevision):
            model.objects.all().delete()
        control.flushall()
        for server in servers.values():
            if server.process is None:
                server.start()
            server.client().flushall()
        self.plant, self.user, self.lost = Plant(control, servers), user, set()
        self.fresh = set()  # may hold points again since so short a time that no queue can have them yet
        options = control.connection_pool.connection_kwargs
        self.client = Client(f"redis://{options['host']}:{options['port']}/0", "story")
        self.published, self.handled = 0, []
        self.snapshot = self.plant.pass_seconds(2)

    def close(self):
        self.client.close()
        self.plant.close()

    def publish(self, events):
        points = self.client.get_topology(fresh=True).queue("alert").points
        try:
            stored = self.client.publish("alert", batch_of(events, first=self.published)).events
        except NoContainerAvailable as error:
            # Before anybody has seen that they are lost, all points may be on nodes that are.
            assert {node for node, count in points.items() if count} <= self.lost
            assert error.stored.events == 0
            return
        assert stored == events
        self.published += events

    def work(self, node):
        if node not in self.lost:
            segment = self.plant.segment("alert", node)
            for block in segment.claim("w1", 1_000, 60.0):
                self.handled += block.block().get_event_ids().to_pylist()
                segment.acknowledge([block.entry_id])

    def lose(self, node):
        if node not in self.lost and len(self.lost) < 2:
            self.plant.servers[node].kill()
            self.lost.add(node)

    def come_back(self, node):
        if node in self.lost:
            self.plant.servers[node].start()
            self.lost.discard(node)
            self.fresh.add(node)

    def move(self, weights):
        total = sum(weights)
        first, second = (1000 * weight // total for weight in weights[:2])
        wanted = dict(zip(NODES, (first, second, 1000 - first - second), strict=True))
        self.attempt(lambda: self.planned(proposals.propose_hand, "alert", wanted, self.user))

    def drain(self, node):
        self.attempt(lambda: self.planned(proposals.propose_drain, node, self.user, "A story."))

    def use(self, node):
        self.fresh.add(node)
        now, control = self.plant.now, self.plant.control
        self.attempt(lambda: plans.return_to_use(node, self.user, "A story.", control=control, now=now))

    def back(self, _):
        last = Plan.objects.exclude(kind="roll-back").order_by("-pk").first()
        if last is not None:
            self.attempt(lambda: self.planned(proposals.roll_back, last, self.user, "A story."))

    def planned(self, propose, *arguments):
        plan = propose(*arguments, snapshot=self.snapshot, now=self.plant.now)
        plans.approve(plan, plan.hash, self.user, "A story.", snapshot=self.snapshot, now=self.plant.now)

    def attempt(self, call):
        """Refused is fine: then nothing has changed, which the invariants see."""
        before = self.plant.points()
        try:
            call()
        except BadInput:
            assert self.plant.points() == before

    def die(self, calls):
        """Advance the plans, and die within: at a write of the topology, or at a step of a transfer."""
        left = [calls]

        def dying(function):
            def call(*arguments, **named):
                left[0] -= 1
                if left[0] == 0:
                    raise Died
                answer = function(*arguments, **named)
                left[0] -= 1
                if left[0] == 0:
                    raise Died
                return answer

            return call

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(projection, "project", dying(projection.project))
            for name in ("depart", "receive", "confirm"):
                method = getattr(execution.Segment, name)
                patch.setattr(execution.Segment, name, dying(method))
            try:
                execution.advance_all(self.plant.control, self.plant.now)
            except Died:
                # Its lease ends with it in time; here at once.
                for key in self.plant.control.scan_iter("weir:lease:*"):
                    self.plant.control.delete(key)
        # What upkeep does within five seconds: it may have died between the projection and the commit.
        projection.reconcile(self.plant.control, enforcing.get_node_thresholds(self.plant.now))

    def pass_by(self, seconds):
        for _ in range(seconds):
            self.snapshot = self.plant.pass_seconds(1, tuple(self.lost))
            recovery.recover(self.plant.control, self.snapshot, self.plant.now)
            execution.advance_all(self.plant.control, self.plant.now)
            execution.tidy(self.plant.control, self.snapshot, self.plant.now)
        if seconds >= RETURN_SECONDS:
            self.fresh.clear()

    def check(self):
        """After each step: points, containers, the projection."""
        topology = projection.read_database(enforcing.get_node_thresholds(self.plant.now))
        for queue in topology.queues.values():
            assert sum(queue.points.values()) == 1000
            away = self.lost | self.fresh
            live = [node for node in NODES if topology.nodes[node].takes_points and node not in away]
            assert len(queue.live_points) >= min(2, max(1, len(live)))
            assert set(queue.points) <= set(NODES)
        assert Topology.from_json(self.plant.control.get(keys.TOPOLOGY)) == topology

    def end(self):
        """Everybody returns; in time every event is in exactly one place, or was handled once."""
        for node in NODES:
            self.come_back(node)
        for plan in plans.list_running_plans():
            plans.stop(plan, self.user, "The end.", now=self.plant.now)
        self.pass_by(15)
        stored = [name for names in self.plant.ids().values() for name in names]
        assert sorted([*stored, *self.handled]) == sorted(f"e{row}" for row in range(self.published))
        rows = self.snapshot.queues["alert"].containers
        assert sum(row.waiting_events for row in rows.values()) == len(stored)
        for node in NODES:
            assert self.plant.segment("alert", node).measure()["leaving_blocks"] == 0


def told(control, nodes, user, steps):
    story = Story(control, nodes, user)
    does = {"return": story.come_back, "pass": story.pass_by}
    try:
        for name, argument in steps:
            try:
                (does.get(name) or getattr(story, name))(argument)
            except NodeUnavailable:
                assert story.lost
            story.check()
        story.end()
        story.check()
    finally:
        story.close()


SETTINGS = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]}


@pytest.mark.thorough
@settings(max_examples=4, **SETTINGS)
@given(steps=STEPS)
def test_any_sequence_keeps_points_containers_and_every_event(control, nodes, admin_user, steps):
    told(control, nodes, admin_user, steps)


@pytest.mark.slow
@pytest.mark.timeout(900)
@settings(max_examples=80, **SETTINGS)
@given(steps=STEPS)
def test_many_sequences_keep_points_containers_and_every_event(control, nodes, admin_user, steps):
    told(control, nodes, admin_user, steps)


def test_events_are_refused_whole_until_a_lost_queue_has_its_points_elsewhere(control, nodes, admin_user):
    steps = [("drain", "n3"), ("pass", 13), ("lose", "n1"), ("lose", "n2"), ("publish", 1), ("pass", 13)]
    told(control, nodes, admin_user, [*steps, ("use", "n3"), ("pass", 13), ("publish", 1)])


def test_a_queue_gets_its_minimum_again_when_a_node_returns(control, nodes, admin_user):
    steps = [("publish", 2), ("lose", "n1"), ("drain", "n3"), ("publish", 1), ("pass", 13), ("return", "n1")]
    told(control, nodes, admin_user, steps)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("calls", range(1, 13))
def test_a_drain_that_dies_anywhere_ends_with_every_event_in_one_place(control, nodes, admin_user, calls):
    steps = [("publish", 300), ("pass", 1), ("drain", "n3"), ("die", calls), ("pass", 4)]
    told(control, nodes, admin_user, steps)
