"""The flow and balance loops on the plant: what they see, what they do to an application, when they hold."""

import random
import time
from collections import deque
from datetime import UTC, datetime, timedelta

import orjson
import pytest

from controllers import catalog
from controllers.framework import guard
from controllers.framework.law import start_state
from queues import keys
from queues.publishing.client import Client
from tests.console.conftest import sample_snapshot
from tests.console.pipeline_sample import DECLARATION
from tests.workers.loops import PIPELINE, ensured
from workers.control.engine import tick_due
from workers.control.kinds import balance, flow
from workers.documents.pipeline import ApplicationStatus, PipelineStatus, ReplicaStatus
from workers.documents.snapshot import Snapshot
from workers.models import LedgerEntry, Loop
from workers.pipeline.declaration.controls import Controls
from workers.pipeline.declaration.declared import Declarations, DeclarationText
from workers.pipeline.dispatch.assignment import Dispatches
from workers.pipeline.dispatch.dispatcher import Dispatcher
from workers.pipeline.dispatch.result_queue import Blob, Result, ResultQueue
from workers.plants.steered import PublishedPlant
from workers.steering import overrides

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 20, 3, 12, tzinfo=UTC)


TICK_SECONDS = {"flow": 2}


class Plant:
    """A published plant whose snapshot the test writes, second by second."""

    def __init__(self, control) -> None:
        self.control, self.now = control, NOW
        self.snapshot = sample_snapshot()
        self.row = self.snapshot["pipeline"]["applications"]["performance"]

    def tick(self, law: str) -> LedgerEntry:
        self.now += timedelta(seconds=TICK_SECONDS.get(law, 10))
        self.snapshot["at"] = self.now.timestamp()
        self.control.set(keys.SNAPSHOT, orjson.dumps(self.snapshot))
        (entry,) = tick_due(PublishedPlant(self.control, self.now.timestamp), self.now, self.control, laws=(law,))
        return entry

    def controls(self) -> Controls:
        return Controls.read(self.control.get(keys.PIPELINE_CONTROLS.build("performance")), Controls())


@pytest.fixture
def plant(control):
    Declarations(control).note_at_work(DeclarationText("performance", 0, DECLARATION))
    ensured(control, PIPELINE)
    return Plant(control)


def test_each_application_has_its_loops_and_a_vanished_one_loses_them(control, plant):
    names = set(Loop.objects.values_list("name", flat=True))
    assert names == {"flow/performance", "balance/performance", "shedding/performance"}
    Declarations(control).forget("performance")
    assert ensured(control, PIPELINE) == []
    assert all("retired_at" in loop.target for loop in Loop.objects.all())
    Declarations(control).note_at_work(DeclarationText("performance", 0, DECLARATION))
    assert len(ensured(control, PIPELINE)) == 3
    assert not any("retired_at" in loop.target for loop in Loop.objects.all())


def test_what_was_admitted_is_counted_by_the_interval_whenever_ticks_come(plant):
    """A tick that is left out doubles no flow, one that sees the same status again ends none."""
    applied = []
    plant.row["admitted_events"] = 1_000
    # Since the tick before, and since the pipeline said what is seen.
    for seconds, age_seconds in ((2, 0), (4, 0), (2, 2), (2, 1), (2, 0), (60, 0), (2, 0)):
        plant.now += timedelta(seconds=seconds - TICK_SECONDS["flow"])
        plant.snapshot["pipeline"]["age_seconds"] = age_seconds
        said = (plant.now - NOW).total_seconds() + TICK_SECONDS["flow"] - age_seconds
        plant.row["admitted_events"] = 1_000 + 10_000 * said
        applied.append(plant.tick("flow").observation.get("applied"))
    assert applied == [None, 20_000, None, 20_000, 20_000, None, 20_000]


def test_the_less_room_there_is_the_less_is_admitted_and_only_for_a_while(plant):
    plant.row["admitted_events"] = 1_000_000
    plant.tick("flow")
    admitted = []
    for free_bytes in (90e6, 60e6, 30e6, 10e6):
        plant.row["result_queue"]["free_bytes"] = free_bytes
        plant.row["admitted_events"] += 100_000
        entry = plant.tick("flow")
        assert entry.observation["applied"] == 100_000
        assert entry.applied
        admitted.append(plant.controls().get_admitted_per_second(plant.now.timestamp()))
    assert max(admitted[1:]) < admitted[0] / 2
    assert plant.controls().get_admitted_per_second(plant.now.timestamp() + 25) is None


def entries_of_ticks(plant, ticks):
    """How many of so many ticks of flow wrote an entry."""
    before = LedgerEntry.objects.count()
    for _ in range(ticks):
        plant.now += timedelta(seconds=2)
        plant.snapshot["at"] = plant.now.timestamp()
        plant.control.set(keys.SNAPSHOT, orjson.dumps(plant.snapshot))
        tick_due(PublishedPlant(plant.control, plant.now.timestamp), plant.now, plant.control, laws=("flow",))
    return LedgerEntry.objects.count() - before


def test_where_too_little_comes_to_be_limited_flow_rests_and_its_last_limit_lasts_on(plant):
    plant.row.update(in_per_second=28.0, waiting_events=30, admitted_events=1_000, controls={})
    plant.row["result_queue"] = {"capacity_bytes": 134e6, "used_bytes": 10_000, "free_bytes": 133.9e6}
    assert entries_of_ticks(plant, 60) <= 8
    assert plant.controls().get_admitted_per_second(plant.now.timestamp() + 1) is not None
    for busy in ({"in_per_second": 2_000.0}, {"waiting_events": 20_000}, {"state": "starting"}):
        held = {name: plant.row[name] for name in busy}
        plant.row.update(busy)
        assert entries_of_ticks(plant, 5) == 5
        plant.row.update(held)
        entries_of_ticks(plant, 2)


def idle_for(plant, ticks):
    """Fewer events come than may."""
    entries = []
    for _ in range(ticks):
        plant.row["admitted_events"] = (plant.row["admitted_events"] or 1_000) + 50
        entries.append(plant.tick("flow"))
    return entries


def in_mode(mode, **fields):
    Loop.objects.filter(law="flow").update(mode=mode, **fields)


def admitted_now(plant):
    return plant.controls().get_admitted_per_second(plant.now.timestamp())


def test_when_a_persons_limit_ends_the_pipeline_is_let_go_on(plant, django_user_model):
    idle_for(plant, 3)
    before = admitted_now(plant)
    in_mode(Loop.Mode.MANUAL)
    by_hand = {"owner": django_user_model.objects.create(username="desk-2"), "reason": "A test."}
    loop = Loop.objects.get(law="flow")
    overrides.set_override(loop=loop, name="admit", value=20.0, minutes=30, now=plant.now, **by_hand)
    idle_for(plant, 2)
    assert admitted_now(plant) == 10.0
    in_mode(Loop.Mode.AUTO)
    idle_for(plant, 1)
    assert admitted_now(plant) == pytest.approx(before, rel=0.1)


@pytest.mark.parametrize(("mode", "limits"), [(Loop.Mode.HOLD, {}), (Loop.Mode.AUTO, {"cooldown_seconds": 3_600.0})])
def test_on_hold_and_while_another_cools_down_the_limit_in_force_lasts_on(plant, mode, limits):
    idle_for(plant, 3)
    before = admitted_now(plant)
    in_mode(mode, guard=limits)
    for _ in range(4):
        plant.row["admitted_events"] += 1_000_000
        plant.row["result_queue"]["free_bytes"] -= 20_000_000
        assert "Proposed" in plant.tick("flow").reason or mode == Loop.Mode.HOLD
        assert admitted_now(plant) == before
    in_mode(Loop.Mode.ADVISE)
    for _ in range(11):
        plant.tick("flow")
    in_mode(Loop.Mode.HOLD)
    plant.tick("flow")
    assert admitted_now(plant) is None, "what has lapsed meanwhile does not come back"


def test_the_slower_replica_gets_a_smaller_share_of_the_same_whole(plant):
    plant.row["in_per_second"] = 3_000.0
    plant.row["replicas"]["iap1"]["response_seconds"] = 2.0
    for _ in range(3):
        plant.tick("balance")
        for name, share in plant.controls().shares.items():
            plant.row["replicas"][name]["share"] = share
    shares = plant.controls().shares
    assert shares["iap1"] < 0.55
    assert sum(shares.values()) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda row: row.update(state="failed"), "failed"),
        (lambda row: row["replicas"]["iap2"].update(response_seconds=None), "iap2 has reported no response time"),
        (lambda row: row["replicas"]["iap1"].update(response_seconds=0.4), "within random variation"),
        (
            lambda row: row["replicas"]["iap1"].update(response_seconds=2.0, response_error_seconds=1.1),
            "within random variation",
        ),
    ],
)
def test_shares_are_held_while_a_difference_says_nothing(plant, change, why):
    plant.row["in_per_second"] = 3_000.0
    change(plant.row)
    entry = plant.tick("balance")
    assert entry.action is None
    assert why in entry.reason
    assert plant.control.get(keys.PIPELINE_CONTROLS.build("performance")) is None


def of_no_work(row) -> None:
    row["in_per_second"] = 3_000.0
    for replica in row["replicas"].values():
        replica["utilisation"] = 0.01


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda row: row.update(in_per_second=25.0), "of 25 events/s"),
        (of_no_work, "no replica is busy"),
        (lambda row: row["replicas"]["iap2"].update(response_seconds=None), "of 30 events/s"),
    ],
)
def test_with_too_little_load_a_leaning_pipeline_returns_to_equal_shares_within_30_s(plant, change, why):
    for name, share in (("iap1", 0.98), ("iap2", 0.02)):
        plant.row["replicas"][name].update(share=share, response_seconds=0.3)
    plant.row["replicas"]["iap1"]["response_seconds"] = 0.9
    change(plant.row)
    for _ in range(30 // balance.INTERVAL_SECONDS):
        assert why in plant.tick("balance").reason
        for name, share in plant.controls().shares.items():
            plant.row["replicas"][name]["share"] = share
    assert plant.controls().shares["iap1"] == pytest.approx(0.5, abs=0.02)
    assert plant.tick("balance").action is not None  # by halves; the rest would not show, and is made even
    plant.row["replicas"]["iap1"]["share"] = plant.row["replicas"]["iap2"]["share"] = 0.5
    entry = plant.tick("balance")
    assert entry.action is None and "shares are equal" in entry.reason


def leaning_at_3000(plant, heard_seconds: float | None):
    """Ticks of 30 s at 3,000 events/s, from 98/2 on. The second replica answers in so many seconds once it
    gets a batch of its own in 10 s.
    """
    plant.row["in_per_second"] = 3_000.0
    for name, share in (("iap1", 0.98), ("iap2", 0.02)):
        plant.row["replicas"][name].update(share=share, response_seconds=0.3)
    for _ in range(30 // balance.INTERVAL_SECONDS):
        is_heard = plant.row["replicas"]["iap2"]["share"] * 3_000 * 10 >= 2_000
        plant.row["replicas"]["iap2"]["response_seconds"] = heard_seconds if is_heard else None
        entry = plant.tick("balance")
        for name, share in plant.controls().shares.items():
            plant.row["replicas"][name]["share"] = share
        yield entry


@pytest.mark.parametrize("heard_seconds", [0.3, None])
def test_a_replica_that_its_small_share_has_silenced_gets_an_equal_one_back_within_30_s(plant, heard_seconds):
    first, *others = leaning_at_3000(plant, heard_seconds)
    assert "iap2 receives too few events to measure its response time" in first.reason
    assert plant.controls().shares["iap1"] == pytest.approx(0.5, abs=0.02)
    assert all("return to equal shares" in entry.reason for entry in others)


def test_on_an_idle_plant_the_shares_stay_equal_for_an_hour_whatever_single_batches_take():
    """In simulated time: the kind's sensor and the guarded law, on replicas one batch in ten of which is slow
    by seconds, at 25 events/s.
    """
    noise, law = random.Random(11), catalog.get_law("balance")
    parameters = catalog.read_parameters(law, dict(balance.KIND.defaults.parameters))
    settings = guard.read_settings(law, {})
    state, guard_state, shares = start_state(law, parameters), guard.read_state(None), [0.5, 0.5]
    for tick in range(3_600 // balance.INTERVAL_SECONDS):
        slow = [noise.uniform(0.2, 0.9) + 8 * (noise.random() < 0.1) for _ in shares]
        rows = {
            f"iap{at}": ReplicaStatus(share=share, utilisation=0.4, response_seconds=slow[at])
            for at, share in enumerate(shares)
        }
        row = ApplicationStatus(state="running", in_per_second=noise.uniform(5, 45), replicas=rows)
        seen = Snapshot(at=float(tick), pipeline=PipelineStatus(age_seconds=0.5, applications={"app": row}))
        sensed = balance.measure_target({"application": "app"}, seen, None, float(tick))
        guarded = guard.decide(
            law,
            parameters,
            state,
            catalog.read_observation(law, sensed.observation),
            settings=settings,
            guard_state=guard_state,
            now_seconds=float(tick),
            measured=sensed.measured,
        )
        state, guard_state = guarded.state, guarded.guard_state
        if guarded.decision.action:
            shares = list(guarded.decision.action["shares"].values())
        assert max(shares) <= 0.55


def test_a_pipeline_that_starts_is_waited_for_and_one_that_is_stalled_is_not_steered(plant):
    plant.row["state"] = "starting"
    assert plant.tick("flow").limited_by == "nothing to decide"
    plant.row["state"] = "stalled"
    assert plant.tick("flow").limited_by == "stale measurement"


class Paced:
    """The real dispatcher, result queue and flow loop; replicas that are quick, and an inter-event tier that
    works so many events a second. Time is the test's.
    """

    EVENT_BYTES, ROOM_BYTES = 94, 2**22
    BATCH_EVENTS = 2_000
    ON_THE_WAY_SECONDS = 1.0  # from dispatch to result
    SEEN_STEPS_AGO = 5  # the status is half a second old on average
    CAPACITY = 1_000.0  # events/s
    STEP_SECONDS = 0.1

    def __init__(self, control_server, control, plant) -> None:
        self.now, self.control, self.plant = 0.0, control, plant
        defaults = Controls(
            lateness_seconds=0.0, result_bytes=self.ROOM_BYTES, admit_events_per_batch=self.BATCH_EVENTS
        )
        self.began = time.time()
        self.dispatcher = Dispatcher(
            control_server.url,
            "performance",
            ("telemetry",),
            ("iap1",),
            defaults,
            monotonic=lambda: self.now,
            clock=lambda: NOW.timestamp() + self.now,
        )
        self.results = ResultQueue(control, "performance")
        self.waiting: deque[tuple[Result, int]] = deque()
        self.admitted = self.worked = 0
        self.budget = 0.0
        self.free: list[float] = []

    def step(self, capacity: float) -> None:
        self.now += self.STEP_SECONDS
        self.admitted += self.dispatcher.step()
        for each in Dispatches(self.control, "performance").list_after("iap1", self.tick):
            if each.at_seconds > NOW.timestamp() + self.now - self.ON_THE_WAY_SECONDS:
                break
            before, self.tick = self.tick, each.tick
            blob = Blob("b", "source", -1, 0, 0, each.events, each.events * self.EVENT_BYTES)
            attempt = self.results.begin("iap1", before, each.tick)
            self.results.publish(Result("iap1", each.tick, None, (blob,)), attempt, each.events)
        self._match(capacity)
        self.free.append(self.ROOM_BYTES - self.results.measure_room().used_bytes)

    tick = 0
    taken = "0-0"

    def _match(self, capacity: float) -> None:
        for each in self.results.read_after(self.taken):
            self.waiting.append((each, sum(blob.rows for blob in each.blobs)))
            self.taken = each.entry_id
        # What there is no work for is not saved up.
        self.budget = min(self.budget + capacity * self.STEP_SECONDS, capacity)
        while self.waiting and self.budget > 0:
            result, events = self.waiting.popleft()
            self.results.release(result)
            self.budget -= events
            self.worked += events

    def regulate(self) -> None:
        """One tick of the loop on what the plant would show."""
        self.plant.row["result_queue"]["free_bytes"] = self.free[-self.SEEN_STEPS_AGO]
        self.plant.row["admitted_events"] = self.admitted
        self.plant.now = NOW + timedelta(seconds=self.now - TICK_SECONDS["flow"])  # a tick is so much later
        self.plant.tick("flow")


@pytest.mark.slow
def test_at_half_more_than_capacity_the_room_is_kept_over_a_hog_and_nothing_is_lost(
    control_server, control, plant, plant_topology
):
    setpoint, seconds = Paced.ROOM_BYTES / 2, 90
    parameters = {**flow.KIND.defaults.parameters, "setpoint": setpoint, "minimum": 0.0}
    Loop.objects.filter(law="flow").update(parameters=parameters)
    paced = Paced(control_server, control, plant)
    with Client(control_server.url, "test") as client:
        published = int(Paced.ROOM_BYTES / Paced.EVENT_BYTES)
        client.publish("telemetry", [{"type": "t"}] * published)
        for number in range(int(seconds / Paced.STEP_SECONDS)):
            hog = seconds / 3 <= paced.now < 2 * seconds / 3
            events = int(1.5 * Paced.CAPACITY * Paced.STEP_SECONDS)
            client.publish("telemetry", [{"type": "t"}] * events)
            published += events
            paced.step(Paced.CAPACITY / (2 if hog else 1))
            if number % 20 == 19:
                paced.regulate()
        settled = paced.free[int(28 / Paced.STEP_SECONDS) :]
        kept = [abs(free - setpoint) <= 0.15 * setpoint for free in settled]
        assert sum(kept) == len(kept)
        assert min(paced.free) >= 0, "the bound is never passed"
        assert paced.worked < published, "what is not admitted waits"
        control.delete(keys.PIPELINE_CONTROLS.build("performance"))
        while paced.worked < published:
            before = paced.worked
            for _ in range(30):
                paced.step(20 * Paced.CAPACITY)
            assert paced.worked > before, "nothing is lost"
    assert paced.worked == published
    paced.dispatcher.close()
