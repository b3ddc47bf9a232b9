"""The checker on histories written by hand: each promise is kept once and broken once."""

from dataclasses import replace
from typing import Any

import pytest

from bench.schedules import checker
from bench.schedules.checker import FinalState, NodeState, check_history
from bench.schedules.history import OK, UNKNOWN, Operation

IDLE_SECONDS = 1.0
COUNTERS = {"inserted_events": 2, "removed_events": 2, "inserted_blocks": 2, "removed_blocks": 2}
FINAL = FinalState({"n1": NodeState(COUNTERS), "n2": NodeState({})}, ["e1", "e2"])


def operation(kind: str, began: float, ended: float | None = None, outcome: str = OK, **data: Any) -> Operation:
    """Return an operation at these seconds; it takes a millisecond by default."""
    end_ns = round((began + 0.001 if ended is None else ended) * 1e9)
    return Operation("p", round(began * 1e6), kind, round(began * 1e9), end_ns, outcome, data)


PUBLISH = operation("publish", 1.0, 1.5, blocks={"b1": ["e1"], "b2": ["e2"]})
FLUSH = operation("flush", 1.1, node="n1", blocks=["b1", "b2"])
CLAIM = operation("claim", 2.0, node="n1", worker="w1", entries=[["1-0", "b1"], ["2-0", "b2"]])
ACKNOWLEDGE = operation("acknowledge", 2.1, node="n1", worker="w1", entries=["1-0", "2-0"])
HISTORY = [PUBLISH, FLUSH, CLAIM, ACKNOWLEDGE]


def list_broken(history: list[Operation], final: FinalState = FINAL) -> list[str]:
    return [violation.promise for violation in check_history(history, final, IDLE_SECONDS)]


def test_a_history_that_keeps_all_promises_has_no_violation() -> None:
    assert list_broken(HISTORY) == []


def test_an_acknowledged_event_that_is_nowhere_is_lost() -> None:
    (violation,) = check_history(HISTORY, replace(FINAL, effects=["e1"]), IDLE_SECONDS)
    assert (violation.promise, violation.subjects) == (checker.LOSS, ("e2",))
    assert len(violation.operations) == 3  # the call, and the flush of each of its blocks


def test_an_event_whose_call_failed_may_be_nowhere() -> None:
    unknown = [replace(PUBLISH, outcome=UNKNOWN), replace(FLUSH, outcome=UNKNOWN)]
    nothing = FinalState({"n1": NodeState({})}, [])
    assert list_broken(unknown, nothing) == []


def test_two_effects_of_one_event_are_found() -> None:
    assert list_broken(HISTORY, replace(FINAL, effects=["e1", "e2", "e2"])) == [checker.LOSS]


def test_an_event_that_took_effect_and_is_a_dead_letter_is_found() -> None:
    final = replace(FINAL, nodes={"n1": NodeState(COUNTERS, dead=[["e2"]])})
    assert list_broken(HISTORY, final) == [checker.DIVISION]


def test_an_event_in_two_dead_letters_is_found() -> None:
    final = FinalState({"n1": NodeState(COUNTERS, dead=[["e2"]]), "n2": NodeState({}, dead=[["e2"]])}, ["e1"])
    assert list_broken(HISTORY, final) == [checker.DIVISION]


def test_copies_of_a_block_that_was_sent_twice_may_have_different_outcomes() -> None:
    again = operation("flush", 1.2, node="n2", blocks=["b1", "b2"])
    claim = operation("claim", 2.5, node="n2", worker="w2", entries=[["1-0", "b1"], ["2-0", "b2"]])
    final = replace(FINAL, nodes={"n1": NodeState(COUNTERS, dead=[["e2"]])})
    assert list_broken([PUBLISH, replace(FLUSH, outcome=UNKNOWN), again, CLAIM, ACKNOWLEDGE, claim], final) == []


def test_an_event_that_nobody_published_is_found() -> None:
    assert list_broken(HISTORY, replace(FINAL, effects=["e1", "e2", "e3"])) == [checker.DIVISION]


@pytest.mark.parametrize("outcome", [OK, UNKNOWN])
def test_a_flush_of_which_a_part_was_stored_is_found(outcome: str) -> None:
    claim = replace(CLAIM, data={**CLAIM.data, "entries": [["1-0", "b1"]]})
    assert list_broken([PUBLISH, replace(FLUSH, outcome=outcome), claim, ACKNOWLEDGE]) == [checker.COPIES]


def test_a_block_that_was_moved_counts_once() -> None:
    departure = operation("depart", 1.6, node="n1", entries=[["2-0", "b2", "n2"]])
    first = replace(CLAIM, data={**CLAIM.data, "entries": [["1-0", "b1"]]})
    second = operation("claim", 2.2, node="n2", worker="w1", entries=[["7-0", "b2"]])
    assert list_broken([PUBLISH, FLUSH, departure, first, second]) == []
    doubled = operation("claim", 2.3, node="n2", worker="w1", entries=[["8-0", "b2"]])
    other = operation("flush", 1.7, outcome=UNKNOWN, node="n2", blocks=["b2", "b3"])
    assert checker.COPIES in list_broken([PUBLISH, FLUSH, departure, other, first, second, doubled])


def test_blocks_of_a_call_that_are_stored_out_of_order_are_found() -> None:
    claim = replace(CLAIM, data={**CLAIM.data, "entries": [["2-0", "b1"], ["1-5", "b2"]]})
    assert list_broken([PUBLISH, FLUSH, claim]) == [checker.ORDER]


def build_second_claim(began: float) -> Operation:
    return operation("claim", began, node="n1", worker="w2", entries=[["1-0", "b1"]])


def test_a_block_that_is_given_to_a_second_worker_too_soon_is_found() -> None:
    assert list_broken([PUBLISH, FLUSH, CLAIM, build_second_claim(2.5)]) == [checker.CLAIM]
    assert list_broken([PUBLISH, FLUSH, CLAIM, build_second_claim(3.5)]) == []


def test_a_claim_lasts_from_its_newest_renewal() -> None:
    renewal = operation("keep_alive", 2.9, node="n1", worker="w1", entries=["1-0"])
    assert list_broken([PUBLISH, FLUSH, CLAIM, renewal, build_second_claim(3.5)]) == [checker.CLAIM]


def test_a_claim_ends_early_when_the_clock_of_its_node_is_set() -> None:
    step = operation("clock", 2.2, host="n1", seconds=3600)
    assert list_broken([PUBLISH, FLUSH, CLAIM, step, build_second_claim(2.5)]) == []


@pytest.mark.parametrize("kind", ["retry", "dead_letter"])
def test_an_overtaken_worker_that_changes_its_block_is_found(kind: str) -> None:
    change = operation(kind, 4.0, node="n1", worker="w1", entry="1-0", changed=True)
    history = [PUBLISH, FLUSH, CLAIM, build_second_claim(3.5), change]
    assert list_broken(history) == [checker.OVERTAKEN]
    refused = replace(change, data={**change.data, "changed": False})
    assert list_broken([*history[:-1], refused]) == []


def test_an_overtaken_worker_that_takes_its_block_back_is_found() -> None:
    renewal = operation("keep_alive", 4.0, node="n1", worker="w1", entries=["1-0"])
    assert list_broken([PUBLISH, FLUSH, CLAIM, build_second_claim(3.5), renewal]) == [checker.OVERTAKEN]
    nothing = replace(renewal, data={**renewal.data, "entries": []})
    assert list_broken([PUBLISH, FLUSH, CLAIM, build_second_claim(3.5), nothing]) == []


@pytest.mark.parametrize("outcome", [OK, UNKNOWN])
def test_a_worker_whose_newest_claim_overlaps_its_renewal_may_hold_the_block(outcome: str) -> None:
    again = replace(CLAIM, began_ns=round(4.9e9), ended_ns=round(5.2e9), outcome=outcome)
    if outcome == UNKNOWN:
        again = replace(again, ended_ns=None, data={"node": "n1", "worker": "w1"})
    renewal = operation("keep_alive", 5.0, node="n1", worker="w1", entries=["1-0"])
    history = [PUBLISH, FLUSH, CLAIM, build_second_claim(3.5), again, renewal]
    assert checker.OVERTAKEN not in list_broken(history)


def test_counters_that_differ_from_the_content_are_found() -> None:
    final = replace(FINAL, nodes={"n1": NodeState({**COUNTERS, "removed_events": 1})})
    assert list_broken(HISTORY, final) == [checker.COUNTS]


def test_blocks_that_wait_forever_are_found() -> None:
    final = replace(FINAL, nodes={"n1": NodeState({"inserted_events": 1, "inserted_blocks": 1}, waiting=[["e2"]])})
    assert list_broken(HISTORY, final) == [checker.PROGRESS]
    assert check_history(HISTORY, final, IDLE_SECONDS, was_drained=True) == []


def build_grant(began: float, fence: int) -> Operation:
    return operation("acquire", began, lease="plan", seconds=2.0, fence=fence)


def test_a_lease_with_two_holders_is_found() -> None:
    assert list_broken([*HISTORY, build_grant(3.0, 1), build_grant(4.0, 2)]) == [checker.LEASE]
    assert list_broken([*HISTORY, build_grant(3.0, 1), build_grant(5.1, 2)]) == []


def test_a_renewal_extends_a_lease_and_a_release_ends_it() -> None:
    renewal = operation("renew", 4.5, lease="plan", seconds=2.0, held=1, fence=1)
    history = [*HISTORY, build_grant(3.0, 1), renewal]
    assert list_broken([*history, build_grant(5.5, 2)]) == [checker.LEASE]
    release = operation("release", 5.0, lease="plan", seconds=2.0, held=1, fence=None)
    assert list_broken([*history, release, build_grant(5.5, 2)]) == []


def test_a_fencing_number_that_does_not_rise_is_found() -> None:
    assert list_broken([*HISTORY, build_grant(3.0, 2), build_grant(6.0, 2)]) == [checker.LEASE]


def test_a_write_with_an_outdated_fencing_number_is_found() -> None:
    writes = [operation("fenced_write", at, lease="plan", fence=fence, accepted=True) for at, fence in ((3, 2), (4, 1))]
    assert list_broken([*HISTORY, *writes]) == [checker.FENCE]
