"""For a minute, a notice says how a problem ended, and names only what really acted on its subject."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.workers.snapshot.test_causes import kill_node_server
from tests.workers.snapshot.trouble import VirtualPlant
from workers.documents.states import Problem
from workers.models import LedgerEntry, Loop
from workers.snapshot.recovery import SolvingAction, find_solving_action

BEGAN = datetime(2026, 1, 5, 3, 0, tzinfo=UTC)


def fall_behind_and_recover(plant: VirtualPlant) -> None:
    plant.run(60)
    for second in range(42):
        plant.fall_behind("process", 1.0 * second, 40 * second)
        plant.run(1)
    plant.document = VirtualPlant().document
    plant.run(8)


def list_sentences(plant: VirtualPlant) -> list[str]:
    return [finding.sentence for finding in plant.snapshot.health.findings]


def test_that_a_queue_keeps_up_again_is_said_for_a_minute_with_what_a_loop_did():
    plant = VirtualPlant()
    plant.action = SolvingAction("rebalancing", "moved 120 points from n2 to n1")
    fall_behind_and_recover(plant)
    (sentence,) = list_sentences(plant)
    assert sentence.startswith("Queue process keeps up again after ")
    assert sentence.endswith(" s. Meanwhile, the rebalancing law moved 120 points from n2 to n1.")
    assert plant.snapshot.health.severity == "notice"
    plant.run(70)
    assert list_sentences(plant) == []


def test_without_an_action_only_the_duration_is_said_and_nothing_while_it_catches_up():
    plant = VirtualPlant()
    fall_behind_and_recover(plant)
    (sentence,) = list_sentences(plant)
    assert sentence.startswith("Queue process keeps up again after ") and sentence.endswith(" s.")
    plant.fall_behind("process", 40.0, 900)
    plant.run(8)
    assert not any("again" in finding for finding in list_sentences(plant))


def test_a_restarted_node_is_said_once():
    plant = VirtualPlant()
    plant.run(60)
    for second in range(12):
        kill_node_server(plant, second)
        plant.run(1)
    plant.document = VirtualPlant().document
    restart = {"name": "n2", "kind": "restarted", "at": plant.now, "how": "SIGKILL", "down_seconds": 2.1}
    plant.document["processes"] = [restart]
    plant.run(20)
    said = [sentence for sentence in list_sentences(plant) if "n2" in sentence]
    assert len(said) == 1 and said[0].startswith("Node n2 reports again after ")
    assert said[0].endswith(": n2 restarted after SIGKILL.")


@pytest.mark.django_db
def test_only_applied_actions_on_the_subject_in_the_life_of_the_problem_count():
    problem = Problem(
        subject="queue/orders", began_at=BEGAN.timestamp(), ended_at=(BEGAN + timedelta(minutes=2)).timestamp()
    )
    rate, other = (
        Loop.objects.create(name=f"worker_rate/{name}/n1", law="worker_rate", target={"queue": name, "node": "n1"})
        for name in ("orders", "mail")
    )
    moves = Loop.objects.create(name="rebalancing", law="rebalancing", target={})

    def act(loop: Loop, seconds: float, action: dict[str, Any], **given: Any) -> None:
        fields = {"mode": "auto", "parameters": {}, "applied": True, "verdict": "effective", **given}
        LedgerEntry.objects.create(loop=loop, at=BEGAN + timedelta(seconds=seconds), action=action, reason="", **fields)

    act(rate, -30, {"start": 9})
    act(rate, 30, {"start": 9}, verdict="harmful")
    act(rate, 30, {"start": 9}, applied=False)
    act(other, 40, {"start": 9})
    act(moves, 50, {"moves": [{"queue": "mail", "from": "n2", "to": "n1", "points": 120}]})
    assert find_solving_action(problem) is None
    act(rate, 60, {"start": 1})
    act(rate, 70, {"start": 2})
    found = find_solving_action(problem)
    assert found is not None and (found.law, found.did) == ("worker_rate", "started 3 workers")
    act(moves, 65, {"moves": [
        {"queue": "orders", "from": "n2", "to": "n1", "points": 120},
        {"queue": "mail", "from": "n3", "to": "n1", "points": 50},
    ]})  # fmt: skip
    found = find_solving_action(problem)
    assert found is not None and found.did == "moved 120 points from n2 to n1"


def test_a_queue_that_was_deleted_does_not_keep_up_again():
    plant = VirtualPlant()
    plant.run(60)
    for second in range(42):
        plant.fall_behind("process", 1.0 * second, 40 * second)
        plant.run(1)
    del plant.document["queues"]["process"]
    plant.run(8)
    assert not any("again" in sentence for sentence in list_sentences(plant))
