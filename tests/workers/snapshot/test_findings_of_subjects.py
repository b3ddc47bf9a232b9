"""What the headline says of workers, nodes, queues, and dead letters, and which action it offers first."""

from collections.abc import Callable

import pytest

from tests.workers.snapshot.test_causes import lose_node, make_handler_slow, poison, start
from tests.workers.snapshot.trouble import JOBS, VirtualPlant
from workers.documents.states import build_finding_key
from workers.snapshot.scene import MAX_ERROR

Inject = Callable[[VirtualPlant, int], None]
PAUSE = {"part": "consumption", "override": 7, "by": "dana", "reason": "a test", "until": 1_790_000_000.0}


def test_a_worker_that_ended_early_names_the_node_unless_its_server_has_just_restarted():
    plant = VirtualPlant()
    plant.document["queues"]["alert"]["containers"]["n2"]["trouble"] = "127.0.0.1:7 is not responding."
    sentence = "Queue alert: a worker for node n2 ended early (127.0.0.1:7 is not responding)."
    assert plant.observe().sentence == sentence
    plant.document["processes"] = [{"name": "n2", "kind": "restarted", "at": plant.now, "how": "SIGKILL"}]
    plant.run(6)
    assert plant.snapshot.health.sentence == "Process n2 restarted after SIGKILL."


def test_who_holds_the_slots_is_named_before_a_queue_is_late():
    plant, _ = start(make_handler_slow, seconds=14)
    found = plant.snapshot.health.findings[0]
    assert (found.severity, found.sentence) == (
        "warning",
        "The handler of queue slow became 20× slower and holds both worker slots.",
    )
    assert found.actions[0].words == "Pause consumption of slow"


def test_that_a_queue_only_fills_is_said_after_four_seconds_so_that_its_cause_can_come_first():
    plant = VirtualPlant()
    plant.run(60)
    plant.fall_behind("slow", 4.5)
    assert not any("filling" in one.sentence for one in plant.run(4))
    assert plant.run(3)[-1].sentence == "Queue slow is filling; the worker rate loop is handling it."


def test_a_queue_that_waited_for_slots_and_becomes_slow_itself_does_not_catch_up():
    plant, _ = start(make_handler_slow, seconds=60)
    for name in JOBS:
        plant.queue(name, waiting_events=3, wait_seconds=0.5, service_seconds=0.1, trend="steady")
    plant.busy(process=1)
    plant.run(20)
    for second in range(30):
        plant.busy(process=2)
        plant.fall_behind("process", 2.0 * second, 100 + 50 * second, service_seconds=2.9)
        plant.run(1)
        if second > 10:
            assert "catches up" not in plant.snapshot.health.sentence
    assert plant.snapshot.health.sentence.startswith("The handler of queue process became 20× slower")


def test_of_a_lost_node_whose_server_refuses_workers_the_server_is_restarted_first():
    plant, _ = start(lose_node, seconds=20)
    words = [action.words for action in plant.snapshot.health.findings[0].actions]
    assert words == ["Restart agent-n2", "Restart n2"]
    plant.document["queues"]["alert"]["containers"]["n2"]["trouble"] = "127.0.0.1:7 is not responding."
    plant.run(1)
    words = [action.words for action in plant.snapshot.health.findings[0].actions]
    assert words == ["Restart n2", "Restart agent-n2"]
    assert plant.snapshot.health.sentence == "Node n2 stopped reporting: its server does not respond."


@pytest.mark.parametrize(
    ("down", "what", "first"),
    [
        (["n2"], "its server is down", "Restart n2"),
        (["agent-n2"], "its agent is down", "Restart agent-n2"),
        (["n2", "agent-n2"], "its server and its agent are down", "Restart n2"),
    ],
)
def test_a_lost_node_says_which_process_is_down_and_offers_its_restart_first(down, what, first):
    plant = VirtualPlant()
    plant.run(20)
    plant.document["processes"] = [{"name": name, "kind": "down", "at": plant.now} for name in down]
    for second in range(20):
        lose_node(plant, second)
        plant.run(1)
    assert plant.snapshot.health.sentence == f"Node n2 stopped reporting: {what}."
    assert plant.snapshot.health.findings[0].actions[0].words == first


def test_a_queue_without_a_backlog_does_not_fall_behind_and_has_no_actions():
    plant = VirtualPlant()
    plant.run(60)
    for second in range(40):
        plant.fall_behind("process", 1.0 * second, 40 * second, latency_p95_seconds=1.0 * second)
        plant.run(1)
    assert plant.snapshot.health.sentence.startswith("Queue process falls behind")
    # Half of the limit is not clear yet, and the latency is of events that have left.
    plant.queue("process", wait_seconds=20.0, waiting_events=1, trend="steady", latency_p95_seconds=38.0)
    plant.run(6)
    (finding,) = plant.snapshot.health.findings
    assert (finding.sentence, finding.severity, finding.actions) == ("Queue process has caught up.", "notice", [])
    assert finding.impact.endswith("The p95 latency of the last seconds is 38 s (limit 15 s). Nothing to do.")
    plant.queue("process", wait_seconds=31.0)
    plant.run(6)
    assert plant.snapshot.health.severity != "notice", "one event that waits too long is a problem"


def test_the_first_start_of_the_pipeline_is_no_outage():
    plant = VirtualPlant()
    plant.document["pipeline"] |= {"state": "starting"}
    for second in range(40):
        plant.fall_behind("telemetry", 1.0 * second, 25 * second)
        plant.run(1)
    plant.document["pipeline"] |= {"state": "running"}
    plant.queue("telemetry", waiting_events=900, wait_seconds=36.0, trend="falling")
    plant.run(7)
    assert plant.snapshot.health.sentence == "Queue telemetry catches up after the start of the pipeline."


def test_that_some_events_fail_is_not_said_of_all():
    plant, _ = start(poison, seconds=20)
    assert plant.snapshot.health.sentence == "Events of queue process fail on every attempt."
    plant.document["queues"]["process"]["containers"]["n1"]["dead_per_second"] = 0.2
    plant.run(7)
    assert plant.snapshot.health.sentence == "Some events of queue process fail on every attempt."


def test_failing_events_are_named_with_their_share_and_their_error_and_lead_to_the_dead_letters():
    plant, _ = start(poison, seconds=20)
    part = plant.document["queues"]["process"]["containers"]["n1"]
    part |= {"dead_per_second": 0.2, "dead_error": "KeyError:\n\t'amount' <b>\u202e" + "x" * 400}
    plant.run(7)
    (finding,) = plant.snapshot.health.findings
    assert finding.impact.startswith("4 % of its events fail with “KeyError: 'amount' <b> xxx")
    error = finding.impact.partition("“")[2].partition("”")[0]
    assert len(error) <= MAX_ERROR and error.endswith("…") and error.isprintable()
    assert finding.actions[0].words == "Open the dead letters of process"
    part["dead_per_second"] = 0.0
    plant.run(10)
    assert "The newest dead letter failed with “KeyError" in plant.snapshot.health.findings[0].impact


def test_of_two_warnings_the_one_that_a_person_can_end_comes_first():
    plant = VirtualPlant()
    harmful = {
        "id": 1, "rule": "loop-harmful", "condition": "loop_harmful", "severity": "warning",
        "title": "rebalancing: actions made the measurement worse", "labels": {"loop": "rebalancing"},
        "sentence": "3 actions made the measurement worse.", "since": plant.now,
    }  # fmt: skip
    plant.document["alerts"] = [harmful]
    plant.run(30)
    assert plant.snapshot.health.findings[0].sentence == harmful["sentence"]
    for second in range(20):
        poison(plant, second)
        plant.run(1)
    assert [finding.sentence for finding in plant.snapshot.health.findings] == [
        "Events of queue process fail on every attempt.",
        harmful["sentence"],
    ]


def test_dead_letters_of_an_earlier_problem_are_no_headline_beside_a_present_cause():
    plant, _ = start(poison, seconds=20)
    plant.document["queues"]["process"]["containers"]["n1"]["dead_per_second"] = 0.0
    plant.run(10)
    assert plant.snapshot.health.sentence == "Queue process has dead letters."
    for second in range(40):
        plant.busy(process=2)
        plant.fall_behind("process", 2.0 * second, 40 * second, service_seconds=2.9)
        plant.run(1)
    first, second = plant.snapshot.health.findings[:2]
    assert first.sentence.startswith("The handler of queue process became 20× slower")
    assert (second.sentence, second.severity) == ("Queue process has dead letters.", "notice")
    assert build_finding_key(first) != build_finding_key(second)
