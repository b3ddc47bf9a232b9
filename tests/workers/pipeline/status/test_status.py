"""What the pipeline says: rates of a window, counts over restarts, and the shape that pages rely on."""

import json
import logging
import time
from dataclasses import replace
from pathlib import Path

import pytest

from common.stored_document import convert_to_plain, decode_document, replace_fields
from queues import keys
from tests.console.pipeline_sample import DECLARATION, sample_application
from tests.workers.pipeline.times import Times
from workers.documents.pipeline import PipelineReport
from workers.pipeline.declaration.controls import Controls
from workers.pipeline.declaration.declaration import parse_application_text
from workers.pipeline.declaration.replicas import MAIN, ProcessRole
from workers.pipeline.dispatch.assignment import AssignedRange, Assignment, Dispatches
from workers.pipeline.dispatch.cursor import Cursor
from workers.pipeline.dispatch.result_queue import Blob, Result, ResultQueue
from workers.pipeline.status.batch_reports import BatchReports, ReportingBoard
from workers.pipeline.status.progress import ChainStep, ProgressInputs, ProgressRecord, stall
from workers.pipeline.status.published import MAX_LINES, MAX_TEXT, RecentLog, Statuses, list_newest_lines
from workers.pipeline.status.status import WINDOW_SECONDS, StatusBoard
from workers.pipeline.tiers.combining import CombinedOffset
from workers.pipeline.tiers.finished_batch import InterEventBatch, OperatorCount, PatternCount, ReplicaBatch

APPLICATION = parse_application_text(DECLARATION, Path())

# 50 rows of the operators' key came with a batch; 40 of them are due, and worked.
ARRIVED = Result("iap1", 1, None, (Blob("b", "source", -1, 0, 1, 50, 400),))


def keys_of(document: object) -> object:
    """The names in a document, all the way down; of equal rows one."""
    if isinstance(document, dict):
        return {name: keys_of(value) for name, value in document.items()}
    return keys_of(document[0]) if isinstance(document, list) and document else None


def board(control, monotonic=lambda: 100.0, clock=lambda: 50.0) -> StatusBoard:
    results, dispatches = ResultQueue(control, APPLICATION.name), Dispatches(control, APPLICATION.name)
    return StatusBoard(results, dispatches, APPLICATION, None, lambda: None, clock=clock, monotonic=monotonic)


def given(control, times: Times, tick: int = 1) -> None:
    """The dispatcher gives iap1 a piece of 10 events."""
    piece = Assignment(tick, (AssignedRange("telemetry/n1", "0-0", "1-0", 10),), None, Controls(), times())
    Dispatches(control, "performance").commit(Cursor(tick=tick - 1), Cursor(tick=tick), {"iap1": piece})


def beat(events: int) -> dict[bytes, bytes]:
    counters = {"inserted_events": events, "removed_events": 0}
    return {b"n1": json.dumps({"seq": 1, "containers": {"telemetry": counters}}).encode()}


def looked(shown: StatusBoard, stall_reason: str | None = None, events: int = 0) -> None:
    shown.record_dispatch(Cursor(controls=APPLICATION.controls), events, stall_reason, ())


def worked(batch: int, at: float = 100.0) -> InterEventBatch:
    hosts = OperatorCount("hosts", events=40, late=1, seconds=4.0)
    hosts.patterns["load-rises"] = PatternCount({"cpu": 30, "load": 10}, matches=2, suppressed=1, seconds=0.4)
    combined = CombinedOffset(watermark_us=47_000_000, waits_for="iap2", fresh=(ARRIVED,))
    tasks = (OperatorCount("hosts", 1, 30, seconds=3.0), OperatorCount("hosts", 2, 10, seconds=1.0))
    tasks[0].patterns["load-rises"] = PatternCount(matches=2)
    return InterEventBatch(at, batch, combined, {"hosts": hosts}, tasks, 0.5)


def test_the_sample_that_pages_are_tested_with_has_the_shape_of_the_real_status(control):
    real = convert_to_plain(board(control).document({}))
    sample = sample_application()
    for name in ("controls", "rules", "patterns", "operators", "edges"):
        ours, theirs = real.pop(name), sample.pop(name)
        if name == "controls":
            assert set(theirs) <= set(ours)
        elif isinstance(ours, dict):
            assert {frozenset(each) for each in ours.values()} == {frozenset(each) for each in theirs.values()}
        else:
            assert not ours or set(ours[0]) == set(theirs[0])
    assert keys_of({**real, "sinks": None}) == keys_of({**sample, "sinks": None})


def test_rates_are_of_the_window_and_utilisation_of_each_task(control):
    now = iter([0.0, *[100.0] * 10])
    shown = board(control, lambda: next(now))
    shown.record_dispatch(Cursor(controls=APPLICATION.controls), 50, None, ())
    shown.record_replica_batch("iap1", ReplicaBatch(95.0, 3, 50, 40, 4_000, 2.0, [], 0.25))
    shown.record_inter_event_batch(worked(7))
    document = convert_to_plain(shown.document({}))
    assert (document["in_per_second"], document["kept_per_second"]) == (5.0, 4.0)
    assert document["replicas"]["iap1"]["utilisation"] == 0.2
    assert document["operators"]["hosts"]["utilisation"] == 0.2  # 4 s of 10 s, by two tasks
    assert document["patterns"]["load-rises"]["types"] == {"cpu": 3.0, "load": 1.0}
    assert document["watermark_lag_seconds"] == 3.0
    assert document["combiner"]["waits_for"] == "iap2"
    assert document["admitted_events"] == 50
    assert document["replicas"]["iap2"]["response_seconds"] is None


def test_how_soon_a_replica_answers_is_reported_once_it_is_warm_and_only_of_the_window(control):
    at = [0.0]
    shown = board(control, lambda: at[0])

    def emitted(now: float) -> float | None:
        at[0] = now
        return convert_to_plain(shown.document({}))["replicas"]["iap1"]["response_seconds"]

    shown.record_replica_batch("iap1", ReplicaBatch(8.0, 1, 50, 40, 4_000, 7.4, [], 7.4))
    assert emitted(9.0) is None  # Spark was warming up
    shown.record_replica_batch("iap1", ReplicaBatch(9.0, 2, 50, 40, 4_000, 0.2, [], 6.0))
    assert emitted(17.0) is None  # and that one waited for it
    shown.record_replica_batch("iap1", ReplicaBatch(20.0, 3, 50, 40, 4_000, 0.2, [], 0.4))
    assert emitted(21.0) == 0.4
    assert emitted(31.0) is None  # it has had nothing to do since


def test_each_task_is_measured_by_its_own_batches(control):
    now = iter([0.0, *[100.0] * 10])
    shown = board(control, lambda: next(now))
    shown.record_inter_event_batch(worked(7, at=98.0))
    shown.record_inter_event_batch(worked(8, at=100.0))
    operator = convert_to_plain(shown.document({}))["operators"]["hosts"]
    assert (operator["parallelism"], operator["tasks"], operator["reads_source"]) == (2, 2, True)
    first, second = operator["work"]
    assert (first["executions"], second["executions"]) == (60, 20)
    # 50 rows came in the 2 s between the batches, to the tasks as they worked: 30 and 10 of 40.
    assert (first["inputs"], second["inputs"]) == (187.5, 62.5)
    assert (first["outputs"], second["outputs"]) == (4, 0)
    assert first["service_seconds"] == 0.1 and first["latency_seconds"] == 3.0
    assert first["arrival_interval_seconds"] == pytest.approx(2 / 37.5, rel=1e-5)
    assert second["utilisation"] == 0.2
    assert first["service_variance"] is None  # too few batches


def test_the_events_that_the_combiner_reads_follow_from_the_bytes_of_its_results(control):
    shown = board(control)
    assert shown.document({}).combiner.in_per_second is None
    shown.record_replica_batch("iap1", ReplicaBatch(95.0, 3, 50, 40, 4_000, 2.0, [], 0.25))
    shown.record_inter_event_batch(InterEventBatch(100.0, 7, CombinedOffset(fresh=(ARRIVED,)), {}, (), 0.5))
    assert shown.document({}).combiner.in_per_second == 5.0, "400 bytes, at 80 bytes an event, in 1 s"


def test_the_wait_for_the_combiner_is_from_the_result_to_the_batch_that_reads_it_first(control):
    shown = board(control)
    entries = [Result("iap1", 1, None, ARRIVED.blobs, f"{at_ms}-0") for at_ms in (48_500, 49_100)]
    combined = CombinedOffset(fresh=tuple(entries))
    shown.record_inter_event_batch(InterEventBatch(100.0, 7, combined, {}, (), 0.5))  # it began at 49.5
    assert shown.document({}).combiner.wait_seconds == pytest.approx(0.7)


def test_the_rates_of_a_process_that_has_just_started_are_not_those_of_a_whole_window(control):
    now = [0.0]
    shown = board(control, lambda: now[0])
    for second in range(4):
        now[0] = float(second)
        shown.record_inter_event_batch(worked(second, at=now[0]))
    first, _ = shown.document({}).operators["hosts"].work
    assert first["inputs"] == pytest.approx(WINDOW_SECONDS * 50 * 30 / 40)


@pytest.mark.parametrize(("waited_seconds", "seconds"), [(0.2, 10.0), (20.0, 20.0)])
def test_events_after_a_long_gap_are_recent_unless_they_waited(control, waited_seconds, seconds):
    now = [100.0]
    shown = board(control, lambda: now[0], lambda: 1_000.0 + now[0])
    shown.record_inter_event_batch(worked(7, at=100.0))
    now[0] = 120.5
    entry = Result("iap1", 2, None, ARRIVED.blobs, f"{round(1_000 * (1_120 - waited_seconds))}-0")
    later = worked(8, at=120.5)
    shown.record_inter_event_batch(
        InterEventBatch(120.5, 8, CombinedOffset(fresh=(entry,)), later.operators, later.worked, 0.5)
    )
    first, second = shown.document({}).operators["hosts"].work
    assert first["inputs"] + second["inputs"] == pytest.approx(WINDOW_SECONDS * 50 / seconds)


def test_a_task_that_a_small_batch_did_not_need_has_received_nothing(control):
    shown = board(control)
    alone = InterEventBatch(99.0, 8, worked(8).combined, worked(8).operators, worked(8).worked[:1], 0.5)
    for batch in (worked(7, at=98.0), alone):
        shown.record_inter_event_batch(batch)
    first, second = shown.document({}).operators["hosts"].work
    assert first["inputs"] > 0 and second["inputs"] == 0.0


def test_matches_count_on_over_a_restart_and_over_a_version(control):
    statuses = Statuses(control)
    statuses.board(APPLICATION).record_inter_event_batch(worked(1))
    statuses.board(APPLICATION).record_inter_event_batch(worked(2))
    again = Statuses(control)
    again.board(APPLICATION).record_inter_event_batch(worked(3))
    said = json.loads(control.get(keys.PIPELINE))["applications"]["performance"]
    assert said["patterns"]["load-rises"]["matches"] == 6
    assert said["late_events"] == 3


def shedding(at: float) -> InterEventBatch:
    """A batch of which half of one pattern's events were shed; of spared keys comes a tenth."""
    hosts = OperatorCount("hosts", events=400, seconds=4.0, early_us=48_000_000)
    hosts.patterns["load-rises"] = PatternCount({"cpu": 220}, 60, 0, 0.4, {"cpu": 180}, {"cpu": 40}, [4] * 10, [1] * 10)
    combined = CombinedOffset(watermark_us=47_000_000, controls=Controls(shed={"load-rises": {"cpu": 0.5}}))
    return InterEventBatch(at, 8, combined, {"hosts": hosts}, (hosts,), 0.5)


def test_matches_count_on_over_processes_that_died_while_they_started(control):
    statuses = Statuses(control)
    statuses.board(APPLICATION).record_inter_event_batch(worked(1))
    statuses.write()
    for _ in range(2):  # killed before Spark was there, once and once more
        started = Statuses(control)
        started.enter_state("starting")
        started.expect([APPLICATION.name])
        started.write()
    again = Statuses(control)
    again.board(APPLICATION)
    again.write()
    report = decode_document(PipelineReport, control.get(keys.PIPELINE), "pipeline")
    assert report.applications[APPLICATION.name].complex_events == 2 and report.carried == {}


def test_nothing_is_carried_of_an_application_that_is_not_wanted_any_more(control):
    statuses = Statuses(control)
    statuses.board(APPLICATION).record_inter_event_batch(worked(1))
    statuses.write()
    started = Statuses(control)
    started.expect([])
    started.write()
    report = decode_document(PipelineReport, control.get(keys.PIPELINE), "pipeline")
    assert report.carried == report.applications == {}


def test_what_is_shed_is_reported_by_type_with_what_it_costs_and_counts_on_over_a_restart(control):
    statuses = Statuses(control)
    now = time.monotonic()
    statuses.board(APPLICATION).record_inter_event_batch(shedding(now))
    ours = statuses.board(APPLICATION)
    ours.record_replica_batch("iap1", ReplicaBatch(now, 3, 50, 40, 4_000, 2.0, [], 0.25, {"load-rises": {"cpu": 100}}))
    ours.record_inter_event_batch(shedding(now))
    said = json.loads(control.get(keys.PIPELINE))
    application = said["applications"]["performance"]
    pattern = application["patterns"]["load-rises"]
    assert pattern["shed_events"] == {"cpu": 180 + 100 + 180}
    assert application["shed_events"] == said["shed_events"] == 460
    assert application["shed_share"] == application["operators"]["hosts"]["shed_share"] == 0.56
    # 10 matches of 40 spared events; 50 matches of the 460 others, of which 115 would have been.
    assert pattern["recall"]["estimate"] == pytest.approx(50 / 115)
    assert pattern["recall"]["low"] < 50 / 115 < pattern["recall"]["high"]
    one = board(control)
    one.record_inter_event_batch(shedding(100.0))
    assert convert_to_plain(one.document({}))["latency_p95_seconds"] == 2.0


def test_the_worst_application_is_the_state_of_the_pipeline(control):
    statuses = Statuses(control)
    shown = statuses.board(APPLICATION)
    shown.enter_state("running")
    assert json.loads(control.get(keys.PIPELINE))["state"] == "running"
    shown.enter_state("failed", "a node is away")
    said = json.loads(control.get(keys.PIPELINE))
    assert (said["state"], said["error"]) == ("failed", "a node is away")


def test_a_replica_that_finishes_nothing_is_reported_in_place_of_running(control):
    times = Times()
    shown = board(control, times, times)
    shown.enter_state("running")
    assert convert_to_plain(shown.document({}))["state"] == "running", "nothing waits"
    given(control, times)
    looked(shown)
    assert convert_to_plain(shown.document(beat(10)))["state"] == "starting", "its first batch compiles"
    shown.record_replica_batch("iap1", ReplicaBatch(times(), 0, 10, 10, 0, 0.2, [], 0.2))
    assert convert_to_plain(shown.document(beat(10)))["state"] == "running"
    times.now += 20.0
    looked(shown)
    said = convert_to_plain(shown.document(beat(10)))
    assert (said["state"], said["hindrance"]) == ("stalled", "replica iap1 has not finished its batch for 20 s")
    assert shown.stuck_seconds == 20.0
    results = ResultQueue(control, "performance")
    results.publish(Result("iap1", 1, None, ()), results.begin("iap1", 0, 1), 10)
    said = convert_to_plain(shown.document({}))
    assert (said["state"], said["hindrance"], shown.stuck_seconds) == ("running", None, 0.0)


def test_events_that_nobody_dispatches_are_reported_with_what_holds_them_back(control):
    times = Times()
    shown = board(control, times, times)
    shown.enter_state("running")
    shown.document(beat(0))
    for _ in range(4):
        times.now += 5.0
        looked(shown, "the admission limit is 0 events/s")
        said = convert_to_plain(shown.document(beat(7)))
    assert said["state"] == "stalled"
    assert said["hindrance"] == "no events were dispatched for 20 s: the admission limit is 0 events/s"


def test_who_may_find_nothing_more_does_not_stall(control):
    times = Times()
    shown = board(control, times, times)
    shown.enter_state("running")
    shown.outbox, shown.outbox_full = {"alert": 200_000}, True
    shown.document(beat(0))
    for _ in range(4):
        times.now += 5.0
        looked(shown, "the outbox of complex events is full: their queues accept no events")
        said = convert_to_plain(shown.document(beat(7)))
    assert (said["state"], said["hindrance"], said["outbox_full"]) == ("running", None, True)


def test_what_ended_the_run_before_is_shown_until_something_is_worked_again(control):
    shown = board(control)
    shown.enter_state("failed", "a node is away")
    shown.enter_state("running")
    assert convert_to_plain(shown.document({}))["error"] == "a node is away"
    shown.record_replica_batch("iap1", ReplicaBatch(100.0, 0, 10, 10, 0, 0.2, [], 0.2))
    assert convert_to_plain(shown.document({}))["error"] is None


def test_a_process_that_starts_says_how_the_one_before_ended_unless_that_was_asked_for(control):
    times = Times()
    before = Statuses(control, times)
    before.enter_state("starting")
    assert json.loads(control.get(keys.PIPELINE))["error"] is None  # the first there is
    before.board(APPLICATION).enter_state("running")
    times.now += 12
    killed = Statuses(control, times)
    killed.enter_state("starting")
    said = json.loads(control.get(keys.PIPELINE))
    assert said["state"] == "starting" and "exited unexpectedly, 12 s before" in said["error"]
    killed.board(APPLICATION).enter_state("running")
    assert json.loads(control.get(keys.PIPELINE))["error"] is None
    killed.enter_state("failed", "Spark is not there")
    failed = Statuses(control, times)
    failed.enter_state("starting")
    assert json.loads(control.get(keys.PIPELINE))["error"] == "Spark is not there"
    failed.enter_state("stopping")
    asked = Statuses(control, times)
    asked.enter_state("starting")
    assert json.loads(control.get(keys.PIPELINE))["error"] is None


def test_the_fixed_cost_of_a_batch_is_reported_with_how_much_it_varies(control):
    times = Times()
    shown = board(control, times, times)
    for place in range(20):
        times.now += 1.0
        # Every other batch takes three times as long beside its operators, which take 0.1 s of each.
        seconds = 0.1 + (0.6 if place % 2 else 0.2)
        hosts = OperatorCount("hosts", events=40, seconds=0.1)
        shown.record_inter_event_batch(
            InterEventBatch(times(), place, CombinedOffset(), {"hosts": hosts}, (hosts,), seconds)
        )
        if place == 8:
            assert convert_to_plain(shown.document({}))["batch_overhead_cv2"] is None, "of few it is not known"
    said = convert_to_plain(shown.document({}))
    between = 0.3  # the least time between the end of one and the begin of the next
    assert said["batch_overhead_seconds"] == pytest.approx(0.4 + between, abs=0.02)
    assert said["batch_overhead_cv2"] == pytest.approx(0.04 * 20 / 19 / (0.4 + between) ** 2, rel=0.02)
    times.now += 100.0
    assert convert_to_plain(shown.document({}))["batch_overhead_cv2"] is None


def test_operators_that_are_worked_at_once_leave_no_fixed_cost_below_nothing(control):
    times = Times()
    shown = board(control, times, times)
    for place in range(20):
        times.now += 1.0
        counts = {name: OperatorCount(name, events=40, seconds=0.8) for name in ("hosts", "sites")}
        batch = InterEventBatch(times(), place, CombinedOffset(), counts, tuple(counts.values()), 1.0)
        shown.record_inter_event_batch(batch)
    said = convert_to_plain(shown.document({}))
    # The shedding law declares a cost from 0 on.
    assert said["batch_overhead_seconds"] == 0.0 and said["batch_overhead_cv2"] is None


def test_events_that_were_not_searched_are_reported_by_pattern(control):
    hosts = OperatorCount("hosts", events=40, seconds=0.1)
    hosts.patterns["load-rises"] = PatternCount({"cpu": 40}, partnerless=30)
    shown = board(control)
    shown.record_inter_event_batch(InterEventBatch(100.0, 1, CombinedOffset(), {"hosts": hosts}, (hosts,), 0.5))
    assert convert_to_plain(shown.document({}))["patterns"]["load-rises"]["partnerless_per_second"] == 30.0


@pytest.mark.parametrize(
    ("seconds", "batch_seconds", "stalled"),
    [(14.0, 0.2, False), (16.0, 0.2, True), (40.0, 20.0, False), (61.0, 20.0, True)],
)
def test_a_worker_is_measured_by_its_own_last_batch(seconds, batch_seconds, stalled):
    step = ChainStep("replica iap1", seconds, batch_seconds)
    assert step.is_stalled is stalled
    assert (stall(ProgressInputs((step,))) is not None) is stalled


def test_the_first_batch_has_time_for_compiling():
    assert stall(ProgressInputs((ChainStep("replica iap1", 50.0, None),))) is None
    slow = ProgressInputs((ChainStep("replica iap1", 70.0, None),))
    assert "first batch" in stall(slow)
    assert slow.stuck_seconds == 0.0, "a new start would only begin it once more"
    assert ProgressInputs((ChainStep("replica iap1", 400.0, None),)).stuck_seconds == 160.0


def test_a_dispatcher_that_does_not_come_back_is_reported_and_is_stuck():
    sight = ProgressInputs(silent_seconds=31.0)
    assert stall(sight) == "the dispatcher has not responded for 31 s"
    assert sight.stuck_seconds == 31.0


def test_a_worker_counts_from_its_piece_its_last_batch_or_the_start_whichever_is_latest():
    record = ProgressRecord(50.0)
    record.record_replica("a", ReplicaBatch(90.0, 0, 1, 1, 0, 0.2, [], 0.2))
    record.record_dispatch(130.0, 0, None, ())
    given = {"a": 60.0, "b": 10.0, "c": 120.0}
    state, stall_reason = record.judge(130.0, given, 1, MAIN)
    assert (state, stall_reason[:9], stall_reason[-4:]) == ("stalled", "replica b", "80 s")
    assert record.inputs.stuck_seconds == 40.0, "that of replica a, which has worked before"
    record.begin(130.0)
    assert record.judge(131.0, given, 1, MAIN) == ("starting", None)
    record.inputs = ProgressInputs()
    assert record.inputs.stuck_seconds == 0.0


def test_an_application_starts_until_its_first_batch_of_the_events_that_wait():
    record = ProgressRecord(50.0)
    assert record.judge(51.0, {}, 0, MAIN) == ("running", None), "nothing waits"
    assert record.judge(52.0, {}, 900, MAIN) == ("starting", None), "nothing is dispatched yet"
    record.record_dispatch(53.0, 0, "its consumption is paused", ())
    assert record.judge(54.0, {}, 900, MAIN) == ("running", None), "it does not read what waits"
    record.record_dispatch(55.0, 900, None, ())
    assert record.judge(56.0, {"a": 55.0}, 0, MAIN) == ("starting", None)
    record.record_replica("a", ReplicaBatch(57.0, 0, 900, 900, 0, 0.2, [], 0.2))
    assert record.judge(58.0, {}, 100, MAIN) == ("running", None)


def test_a_replica_in_another_process_is_reported_but_restarts_only_its_own_process():
    given, batch = {"iap1": 60.0, "iap2": 60.0}, ReplicaBatch(40.0, 0, 1, 1, 0, 0.2, [], 0.2)
    main, own = (ProgressRecord(0.0) for _ in range(2))
    for record in (main, own):
        record.record_replica("iap1", batch)
    main.record_dispatch(430.0, 0, None, ())
    main.record_combiner(worked(1, at=45.0))
    state, reason = main.judge(430.0, {"iap1": 60.0}, 1, ProcessRole.build_main(2))
    assert state == "stalled" and "replica iap1 (process pipeline-iap1) has not finished" in reason
    assert main.inputs.stuck_seconds == 0.0
    own.judge(430.0, given, 1, ProcessRole("iap1"))
    assert own.inputs.stuck_seconds == 370.0, "neither the other replica nor the dispatcher is in this process"


class Board:
    """What was recorded, in order."""

    def __init__(self):
        self.recorded = []

    def record_replica_batch(self, name, batch):
        self.recorded.append((name, batch))

    def record_inter_event_batch(self, batch):
        self.recorded.append(("", batch))


def delivered(reports: BatchReports, replicas: frozenset[str] | None = None) -> list:
    board = Board()
    reports.deliver(board, replicas)
    return board.recorded


def test_batches_of_other_processes_are_read_once_and_get_times_of_the_local_clock(control):
    main = BatchReports(control, "performance", lambda: 100.0)
    batch = ReplicaBatch(7.0, 3, 10, 9, 8, 0.5, [{"in": 10, "out": 9}], 1.5, {"hot": {"cpu": 2}})
    ReportingBoard(board(control), BatchReports(control, "performance")).record_replica_batch("iap1", batch)
    ((name, read),) = delivered(main)
    assert (name, replace(read, at=7.0)) == ("iap1", batch)
    assert 0.0 < read.at <= 100.0
    assert delivered(main) == []
    assert delivered(BatchReports(control, "performance")) == [], "a new process counts from its start"


def test_a_batch_of_the_combiner_is_reported_without_the_results_that_it_read_before(control):
    main, batch = BatchReports(control, "performance", lambda: 100.0), worked(7)
    with_old = replace(batch, combined=replace_fields(batch.combined, left_over=(ARRIVED,)))
    BatchReports(control, "performance").record_inter_event_batch(with_old)
    ((_, read),) = delivered(main)
    assert replace(read, at=batch.at) == batch


def test_the_process_of_a_replica_takes_only_reports_of_its_replica(control):
    own, writer = BatchReports(control, "performance"), BatchReports(control, "performance")
    writer.record_inter_event_batch(worked(7))
    for name in ("iap1", "iap2"):
        writer.record_replica_batch(name, ReplicaBatch(7.0, 3, 10, 9, 8, 0.5, [], 1.5))
    assert [name for name, _ in delivered(own, frozenset({"iap2"}))] == ["iap2"]


def test_an_unreadable_report_of_another_version_hides_no_other_report(control):
    main, other = BatchReports(control, "performance"), BatchReports(control, "performance")
    batch = ReplicaBatch(7.0, 3, 10, 9, 8, 0.5, [], 1.5)
    other.record_replica_batch("iap1", batch)
    control.xadd(keys.PIPELINE_BATCHES.build("performance"), {"replica": "iap2", "d": b'{"batch": "x"}'})
    other.record_replica_batch("iap3", batch)
    assert [replica for replica, _ in delivered(main)] == ["iap1", "iap3"]


def test_the_age_of_events_is_measured_at_the_end_of_their_batch(control):
    """A report comes up to a second later."""
    times = Times()
    shown = board(control, times, times)
    hosts = OperatorCount("hosts", events=40, early_us=round(times.now * 1e6))
    ended_at = times() + 0.1
    times.now += 0.9
    shown.record_inter_event_batch(InterEventBatch(ended_at, 1, CombinedOffset(), {"hosts": hosts}, (hosts,), 0.05))
    assert convert_to_plain(shown.document({}))["latency_p95_seconds"] == pytest.approx(0.1, abs=0.02)


def test_a_batch_that_the_combiner_reads_before_its_report_causes_no_stall():
    record = ProgressRecord(0.0)
    record.record_combiner(worked(1, at=10.0))
    record.record_replica("iap1", ReplicaBatch(9.4, 0, 1, 1, 0, 0.2, [], 0.2))
    record.record_dispatch(100.0, 0, None, ())
    assert record.judge(100.0, {}, 0, MAIN) == ("running", None)


@pytest.fixture
def log(control):
    return RecentLog(control)


def note(log: RecentLog, text: str, level: int = logging.ERROR) -> None:
    log.handle(logging.LogRecord("weir.pipeline", level, __file__, 1, text, None, None))


def test_the_newest_lines_are_there_first_and_bounded(log, control):
    for number in range(MAX_LINES + 5):
        note(log, f"line {number}\n  at org.apache.spark" + "x" * 2 * MAX_TEXT)
    log.write()
    found = list_newest_lines(control)
    assert len(found) == MAX_LINES
    assert found[0].text.startswith(f"line {MAX_LINES + 4} at org") and found[0].level == "ERROR"
    assert max(len(line.text) for line in found) == MAX_TEXT


def test_a_process_that_starts_goes_on_with_the_lines_of_the_one_before(log, control):
    note(log, "the last words")
    log.write()
    following = RecentLog(control)
    note(following, "the first ones", logging.INFO)
    following.write()
    assert [line.text for line in list_newest_lines(control)] == ["the first ones", "the last words"]


def test_nothing_is_written_without_news_and_what_cannot_be_read_counts_as_none(log, control):
    log.write()
    assert not control.exists(keys.PIPELINE_LOG)
    control.set(keys.PIPELINE_LOG, b"[")
    assert list_newest_lines(control) == []


@pytest.fixture
def full(control):
    """The control server takes nothing that needs memory, as one that is full does."""
    before = control.config_get("maxmemory")["maxmemory"]
    control.config_set("maxmemory-policy", "noeviction")
    control.config_set("maxmemory", 1)
    yield lambda: control.config_set("maxmemory", before)
    control.config_set("maxmemory", before)


def test_a_control_server_that_is_full_ends_no_thread_and_gets_the_lines_when_there_is_room(log, control, full):
    note(log, "no room")
    log.write()
    Statuses(control).enter_state("failed", "no room")
    full()
    log.write()
    assert [line.text for line in list_newest_lines(control)] == ["no room"]
