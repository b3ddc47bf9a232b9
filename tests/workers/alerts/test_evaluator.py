"""Looks at a plant: alerts begin, are told once, are explained, silenced, and end, whatever dies between."""

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.workers.alerts.checks import Looks, kinds, loop_facts, lost, node, plant, queue, rule, shipped, the_alert
from workers.alerts.conditions.evidence import FailingReceiver, FailureRecord, LoopFacts
from workers.alerts.conditions.gatherer import Gatherer, list_loop_facts
from workers.alerts.delivery import outbox
from workers.alerts.evaluation import evaluator, impact
from workers.alerts.evaluation.evaluator import EvaluatorOvertaken
from workers.alerts.incidents import compute_onset
from workers.alerts.lifecycle.models import Alert, AlertRule, Delivery, Receiver, Silence
from workers.alerts.lifecycle.open_alerts import (
    build_alert_status,
    describe_situation,
    list_opening_incidents,
    open_alerts,
)
from workers.alerts.rules import rules
from workers.alerts.rules.rules import ensure_rules
from workers.models import LedgerEntry, Loop
from workers.steering.overrides import set_override

pytestmark = pytest.mark.django_db


@pytest.fixture
def person(django_user_model):
    return django_user_model.objects.create_user("desk-2")


def test_a_lost_node_fires_notifies_once_and_ends(looks):
    rule()
    looks.snapshot = lost()
    looks.look()
    alert = the_alert()
    assert (alert.state, alert.title, alert.labels) == ("firing", "Node n1 is lost", {"node": "n1"})
    assert "has not reported for 14 s" in alert.sentence and "The node has 1,000 points of alert" in alert.impact
    looks.pass_seconds(20)
    assert [each.step for each in Delivery.objects.all()] == [0]
    looks.snapshot = plant()
    looks.pass_seconds(12)
    alert.refresh_from_db()
    assert alert.state == "resolved" and kinds(alert) == ["fired", "resolved"]
    assert [each.kind for each in Delivery.objects.order_by("pk")] == ["firing", "resolved"]
    assert open_alerts() == []


def test_what_is_over_is_said_as_it_was_at_its_worst(looks):
    """A review of an outage of two minutes said that events took effect 2 s late."""
    rule()
    for seconds in (14.0, 90.0, 20.0):
        looks.snapshot = lost(seconds=seconds)
        looks.look()
    assert "for 20 s" in the_alert().sentence and "for 90 s" in the_alert().worst_sentence
    looks.snapshot = plant()
    looks.pass_seconds(14)
    alert = the_alert(state="resolved")
    assert "for 90 s" in alert.worst_sentence and "The node has 1,000 points" in impact.read_recorded_impact(alert)


def test_before_it_has_held_for_long_enough_nothing_is_shown(looks):
    rule(for_seconds=30)
    looks.snapshot = lost()
    looks.pass_seconds(20)
    assert the_alert().state == "pending" and open_alerts() == []
    assert list_opening_incidents() == {"node/n1": the_alert().began_at.timestamp() + 30}
    looks.snapshot = plant()
    looks.look()
    assert not Alert.objects.exists()


def test_while_nobody_observes_alerts_stay_and_none_is_made(looks):
    rule()
    rule("observer-silent", condition="observer_silent", title="Nobody observes", threshold=10, clear_threshold=5)
    looks.snapshot = lost()
    looks.look()
    looks.snapshot = None
    looks.pass_seconds(60)
    assert the_alert().state == "firing"


def test_a_rule_that_is_switched_off_ends_its_alerts(looks):
    made = rule()
    looks.snapshot = lost()
    looks.look()
    rules.define(made.name, {"enabled": False}, looks.at)
    looks.pass_seconds(4)
    assert the_alert().state == "resolved"


def test_a_rule_watches_only_what_its_matchers_leave(looks):
    rule(matchers=[{"label": "node", "is": "!=", "value": "n1"}])
    looks.snapshot = lost()
    looks.look()
    assert not Alert.objects.exists()


def test_what_comes_back_soon_is_the_same_alert(looks):
    rule()
    for _ in range(2):
        looks.snapshot = lost()
        looks.pass_seconds(10)
        looks.snapshot = plant()
        looks.pass_seconds(30)
    assert kinds(the_alert()) == ["fired", "resolved", "came back", "resolved"]
    assert [each.round for each in Delivery.objects.filter(kind="firing")] == [1, 2]


def test_an_alert_that_comes_back_is_as_old_as_the_present_failure(looks):
    rule()
    began = []
    for _ in range(3):
        looks.snapshot = lost()
        looks.look()
        began.append(looks.at)
        looks.pass_seconds(8)
        looks.snapshot = plant()
        looks.pass_seconds(300)
    looks.snapshot = lost()
    looks.look()
    alert = the_alert()
    assert (alert.fired_at, alert.since) == (began[0], looks.at)
    assert alert.recurrence == "fourth time in 16 min"
    status = build_alert_status(alert)
    assert (status.since, status.recurrence) == (looks.now, alert.recurrence)
    assert compute_onset(alert) >= looks.at - timedelta(seconds=alert.threshold)
    looks.pass_seconds(8)
    looks.snapshot = plant()
    looks.pass_seconds(30)
    assert describe_situation(the_alert()).words.endswith("after 20 s.")


def test_a_dead_node_explains_its_queues(looks):
    rule()
    rule(
        "queue-behind",
        condition="queue_wait",
        title="{queue} behind",
        threshold=30,
        severity="warning",
        clear_threshold=15,
    )
    looks.snapshot = {**lost(), "queues": {"alert": queue(99), "telemetry": queue(99, nodes=("n2",))}}
    looks.pass_seconds(6)
    cause = the_alert(rule_name="node-lost")
    assert the_alert(labels__queue="alert").under == cause
    assert the_alert(labels__queue="telemetry").under is None
    notified = {each.alert.title for each in Delivery.objects.select_related("alert")}
    assert notified == {"Node n1 is lost", "telemetry behind"}
    looks.snapshot = plant(queues={"alert": queue(99)})
    looks.pass_seconds(60)
    assert the_alert(labels__queue="alert").under == cause, "it catches up, and tells nobody meanwhile"
    looks.pass_seconds(126, 6)
    assert the_alert(labels__queue="alert").under is None
    assert "alert behind" in {each.alert.title for each in Delivery.objects.select_related("alert")}


def test_a_silence_suppresses_it_until_it_ends_and_then_it_notifies(looks, person):
    rule()
    silence = Silence.objects.create(
        matchers=[{"label": "node", "is": "~", "value": "n*"}],
        reason="the host moves",
        owner=person,
        created_at=looks.at,
        expires_at=looks.at + timedelta(minutes=2),
    )
    looks.snapshot = lost()
    looks.pass_seconds(60, 6)
    alert = the_alert()
    assert alert.silence == silence and not Delivery.objects.exists()
    assert open_alerts()[0].quiet == "silenced"
    looks.pass_seconds(90, 6)
    alert.refresh_from_db()
    assert alert.silence is None and Delivery.objects.count() == 1
    assert kinds(alert) == ["fired", "silenced", "silence ended"]


def test_the_escalation_goes_on_until_somebody_has_it(looks, person):
    Receiver.objects.create(name="second", channel="webhook", settings={"url": "http://x"})
    rule()
    steps = [{"after_minutes": 0, "receivers": ["desk"]}, {"after_minutes": 5, "receivers": ["second"]}]
    rules.define("node-lost", {"escalation": steps}, looks.at)
    looks.snapshot = lost()
    looks.pass_seconds(298, 6)
    assert Delivery.objects.count() == 1
    looks.pass_seconds(8)
    assert [each.receiver.name for each in Delivery.objects.order_by("pk")] == ["desk", "second"]
    assert "escalated" in kinds(the_alert())


def test_an_evaluator_that_was_overtaken_writes_nothing(looks):
    rule()
    looks.fence = 7
    looks.look()
    looks.snapshot, looks.fence = lost(), 6
    with pytest.raises(EvaluatorOvertaken):
        looks.look()
    assert not Alert.objects.exists()


def test_a_check_that_dies_in_the_middle_leaves_nothing_and_the_next_does_it_all(looks, monkeypatch):
    rule()
    looks.snapshot = lost()

    def die(*_):
        raise KeyboardInterrupt

    for place in ((evaluator, "prepare_deliveries"), (outbox, "owe"), (evaluator, "_begin_new"), (evaluator, "_write")):
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(*place, die)
            looks.look()
        assert not Alert.objects.exists() and not Delivery.objects.exists()
    looks.look()
    assert Delivery.objects.count() == 1 and kinds(the_alert()) == ["fired"]


def test_another_evaluator_goes_on_where_one_ended(looks):
    rule(for_seconds=20)
    looks.snapshot = lost()
    looks.pass_seconds(14)
    successor = Looks()
    successor.now, successor.snapshot, successor.fence = looks.now, looks.snapshot, 9
    successor.look(6.0)
    successor.look()
    assert the_alert().state == "firing"


def test_the_notice_of_failed_notifying_does_not_go_the_failed_way(looks):
    rule(
        "delivery-failing",
        condition="delivery_failing",
        title="Delivery to {receiver} fails",
        threshold=3,
        clear_threshold=1,
    )
    looks.more = {"failing": [FailingReceiver("desk", 4, 0, "no route")]}
    looks.look()
    assert the_alert().state == "firing" and not Delivery.objects.exists()


def test_conditions_of_records_and_of_a_pool_that_refuses_to_grow_fire(looks):
    notify = {"threshold": 1, "clear_threshold": 1, "window_seconds": 600}
    rule("plan-failed", condition="plan_failed", title="Plan {plan} failed", **notify)
    rule("task-failed", condition="run_failed", title="Task {task} failed", **notify)
    rule("throttled", condition="throttled", title="{queue} throttled", threshold=1, clear_threshold=1)
    rule("loop-held", condition="loop_held", title="{loop} held", threshold=60, clear_threshold=60)
    rule("stopped", condition="loops_stopped", title="No loop ticks", threshold=60, clear_threshold=30)
    rule("pool", condition="pool_refuses", title="Pool of {host}", threshold=1, clear_threshold=1)
    hosts = {"jobs@a": {"trouble": "BlockingIOError: no process"}, "jobs@b": {"trouble": ""}}
    looks.snapshot["hosts"] = hosts
    held = replace(loop_facts(looks, []), held_since=looks.now - 4_000, ticked_at=looks.now - 90, mode="hold")
    looks.more = {
        "plans": [FailureRecord(4, "Drain n1", looks.now, "n2 was lost")],
        "runs": [FailureRecord(9, "retention", looks.now, "no space left")],
        "throttled": ["alert"],
        "loops": [held],
    }
    looks.look()
    titles = set(Alert.objects.filter(state="firing").values_list("title", flat=True))
    assert titles == {
        "Plan 4 failed",
        "Task retention failed",
        "alert throttled",
        "Worker rate of alert on n1 held",
        "No loop ticks",
        "Pool of jobs@a",
    }
    assert "no process" in the_alert(condition="pool_refuses").sentence


def test_a_pipeline_that_is_stalled_is_said_with_its_reason_and_explains_its_loops(looks):
    rule("stalled", condition="pipeline_stalled", title="Stalled", threshold=1, clear_threshold=1)
    rule("blind", condition="loop_stale", title="Blind", threshold=30, clear_threshold=10)
    blind = loop_facts(looks, [("stale measurement", "no action", None)] * 8)
    looks.more = {"loops": [replace(blind, name="flow/app", law="flow", target={"application": "app"})]}
    row = {"state": "stalled", "hindrance": "replica iap1 has not finished its batch for 20 s"}
    looks.snapshot = plant(pipeline={"state": "stalled", "applications": {"app": row}})
    looks.look()
    stalled, loop = (Alert.objects.get(title=title) for title in ("Stalled", "Blind"))
    assert stalled.sentence == "app is stalled: replica iap1 has not finished its batch for 20 s."
    assert loop.under == stalled
    row |= {"state": "running", "hindrance": None}
    looks.pass_seconds(12)
    stalled.refresh_from_db()
    assert stalled.state == "resolved"


def starved(looks: Looks, count: int) -> list[LoopFacts]:
    """Nine loops, so many of them without a measurement for want of processor time."""
    blind = loop_facts(looks, [("stale measurement", "no action", None)] * 8)
    seeing = loop_facts(looks, [(None, "no action", 1.0)] * 8)
    return [
        replace(each, id=at, name=f"flow/{at}", target={}, cause=cause)
        for at in range(9)
        for each, cause in [(blind, "host") if at < count else (seeing, None)]
    ]


def test_nine_loops_without_measurement_on_one_busy_host_are_one_incident(looks):
    shipped("host-overloaded", "loop-blind", "node-lost", "queue-behind", "pipeline-down")
    nodes = {name: node("OFFLINE", 14.0) for name in ("n1", "n2")}
    for _ in range(40):
        down = {"state": "failed", "error": "no executor"}
        looks.snapshot = plant(nodes=nodes, queues={"alert": queue(99)}, pipeline=down)
        looks.more = {"loops": starved(looks, 9), "load_per_core": 4.1}
        looks.look()
    open_now = Alert.objects.filter(state="firing")
    (cause,) = open_now.filter(under=None)
    assert cause.rule_name == "host-overloaded" and open_now.count() >= 9 + 2 + 1
    assert cause.sentence.startswith("9 of 9 loops tick late or lack a measurement")
    assert "4.1 per core" in cause.sentence
    notified = Delivery.objects.filter(alert__condition="loop_stale")
    assert not notified.exists(), "nobody is called for each loop"


@pytest.mark.parametrize(
    "pipeline",
    [{"state": "failed", "error": "n2 does not answer"}, {"state": "offline", "age_seconds": 40.0}],
    ids=["fails", "starts anew"],
)
def test_a_pipeline_that_fails_as_a_node_is_lost_is_no_incident_of_its_own(looks, pipeline):
    shipped("node-lost", "pipeline-down")
    nodes = {"n1": node(), "n2": node("OFFLINE", 14.0)}
    for _ in range(20):
        part = {"state": pipeline["state"], "since": looks.now - 60}
        looks.snapshot = plant(nodes=nodes, pipeline=pipeline, parts={"pipeline": part})
        looks.look()
    assert the_alert(condition="pipeline_down").under == the_alert(condition="node_lost")


def test_one_lost_node_is_called_for_also_on_a_busy_host(looks):
    shipped("host-overloaded", "node-lost")
    nodes = {"n1": node("OFFLINE", 14.0), "n2": node(), "n3": node()}
    for _ in range(10):
        looks.snapshot = plant(nodes=nodes)
        looks.more = {"loops": starved(looks, 9), "load_per_core": 4.0}
        looks.look()
    assert the_alert(condition="node_lost").under is None


def test_loops_that_do_not_tick_on_an_idle_host_are_not_blamed_on_it(looks):
    late = [replace(each, ticked_at=looks.now - 60) for each in starved(looks, 0)]
    late[0] = replace(late[0], ticked_at=looks.now - 8)
    for load, percent in ((0.2, 0.0), (3.0, pytest.approx(100 * 8 / 9))):
        evidence = replace(looks.evidence(), loops=late, load_per_core=load)
        [reading] = evaluator.CONDITIONS["host_overloaded"].read(evidence, 600.0)
        assert reading.value == percent


def test_a_frozen_observer_on_a_busy_host_is_not_blamed_on_the_host_while_ticks_come_in_time(looks):
    for silent, late, percent in ((25.0, False, 0.0), (25.0, True, 100.0), (4.0, False, 100.0)):
        loops = [replace(each, is_late=late) for each in starved(looks, 9)]
        evidence = replace(looks.evidence(), loops=loops, load_per_core=1.5, silent_seconds=silent)
        [reading] = evaluator.CONDITIONS["host_overloaded"].read(evidence, 600.0)
        assert reading.value == percent, (silent, late)


def test_a_frozen_control_worker_is_not_blamed_on_the_host_while_the_plant_is_observed(looks):
    stopped = [replace(each, ticked_at=looks.now - 40) for each in starved(looks, 0)]
    one_ticks = [replace(stopped[0], ticked_at=looks.now - 1), *stopped[1:]]
    for loops, silent, least in ((stopped, 1.0, 0), (one_ticks, 1.0, 80), (stopped, 7.0, 100)):
        evidence = replace(looks.evidence(), loops=loops, load_per_core=2.0, silent_seconds=silent)
        [reading] = evaluator.CONDITIONS["host_overloaded"].read(evidence, 600.0)
        assert least <= reading.value <= 100 * (least > 0), silent


def test_no_loop_ticks_is_said_from_when_the_last_one_is_due(looks):
    loop = starved(looks, 0)[0]
    slow, quick = replace(loop, interval_seconds=60), replace(loop, interval_seconds=2)
    for ages, due in (((50, 45), 43.0), ((50, 1), 0.0), ((1, 45), 0.0), ((90, 5), 3.0)):
        loops = [replace(each, ticked_at=looks.now - age) for each, age in zip((slow, quick), ages, strict=True)]
        [reading] = evaluator.CONDITIONS["loops_stopped"].read(replace(looks.evidence(), loops=loops), 600.0)
        assert reading.value == pytest.approx(due, abs=0.1), ages


def test_a_hold_of_many_loops_is_a_hold_of_each(looks, django_user_model):
    loop = Loop.objects.create(name="worker_rate/alert/n1", law="worker_rate", target={"queue": "alert", "node": "n1"})
    (before,) = list_loop_facts(looks.now, {})
    owner = django_user_model.objects.create(username="desk-2")
    given = {"reason": "maintenance", "queue": "alert", "now": looks.at, "minutes": 30}
    set_override(name="mode", value="hold", owner=owner, **given)
    (after,) = list_loop_facts(looks.now + 1, {})
    assert (before.name, before.mode, before.held_since) == (loop.name, "auto", None)
    assert (after.mode, after.held_since) == ("hold", looks.now)


def test_the_first_rules_are_sound_and_calm_on_a_calm_plant(looks):
    from workers.alerts.rules.rules import FIRST_RULES

    assert ensure_rules(looks.at) == len(FIRST_RULES) and ensure_rules(looks.at) == 0
    looks.pass_seconds(20)
    assert not Alert.objects.exists()
    assert AlertRule.objects.filter(condition__in=evaluator.CONDITIONS).count() == len(FIRST_RULES)


def test_a_plant_starts_with_a_rule_of_each_condition_that_says_so():
    """The worked example's condition has to pass it too (`tests/house/test_worked_examples.py`)."""
    from workers.alerts.rules.rules import FIRST_RULES

    ruled = {name for name, condition in evaluator.CONDITIONS.items() if condition.rule}
    assert {rule["condition"] for rule in FIRST_RULES.values()} == ruled


def test_alerts_of_a_group_are_sent_in_one_message_and_each_once(looks):
    rule(group_by=["rule"])
    looks.snapshot = plant(nodes={"n1": node("OFFLINE", 14), "n2": node("OFFLINE", 14)})
    looks.look()
    assert outbox.bundle(looks.at) == [], "the others of the group may still come"
    looks.look(4.0)
    (message,) = outbox.bundle(looks.at)
    assert len(message.content["alerts"]) == 2 and "and 1 more" in message.content["title"]
    assert outbox.bundle(looks.at) == []
    outbox.mark_delivered(message, looks.at)
    outbox.mark_delivered(message, looks.at)
    assert [kinds(each).count("told") for each in Alert.objects.all()] == [1, 1]


def test_many_alerts_are_sent_in_one_message_and_then_cost_no_query_each(looks, django_assert_max_num_queries):
    rule("queue-behind", condition="queue_wait", title="{queue} behind", threshold=30, clear_threshold=15)
    looks.snapshot = plant(queues={f"q{at}": queue(99) for at in range(300)})
    looks.look()
    with django_assert_max_num_queries(20):
        looks.look()
    assert Alert.objects.filter(state="firing").count() == Delivery.objects.count() == 300
    looks.now += 6
    with django_assert_max_num_queries(20):
        (message,) = outbox.bundle(looks.at)
    assert "and 299 more" in message.content["title"]


def test_an_alert_that_quotes_a_nul_keeps_no_other_from_firing(looks):
    rule()
    rule("sensor-silent", condition="sensor_silent", title="{sensor}", threshold=10, clear_threshold=5)
    said = {"silent_seconds": 60.0, "error": "shop answers 400: a\0b"}
    plants = {"shop\0": {"state": "seen", "sensors": {"requests": said}}}
    looks.snapshot = {**lost(), "plants": plants}
    looks.pass_seconds(4)
    assert the_alert(rule_name="node-lost").state == "firing"
    silent = the_alert(rule_name="sensor-silent")
    assert silent.state == "firing" and "shop answers 400: a\ufffdb." in silent.sentence
    assert silent.labels == {"plant": "shop\ufffd", "sensor": "requests"}


def test_an_entry_that_is_committed_behind_a_later_one_is_read_all_the_same_and_once(control, looks):
    loops = [Loop.objects.create(name=name, law="worker_rate", target={}) for name in ("a", "b")]

    def tick(number, loop):
        given = {"mode": "auto", "parameters": {}, "reason": "", "verdict": "harmful"}
        LedgerEntry.objects.create(pk=number, loop=loop, at=looks.at, **given)

    def seen(seconds):
        looks.now += seconds
        ticks = gatherer.gather(looks.now, looks.now).loops
        return {each.name: [tick.id for tick in each.ticks] for each in ticks}

    gatherer = Gatherer(control)
    tick(1_000_001, loops[0])
    assert seen(2) == {"a": [1_000_001], "b": []}
    tick(1_000_003, loops[0])
    assert seen(2) == {"a": [1_000_001, 1_000_003], "b": []}
    tick(1_000_002, loops[1])
    for seconds in (2, 2, 20, 2):
        assert seen(seconds) == {"a": [1_000_001, 1_000_003], "b": [1_000_002]}
    tick(1_000_004, loops[1])
    assert seen(2)["b"] == [1_000_002, 1_000_004]
