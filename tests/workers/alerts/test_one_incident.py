"""One cause is one incident with one notification and one end, as the headline names it."""

import copy
from typing import Any

import pytest

from common.stored_document import convert_to_plain
from tests.workers.alerts.checks import Looks, rule
from tests.workers.snapshot.test_causes import PAUSE, lose_node, make_handler_slow
from tests.workers.snapshot.trouble import JOBS, VirtualPlant
from workers.alerts.conditions.evidence import LedgerTick, LoopFacts
from workers.alerts.lifecycle.models import Alert, Delivery

pytestmark = pytest.mark.django_db
OBJECTIVES = {"late": {"target": 0.99, "window_days": 30, "kind": "queue", "subject": "alert"}}
FIRING, RESOLVED = Delivery.Kind.FIRING, Delivery.Kind.RESOLVED


@pytest.fixture
def looks(looks: Looks) -> Looks:
    rule("queue-behind", condition="queue_wait", title="Queue {queue} falls behind", threshold=30, clear_threshold=15,
         severity="warning", for_seconds=10)  # fmt: skip
    rule("burns", condition="budget_burn_fast", title="{objective}: burns", threshold=14, clear_threshold=14)
    return looks


class WatchedPlant:
    """A virtual plant whose alerts are checked every two seconds."""

    def __init__(self, looks: Looks) -> None:
        self.plant, self.looks = VirtualPlant(), looks
        looks.now = self.plant.now
        self.run(range(60), lambda plant, second: None)

    def run(self, seconds: range, inject: Any) -> None:
        for second in seconds:
            inject(self.plant, second)
            self.plant.observe()
            if second % 2 == 0:
                self.looks.snapshot = convert_to_plain(self.plant.snapshot)
                self.looks.look()


def burn(plant: VirtualPlant, second: int) -> None:
    make_handler_slow(plant, second)
    if second > 70:
        plant.document["objectives"] = {"late": {**OBJECTIVES["late"], "burn": {"fast": 90.0}}}


def calm(plant: VirtualPlant, second: int) -> None:
    plant.document = VirtualPlant().document


def roots() -> list[str]:
    fired = Alert.objects.filter(under=None, resolved_at=None, fired_at__isnull=False)
    return list(fired.values_list("title", flat=True))


def count(kind: str) -> int:
    return Delivery.objects.filter(kind=kind).count()


CAUSE = "The handler of queue slow became 20× slower and holds both worker slots"


def test_a_slow_handler_is_one_incident_that_becomes_critical_and_notifies_once(looks):
    watched = WatchedPlant(looks)
    watched.run(range(120), burn)
    assert Alert.objects.filter(fired_at__isnull=False).count() >= 3
    assert roots() == [CAUSE]
    leader = Alert.objects.get(under=None, fired_at__isnull=False)
    assert leader.severity == "critical", "the error budget burns"
    assert count(FIRING) == 1
    assert leader.impact.startswith("Queue alert can't get a slot:")
    watched.run(range(120, 200), calm)
    assert roots() == []
    assert (count(FIRING), count(RESOLVED)) == (1, 1)
    leader.refresh_from_db()
    assert leader.title == CAUSE, "the record keeps the cause"
    assert not Alert.objects.filter(title=CAUSE).exclude(pk=leader.pk).exists(), "other alerts keep their titles"


def test_two_causes_at_once_are_two_incidents_with_one_notification_each(looks):
    rule("node-lost", condition="node_lost", title="Node {node} is lost", threshold=10, clear_threshold=3)

    def strike(plant: VirtualPlant, second: int) -> None:
        make_handler_slow(plant, second)
        lose_node(plant, second)
        for name in JOBS:
            plant.document["queues"][name]["containers"]["n2"]["oldest_seconds"] = 1.0 * second

    watched = WatchedPlant(looks)
    watched.run(range(120), strike)
    assert sorted(roots()) == ["Node n2 stopped reporting", CAUSE]
    assert count(FIRING) == 2


def test_a_pipeline_that_starts_again_is_one_incident_of_all_its_queues(looks):
    def restart(plant: VirtualPlant, second: int) -> None:
        plant.document["pipeline"] |= {"state": "starting", "error": "its process exited"}
        plant.document["queues"]["clicks"] = copy.deepcopy(plant.document["queues"]["telemetry"])
        for name in ("telemetry", "clicks"):
            plant.fall_behind(name, 2.0 * second, 25 * second)

    watched = WatchedPlant(looks)
    watched.run(range(60), restart)
    (title,) = roots()
    assert title.startswith("The pipeline is starting again") and count(FIRING) == 1


def test_while_the_cause_is_paused_its_victims_are_no_incidents_and_it_catches_up_in_silence(looks):
    watched = WatchedPlant(looks)
    watched.run(range(100), make_handler_slow)
    assert count(FIRING) == 1

    def pause(plant: VirtualPlant, second: int) -> None:
        plant.busy(alert=1, process=1)
        plant.fall_behind("slow", 1.0 * second, 140 + second, pauses=[PAUSE], service_seconds=None)
        for name in ("alert", "process"):
            plant.fall_behind(name, max(0.0, 60.0 - 2 * (second - 100)), max(0, 200 - 5 * (second - 100)))

    watched.run(range(100, 600), pause)
    assert roots() == [CAUSE] and count(FIRING) == 1

    def catch_up(plant: VirtualPlant, second: int) -> None:
        left = max(0, 740 - 5 * (second - 600))
        plant.busy(slow=1)
        plant.queue("slow", pauses=[], waiting_events=left, wait_seconds=left / 2, trend="falling", service_seconds=0.2)

    watched.run(range(600, 800), catch_up)
    assert roots() == []
    assert (count(FIRING), count(RESOLVED)) == (1, 1)
    assert Delivery.objects.get(kind=FIRING).alert.title == CAUSE, "a pause for the cause isn't the cause"


def test_a_long_pause_notifies_nobody_when_it_ends_unless_the_backlog_stays(looks):
    watched = WatchedPlant(looks)

    def pause(plant: VirtualPlant, second: int) -> None:
        plant.fall_behind("slow", 1.0 * second, 5 * second, pauses=[PAUSE])

    watched.run(range(300), pause)
    watched.run(range(300, 360), lambda plant, second: plant.queue("slow", pauses=[], waiting_events=1_500 - second))
    assert count(FIRING) == 0
    watched.run(range(360, 420), lambda plant, second: None)
    assert count(FIRING) == 1


def harm(watched: WatchedPlant, *targets: dict[str, str]) -> None:
    """A loop of each target has just made its measurement worse."""
    loops = []
    for number, target in enumerate(targets):
        name = "/".join(["worker_rate", *target.values()]) if target else "rebalancing"
        ticks = [LedgerTick(number, watched.plant.now, True, 1.0, None, "harmful")]
        facts = LoopFacts(number, name, name.partition("/")[0], target, 5.0, 5.0, watched.plant.now, ticks=ticks)
        loops.append(facts)
    watched.looks.more = {"loops": loops}


@pytest.fixture
def harmful_rule(looks: Looks) -> None:
    rule("loop-harmful", condition="loop_harmful", title="{loop}: made the measurement worse", severity="warning",
         threshold=1, clear_threshold=1, window_seconds=900)  # fmt: skip


def test_harmful_actions_during_a_problem_belong_to_it_and_are_over_with_it(looks, harmful_rule):
    watched = WatchedPlant(looks)
    watched.run(range(12), make_handler_slow)
    harm(watched, {"queue": "alert", "node": "n1"}, {}, {"host": "jobs@vm"})
    watched.run(range(12, 60), make_handler_slow)
    assert roots() == [CAUSE] and Alert.objects.filter(condition="loop_harmful").count() == 3
    sentences = [finding.sentence for finding in watched.plant.snapshot.health.findings]
    assert not any("made the measurement worse" in sentence for sentence in sentences)
    watched.run(range(60, 400), calm)
    assert roots() == [], "the actions are in the window of the rule, and their problem is over"
    watched.run(range(400, 500), calm)
    assert (roots(), count(FIRING), count(RESOLVED)) == ([], 1, 1)


def test_harmful_actions_without_a_problem_are_their_own_incident(looks, harmful_rule):
    watched = WatchedPlant(looks)
    harm(watched, {"queue": "alert", "node": "n1"})
    watched.run(range(100), calm)
    assert roots() == ["Worker rate of alert on n1: made the measurement worse"]
    watched.run(range(100, 200), make_handler_slow)
    assert sorted(roots()) == [CAUSE, "Worker rate of alert on n1: made the measurement worse"]


def test_a_harmful_action_after_a_problem_is_an_incident_of_its_own_title(looks, harmful_rule):
    watched = WatchedPlant(looks)
    watched.run(range(30), make_handler_slow)
    harm(watched, {"queue": "alert", "node": "n1"})
    watched.run(range(30, 60), make_handler_slow)
    watched.run(range(60, 300), calm)
    harm(watched, {"queue": "alert", "node": "n1"})
    watched.run(range(300, 320), calm)
    assert roots() == ["Worker rate of alert on n1: made the measurement worse"]
