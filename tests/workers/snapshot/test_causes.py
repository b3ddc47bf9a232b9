"""The headline names the true cause of each kind of trouble, stays, and offers what ends it."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.snapshot.trouble import APPLICATION, JOBS, VirtualPlant, count_changes
from workers.documents.queues import PauseStatus
from workers.documents.states import SEVERITIES
from workers.snapshot.health import evaluate_health
from workers.snapshot.suggestions import (
    suggest_application_restart,
    suggest_ending_holds,
    suggest_ending_pause,
    suggest_intake_pause,
    suggest_relief,
    suggest_slot,
)

Inject = Callable[[VirtualPlant, int], None]
PAUSE = {"part": "consumption", "override": 7, "by": "dana", "reason": "a test", "until": 1_790_000_000.0}


def make_handler_slow(plant: VirtualPlant, second: int) -> None:
    """The handler of slow takes 2.9 s, its workers have both slots, and each second makes all queues later."""
    plant.busy(slow=2)
    plant.fall_behind("slow", 1.0 * second, 140, service_seconds=2.9, out_per_second=0.7)
    # Those that wait for a slot get one now and then: their waits rise and fall.
    plant.fall_behind("alert", float(second % 45), 39, service_seconds=None)
    plant.fall_behind("process", float((second + 20) % 45), 205, service_seconds=None)


def send_burst(plant: VirtualPlant, second: int) -> None:
    """2,000 events at once, of which the loops handle 40/s."""
    left = max(0, 2_000 - 40 * second)
    plant.document["producers"]["web"]["queues"]["process"] = 200.0
    plant.busy(process=1)
    plant.queue(
        "process",
        in_per_second=200.0 if second < 5 else 5.0,
        out_per_second=45.0,
        waiting_events=left,
        wait_seconds=min(12.0, 1.0 * second) if left else 0.0,
        clearing_seconds=left / 45.0,
        trend="falling" if second > 10 else "rising",
    )


def poison(plant: VirtualPlant, second: int) -> None:
    plant.document["queues"]["process"]["containers"]["n1"]["dead_per_second"] = 5.0
    plant.queue("process", dead_letters=5 * second)


def kill_node_server(plant: VirtualPlant, second: int) -> None:
    lose_node(plant, second)


def freeze_agent(plant: VirtualPlant, second: int) -> None:
    lose_node(plant, second)
    plant.document["processes"] = [{"name": "agent-n2", "kind": "suspended", "at": plant.now}]


def lose_node(plant: VirtualPlant, second: int) -> None:
    silent = second > 3
    plant.document["nodes"]["n2"] |= {"age_seconds": 1.0 * second, "stale": second > 2}
    if silent:
        plant.document["nodes"]["n2"]["state"] = "OFFLINE"
        for name in ("alert", "telemetry"):
            plant.fall_behind(name, 1.0 * second, 20)
            plant.document["queues"][name]["containers"]["n2"]["oldest_seconds"] = 1.0 * second
    if second > 6:
        stalled = {"state": "stalled", "hindrance": "node n2 does not respond"}
        plant.document["pipeline"]["applications"][APPLICATION] |= stalled
        plant.document["pipeline"] |= {"state": "stalled", "hindrance": "node n2 does not respond"}


def kill_pipeline(plant: VirtualPlant, second: int) -> None:
    plant.document["pipeline"]["age_seconds"] = 1.0 * second
    plant.fall_behind("telemetry", 1.0 * second, 25 * second)
    if second > 10:
        plant.document["pipeline"]["state"] = "offline"


def reject_declaration(plant: VirtualPlant, second: int) -> None:
    plant.document["rejected"] = {APPLICATION: "patterns[0]: unknown column valu"}


def heat_key(plant: VirtualPlant, second: int) -> None:
    """One key has most events, so that its node is too busy."""
    sample = {"events": 100, "key": {"user-7": 80, "user-1": 10, "user-2": 10}}
    plant.document["producers"]["web"]["samples"] = {"alert": sample}
    plant.document["queues"]["alert"]["containers"]["n3"]["load"] = 0.9
    plant.fall_behind("alert", 1.0 * second, 900)
    plant.document["queues"]["alert"]["containers"]["n3"]["oldest_seconds"] = 1.0 * second
    plant.document["nodes"]["n3"] |= {"state": "TOOBUSY", "utilisation": 0.96}


def shed(plant: VirtualPlant, second: int) -> None:
    """Bots send more than the application can process, and the remedy ladder has enabled shedding."""
    ladder = {"law": "ladder", "mode": "auto", "target": {"queue": "telemetry"}, "terms": {"rung": 5}}
    plant.document["loops"]["ladder/telemetry"] = ladder
    plant.document["producers"]["bots"] = {"queues": {"telemetry": 60.0}}
    plant.document["pipeline"]["applications"][APPLICATION]["shed_share"] = 0.3
    plant.document["totals"]["shed_share"] = 0.3
    plant.fall_behind("telemetry", 8.0, 600, in_per_second=60.0)


def heat_key_of_jobs(plant: VirtualPlant, second: int) -> None:
    """One key has most events of a jobs queue, which holds both slots; the other queues wait."""
    sample = {"events": 100, "key": {"k-hot": 90, "k1": 5, "k2": 5}}
    plant.document["producers"]["web"] = {"queues": {"slow": 100.0}, "samples": {"slow": sample}}
    plant.busy(slow=2)
    plant.fall_behind("slow", 1.0 * second, 80 * second, in_per_second=100.0, out_per_second=20.0)
    for name in ("alert", "process"):
        plant.fall_behind(name, 1.0 * second, 5 * second, service_seconds=None)


def stop_pool(plant: VirtualPlant, second: int) -> None:
    if second > 10:
        plant.document["hosts"].pop("jobs@vm", None)
        plant.document["totals"]["worker_slots"] = 0
    for name in JOBS:
        plant.fall_behind(name, 1.0 * second, 5 * second)


def stop_control_worker(plant: VirtualPlant, second: int) -> None:
    for loop in plant.document["loops"].values():
        loop.setdefault("at", plant.now)
    if second > 10:
        plant.document["hosts"].pop("control@vm", None)


@dataclass(frozen=True)
class Kind:
    """A kind of trouble. known: when its cause can be known, s after its start; from then on there are 10 s."""

    inject: Inject
    says: str
    action: str
    known: float = 0.0
    severity: str = "critical"


KINDS = {
    "slow handler": Kind(
        make_handler_slow,
        "The handler of queue slow became 20× slower and holds both worker slots.",
        "Pause consumption of slow",
        known=30.0,  # until the first event is late
        severity="warning",
    ),
    "burst": Kind(
        send_burst, "A burst on queue process from web; the worker rate loop is handling it.", "", severity="warning"
    ),
    "poison": Kind(
        poison, "Events of queue process fail on every attempt.", "Open the dead letters of process", 0, "warning"
    ),
    "killed node server": Kind(kill_node_server, "Node n2 stopped reporting", "Restart agent-n2", 4.0),
    "frozen agent": Kind(
        freeze_agent, "Node n2 stopped reporting: the agent of n2 is suspended.", "Restart agent-n2", 4.0
    ),
    "killed pipeline": Kind(kill_pipeline, "The pipeline stopped reporting", "Restart pipeline", 11.0),
    "bad declaration": Kind(
        reject_declaration,
        "The newest declaration of performance was rejected: patterns[0]: unknown column valu.",
        "Change the declaration of performance",
        severity="warning",
    ),
    "hot key": Kind(
        heat_key, "Node n3 is too busy: most events of queue alert have the key user-7.", "Pause intake of alert"
    ),
    "overloaded application": Kind(
        shed,
        "Load shedding drops events of queue telemetry: more arrive than application performance can process.",
        "Pause intake of telemetry",
    ),
    "hot key that fills the pool": Kind(
        heat_key_of_jobs,
        "Queue slow holds both worker slots: most of its events have the key k-hot.",
        "Pause intake of slow",
        known=30.0,
        severity="warning",
    ),
    "stopped pool": Kind(
        stop_pool,
        "Worker host jobs@vm stopped: no worker processes events of alert, process, and slow.",
        "Restart worker-jobs",
        11.0,
    ),
    "stopped control worker": Kind(
        stop_control_worker,
        "The control worker control@vm has stopped reporting: no loop acts.",
        "Restart worker-control",
        11.0,
        "warning",
    ),
}


def start(*injects: Inject, seconds: int = 60) -> tuple[VirtualPlant, list[Any]]:
    """A plant that was calm for a minute, and what is seen while the trouble goes on."""
    plant = VirtualPlant()
    assert {seen.health.severity for seen in plant.run(60)} == {"well"}
    seen = []
    for second in range(seconds):
        for inject in injects:
            inject(plant, second)
        rows = plant.run(1)
        seen += [type(row)(row.seconds + second - 1.0, row.health) for row in rows]
    return plant, seen


@pytest.mark.parametrize("name", KINDS)
def test_the_headline_names_the_cause_within_ten_seconds_and_changes_at_most_every_five(name):
    kind = KINDS[name]
    plant, seen = start(kind.inject)
    wrong = [row.sentence for row in seen if row.seconds >= kind.known + 10 and not row.sentence.startswith(kind.says)]
    if name == "burst":  # it ends, and so does its backlog
        after = ("The backlog of a burst on queue process", "Queue process keeps up again")
        wrong = [sentence for sentence in wrong if not sentence.startswith(after)]
    assert wrong == []
    changes = count_changes(seen)
    assert all(later - before >= 5 for before, later in pairwise(changes)), changes
    worst = max((row.health for row in seen), key=lambda health: SEVERITIES.index(health.severity))
    assert worst.severity == kind.severity
    named = next(row for row in reversed(seen) if row.sentence.startswith(kind.says)).health.findings[0]
    assert [action.words for action in named.actions][:1] == ([kind.action] if kind.action else [])
    assert all(action.effect for action in named.actions)
    problems = [row for row in named_findings(plant) if row.severity in ("warning", "critical")]
    assert len(problems) <= 1, [row.sentence for row in problems]


def named_findings(plant: VirtualPlant) -> list[Any]:
    return plant.snapshot.health.findings


def test_a_slow_handler_says_who_waits_for_how_long_and_what_each_remedy_does():
    plant, _ = start(make_handler_slow, seconds=115)
    found = plant.snapshot.health.findings[0]
    assert found.impact == (
        "Queues alert and process can't get a slot: their oldest events wait 24 s and 44 s (limit 30 s). "
        "The oldest event of slow waits 114 s (limit 30 s). One event takes 2.9 s instead of 0.1 s."
    )
    assert set(found.affected) == {"queue/alert", "queue/process"}
    assert plant.states["queue/alert"].within == "queue/slow"
    pause, slot = found.actions
    assert pause.effect == (
        "Frees the worker slots when the workers of slow finish their current block (one event takes 2.9 s). "
        "Queues alert and process then catch up in about 24 s. Events of slow wait: 5.0/s arrive."
    )
    assert (slot.action, slot.subject, slot.value) == ("loop.mode", "loop/concurrency/jobs@vm", "3")
    assert slot.effect == (
        "The pool has 3 instead of 2 slots. Queue slow needs 15 slots for its arrivals, so it also fills the new slot, "
        "and queues alert and process wait again."
    )


def test_without_an_earlier_time_the_sentence_says_how_long_an_event_takes():
    plant = VirtualPlant()
    for second in range(60):
        make_handler_slow(plant, second)
        plant.run(1)
    sentence = "Queue slow holds both worker slots: its handler takes 2 s per event."
    assert plant.snapshot.health.sentence == sentence


def test_a_handler_that_was_changed_can_be_rolled_back():
    plant, _ = start(make_handler_slow, seconds=20)
    assert all("Roll back" not in action.words for action in plant.snapshot.health.findings[0].actions)
    plant.specs["slow"] = type(plant.specs["slow"])("slow", points={}, handler="other", kind="jobs")
    for second in range(20, 60):
        make_handler_slow(plant, second)
        plant.run(1)
    actions = plant.snapshot.health.findings[0].actions
    words = [action.words for action in actions]
    assert words == ["Pause consumption of slow", "Add 1 worker slot", "Roll back the handler of slow"]
    assert actions[-1].effect == (
        "Restores the handler options from before the last change. One event took 0.1 s before. "
        "140 waiting events then take about 9.3 s."
    )


EFFECTS = {
    "pause intake": (
        lambda plant: suggest_intake_pause(plant, "slow")[0],
        "Stops 2.0 events/s. Producers have to keep these events. 140 waiting events are still processed, in "
        "about 2 min at the current rate.",
    ),
    "add a slot": (
        lambda plant: suggest_slot(plant, "slow")[0],
        "The pool has 3 instead of 2 slots. Queue slow needs 1 slot for its arrivals. Its backlog takes about "
        "35 s, then other queues can use the new slot.",
    ),
    "end a pause": (
        lambda plant: suggest_ending_pause(plant, "slow", PauseStatus(part="consumption", override=7)),
        "Its consumption continues. 140 waiting events are processed, in about 70 s with all worker slots.",
    ),
    "end a hold": (
        lambda plant: suggest_ending_holds(plant, "slow", ["worker_rate/slow/n1"])[0],
        "The loop starts workers again within seconds. 140 waiting events are then processed in about 70 s "
        "with all worker slots.",
    ),
    "restart an application": (
        lambda plant: suggest_application_restart(plant, APPLICATION),
        "Continues from the last checkpoint within about 60 s. Until then, 3 events and about 1,500 more that "
        "arrive wait. If an event or a rule makes the application fail, it fails again.",
    ),
    "relieve a node": (
        lambda plant: suggest_relief(plant, "n1", "k7"),
        "Proposes a plan that you approve. To get below 70 %, n1 has to give about 300 of its 1,000 points to "
        "nodes with free capacity. A plan can't divide the key k7: all of its events stay on one node.",
    ),
}


@pytest.mark.parametrize("name", EFFECTS)
def test_each_action_states_its_effect_with_numbers_and_what_it_can_not_do(name):
    plant = VirtualPlant()
    plant.queue("slow", waiting_events=140, service_seconds=0.5, in_per_second=2.0, out_per_second=1.0)
    plant.document["nodes"]["n1"] |= {"utilisation": 1.0, "busy": 0.7, "points": 1_000}
    plant.run(1)
    suggest, effect = EFFECTS[name]
    assert suggest(plant.snapshot).effect == effect


def test_a_burst_says_how_long_it_takes_and_that_nothing_is_to_do():
    plant, _ = start(send_burst, seconds=30)
    found = plant.snapshot.health.findings[0]
    assert (found.severity, found.actions) == ("warning", [])
    assert found.impact == "Oldest event 12 s (limit 30 s); 840 events wait; empty in about 21 s. Nothing to do."


def test_a_burst_names_its_producer_only_while_it_arrives():
    plant, _ = start(send_burst, seconds=4)
    assert plant.snapshot.health.sentence.startswith("A burst on queue process from web")
    plant, _ = start(send_burst, seconds=45)
    assert plant.snapshot.health.sentence.startswith("The backlog of a burst on queue process;")


@pytest.mark.parametrize(("service_seconds", "first"), [(0.01, "Add 1 worker slot"), (0.05, "Pause intake of process")])
def test_of_a_burst_that_one_more_slot_can_not_process_the_intake_is_paused_first(service_seconds, first):
    plant = VirtualPlant()
    plant.run(60)
    plant.busy(process=2)
    for second in range(20):
        plant.fall_behind("process", 2.0 * second, 400 * second, in_per_second=200.0, service_seconds=service_seconds)
        plant.run(1)
    assert plant.snapshot.health.findings[0].actions[0].words == first


def test_two_causes_at_once_are_two_findings_each_with_its_action():
    plant, _ = start(make_handler_slow, reject_declaration, lose_node, seconds=60)
    found = [row.sentence for row in plant.snapshot.health.findings]
    assert found == [
        "Node n2 stopped reporting 50 s ago.",
        "The handler of queue slow became 20× slower and holds both worker slots.",
        "The newest declaration of performance was rejected: patterns[0]: unknown column valu.",
    ]


def test_a_more_severe_cause_comes_at_once_if_the_shown_one_is_five_seconds_old():
    plant, _ = start(poison, seconds=20)
    plant.document["nodes"]["n2"] |= {"age_seconds": 5.0, "stale": True, "state": "OFFLINE"}
    assert plant.observe().sentence == "Node n2 stopped reporting."


def test_a_paused_queue_is_the_cause_at_once_and_catches_up_in_silence():
    plant, _ = start(seconds=5)
    plant.queue("slow", pauses=[PAUSE], waiting_events=230)
    health = plant.observe()
    assert health.sentence == "Queue slow is paused (consumption) by dana until 14:13 UTC."
    assert health.findings[0].impact == "230 events wait. Reason: a test."
    for second in range(100):
        plant.fall_behind("slow", 1.0 * second, 230 + second)
        assert plant.observe().severity == "notice"
    plant.queue("slow", pauses=[])
    for second in range(60):
        plant.fall_behind("slow", 100.0, 330 - 5 * second)
        health = plant.observe()
        assert health.severity == "notice", (second, health.sentence)
    assert health.sentence == "Queue slow catches up after its pause."
    for _ in range(40):
        health = plant.observe()
    assert health.severity == "warning", "its backlog does not fall any more"


DESTINATION = {
    "circuit": "open",
    "since": 1_000_000.0,
    "at": 1_000_005.0,
    "failing_share": 0.84,
    "calls": 50.0,
    "error": "shop.example returned HTTP 503: overloaded",
    "queues": ["alert", "process", "slow"],
}


@pytest.mark.parametrize(
    ("circuit", "limits"), [("open", "only a few test calls are made"), ("limited", "retries are limited")]
)
def test_a_destination_that_fails_is_the_cause_and_names_the_queues_that_wait_for_it(circuit, limits):
    plant, _ = start(seconds=5)
    plant.document["destinations"] = {"shop.example:443": DESTINATION | {"circuit": circuit}}
    plant.queue("process", waiting_events=0)
    health = plant.observe()
    assert health.sentence == f"Calls to shop.example:443 have been failing since 13:46 UTC: {limits}."
    assert health.severity == "warning"
    assert health.findings[0].impact == (
        "84 % of the recent calls fail with “shop.example returned HTTP 503: overloaded”. "
        "Queues alert and slow wait for it."
    )


def test_the_late_queues_of_a_destination_that_fails_are_its_victims():
    plant, _ = start(seconds=5)
    plant.document["destinations"] = {"shop.example:443": DESTINATION}
    for second in range(100):
        for name in ("alert", "process", "slow"):
            plant.fall_behind(name, 1.0 * second, 230 + second)
        plant.observe()
    [finding, *others] = plant.snapshot.health.findings
    assert finding.sentence.startswith("Calls to shop.example:443 have been failing")
    assert not [other for other in others if other.subject.startswith("queue/")]


def test_a_destination_that_only_a_retry_plan_calls_is_named_with_the_plan():
    plant, _ = start(seconds=5)
    row = DESTINATION | {"queues": [], "retry_plans": [7]}
    plant.document["destinations"] = {"shop": row}
    health = plant.observe()
    assert health.sentence == "Calls to shop have been failing since 13:46 UTC: only a few test calls are made."
    assert health.severity == "warning"
    assert health.findings[0].impact.endswith("Retry plan 7 waits for it.")


@pytest.mark.parametrize(
    "changed",
    [
        {"circuit": "closed", "since": None},
        {"circuit": "closed", "since": None, "queues": [], "retry_plans": [7]},
        {"queues": []},
    ],
)
def test_a_destination_that_works_or_that_no_queue_calls_any_more_is_no_cause(changed):
    plant, _ = start(seconds=5)
    calm = plant.snapshot.health.sentence
    plant.document["destinations"] = {"shop.example:443": DESTINATION | changed}
    assert plant.observe().sentence == calm


def test_a_drained_node_is_not_counted_as_normal():
    plant = VirtualPlant()
    plant.document["nodes"]["n3"] |= {"drained": True, "points": 0}
    health = plant.observe()
    assert health.sentence == "All queues keep up."
    assert health.detail == "All 2 nodes in use are normal; n3 is drained."


def test_a_process_that_the_supervisor_restarted_quickly_is_seen_for_a_minute():
    plant = VirtualPlant()
    event = {"name": "n2", "kind": "restarted", "at": plant.now, "how": "SIGKILL", "down_seconds": 2.1}
    plant.document["processes"] = [event]
    health = plant.observe()
    assert (health.severity, health.sentence) == ("notice", "Process n2 restarted after SIGKILL.")
    assert health.findings[0].impact == "It was gone for 2.1 s."
    plant.document["processes"] = [event | {"down_seconds": 0.04}]
    plant.run(8)
    assert plant.snapshot.health.findings[0].impact == "", "it starts at once, which says nothing"


def test_events_that_come_in_batches_are_no_burst():
    plant = VirtualPlant()
    for second in range(120):
        plant.queue("process", in_per_second=10.0 if second % 3 == 0 else 0.0)
        plant.observe()
    assert plant.snapshot.queues["process"].burst_at is None
    assert plant.snapshot.queues["process"].usual_in_per_second == pytest.approx(3.3, abs=1.7)
    for _ in range(10):
        plant.queue("process", in_per_second=40.0)
        plant.observe()
    assert plant.snapshot.queues["process"].burst_at is not None


def test_a_queue_whose_handler_is_as_fast_as_before_catches_up():
    plant, _ = start(make_handler_slow, seconds=70)
    for second in range(40):
        plant.queue("slow", service_seconds=0.1, out_per_second=20.0)
        plant.fall_behind("slow", 70.0 - second, 140 - 3 * second)
        for name in ("alert", "process"):
            plant.fall_behind(name, 40.0 - second, 80 - 2 * second)
        health = plant.observe()
    assert (health.severity, health.sentence) == ("notice", "Queue slow catches up after a slow handler.")


CAUSES = {
    "slow": make_handler_slow,
    "node": lose_node,
    "pipeline": kill_pipeline,
    "pool": stop_pool,
    "declaration": reject_declaration,
    "poison": poison,
}
ROOTS = {
    "slow": "queue/slow",
    "node": "node/n2",
    "pipeline": "pipeline/main",
    "pool": "plant/workers",
    "declaration": f"application/{APPLICATION}",
    "poison": "queue/process",
}


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(sorted(CAUSES)), st.integers(15, 90), st.integers(0, 30))
def test_each_cause_is_one_root_and_its_victims_are_never_findings(cause, seconds, calm_seconds):
    plant = VirtualPlant()
    plant.run(calm_seconds)
    for second in range(seconds):
        CAUSES[cause](plant, second)
        plant.run(1)
        causes = [state for state in plant.states.values() if state.affected]
        for state in causes:
            assert not set(state.affected) & {row.subject for row in evaluate_plain(plant)}
    roots = [row.subject for row in evaluate_plain(plant) if row.severity in ("warning", "critical")]
    assert roots in ([ROOTS[cause]], []) or (cause == "slow" and seconds < 40)
    assert all(state.within in plant.states for state in plant.states.values() if state.within)


def evaluate_plain(plant: VirtualPlant) -> list[Any]:
    """The findings without the headline's hysteresis."""
    return evaluate_health(plant.snapshot).findings


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([None, *sorted(CAUSES)]), min_size=10, max_size=60))
def test_whatever_comes_and_goes_the_headline_changes_at_most_every_five_seconds(causes):
    seen = []
    plant = VirtualPlant()
    for second, cause in enumerate(causes):
        if cause is None:
            plant.document = type(plant)().document
        else:
            CAUSES[cause](plant, 40 + second)
        seen += [type(row)(second + row.seconds, row.health) for row in plant.run(1)]
    changes = count_changes(seen)
    assert all(later - before >= 5 for before, later in pairwise(changes)), changes


def test_what_an_outage_has_delayed_is_no_new_problem_when_it_ends():
    plant, _ = start(stop_pool, seconds=30)
    plant.document = VirtualPlant().document
    plant.queue("alert", latency_p95_seconds=27.0)
    seen = plant.run(20)
    assert {row.health.severity for row in seen[12:]} == {"notice"}
    assert seen[-1].sentence == "Queue alert catches up after the outage of its workers."


def test_a_slow_handler_stays_a_cause_beside_a_lost_node_where_its_events_wait():
    def wait_on_n2(plant: VirtualPlant, second: int) -> None:
        if second > 3:
            for name in JOBS:
                plant.document["queues"][name]["containers"]["n2"]["oldest_seconds"] = 1.0 * second

    plant, _ = start(make_handler_slow, lose_node, wait_on_n2)
    node, slow = plant.snapshot.health.findings[:2]
    assert (node.subject, slow.subject) == ("node/n2", "queue/slow")
    assert slow.actions[0].words == "Pause consumption of slow"
    assert "queue/slow" not in plant.states["node/n2"].affected


def test_a_pipeline_that_starts_again_is_the_cause_of_its_late_queues_until_they_have_caught_up():
    plant = VirtualPlant()
    plant.run(60)
    plant.document["pipeline"] |= {"state": "starting", "error": "its process exited"}
    for second in range(40):
        plant.fall_behind("telemetry", 1.0 * second, 25 * second)
        plant.run(1)
    (found,) = plant.snapshot.health.findings
    assert found.sentence.startswith("The pipeline is starting again after a failure: its process exited")
    assert "Nothing to do" in found.impact and found.actions == []
    plant.document["pipeline"] |= {"state": "running", "error": None}
    plant.queue("telemetry", waiting_events=900, wait_seconds=36.0, trend="falling")
    assert plant.observe().findings[0].severity == "notice"
    plant.run(6)
    assert plant.snapshot.health.sentence == "Queue telemetry catches up after the outage of the pipeline."


def test_a_burst_whose_events_are_processed_is_no_cause_of_what_comes_later():
    plant, _ = start(send_burst, seconds=60)
    plant.queue("process", waiting_events=0, wait_seconds=0.0, trend="steady")
    plant.run(2)
    plant.fall_behind("process", 40.0, 400)
    plant.run(8)
    assert plant.snapshot.health.sentence == "Queue process falls behind."
