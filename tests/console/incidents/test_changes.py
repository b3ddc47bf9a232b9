"""What changed before an incident: found in every record, kept with it, shown with its undo."""

import re
import shutil
from datetime import timedelta

import pytest
from django.utils import timezone

from common.errors import BadInput
from console.accounts.access import Actor
from console.audit import audit_log
from console.incidents import changes
from console.incidents.change_rows import build_change_rows
from console.incidents.change_sources import find_changes
from console.incidents.changes import ChangeKeeper, IncidentChange
from console.models import AuditEntry, Mark
from queues.models import Node, Queue
from tests.console.rows import a_plan
from tests.workers.alerts.checks import node, queue
from tests.workers.snapshots import snapshot_of
from workers.alerts.lifecycle.models import Alert, AlertRule, Incident
from workers.history.snapshot_archive import Recorder
from workers.models import LedgerEntry, Loop, Override, PipelineVersion, Plan
from workers.plants.influences import build_influences, list_alert_parts
from workers.retries.models import RetryPlan
from workers.steering import plant_settings

pytestmark = pytest.mark.django_db
NOW = timezone.now().replace(microsecond=0)
MINUTE = timedelta(minutes=1)
RESTARTED = ("worker-jobs", "web", "worker-spark", "alerter", "n1", "agent-n1", "n2", "pipeline")


def an_alert(ago=MINUTE, **more):
    given = {
        "rule_name": "queue-behind", "condition": "queue_wait", "fingerprint": f"f{Alert.objects.count()}",
        "labels": {"queue": "alert"}, "severity": "warning", "title": "Queue alert falls behind", "threshold": 30.0,
        "state": "firing", "began_at": NOW - ago, "fired_at": NOW - ago,
    }  # fmt: skip
    return Alert.objects.create(**{**given, **more})


def an_override(owner, loop, ago, **more):
    given = {"loop": loop, "name": "upper_limit", "value": 1, "owner": owner, "reason": "a test"}
    given |= {"created_at": NOW - ago, "expires_at": NOW + timedelta(hours=1), **more}
    return Override.objects.create(**given)


def plant(**parts):
    return {
        "at": NOW.timestamp(), "nodes": {"n1": node(), "n2": node()},
        "queues": {"alert": queue(), "telemetry": queue(kind="pipeline", nodes=("n2",))},
        "producers": {"host": {"queues": {"telemetry": 40.0}}}, "hosts": {"jobs@h1": {"role": "jobs"}},
        "loops": {"worker_rate/alert/n1": {"target": {"queue": "alert", "node": "n1"}}},
        "pipeline": {"applications": {"flow": {"queues": ["telemetry"], "sinks": {"seen": ["alert"]}}}}, **parts,
    }  # fmt: skip


def test_what_acts_on_a_queue_is_where_it_is_who_works_it_and_what_steers_it():
    found = build_influences(snapshot_of(plant()))
    assert {"node/n1", "host/jobs@h1", "loop/worker_rate/alert/n1", "application/flow"} <= found["queue/alert"]
    assert {"queue/telemetry"} <= found["application/flow"]
    assert "producer/host" in found["queue/telemetry"]
    assert list_alert_parts({"rule": "x", "queue": "alert", "pipeline": "main"}) == ["queue/alert", "pipeline"]


def test_what_acts_on_an_attached_plant_is_what_steers_it():
    loops = {"parallelism_joint/plant:shop": {"target": {"plant": "shop"}}}
    found = build_influences(snapshot_of(plant(loops=loops)))
    assert found["plant/shop"] == {"loop/parallelism_joint/plant:shop"}
    assert list_alert_parts({"plant": "shop", "sensor": "waiting"}) == ["plant/shop"]
    assert list_alert_parts({"plant": "kafka", "group": "orders"}) == [], "its consumers may run anywhere"


def test_tasks_set_by_hand_and_a_producers_revoked_token_are_changes(tmp_path):
    by = Actor("admin", "administrator")
    for target, before, after in (
        ("shop", {"score": 4, "mail": 2}, {"score": 1}),
        ("main", {"flow/seen": 2}, {"flow/seen": 1}),
    ):
        audit_log.record(by, "plant.scale", target, reason="less", before=before, after=after)
    audit_log.record(by, "plant.intervene", "shop", after={"kind": "pause", "subject": "orders"})
    audit_log.record(by, "token.revoke", "billing", before={"role": "producer"})
    now = timezone.now()
    found = {each.words: each.parts for each in find_changes(now - MINUTE, now, tmp_path)}
    assert found == {
        "Plant scale, shop score 4 → 1: less": {"plant/shop"},
        "Plant scale, main flow/seen 2 → 1: less": {"operator/flow/seen"},
        "Plant intervene, shop": {"plant/shop"},
        "Token revoke, billing": set(),
    }


def test_what_failed_hides_nothing_that_the_same_person_had_done_shortly_before(tmp_path):
    by = Actor("token:east", "operator")
    with audit_log.record_attempt(by, "plant.intervene", "shop", reason="once"):
        pass
    with pytest.raises(BadInput), audit_log.record_attempt(by, "plant.intervene", "shop", reason="once"):
        raise BadInput("subject", "is not there.")
    now = timezone.now()
    (change,) = find_changes(now - MINUTE, now, tmp_path)
    assert change.ref == f"audit:{AuditEntry.objects.order_by('pk')[0].pk}"


def test_what_failed_changed_nothing_and_what_a_controller_repeats_is_one_change(tmp_path):
    by = Actor("token:east", "operator")
    for tasks in (2, 3, 4):
        audit_log.record(by, "plant.scale", "shop", before={"score": tasks - 1}, after={"score": tasks})
    with pytest.raises(BadInput), audit_log.record_attempt(by, "plant.intervene", "shop"):
        raise BadInput("subject", "is not known.")
    now = timezone.now()
    found = {each.words for each in find_changes(now - MINUTE, now, tmp_path)}
    assert found == {"Plant scale, shop score 3 → 4 (and 2 times before)"}


def test_each_record_is_a_source(people, loop, tmp_path):
    owner = people["operator"]
    Queue.objects.create(name="alert", kind="jobs")
    an_override(owner, loop, 5 * MINUTE)
    an_override(owner, loop, timedelta(days=1), ended_at=NOW - 4 * MINUTE, name="setpoint")
    PipelineVersion.objects.create(
        application="flow", number=2, text="", reason="wider", owner=owner, created_at=NOW - MINUTE
    )
    Plan.objects.create(
        kind="rebalance", title="t", reason="", law="rebalancing",
        moves=[{"queue": "alert", "from": "n1", "to": "n2", "points": 9}],
        base={}, base_revision=1, hash="", started_at=NOW - MINUTE, expires_at=NOW,
    )  # fmt: skip
    RetryPlan.objects.create(
        plant="shop", reason="The bank is back", items=b"", total=2_000, min_rate=1.0, max_rate=9.0, owner=owner,
        state="sending", started_at=NOW - MINUTE, expires_at=NOW,
    )  # fmt: skip
    for verdict in ("effective", "effective", "harmful"):
        LedgerEntry.objects.create(
            loop=loop, at=NOW - MINUTE, mode="auto", parameters={}, action={"start": 1},
            reason="Start 1 worker", verdict=verdict,
        )  # fmt: skip
    found = {each.kind: each for each in find_changes(NOW - timedelta(hours=1), NOW, tmp_path)}
    assert set(found) == {
        "override upper_limit",
        "override ended",
        "declaration",
        "plan rebalance",
        "retry tasks",
        "loop worker_rate",
        "harmful worker_rate",
    }
    assert (
        "2 times" in found["loop worker_rate"].words
        and "with harmful effect once" in found["harmful worker_rate"].words
    )
    assert found["retry tasks"].parts == {"plant/shop"}
    assert found["retry tasks"].words.endswith("of shop started, 2,000 tasks: The bank is back")
    assert found["plan rebalance"].parts == {"queue/alert", "node/n1", "node/n2"}
    assert found["override ended"].parts == {"loop/worker_rate/alert/n1"}


def test_a_setting_that_disturbs_nothing_is_none(tmp_path):
    steering = {"worker_rate/alert/n1 delay", "quota.events_per_second"}
    for target in ("price.worker_hour", "report.hour", *steering):
        audit_log.record(Actor("admin", "administrator"), "settings.change", target)
    now = timezone.now()
    found = {each.words for each in find_changes(now - MINUTE, now, tmp_path)}
    assert found == {f"Settings change, {target}" for target in steering}


def test_advice_is_no_change(loop, tmp_path):
    LedgerEntry.objects.create(
        loop=loop, at=NOW, mode="advise", parameters={}, action={"start": 1}, reason="Start 1 worker"
    )
    assert find_changes(NOW - MINUTE, NOW + MINUTE, tmp_path) == []


def test_the_nearest_is_first_by_the_snapshot_of_the_onset(people, loop, tmp_path):
    """From the real archive: the producer that jumped upstream, and a node that is gone."""
    recorder, began = Recorder(tmp_path), (NOW - 10 * MINUTE).timestamp()
    for step in range(10 * 60 // 5):
        at = began + 5 * step
        rate = 400.0 if at > NOW.timestamp() - 150 else 40.0
        producers = {"host": {"in_per_second": rate, "queues": {"telemetry": rate}}}
        recorder.add(at, snapshot_of(plant(at=at, producers=producers)).to_json())
    an_override(people["operator"], loop, 3 * MINUTE)
    rows = changes.search_changes(an_alert(), tmp_path)
    assert [(row.kind, row.steps) for row in rows] == [("override upper_limit", 1), ("producer rose", 3)]
    assert 80 <= rows[1].delay_seconds <= 95


def test_what_people_do_after_the_problem_began_is_no_cause_of_it(people, loop, tmp_path):
    """The alert fired half a minute after the headline named the problem; the reader acted in between."""
    began = NOW - MINUTE - timedelta(seconds=30)
    alert = an_alert(touches={"problem_began_at": began.timestamp()})
    assert changes.compute_onset(alert) == began
    before = an_override(people["operator"], loop, NOW - began + timedelta(seconds=2))
    an_override(people["operator"], loop, NOW - began - timedelta(seconds=2), name="setpoint")
    assert [row.ref for row in changes.search_changes(alert, tmp_path)] == [f"override:{before.pk}"]
    mark = Mark.objects.create(kind="deploy", title="a", at=began + timedelta(seconds=2), author="ci", source="ci")
    assert f"mark:{mark.pk}" in [row.ref for row in changes.search_changes(alert, tmp_path)], "clocks of hosts differ"
    long_ago = an_alert(touches={"problem_began_at": (NOW - 60 * MINUTE).timestamp()}, labels={"queue": "b"})
    assert changes.compute_onset(long_ago) == NOW - MINUTE


def test_restarts_and_producers_count_only_if_they_act_on_the_subject(people, tmp_path):
    recorder = Recorder(tmp_path)
    for step in range(10 * 60 // 5):
        at = (NOW - 10 * MINUTE).timestamp() + 5 * step
        late = at > NOW.timestamp() - 150
        rates = {"host": 40.0 if late else 400.0, "web": 400.0 if late else 40.0}
        producers = {
            name: {"in_per_second": rate, "queues": {"telemetry" if name == "host" else "mail": rate}}
            for name, rate in rates.items()
        }
        queues = {**plant()["queues"], "mail": queue(nodes=("n3",))}
        recorder.add(at, snapshot_of(plant(at=at, producers=producers, queues=queues)).to_json())
    (tmp_path / "logs").mkdir()
    lines = [
        f"{NOW - ago * MINUTE:%Y-%m-%d %H:%M:%S},000 INFO {text}"
        for ago, text in [(60, "supervisord started with pid 7")]
        + [(minutes, f"spawned: '{name}' with pid {minutes}") for name in RESTARTED for minutes in (59, 3)]
    ]
    (tmp_path / "logs" / "supervisor.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
    rows = changes.search_changes(an_alert(), tmp_path)
    assert {row.words for row in rows if row.kind == "restart"} == {
        "Process worker-jobs restarted", "Process n1 restarted", "Process agent-n1 restarted",
        "Process pipeline restarted", "Weir started",
    }  # fmt: skip
    assert rows[0].words != "Weir started", "the nearest and latest first"
    assert [row.words for row in rows if row.kind.startswith("producer")] == []


def test_a_lost_node_is_no_cause_of_itself_nor_is_its_recovery_and_what_came_before_it_is(people, loop, tmp_path):
    """The node fell silent a threshold before its alert began."""
    recorder, silent = Recorder(tmp_path), NOW - MINUTE - timedelta(seconds=30)
    for step in range(10 * 60 // 5):
        at = (NOW - 10 * MINUTE).timestamp() + 5 * step
        lost = {} if at < silent.timestamp() else {"state": "OFFLINE", "stale": True}
        recorder.add(at, snapshot_of(plant(at=at, nodes={"n1": node(), "n2": node() | lost})).to_json())
    plan = {"title": "t", "reason": "", "base": {}, "base_revision": 1, "hash": "", "expires_at": NOW}
    moves = [{"queue": "telemetry", "from": "n2", "to": "n1", "points": 9}]
    Plan.objects.create(kind="restore", moves=moves, started_at=silent + MINUTE / 6, **plan)
    LedgerEntry.objects.create(
        loop=loop, at=silent + MINUTE / 10, mode="auto", parameters={}, action={"start": 1}, reason="Start 1"
    )
    override = an_override(people["operator"], loop, NOW - silent + MINUTE)
    alert = an_alert(condition="node_lost", labels={"node": "n2"}, threshold=30.0)
    assert changes.compute_onset(alert) == silent
    assert [row.ref for row in changes.search_changes(alert, tmp_path)] == [f"override:{override.pk}"]
    beside = an_alert(labels={"queue": "telemetry"})
    assert "part:node/n2" in [row.ref for row in changes.search_changes(beside, tmp_path)]


def test_what_is_found_is_kept_and_counted_for_the_next(people, loop, tmp_path):
    an_override(people["operator"], loop, 3 * MINUTE)
    first = an_alert(2 * MINUTE, state="resolved", resolved_at=NOW)
    kept = [{"kind": "override upper_limit", "steps": 1, "at": NOW.isoformat(), "ref": "override:0"}]
    Incident.objects.create(alert=first, changes_at=NOW, changes=kept)
    rows = changes.keep_changes(an_alert(), tmp_path, NOW)
    assert [(row.before, row.incidents) for row in rows] == [(1, 1)]
    assert changes.load_changes(Alert.objects.order_by("pk").last()) == rows


def test_alerts_of_the_same_outage_say_nothing_of_how_often_a_change_came_before(people, loop, tmp_path):
    """What another explains, and what began together with this and may be explained in a while."""
    an_override(people["operator"], loop, 3 * MINUTE)
    first = an_alert(4 * MINUTE, state="resolved", resolved_at=NOW)
    explained = an_alert(4 * MINUTE, under=first, state="resolved", resolved_at=NOW)
    for alert in (first, explained, an_alert(labels={"queue": "telemetry"})):
        kept = [{"kind": "override upper_limit", "steps": 1, "at": NOW.isoformat(), "ref": f"o:{alert.pk}"}]
        Incident.objects.create(alert=alert, changes_at=NOW, changes=kept)
    rows = changes.keep_changes(an_alert(), tmp_path, NOW)
    assert [(row.before, row.incidents) for row in rows] == [(1, 1)]


def test_what_was_found_at_the_start_stays_where_the_snapshots_of_then_are_gone_at_the_end(people, loop, tmp_path):
    """An alert that is open for longer than snapshots are kept is searched once more, when it ends."""
    recorder, began = Recorder(tmp_path), (NOW - 10 * MINUTE).timestamp()
    for step in range(10 * 60 // 5):
        recorder.add(began + 5 * step, snapshot_of(plant(at=began + 5 * step)).to_json())
    an_override(people["operator"], loop, 3 * MINUTE)
    alert = an_alert()
    first = changes.keep_changes(alert, tmp_path, NOW)
    assert [row.steps for row in first] == [1]
    Alert.objects.filter(pk=alert.pk).update(state="resolved", resolved_at=NOW + timedelta(days=15))
    shutil.rmtree(tmp_path / "snapshots")
    end = NOW + timedelta(days=15, minutes=1)
    assert ChangeKeeper(tmp_path).step(end) == 1
    assert changes.load_changes(alert) == first and Incident.objects.get().changes_at == end


def test_while_it_is_young_a_late_deploy_is_found_without_a_snapshot_too(tmp_path):
    alert = an_alert()
    Mark.objects.create(kind="deploy", title="a", at=NOW - 2 * MINUTE, author="ci")
    changes.keep_changes(alert, tmp_path, NOW)
    Mark.objects.create(kind="deploy", title="b", at=NOW - 3 * MINUTE, author="ci")
    assert len(changes.keep_changes(alert, tmp_path, NOW + 3 * MINUTE)) == 2


def test_a_change_counts_for_the_first_incident_that_it_came_before(people, loop, tmp_path):
    """A deploy at eight in the evening has not caused each of the incidents until eleven."""
    deploy = {"kind": "deploy", "steps": 1, "at": NOW.isoformat(), "ref": "mark:1"}
    for minutes in (50, 40, 30):
        ended = an_alert(minutes * MINUTE, state="resolved", resolved_at=NOW)
        Incident.objects.create(alert=ended, changes_at=NOW, changes=[deploy])
    records = changes.compute_kind_records(an_alert().condition, {"deploy": 1}, 0, NOW, tmp_path)
    assert (records["deploy"].before, records["deploy"].incidents) == (1, 3)


def test_what_came_before_incidents_far_away_says_nothing_of_those_near(tmp_path):
    """A deploy at another queue on the same node is upstream, two steps away."""
    for steps in (0, 1, 2, None):
        deploy = {"kind": "deploy", "steps": steps, "at": NOW.isoformat(), "ref": f"mark:{steps}"}
        ended = an_alert(30 * MINUTE, state="resolved", resolved_at=NOW)
        Incident.objects.create(alert=ended, changes_at=NOW, changes=[deploy])
    records = changes.compute_kind_records(an_alert().condition, {"deploy": 1}, 0, NOW, tmp_path)
    assert (records["deploy"].before, records["deploy"].incidents) == (2, 4)


def test_nodes_of_a_queue_are_a_step_away_and_other_queues_there_two():
    touched = an_alert(touches={"nodes": ["n1"]})
    steps = changes.compute_steps_upstream(touched, snapshot_of(plant()))
    assert (steps["queue/alert"], steps["node/n1"]) == (0, 1)
    shared = {"alert": queue(nodes=("n1",)), "mail": queue(nodes=("n1",))}
    assert changes.compute_steps_upstream(touched, snapshot_of(plant(queues=shared)))["queue/mail"] == 2


def test_what_one_person_sets_of_several_loops_at_once_is_one_change_and_so_is_its_end(people, loop, tmp_path):
    loops = [loop, *(Loop.objects.create(name=f"x/alert/n{n}", law="x", target={}) for n in range(2, 6))]
    more = {"name": "mode", "value": "hold", "reason": "maintenance"}
    made = [an_override(people["operator"], each, 3 * MINUTE, **more) for each in loops]
    an_override(people["administrator"], loop, 3 * MINUTE, **more)
    rows = {row.by: row for row in find_changes(NOW - 10 * MINUTE, NOW, tmp_path)}
    assert rows["operator"].words == (
        "Override mode hold on worker_rate/alert/n1, x/alert/n2, x/alert/n3 and 2 more set: maintenance"
    )
    assert rows["operator"].ref == f"overrides:{','.join(str(each.pk) for each in made)}"
    assert rows["operator"].parts == {f"loop/{each.name}" for each in loops} and len(rows) == 2
    change = next(each for each in changes.search_changes(an_alert(), tmp_path) if each.by == "operator")
    [shown] = build_change_rows([change], Actor("operator", "operator"))
    assert shown.undo is None and shown.back is not None and shown.back.words == "End overrides"
    Override.objects.filter(owner=people["operator"]).update(ended_at=NOW - 2 * MINUTE)
    found = find_changes(NOW - 10 * MINUTE, NOW, tmp_path)
    assert [row.kind for row in found if row.ref == rows["operator"].ref] == ["override mode", "override ended"]
    ranked = changes.search_changes(an_alert(), tmp_path)
    assert [row.by for row in ranked if row.kind == "override mode"] == ["administrator", "operator"]


def test_on_a_plant_of_this_hour_its_own_start_and_what_its_loops_do_come_after_what_people_change(loop, tmp_path):
    for sequence, (action, ago) in enumerate([("queue.create", 9), ("queue.change", 2)], start=1):
        entry = {"sequence": sequence, "actor": "ada", "action": action, "target": "alert"}
        AuditEntry.objects.create(at=NOW - ago * MINUTE, **entry)
    LedgerEntry.objects.create(
        loop=loop, at=NOW - 1.5 * MINUTE, mode="auto", parameters={}, action={"start": 1}, acted=True,
        reason="Start 1 worker",
    )  # fmt: skip
    (tmp_path / "logs").mkdir()
    started = f"{NOW - 9 * MINUTE:%Y-%m-%d %H:%M:%S},000 INFO supervisord started with pid 7"
    (tmp_path / "logs" / "supervisor.log").write_text(f"{started}\n", encoding="utf-8")
    rows = changes.search_changes(an_alert(), tmp_path)
    assert {row.kind for row in rows} == {"queue.change", "queue.create", "restart", "loop worker_rate"}
    assert rows[0].kind == "queue.change"


def test_of_an_incident_that_came_back_what_changed_since_is_found_too(people, loop, tmp_path):
    rule = AlertRule.objects.create(
        name="queue-behind", condition="queue_wait", title="t", threshold=30.0, clear_threshold=15.0
    )
    alert = an_alert(9 * MINUTE, rule=rule, came_back=1)
    assert changes.search_changes(alert, tmp_path) == []
    an_override(people["operator"], loop, 3 * MINUTE)
    alert.returned_at = NOW - MINUTE
    assert [row.kind for row in changes.search_changes(alert, tmp_path)] == ["override upper_limit"]


def test_the_keeper_checks_soon_again_while_young_and_at_the_end(tmp_path):
    keeper, alert = ChangeKeeper(tmp_path), an_alert()
    an_alert(labels={"queue": "b"}, under=alert)  # explained: no incident
    assert [keeper.step(NOW), keeper.step(NOW + timedelta(seconds=9))] == [1, 0]
    assert keeper.step(NOW + 3 * MINUTE) == 1
    assert keeper.step(NOW + 60 * MINUTE) == 0
    Alert.objects.filter(pk=alert.pk).update(state="resolved", resolved_at=NOW + 61 * MINUTE)
    assert [keeper.step(NOW + 62 * MINUTE), keeper.step(NOW + 63 * MINUTE)] == [1, 0]


def test_half_a_minute_later_the_last_snapshots_before_an_incident_are_kept_and_it_is_examined_again(tmp_path):
    keeper = ChangeKeeper(tmp_path)
    an_alert(timedelta(seconds=4))
    seconds = (0, 20, 35, 70, 160)
    assert [keeper.step(NOW + timedelta(seconds=each)) for each in seconds] == [1, 0, 1, 0, 1]


def test_of_many_incidents_each_is_examined_before_any_is_examined_again(tmp_path):
    keeper = ChangeKeeper(tmp_path)
    for minutes in range(1, 9):
        an_alert(minutes * MINUTE)
    assert [keeper.step(NOW), keeper.step(NOW + 3 * MINUTE)] == [4, 4]
    assert not Alert.objects.filter(incident__changes_at=None).exists()
    assert keeper.step(NOW + 4 * MINUTE) == 4, "those that were the first are due again"


def test_the_page_shows_a_change_with_its_undo_and_its_record(browsers, people, loop, stored_snapshot, tmp_path):
    an_override(people["operator"], loop, 3 * MINUTE)
    alert = an_alert()
    changes.keep_changes(alert, tmp_path, NOW)
    page = browsers["operator"].get(f"/alerts/{alert.pk}/").content.decode()
    assert "What changed" in page and "Override upper limit 1 on worker_rate/alert/n1 set" in page
    assert "End override" in page and "No earlier incident of this kind" in page
    viewed = browsers["viewer"].get(f"/alerts/{alert.pk}/").content.decode()
    assert "What changed" in viewed and "End override" not in viewed


def test_a_setting_is_set_back_to_exactly_what_it_was(browsers, people, stored_snapshot, tmp_path):
    name, administrator = "quota.bytes_per_second", browsers["administrator"]
    before = plant_settings.get_setting_value(name)
    posted = {"value": "1000000", "reason": "a test"}
    assert administrator.post(f"/settings/plant/{name}", posted).status_code == 302
    onset = timezone.now() + MINUTE  # the change has the clock's time
    alert = an_alert(ago=NOW - onset)
    changes.keep_changes(alert, tmp_path, onset)
    page = administrator.get(f"/alerts/{alert.pk}/").content.decode()
    assert "Reset to 33,554,432" in page
    (value,) = re.findall(r'name="value"\s+value="([^"]+)">Reset to', page)
    assert administrator.post(f"/settings/plant/{name}", {**posted, "value": value}).status_code == 302
    assert plant_settings.get_setting_value(name) == before
    assert "Reset to" not in administrator.get(f"/alerts/{alert.pk}/").content.decode()


def shown_of(ref, kind="by hand"):
    change = IncidentChange(
        kind=kind, at=NOW, words="a change", by="ada", ref=ref, steps=None, delay_seconds=1.0, weight=1.0
    )
    (shown,) = build_change_rows([change], Actor("boss", "administrator"))
    return shown


def offers(ref):
    shown = shown_of(ref)
    return shown.undo is not None or shown.back is not None


def audited(action, target, before, after):
    row = {"sequence": AuditEntry.objects.count() + 1, "actor": "ada", "action": action, "target": target}
    return f"audit:{AuditEntry.objects.create(at=NOW, before=before, after=after, **row).pk}"


def test_a_node_is_offered_to_return_only_while_it_is_out_of_use(db):
    Node.objects.create(name="n1", url="redis://n1", cordoned=True)
    cordon, taken_back = (audited("node.use", "n1", None, {"cordoned": is_so}) for is_so in (True, False))
    assert offers(cordon) and not offers(taken_back)
    Node.objects.update(cordoned=False)
    assert not offers(cordon)


def test_a_cap_is_offered_to_be_reset_only_while_it_is_in_force(people):
    Queue.objects.create(name="alert", kind="jobs")
    loop = Loop.objects.create(name="ladder/alert", law="ladder", target={"queue": "alert"})
    ref = audited("ladder.cap", "alert", {"cap": "shed"}, {"cap": "throttle"})
    assert not offers(ref)
    cap = {"name": "cap", "value": "throttle", "created_at": timezone.now() - MINUTE}
    held = an_override(people["operator"], loop, MINUTE, expires_at=timezone.now() + MINUTE, **cap)
    assert offers(ref)
    Override.objects.filter(pk=held.pk).update(ended_at=timezone.now() - timedelta(seconds=1))
    assert not offers(ref)


def test_a_setting_that_was_changed_again_is_not_offered_to_be_reset(people):
    ref = audited("settings.change", "quota.bytes_per_second", 33_554_432, 1_000_000)
    assert not offers(ref)
    plant_settings.change("quota.bytes_per_second", 1_000_000, people["operator"], NOW)
    assert offers(ref)
    plant_settings.change("quota.bytes_per_second", 2_000_000, people["operator"], NOW)
    assert not offers(ref)


def test_a_version_that_was_replaced_is_not_offered_to_be_undone(people):
    more = {"application": "flow", "text": "", "reason": "", "owner": people["operator"]}
    for number in (1, 2):
        PipelineVersion.objects.create(number=number, active=number == 2, **more)
    assert offers("declaration:flow:2") and not offers("declaration:flow:1")
    PipelineVersion.objects.update(active=False)
    PipelineVersion.objects.create(number=3, active=True, **more)
    assert not offers("declaration:flow:2")


def test_a_plan_whose_roll_back_waits_already_is_not_offered_again(db):
    done = a_plan("alert", state="done", progress=[{"points_moved": 1, "state": "done"}])
    assert offers(f"plan:{done.pk}")
    a_plan("alert", undoes=done)
    assert not offers(f"plan:{done.pk}")


def test_the_api_has_the_same(browsers, people, loop, stored_snapshot, control):
    Node.objects.create(name="n1", url="redis://n1")
    made = an_override(people["operator"], loop, 3 * MINUTE)
    alert = an_alert()
    answer = browsers["operator"].get(f"/api/v1/alerts/{alert.pk}/changes").json()
    undone = [(row["ref"], row["undo"]) for row in answer["changes"]]
    assert undone == [(f"override:{made.pk}", "End override")]
    assert Incident.objects.count() == 0  # to read changes nothing
    span = {"from": (NOW - 9 * MINUTE).isoformat(), "to": NOW.isoformat()}
    listed = browsers["viewer"].get("/api/v1/changes", span).json()["changes"]
    assert [row["parts"] for row in listed] == [["loop/worker_rate/alert/n1"]]
    too_long = {"from": "2026-11-18T03:12:00Z", "to": "2026-11-20T03:12:00Z"}
    assert browsers["viewer"].get("/api/v1/changes", too_long).status_code == 422
