"""Schedules: what a seed decides, how a failing one is made smaller, and the history that killed processes leave."""

import json
from pathlib import Path

import pytest

from bench.faults.preloaded import CLOCK
from bench.schedules.faults import HOSTS, MAX_FAULTS, MIN_FAULTS, Fault, draw_faults, shrink_faults
from bench.schedules.history import FAIL, OK, UNKNOWN, Recorder, read_history
from bench.schedules.schedules import MAX_BUG_SCHEDULES, explain_missing, run_lanes
from common.errors import NodeFull, NodeUnavailable

NEEDS_HOSTS = [pytest.mark.slow, pytest.mark.faults, pytest.mark.skipif(bool(explain_missing()), reason="needs hosts")]


def test_a_seed_always_draws_the_same_faults() -> None:
    assert draw_faults(7) == draw_faults(7) != draw_faults(8)
    assert all(MIN_FAULTS <= len(draw_faults(seed)) <= MAX_FAULTS for seed in range(50))


def test_seeds_draw_every_kind_and_every_host_and_steps_of_an_hour() -> None:
    faults = [fault for seed in range(200) for fault in draw_faults(seed)]
    kinds = {"crash", "pause", "overtake", "clock", "one-way cut", "partition", "isolate"}
    assert {fault.kind for fault in faults} == kinds
    assert {fault.host for fault in faults} == set(HOSTS)
    assert {-3600, 3600} <= {fault.step_seconds for fault in faults}
    assert all(fault.host not in fault.others for fault in faults)


def test_a_failing_schedule_is_shrunk_to_the_faults_that_it_needs() -> None:
    faults = [Fault("crash", host, float(place), 1.0) for place, host in enumerate(HOSTS)]
    needed = {faults[2], faults[5]}
    assert set(shrink_faults(faults, lambda left: needed <= set(left))) == needed


def test_a_history_has_the_outcome_of_each_operation(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "w1-1")
    with recorder.record("claim", node="n1") as result:
        result["entries"] = [["1-0", "b1"]]
    with pytest.raises(NodeFull), recorder.record("flush", node="n1", blocks=["b1"]):
        raise NodeFull("full")
    with pytest.raises(NodeUnavailable), recorder.record("flush", node="n1", blocks=["b1"]):
        raise NodeUnavailable("no answer")
    claim, full, silent = read_history(tmp_path)
    assert (claim.outcome, claim.data) == (OK, {"node": "n1", "entries": [["1-0", "b1"]]})
    assert (full.outcome, silent.outcome) == (FAIL, UNKNOWN)
    assert claim.began_ns <= (claim.ended_ns or 0) <= full.began_ns


def test_an_operation_of_a_killed_process_has_an_unknown_outcome(tmp_path: Path) -> None:
    row = {"process": "w1", "number": 1, "phase": "invoke", "at_ns": 5, "kind": "claim", "data": {"node": "n1"}}
    (tmp_path / "w1.jsonl").write_text(json.dumps(row) + "\n")
    (claim,) = read_history(tmp_path)
    assert (claim.outcome, claim.ended_ns, claim.data) == (UNKNOWN, None, {"node": "n1"})


class TestOnAPlant:
    pytestmark = NEEDS_HOSTS

    def test_a_schedule_breaks_no_promise(self, tmp_path: Path) -> None:
        (row,) = run_lanes(CLOCK.build(tmp_path), 1, seed=8)
        assert row["violations"] == [] and row["acknowledged"] > 0

    @pytest.mark.parametrize(
        ("bug", "promise"),
        [("forget a lease", "one holder of a lease at a time"), ("skip a fence", "a worker that was overtaken")],
    )
    def test_a_planted_bug_is_found(self, bug: str, promise: str, tmp_path: Path) -> None:
        rows = run_lanes(CLOCK.build(tmp_path), MAX_BUG_SCHEDULES, seed=1, bug=bug)  # ends with the discovery
        promises = [violation["promise"] for row in rows for violation in row["violations"]]
        assert any(promise in found for found in promises)
