"""The overview: its headline in trouble and in calm, and what the loops did."""

import re
from datetime import timedelta

import orjson
import pytest
from django.utils import timezone

from console.accounts.access import Actor
from console.audit import audit_log
from console.pages.plant.hero import MAX_SHOWN
from console.pages.plant.law_summary import summarize_activity
from console.templatetags.filters import named
from queues import keys
from tests.console.page_form import source_of
from workers.alerts.lifecycle.models import Alert
from workers.models import LedgerEntry, Loop

pytestmark = pytest.mark.django_db
PAUSE = {
    "action": "queue.pause", "subject": "queue/alert", "value": "consumption",
    "words": "Pause consumption of alert", "effect": "Frees both slots.",
}  # fmt: skip


def finding(subject="queue/alert", severity="critical", **values):
    sentence = f"The subject {subject} holds both worker slots."
    sign = {"critical": "TOOBUSY", "warning": "BUSY"}[severity]
    return {"subject": subject, "severity": severity, "sign": sign, "sentence": sentence,
            "impact": f"Others than {subject} wait 78 s.", **values}  # fmt: skip


@pytest.fixture
def in_trouble(stored_snapshot, control):
    def publish(*findings):
        worst = findings[0]
        stored_snapshot["health"] = {
            "state": worst["sign"], "sentence": worst["sentence"], "severity": worst["severity"],
            "findings": list(findings),
        }  # fmt: skip
        control.set(keys.SNAPSHOT, orjson.dumps(stored_snapshot))

    return publish


def fired(title="Queue alert falls behind"):
    now = timezone.now()
    return Alert.objects.create(
        rule_name="queue-behind", condition="queue_wait", fingerprint=title, labels={"queue": "alert"},
        severity="critical", title=title, threshold=30.0, value=36.0, state="firing",
        began_at=now - timedelta(minutes=3), fired_at=now - timedelta(minutes=2),
    )  # fmt: skip


def test_no_critical_problem_hides_behind_another(operator, in_trouble):
    """The second was one of "7 more", without its action."""
    subjects = [f"node/n{number}" for number in range(1, 6)]
    in_trouble(*(finding(subject, incident=number) for number, subject in enumerate(subjects, 1)))
    text = source_of(operator.get("/"))
    for number in range(1, MAX_SHOWN + 1):
        for part in ("holds both worker slots", "wait 78 s"):
            assert len(re.findall(part, text.partition('id="hero-others"')[0])) >= MAX_SHOWN
        assert f'href="/alerts/{number}/">Incident {number}</a>' in text
    assert "2 more problems" in text


def test_each_problem_has_its_first_action_and_a_viewer_has_none(browsers, in_trouble):
    in_trouble(finding(actions=[PAUSE], incident=7), finding("node/n1", incident=8))
    assert 'action="/queues/alert/pause"' in source_of(browsers["operator"].get("/"))
    assert 'action="/queues/alert/pause"' not in source_of(browsers["viewer"].get("/"))


def test_a_second_person_sees_who_acted_and_what_to_do_next(browsers, in_trouble):
    intake = PAUSE | {"value": "intake", "words": "Pause intake of alert"}
    in_trouble(finding(actions=[PAUSE, intake]), finding("node/n1"))
    entry = audit_log.record(
        Actor(name="ada", role=None), "queue.pause", "queue alert", after={"consumption": "paused"}
    )
    hero = source_of(browsers["operator"].get("/")).partition('id="hero"')[2].partition("</section>")[0]
    text = " ".join(hero.split())
    assert "<b>Consumption of alert paused</b> by ada" in text and "Pause intake of alert" in text
    assert ">Pause consumption of alert</summary>" not in text
    assert float(re.search(r'data-settles="([^"]+)"', hero)[1]) == pytest.approx(entry.at.timestamp() + 15, abs=0.01)


def test_each_problem_keeps_all_of_its_actions_beside_others_and_when_folded(operator, in_trouble):
    def actions(queue):
        pauses = [PAUSE | {"value": part, "words": f"Pause {part} of {queue}"} for part in ("consumption", "intake")]
        return [pause | {"subject": f"queue/{queue}"} for pause in pauses]

    nodes = [finding(f"node/n{number}") for number in range(1, 4)]
    in_trouble(finding(actions=actions("alert")), *nodes, finding("queue/telemetry", actions=actions("telemetry")))
    text = source_of(operator.get("/"))
    for queue in ("alert", "telemetry"):
        for part in ("consumption", "intake"):
            assert f">Pause {part} of {queue}</summary>" in text


def test_problems_with_the_same_text_are_one_row(operator, in_trouble):
    same = {"sentence": "The audit log is behind.", "impact": "Entries wait."}
    in_trouble(finding(), *(finding(f"alert/{number}", "warning", incident=number, **same) for number in (7, 8)))
    folded = source_of(operator.get("/")).partition('id="hero-others"')[2].partition("</details>")[0]
    assert folded.count("The audit log is behind.") == 1 and "(2 problems)" in folded
    assert 'href="/alerts/7/"' in folded and 'href="/alerts/8/"' in folded
    assert "1 more problem" in folded


def test_a_warning_that_the_loops_handle_asks_for_nothing(operator, in_trouble):
    in_trouble(finding(severity="warning", impact="Empty in about 50 s. Nothing to do."))
    hero = source_of(operator.get("/")).partition('id="hero"')[2].partition("</section>")[0]
    assert (
        "Nothing to do." in hero and "<button" not in hero and "quick-action" not in hero.replace("quick-actions", "")
    )


def test_a_warning_that_a_person_can_end_stands_beside_the_critical_problem(operator, in_trouble):
    in_trouble(finding("node/n1"), finding(severity="warning", actions=[PAUSE]), finding("node/n2", "warning"))
    shown = operator.get("/").context["hero"]
    assert [row.finding.subject for row in shown.shown] == ["node/n1", "queue/alert"]
    assert [row.finding.subject for row in shown.others] == ["node/n2"] and shown.details is None


def test_one_critical_problem_shows_what_changed_who_waits_and_what_the_loops_did(operator, in_trouble, loop):
    alert = fired()
    for _ in range(3):
        LedgerEntry.objects.create(
            loop=loop, at=timezone.now(), mode="auto", parameters={}, reason="it waits", action={"start": 1},
            verdict="ineffective",
        )  # fmt: skip
    in_trouble(finding(actions=[PAUSE], incident=alert.pk, affected=["queue/telemetry"]))
    page = operator.get("/")
    details = page.context["hero"].details
    assert [row.name for row in details.queues] == ["alert", "telemetry"]
    [line] = details.decisions
    assert line.count == 3
    text = source_of(page)
    assert "3 times" in text and "Pause consumption of alert" in text and "Acknowledge" in text
    assert f"Incident {alert.pk}</a>" in text


def test_a_problem_without_an_incident_counts_down_to_it(operator, in_trouble):
    opens_at = timezone.now().timestamp() + 100
    in_trouble(finding(opens_at=opens_at), finding("queue/slow"))
    text = " ".join(source_of(operator.get("/")).split())
    assert f'No incident yet: opens in <span class="n" data-until="{opens_at:.3f}">1:4' in text
    assert "if the problem lasts" in text and "No incident</span>" in text


def test_a_calm_plant_names_its_last_incident(viewer, stored_snapshot):
    alert = fired()
    Alert.objects.filter(pk=alert.pk).update(state="resolved", resolved_at=timezone.now())
    hero = source_of(viewer.get("/")).partition('id="hero"')[2].partition("</section>")[0]
    assert f'Last incident: <a class="link" href="/alerts/{alert.pk}/">{alert.pk}</a>' in hero


def test_names_stand_on_a_tint_and_a_number_keeps_its_unit():
    assert named("slow is slower: 8 s", ["slow"]) == "<mark>slow</mark> is slower: 8\u00a0s"
    assert named("<b> of slow-2", ["slow"]) == "&lt;b&gt; of slow-2"


def test_equal_decisions_are_a_count_and_loops_on_hold_flood_nothing(loop):
    now = timezone.now()
    held = Loop.objects.create(name="rebalancing", law="rebalancing", mode="hold")
    advising = Loop.objects.create(name="concurrency/jobs@here", law="concurrency", mode="advise")
    common = {"at": now, "parameters": {}, "reason": "it waits"}
    for _ in range(36):
        LedgerEntry.objects.create(loop=loop, mode="auto", action={"start": 1}, verdict="effective", **common)
        LedgerEntry.objects.create(loop=held, mode="hold", action={"moves": []}, verdict="no action", **common)
    LedgerEntry.objects.create(loop=advising, mode="advise", action={"slots": 3}, verdict="no action", **common)
    LedgerEntry.objects.create(loop=loop, mode="auto", action={"start": 9}, verdict="harmful",
                               **(common | {"at": now - timedelta(hours=2)}))  # fmt: skip
    rows = {law.law: (law.acted, law.advised, law.effects) for law in summarize_activity(now).laws}
    words = {law.law: law.words for law in summarize_activity(now).laws}
    assert words == {"worker_rate": "started 36 workers", "concurrency": "proposed 1 change"}
    assert rows == {"worker_rate": (36, 0, {"effective": 36}), "concurrency": (0, 1, {})}
    assert summarize_activity(now).idle_loops == 1
