"""Faults that wait for a call: of a process, or of a kind by any process."""

import pytest

from bench.simulation.calls import CRASH_AFTER, FREEZE, CallFault, CallFaults, name_command, name_statement
from bench.simulation.scheduler import Scheduler, VirtualProcess
from queues import keys
from queues.lua.script import load_script

NOW = 1_000.0
ACQUIRE = [
    b"EVAL",
    load_script("lease/acquire").encode(),
    b"2",
    keys.LEASE.build("loop:7").encode(),
    keys.FENCE.build("loop:7").encode(),
]


@pytest.fixture
def scheduler():
    return Scheduler(1, NOW)


def run_calls(scheduler, faults, calls, names=("a",)):
    """Return what each process's calls met, in order: (process, fault)."""
    met = []

    def work(name):
        for words in calls:
            scheduler.pause(1.0)
            met.append((name, faults.meet_command(words, "s1")))

    processes = [VirtualProcess(name, "host") for name in names]
    for process in processes:
        scheduler.start_thread(process, lambda name=process.name: work(name), "main")
    scheduler.run(NOW + 100)
    return met, processes


def test_commands_are_named_by_their_script_and_the_kind_of_their_lease():
    assert name_command(ACQUIRE) == "lease/acquire loop"
    assert name_command([b"EVAL", load_script("segment/confirm").encode(), b"1", b"s"]) == "segment/confirm"
    assert name_command([b"hset", b"k"]) == "HSET"


def test_statements_that_write_are_named_by_what_they_do_and_their_table():
    assert name_statement('INSERT INTO "workers_plan" ("x") VALUES (1)') == "INSERT workers_plan"
    assert name_statement('UPDATE "workers_plan" SET "x" = 1') == "UPDATE workers_plan"
    assert name_statement('DELETE FROM "workers_plan" WHERE 1') == "DELETE workers_plan"
    assert name_statement("COMMIT") == "COMMIT"


def test_a_fault_waits_for_a_number_of_calls_of_its_process(scheduler):
    faults, fault = CallFaults(scheduler), CallFault(CRASH_AFTER, 0.0, 1)
    faults.by_process["a"] = [fault]
    met, _ = run_calls(scheduler, faults, [[b"GET"]] * 3, ("a", "b"))
    assert [found for found in met if found[1] is not None] == [("a", fault)]
    assert met.index(("a", fault)) in (2, 3)


def test_a_fault_at_a_moment_hits_the_first_call_of_its_kind_once(scheduler):
    faults, fault = CallFaults(scheduler), CallFault(CRASH_AFTER, 0.0, 0)
    hosts = []
    faults.at_moments["lease/acquire loop"] = [lambda host: hosts.append(host) or fault]
    met, _ = run_calls(scheduler, faults, [[b"GET"], ACQUIRE, ACQUIRE])
    assert met == [("a", None), ("a", fault), ("a", None)]
    assert hosts == ["s1"]


def test_a_freeze_at_a_moment_begins_some_calls_of_the_same_thread_later(scheduler):
    faults = CallFaults(scheduler)
    faults.at_moments["lease/acquire loop"] = [lambda host: CallFault(FREEZE, 20.0, 1)]
    met, [process] = run_calls(scheduler, faults, [ACQUIRE, [b"GET"], [b"GET"], [b"GET"]])
    assert [fault for _, fault in met] == [None] * 4
    assert process.frozen_until == NOW + 3 + 20


def test_faults_that_were_cleared_hit_nothing(scheduler):
    faults = CallFaults(scheduler)
    faults.at_moments["GET"] = [lambda host: CallFault(CRASH_AFTER, 0.0, 0)]
    faults.clear()
    assert run_calls(scheduler, faults, [[b"GET"]])[0] == [("a", None)]
