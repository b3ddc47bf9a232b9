"""The schedule of faults follows from the seed, and is reduced to what a violation needs."""

import itertools

from bench.simulation.faults import STEERABLE, Fault, Targets, build_schedule
from bench.simulation.run import MAX_EPISODES, MAX_FAULT_SECONDS, WARM_SECONDS, RunResult, plan_episodes
from bench.simulation.runs import Runner

TARGETS = Targets(["control-a", "alerter-a", "jobs"], ["a", "b", "c1"], ["n1", "n2"], ["s1", "s2", "s3"])


def test_a_seed_always_gives_the_same_schedule_and_another_seed_another_one():
    schedules = [build_schedule(seed, [(0.0, 60.0), (5_000.0, 5_060.0)], TARGETS) for seed in (1, 1, 2)]
    assert schedules[0] == schedules[1] != schedules[2]
    assert [fault.number for fault in schedules[0]] == list(range(len(schedules[0])))
    assert all(0 < fault.at < 60 or 5_000 < fault.at < 5_060 for fault in schedules[0])


def test_a_run_has_few_short_episodes_that_do_not_overlap():
    for episodes in map(plan_episodes, range(20)):
        assert 1 <= len(episodes) <= MAX_EPISODES
        assert all(later > end for (_, end), (later, _) in itertools.pairwise(episodes))
        assert all(end - start <= WARM_SECONDS + MAX_FAULT_SECONDS for start, end in episodes)


def test_many_faults_wait_for_a_moment_and_hit_whoever_calls_then():
    schedule = build_schedule(1, [(1_000.0 * number, 1_000.0 * number + 60.0) for number in range(50)], TARGETS)
    steered = [fault for fault in schedule if fault.moment]
    assert 0.3 < len(steered) / len(schedule) < 0.7
    assert all(fault.moment in STEERABLE[fault.kind] for fault in steered)
    assert {fault.target for fault in steered} == {"caller", "request", "reply"}


class RecordedRunner(Runner):
    """Fails if faults 3 and 7 are both applied, whatever else is."""

    def __init__(self):
        self.tried = []

    def run(self, seed, only=None):
        self.tried.append(list(only))
        violations = [f"Plan {len(only)} was lost."] if {3, 7} <= set(only) else []
        return RunResult(seed, violations=violations, faults=[Fault(number, 1.0, "crash", "a") for number in only])


def test_a_schedule_is_reduced_to_the_faults_that_the_violation_needs():
    faults = [Fault(number, 1.0, "crash", "a") for number in range(20)]
    runner = RecordedRunner()
    reduced = runner.reduce(RunResult(5, violations=["Plan 20 was lost."], faults=faults))
    assert [fault.number for fault in reduced.faults] == [3, 7]
    assert len(runner.tried) < 40


def test_a_reduction_keeps_to_the_violation_that_it_started_from():
    faults = [Fault(number, 1.0, "crash", "a") for number in range(4)]
    reduced = RecordedRunner().reduce(RunResult(5, violations=["Something else."], faults=faults))
    assert reduced.faults == faults
