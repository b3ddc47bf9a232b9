"""After a person acts on a problem, its card says so, waits for the effect, and then offers the next action."""

from datetime import timedelta

import pytest
from django.utils import timezone

from console.accounts.access import Actor
from console.audit import audit_log
from console.incidents.taken_actions import review_actions
from tests.workers.snapshots import snapshot_of
from workers.documents.states import SuggestedAction

pytestmark = pytest.mark.django_db
AGENT, SERVER = (
    SuggestedAction(action="process.restart", subject=f"process/{name}", words=f"Restart {name}")
    for name in ("agent-n2", "n2")
)
ROLL_BACK = SuggestedAction(action="queue.define", subject="queue/slow", value="handler", words="Roll back")
RELIEVE = SuggestedAction(action="plan.propose", subject="node/n1", words="Relieve busy nodes")
CALM = snapshot_of({})


def act(action, target, **values):
    return audit_log.record(Actor(name="ada", role=None), action, target, reason="It hangs.", **values)


def review(*suggested, snapshot=CALM, seconds=5.0, since=None):
    now = timezone.now() + timedelta(seconds=seconds)
    return review_actions(suggested, snapshot, since, now)


def words(reviewed):
    return [action.words for action in reviewed.offered]


def test_an_action_is_not_offered_while_its_effect_can_still_come():
    act("process.restart", "agent-n2")
    reviewed = review(AGENT, SERVER)
    assert words(reviewed) == ["Restart n2"]
    [taken] = reviewed.taken
    assert (taken.words, taken.by, taken.is_settling) == ("Restart of agent-n2 requested", "ada", True)


def test_an_action_without_effect_comes_last_and_the_next_one_first():
    act("process.restart", "agent-n2")
    reviewed = review(AGENT, SERVER, seconds=20)
    assert words(reviewed) == ["Restart n2", "Restart agent-n2 again"]
    assert [(row.words, row.is_settling) for row in reviewed.taken] == [("agent-n2 restarted", False)]
    act("process.restart", "n2")
    assert words(review(AGENT, SERVER, seconds=20)) == ["Restart agent-n2 again", "Restart n2 again"]


@pytest.mark.parametrize("ended", ["override.end", "override.undo"])
def test_a_pause_that_was_ended_is_offered_again_at_once(ended):
    pause = SuggestedAction(action="queue.pause", subject="queue/slow", value="consumption", words="Pause consumption")
    act("queue.pause", "queue slow", after={"consumption": "paused"})
    assert words(review(pause)) == []
    act(ended, "queue slow", before={"consumption": "paused"}, after={"consumption": "open"})
    assert words(review(pause)) == ["Pause consumption"]


def test_a_loop_that_a_person_set_to_another_mode_did_not_get_the_suggested_one():
    slot = SuggestedAction(action="loop.mode", subject="loop/concurrency/jobs@vm", value="3", words="Add 1 worker slot")
    act("loop.mode", "concurrency/jobs@vm", after={"mode": "auto"})
    assert words(review(slot)) == ["Add 1 worker slot"]
    act("loop.mode", "concurrency/jobs@vm", after={"mode": "manual"})
    assert words(review(slot)) == []


def test_the_state_of_the_process_says_whether_it_runs_again():
    act("process.restart", "agent-n2")
    event = {"name": "agent-n2", "kind": "restarted", "at": timezone.now().timestamp() + 3}
    [taken] = review(AGENT, snapshot=snapshot_of({"processes": [event]})).taken
    assert (taken.words, taken.is_settling) == ("agent-n2 restarted", True)


def test_the_pipeline_gets_the_time_that_it_takes_to_start():
    act("process.restart", "pipeline")
    pipeline = SuggestedAction(action="process.restart", subject="process/pipeline", words="Restart pipeline")
    assert words(review(pipeline, seconds=40)) == []
    assert words(review(pipeline, seconds=70)) == ["Restart pipeline again"]


def test_a_failed_attempt_and_an_action_against_an_earlier_problem_do_not_count():
    act("process.restart", "agent-n2")
    act("failed.process.restart", "agent-n2")
    act("process.restart", "n2")
    later = timezone.now().timestamp() + 200
    assert words(review(AGENT)) == ["Restart agent-n2"]
    assert words(review(SERVER, seconds=300, since=later)) == ["Restart n2"]
    assert words(review(SERVER, seconds=300, since=later - 300)) == ["Restart n2 again"]


def test_the_change_that_caused_the_problem_is_no_action_against_it_but_its_rollback_is():
    act("queue.change", "slow", before={"handler": "fast"}, after={"handler": "bad"})
    assert words(review(ROLL_BACK)) == ["Roll back"] and not review(ROLL_BACK).taken
    act("queue.change", "slow", before={"handler": "bad"}, after={"handler": "fast"})
    assert words(review(ROLL_BACK)) == []
    assert review(ROLL_BACK).taken[0].words == "Handler of slow rolled back"
    act("queue.change", "slow", before={"handler": "fast"}, after={"handler": "bad"})
    assert words(review(ROLL_BACK)) == ["Roll back"]


def test_a_proposed_plan_is_offered_for_approval():
    act("plan.propose", "plan 6")
    reviewed = review(RELIEVE, snapshot=snapshot_of({"plans": [{"id": 6, "state": "proposed"}]}))
    assert words(reviewed) == ["Review plan 6"]
    assert reviewed.taken[0].words == "Plan 6 proposed"


def test_a_pause_counts_for_its_part_only():
    act("queue.pause", "queue slow", after={"intake": "paused"})
    pauses = [
        SuggestedAction(action="queue.pause", subject="queue/slow", value=part, words=f"Pause {part}")
        for part in ("consumption", "intake")
    ]
    assert words(review(*pauses)) == ["Pause consumption"]
    assert review(*pauses).taken[0].words == "Intake of slow paused"
