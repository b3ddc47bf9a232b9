"""The short-lived worker on a real segment: what succeeds, what fails, what is poison."""

import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import redis
from celery.exceptions import SoftTimeLimitExceeded
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from bench.queues.bit_flips import flip_bit, rewrite_entries
from queues.events.block import EncodedBlock
from queues.segments.dead_letters import DeadLetters
from queues.segments.gauge import GROUP
from queues.segments.segment import Segment
from queues.topology import QueueSpec
from tests.waiting import until
from tests.workers.consumer.handler_samples import hang
from tests.workers.samples import delivery_of, fill
from workers.consumer.attempt import BEGINS_WITHIN_SECONDS, HandlerCall, Hang, use_time_limit
from workers.consumer.backoff import Backoff
from workers.consumer.handler import Delivery, Failure, Handler, Outcome, Place
from workers.consumer.registry import build
from workers.consumer.work_report import Report
from workers.consumer.worker import Consumer

SPEC = QueueSpec("alert", "jobs", {"n1": 1000}, tries=3, handler_timeout_seconds=60.0)
AT_ONCE = Backoff(base_seconds=0.0)
A_LONG_TIME_SECONDS = 600.0


class Recorder:
    """A handler that records what was handled, and fails as told by the values of the events."""

    works_block_by_block = False

    def __init__(self, fails: Callable[[float], bool] = lambda value: False, **failure: Any) -> None:
        self.fails, self.failure = fails, failure
        self.handled: list[str] = []
        self.calls: list[int] = []

    def handle(self, deliveries: Sequence[Delivery]) -> Outcome:
        self.calls.append(len(deliveries))
        bad = [place for place, each in enumerate(deliveries) if self._is_bad(each)]
        if bad and not self.failure:
            raise ValueError(f"block {bad[0]} is bad")
        good = [each for place, each in enumerate(deliveries) if place not in bad]
        self.handled += [name for each in good for name in each.get_event_ids().to_pylist()]
        failures = tuple(Failure(place, "refused", **self.failure) for place in bad)
        return Outcome(sum(each.events for each in good), 0, failures)

    def _is_bad(self, delivery: Delivery) -> bool:
        return any(self.fails(value) for value in delivery.batch.column("value").to_pylist())


class Late(Recorder):
    """Each call takes `seconds` by its own clock; where it works block by block, each block does."""

    def __init__(self, seconds: float, fails: Callable[[float], bool] = lambda value: False, by_block=False) -> None:
        super().__init__(fails)
        self.seconds, self.now, self.works_block_by_block = seconds, 0.0, by_block
        self.calls_seconds: list[float] = []

    def handle(self, deliveries: Sequence[Delivery]) -> Outcome:
        self.calls_seconds.append(self.seconds * (len(deliveries) if self.works_block_by_block else 1))
        self.now += self.calls_seconds[-1]
        return super().handle(deliveries)

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def segment(node):
    return Segment(node, "alert")


def work(segment: Segment, handler: Handler, spec: QueueSpec = SPEC, **options: Any) -> Report:
    """A worker whose time stands still, unless the test gives it another: a busy host ends no turn."""
    still = {"backoff": AT_ONCE, "monotonic": lambda: 0.0}
    consumer = Consumer(spec, segment, handler, "w", **{**still, **options})
    consumer.run()
    return consumer.report()


def tried_once(segment: Segment) -> None:
    for block in segment.claim("w1", 100_000, 15.0):
        segment.retry(block, "w1", 0.0)


def dead_values(segment: Segment) -> list[float]:
    return [value for letter in DeadLetters(segment).read(1000) for value in letter.batch["value"].to_pylist()]


def test_a_worker_handles_everything_and_leaves_the_segment_empty(segment):
    blocks = fill(segment, 5)
    handler = Recorder()
    report = work(segment, handler)
    assert (report.events, report.blocks, report.effects, report.failed) == (40, 5, 40, 0)
    assert sorted(handler.handled) == sorted(name for block in blocks for name in block.get_event_ids().to_pylist())
    assert segment.measure()["length_blocks"] == 0
    assert segment.get_counters()["removed_events"] == 40


@pytest.mark.parametrize("place", [7, -1])
def test_blocks_are_not_handled_where_the_handler_names_one_that_it_was_not_given(segment, place):
    """Which one failed is unknown: they were acknowledged, all of them, and the worker ended."""

    class Mistaken:
        works_block_by_block = False

        def handle(self, deliveries: Sequence[Delivery]) -> Outcome:
            return Outcome(failures=(Failure(place, "refused"),))

    fill(segment, 2)
    report = work(segment, Mistaken())
    assert (report.events, report.dead) == (0, 16)
    assert {letter.tries for letter in DeadLetters(segment).read()} == {3}
    assert f"reported block {place} of 1 as failed" in DeadLetters(segment).read()[0].error


def test_a_worker_ends_when_its_quota_is_used(segment):
    fill(segment, 10)
    report = work(segment, Recorder(), replace(SPEC, events_per_worker=24))
    assert report.events == 24
    assert segment.measure()["length_blocks"] == 7


def test_a_worker_reports_how_long_its_events_took(segment):
    fill(segment, 2)
    latencies = work(segment, Recorder()).latencies
    assert latencies.count == 16
    assert (latencies.quantile(1.0) or 99) < 10


def test_a_handler_that_raises_on_one_block_does_not_hold_up_the_others(segment):
    fill(segment, 4)
    report = work(segment, Recorder(lambda value: value == 13), backoff=Backoff(base_seconds=60))
    assert (report.events, report.failed) == (24, 1)
    assert segment.measure()["retry_blocks"] == 1


def test_a_failed_block_is_not_tried_before_its_time(segment):
    fill(segment, 1)
    work(segment, Recorder(lambda value: True), backoff=Backoff(base_seconds=60))
    handler = Recorder()
    assert work(segment, handler).events == 0
    assert handler.calls == []


def test_after_its_tries_only_the_poison_events_are_dead_letters(segment):
    fill(segment, 3)
    handler = Recorder(lambda value: value in (9, 13, 14))
    report = work(segment, handler)
    assert sorted(dead_values(segment)) == [9, 13, 14]
    assert (report.events, report.dead, report.effects) == (21, 3, 21)
    assert segment.measure()["length_blocks"] == 0
    counters = segment.get_counters()
    assert counters["inserted_events"] == counters["removed_events"] == 24
    assert counters["dead_events"] == 3


def test_dead_letters_are_reported_once_they_are_stored(segment):
    fill(segment, 3)
    letters = []
    for _ in range(SPEC.tries):
        work(segment, Recorder(lambda value: value in (9, 13)), dead_lettered=letters.extend)
    assert sorted(value for rows, _ in letters for value in rows["value"].to_pylist()) == [9, 13]


def test_dead_letters_keep_id_error_tries_and_worker_and_are_handled_under_their_id_when_requeued(segment):
    block = fill(segment, 1)[0]
    work(segment, Recorder(lambda value: value == 5))
    letter = DeadLetters(segment).read()[0]
    assert letter.batch["id"].to_pylist() == [f"{block.block_id}:5"]
    assert (letter.error, letter.tries, letter.worker) == ("ValueError: block 0 is bad", 3, "w")
    DeadLetters(segment).requeue({letter.dead_id: letter.digest})
    mended = Recorder()
    work(segment, mended)
    assert mended.handled == [f"{block.block_id}:5"]


def test_poison_that_the_handler_names_is_separated_at_the_first_try(segment):
    fill(segment, 1)
    report = work(segment, Recorder(lambda value: value == 2, poison=True))
    assert dead_values(segment) == [2]
    assert (report.effects, report.failed) == (7, 0)
    assert DeadLetters(segment).read()[0].tries == 1


def test_a_transient_failure_is_not_separated_after_its_tries(segment):
    fill(segment, 1)
    handler = Recorder(lambda value: value == 2, transient=True)
    report = work(segment, handler)
    assert report.dead == 8 and len(handler.calls) == 3
    assert len(DeadLetters(segment).read()) == 1


def test_a_database_that_is_away_makes_one_dead_letter_of_a_block_and_not_one_of_each_event(segment, tmp_path):
    fill(segment, 2)
    data = tmp_path / "a file"
    data.touch()
    report = work(segment, build("sql", {}, Place("alert", data)))
    assert report.dead == 16
    assert [letter.events for letter in DeadLetters(segment).read()] == [8, 8]


def test_a_block_of_which_every_event_fails_alike_is_one_dead_letter(segment):
    fill(segment, 1)
    work(segment, Recorder(lambda value: True))
    (letter,) = DeadLetters(segment).read()
    assert (letter.events, letter.error) == (
        8,
        "each of its 8 events failed when processed alone: ValueError: block 0 is bad",
    )


def test_a_handler_may_ask_for_a_longer_wait(segment):
    fill(segment, 1)
    assert work(segment, Recorder(lambda value: True, transient=True, delay_seconds=60.0)).failed == 1
    assert work(segment, Recorder()).events == 0


def test_a_handler_that_hangs_is_interrupted_and_only_the_event_it_hung_on_is_dead(segment, tmp_path):
    fill(segment, 2)
    hanging = build("python:tests.workers.consumer.handler_samples.hang_on_13", {}, Place("alert", tmp_path))
    report = work(segment, hanging, replace(SPEC, tries=2))
    assert dead_values(segment) == [13]
    assert (report.events, report.effects) == (15, 15)
    assert "longer than 60 s" in DeadLetters(segment).read()[0].error


@pytest.mark.parametrize("seconds", [1e10, 1e18])
def test_a_time_limit_beyond_what_a_timer_takes_makes_no_dead_letters(segment, seconds):
    fill(segment, 1)
    assert work(segment, Recorder(), replace(SPEC, handler_timeout_seconds=seconds)).effects == 8
    assert segment.measure()["dead_letters"] == segment.measure()["length_blocks"] == 0


def test_an_alarm_in_the_instant_in_which_a_call_ends_leaves_no_timer(monkeypatch):
    timer, before = signal.setitimer, signal.getsignal(signal.SIGALRM)

    def struck(which: int, seconds: float, *more: float) -> tuple[float, float]:
        if not seconds:
            signal.raise_signal(signal.SIGALRM)
        return timer(which, seconds, *more)

    try:
        with monkeypatch.context() as patched:
            patched.setattr(signal, "setitimer", struck)
            with use_time_limit(60.0):
                pass
        assert signal.getsignal(signal.SIGALRM) == before
        assert signal.getitimer(signal.ITIMER_REAL)[1] == 0.0, "what is set is not ours, which repeats"
    finally:
        timer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_an_unreadable_block_becomes_a_dead_letter_with_its_bytes(segment):
    segment.publish([EncodedBlock("ee" * 16, 7, 1_790_000_000_000_000, b"no arrow at all")])
    fill(segment, 1)
    report = work(segment, Recorder())
    letter = DeadLetters(segment).read()[0]
    assert "bm8gYXJyb3cgYXQgYWxs" in letter.batch["attributes"].to_pylist()[0]
    assert report.effects == 8
    assert (report.events, report.dead) == (8, 7), "all of it counts as dead, and none of it as handled"
    assert segment.measure()["length_blocks"] == 0


def test_a_damaged_block_is_never_handled_and_the_others_are(segment):
    fill(segment, 3)
    rewrite_entries(
        segment.node, segment.stream, lambda place, parts: parts if place else [*parts[:-1], flip_bit(parts[-1], 777)]
    )
    handler = Recorder()
    report = work(segment, handler)
    (letter,) = DeadLetters(segment).read()
    assert (letter.kind, letter.events) == ("damaged", 8)
    assert len(handler.handled) == 16 and not any(name.startswith(letter.block_id) for name in handler.handled)
    assert (report.events, report.dead, report.blocks) == (16, 8, 3)
    counters = segment.get_counters()
    assert counters["inserted_events"] == counters["removed_events"] == 24
    assert (counters["dead_events"], counters["damaged_blocks"]) == (8, 1)


def test_blocks_of_a_worker_that_died_are_taken_over(segment):
    fill(segment, 3)
    assert len(segment.claim("dead", 1000, 15.0)) == 3
    assert work(segment, Recorder()).events == 0
    assert work(segment, Recorder(), idle_seconds=0.0).events == 24


def test_a_block_that_kills_each_of_its_workers_is_given_up_whole(segment):
    fill(segment, 1)
    for _ in range(SPEC.tries + 2):
        assert segment.claim("dies", 1000, 0.0)
    handler = Recorder()
    report = work(segment, handler, idle_seconds=0.0)
    assert handler.calls == [] and report.dead == 8
    assert "killed" in DeadLetters(segment).read()[0].error


@pytest.mark.parametrize("control", ["answers", "is away", "hangs"])
def test_a_living_worker_keeps_its_claims_however_long_its_handler_and_the_control_server_take(
    segment, monkeypatch, control
):
    monkeypatch.setattr("workers.consumer.worker.KEEP_ALIVE_SECONDS", 0.001)
    fill(segment, 1)
    control_is_back = threading.Event()
    stolen = []

    def is_fresh() -> bool:
        (claim,) = segment.node.xpending_range(segment.stream, GROUP, "-", "+", 1)
        return bool(claim["time_since_delivered"] < A_LONG_TIME_SECONDS * 1_000)

    class Slow(Recorder):
        def handle(self, deliveries: Sequence[Delivery]) -> Outcome:
            (claim,) = segment.node.xpending_range(segment.stream, GROUP, "-", "+", 1)
            for _ in range(3):
                segment.node.xclaim(
                    segment.stream,
                    GROUP,
                    claim["consumer"],
                    0,
                    [claim["message_id"]],
                    idle=int(2_000 * A_LONG_TIME_SECONDS),
                    justid=True,
                )
                until(is_fresh)  # the real thread renews it
                stolen.extend(segment.claim("thief", 1000, A_LONG_TIME_SECONDS))
            control_is_back.set()
            return super().handle(deliveries)

    def alive() -> None:
        if control == "hangs":
            control_is_back.wait()
        if control != "answers":
            raise redis.ConnectionError("the control server is away")

    assert work(segment, Slow(), alive=alive).events == 8
    assert stolen == []


def test_a_worker_begins_no_calls_after_its_time(segment):
    fill(segment, 3)
    handler = Late(300.0)
    work(segment, handler, replace(SPEC, events_per_worker=8), monotonic=handler.monotonic)  # 250 s
    assert len(handler.calls) == 1


def test_events_whose_turn_never_comes_while_the_handler_is_slow_are_handled_in_the_end(segment):
    fill(segment, 12, events=1)
    tried_once(segment)  # so that each is tried alone
    handler = Late(130.0)
    # 250 s, so two calls a worker
    reports = [work(segment, handler, monotonic=handler.monotonic) for _ in range(6)]
    assert dead_values(segment) == []
    assert [(report.effects, report.failed) for report in reports] == [(2, 0)] * 6
    assert segment.measure()["length_blocks"] == 0


def test_only_the_poison_is_dead_where_a_worker_has_time_to_separate_few_of_its_blocks(segment):
    fill(segment, 4, events=2)
    tried_once(segment)
    handler = Late(55.0, lambda value: value % 2 == 1)
    spec = replace(SPEC, tries=2)  # 250 s, so five calls a worker
    for _ in range(6):
        work(segment, handler, spec, monotonic=handler.monotonic)
    assert sorted(dead_values(segment)) == [1, 3, 5, 7]
    assert segment.measure()["length_blocks"] == 0


def test_a_slow_handler_s_worker_leaves_its_place_after_its_turn_and_the_next_gets_what_it_has_not_begun(segment):
    """Two workers of a slow queue held both places of a plant for minutes, with all that they had claimed."""
    fill(segment, 700, events=1)
    handler, spec = Late(0.2, by_block=True), replace(SPEC, handler_timeout_seconds=90.0)
    assert work(segment, handler, spec, monotonic=handler.monotonic).effects == len(handler.handled) < 700
    assert max(handler.calls_seconds) <= BEGINS_WITHIN_SECONDS / 2
    assert BEGINS_WITHIN_SECONDS <= sum(handler.calls_seconds) < 1.5 * BEGINS_WITHIN_SECONDS
    assert segment.measure()["retry_blocks"] == 0, "what a worker returns without a try has not failed"
    workers = 1
    while len(handler.handled) < 700:
        assert work(segment, handler, spec, monotonic=handler.monotonic).failed == 0
        workers += 1
    assert len(set(handler.handled)) == 700 and workers <= 14 and not dead_values(segment)


def test_a_handler_that_grows_slow_gets_fewer_blocks_a_call_and_one_that_is_not_divided_all():
    handler = Late(0.0, by_block=True)
    call = HandlerCall(handler, 30.0, 1e9, monotonic=handler.monotonic)
    deliveries = [delivery_of(1, f"{number:032x}") for number in range(64)]
    most = []
    for handler.seconds, count in [(0.0, 4), (0.0, 16), (0.0, 32), (0.05, 64), (0.3, 64), (0.15, 32), (20.0, 1)]:
        assert call.handle_together(deliveries[:count]) == {}
        most.append(call.choose_block_count(1000))
    assert most == [16, 32, 64, 64, 32, 32, 1]
    assert HandlerCall(Recorder(), 30.0, 1e9).choose_block_count(1000) == 1000


def test_the_end_of_the_workers_time_is_not_taken_for_a_fault_of_the_handler(segment):
    fill(segment, 1)

    class Interrupted(Recorder):
        def handle(self, deliveries: Sequence[Delivery]) -> Outcome:
            raise SoftTimeLimitExceeded

    with pytest.raises(SoftTimeLimitExceeded):
        work(segment, Interrupted())
    assert segment.measure()["pending_blocks"] == 1
    assert segment.measure()["retry_blocks"] == 0


@hypothesis_settings(deadline=None, max_examples=50)
@given(st.integers(1, 120), st.sets(st.integers(0, 119), max_size=8))
def test_separation_finds_exactly_the_poison_and_handles_all_others_once(count, poison):
    handler = Recorder(lambda value: value in poison)
    attempt = HandlerCall(handler, 5.0, 1.0, monotonic=lambda: 0.0)
    delivery = delivery_of(count)
    found = attempt.separate(delivery, Failure(0, "bad"))
    names = delivery.get_event_ids().to_pylist()
    bad = {names[row] for row in poison if row < count} if poison else set()
    dead = {name for rows, _ in found for name in rows["id"].to_pylist()}
    if count > 1:
        assert dead == bad
        values = [value for rows, _ in found for value in rows["value"].to_pylist()]
        assert values == sorted(values), "in the order of the block"
        assert sorted(handler.handled) == sorted(set(names) - bad)
    assert len(handler.handled) == len(set(handler.handled))


def test_after_a_few_hung_events_the_rest_of_the_block_is_given_up():
    class Hanging:
        works_block_by_block = False

        def handle(self, deliveries: Sequence[Delivery]) -> Outcome:
            hang()
            return Outcome()

    attempt = HandlerCall(Hanging(), 5.0, 1.0, monotonic=lambda: 0.0)
    found = attempt.separate(delivery_of(50), Hang(0, "hung"))
    assert [rows.num_rows for rows, _ in found] == [1, 1, 1, 47]
    assert "not tried" in found[-1][1]


@given(st.integers(1, 1000), st.text("0123456789abcdef", min_size=32, max_size=32))
def test_back_off_doubles_up_to_its_cap_and_is_the_same_each_time(tries, block_id):
    backoff = Backoff(base_seconds=1.0, cap_seconds=60.0)
    delay_seconds = backoff.compute_delay_seconds(block_id, tries)
    plain_seconds = min(60.0, 2.0 ** min(tries - 1, 32))
    assert 0.5 * plain_seconds <= delay_seconds < 1.5 * plain_seconds
    assert delay_seconds == backoff.compute_delay_seconds(block_id, tries)


def test_a_worker_of_a_paused_queue_finishes_what_it_holds_and_claims_no_more(segment):
    fill(segment, 4)
    recorder, answers = Recorder(), iter([False, True])
    spec = replace(SPEC, events_per_worker=30)
    consumer = Consumer(spec, segment, recorder, "w", paused=lambda: next(answers))
    consumer.run()
    assert consumer.report().events == len(recorder.handled) > 0
    held = segment.node.xpending(segment.stream, GROUP)["pending"]
    assert held == 0, "what it claimed is acknowledged"
    assert segment.measure()["length_blocks"] > 0, "the rest waits"


def test_a_worker_that_starts_at_a_paused_queue_claims_nothing(segment):
    fill(segment, 4)
    recorder = Recorder()
    Consumer(SPEC, segment, recorder, "w", paused=lambda: True).run()
    assert recorder.handled == [] and segment.measure()["length_blocks"] > 0
