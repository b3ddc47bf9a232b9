"""The ladder and the shedding loop on the plant: who goes first, what is dropped, and back again."""

from datetime import UTC, datetime, timedelta

import pytest

from common.stored_document import encode_document, replace_fields
from controllers import catalog
from controllers.framework.law import decide_next, start_state
from queues import keys
from queues.topology import QueueSpec, Topology
from tests.console.conftest import sample_snapshot
from tests.console.pipeline_sample import DECLARATION
from tests.workers.loops import PIPELINE, ensured
from tests.workers.snapshots import snapshot_of
from workers.control.engine import tick_due
from workers.control.kinds import ladder, shedding
from workers.control.parts.offered_load import OperatorLoad
from workers.control.parts.pattern_yield import PatternYield
from workers.documents.pipeline import ControlKeys, PatternStatus
from workers.models import LedgerEntry, Loop
from workers.pipeline.declaration.controls import Controls
from workers.pipeline.declaration.declared import Declarations, DeclarationText
from workers.plants.steered import PublishedPlant
from workers.snapshot.control_record import control_record
from workers.snapshot.health import add_action_summary
from workers.steering import overrides

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 20, 3, 12, tzinfo=UTC)


class Plant:
    """A published plant whose snapshot the test writes; its loops are those of the database."""

    def __init__(self, control) -> None:
        self.control, self.now = control, NOW
        self.snapshot = sample_snapshot()
        self.row = self.snapshot["pipeline"]["applications"]["performance"]
        self.queue = self.snapshot["queues"]["telemetry"]
        for container in self.queue["containers"].values():
            container["inserted_events"] = None  # rates are what the test sets
        self.snapshot |= {"loops": {}, "plans": [], "deeds": [], "producers": {}}
        self.load(1.0)

    def load(self, times: float) -> None:
        """What comes, as a multiple of what the operators can do; they work as much as they can."""
        self.queue |= {"in_per_second": 30.0 * times, "wait_seconds": 0.0}
        self.row |= {"in_per_second": 30.0 * min(1.0, times), "waiting_events": 0}
        self.row["result_queue"]["used_bytes"] = 0
        part = min(1.0, times)
        hosts, sites = self.row["patterns"]["load-rises"], self.row["patterns"]["outage"]
        hosts |= {"seconds": 0.045, "types": {"cpu": 12.0 * part, "load": 8.0 * part}, "out_per_second": 4.0 * part}
        sites |= {"seconds": 0.001, "types": {"load-rises": 4.0 * part}, "out_per_second": 2.0 * part}
        for operator in self.row["operators"].values():
            operator |= {"tasks": 1, "overhead_seconds": 0.0, "utilisation": 0.0}

    def tick(self, law: str, seconds: float = 10.0) -> LedgerEntry:
        self.now += timedelta(seconds=seconds)
        self.snapshot["at"] = self.now.timestamp()
        self.control.set(keys.SNAPSHOT, encode_document(self.snapshot))
        published = PublishedPlant(self.control, self.now.timestamp)
        entries = tick_due(published, self.now, self.control, laws=(law,))
        self.snapshot["loops"] = control_record(self.now).loops
        self.row["controls"]["shed"] = self.shed()
        return next(entry for entry in entries if entry.loop.target.get("queue", "telemetry") == "telemetry")

    def offered(self) -> OperatorLoad:
        snapshot = snapshot_of(self.snapshot)
        return OperatorLoad(snapshot.pipeline.applications["performance"], snapshot)

    def shed(self) -> dict:
        return dict(Controls.read(self.control.get(keys.PIPELINE_CONTROLS.build("performance")), Controls()).shed)


@pytest.fixture
def plant(control):
    Declarations(control).note_at_work(DeclarationText("performance", 0, DECLARATION))
    ensured(control, PIPELINE)
    queues = {name: QueueSpec(name, "pipeline", {"n1": 1000}) for name in ("telemetry", "orders")}
    ensured(control, ["ladder"], Topology(1, {}, queues))
    Loop.objects.filter(law="ladder").update(mode=Loop.Mode.AUTO, parameters={"unmet_decisions": 1})
    return Plant(control)


def test_each_queue_has_a_ladder_that_advises_at_first(plant, control):
    Loop.objects.all().delete()
    queues = {"alert": QueueSpec("alert", "jobs", {"n1": 1000})}
    (made,) = ensured(control, ["ladder"], Topology(1, {}, queues))
    assert (made.name, made.mode, made.target) == ("ladder/alert", "advise", {"queue": "alert"})
    ensured(control, ["ladder"], Topology(2, {}, {}))
    assert "retired_at" in Loop.objects.get(name="ladder/alert").target
    assert ensured(control, ["ladder"], Topology(3, {}, queues))[0].target == {"queue": "alert"}


def test_events_that_wait_in_the_result_queue_are_offered_but_not_processed(plant):
    """The replicas keep up with the producers, and the combiner reads half of their results."""
    plant.load(1.0)
    plant.row["combiner"] = {"in_per_second": 15.0}
    assert plant.offered().scale == 2.0
    plant.row["combiner"] = {"in_per_second": 0.3}
    assert plant.offered().scale == 1.0, "too few events to judge the load"


def test_shedding_waits_for_the_ladder_then_sheds_and_goes_first_when_the_load_falls(plant):
    plant.load(2.0)
    waiting = plant.tick("shedding")
    assert waiting.action is None and "has not enabled shedding" in waiting.reason
    assert plant.tick("ladder").action["rung"] == 5
    entry = plant.tick("shedding")
    assert entry.action["shed"]["load-rises"] == plant.shed()["load-rises"]
    # 1.8 s of work a second are offered; the bound leaves a little less than 1.
    assert 0.4 < plant.shed()["load-rises"]["cpu"] < 0.6
    assert entry.verdict == "checking" and entry.expected["metric"] == "shed_share"
    plant.row["shed_share"] = 0.45
    plant.tick("shedding", 21)
    entry.refresh_from_db()
    assert entry.verdict == "effective"
    assert entry.terms["work_shed"] == plant.snapshot["loops"]["shedding/performance"].actuator
    assert plant.tick("shedding").action is None, "the same observation gives no new table"
    plant.load(0.5)
    assert plant.tick("ladder").action["rung"] == 0, "no other level is offered"
    assert plant.tick("shedding").action["shed"] == {}
    assert plant.shed() == {}


def test_the_weight_of_a_pattern_is_that_of_its_type_at_the_sinks(plant):
    plant.row["patterns"]["outage"]["weight"] = 3.0
    plant.load(2.0)
    plant.tick("ladder")
    entry = plant.tick("shedding")
    emitted = plant.row["patterns"]["outage"]["emits"]
    assert entry.observation["sinks"][emitted] == 3.0


@pytest.mark.parametrize(
    ("guard", "limit"),
    [
        ({"maximum": 4}, "guard maximum"),
        ({"cooldown_seconds": 60.0}, "guard cool-down"),
        ({"direction": "down only"}, "guard direction"),
    ],
)
def test_a_guard_that_holds_the_ladder_below_its_last_level_lets_nothing_be_shed(plant, guard, limit):
    over_http(plant, 60.0)
    plant.load(2.0)
    assert [plant.tick("ladder").terms["rung"] for _ in range(2)] == [4, 4]
    Loop.objects.filter(law="ladder").update(guard=guard)
    over_http(plant, 0.0)  # nobody can be asked to wait any more, so shedding is due
    entry = plant.tick("ladder")
    assert (entry.terms["rung"], entry.limited_by) == (4, limit)
    assert plant.tick("shedding").action is None and plant.shed() == {}
    said = add_action_summary(snapshot_of(plant.snapshot)).doing
    assert "has enabled throttling" in said and "shedding" not in said
    Loop.objects.filter(law="ladder").update(guard={})
    assert plant.tick("ladder").action["rung"] == 5, "and it is due at once when the guard ends"


def test_while_another_level_cools_down_producers_go_on_waiting(control, plant):
    Loop.objects.filter(law="ladder").update(guard={"cooldown_seconds": 60.0})
    over_http(plant, 60.0)
    plant.load(2.0)
    # What comes stays, so throttling has no effect.
    assert [plant.tick("ladder").action["rung"] for _ in range(3)] == [4, 4, 4]
    control.delete(keys.THROTTLE.build("telemetry"))
    entry = plant.tick("ladder")
    assert entry.limited_by == "guard cool-down" and "Proposed by the law: Enable shedding" in entry.reason
    assert control.exists(keys.THROTTLE.build("telemetry"))


def test_a_person_who_sets_the_last_level_by_hand_keeps_shedding_and_the_guard_limits_the_hand(
    plant, django_user_model
):
    shedding_now(plant)
    loop = Loop.objects.get(name="ladder/telemetry")
    Loop.objects.filter(pk=loop.pk).update(mode=Loop.Mode.MANUAL)
    by_hand = {"owner": django_user_model.objects.create(username="desk-2"), "reason": "It has to go on."}
    overrides.set_override(loop=loop, name="rung", value=5, minutes=30, now=plant.now, **by_hand)
    assert plant.tick("ladder").action == {"rung": 5}
    entry = plant.tick("shedding")
    assert "no longer enables" not in entry.reason and entry.observation["permitted"]
    assert "has enabled shedding" in add_action_summary(snapshot_of(plant.snapshot)).doing
    Loop.objects.filter(pk=loop.pk).update(guard={"maximum": 4})
    assert plant.tick("ladder").terms["rung"] == 4
    assert plant.tick("shedding").action["shed"] == {}


def test_while_the_ladder_is_blind_for_a_tick_the_table_stands_and_for_long_it_lapses(plant):
    shedding_now(plant)
    del plant.queue["in_per_second"]
    assert plant.tick("ladder").limited_by == "stale measurement"
    plant.load(2.0)
    entry = plant.tick("shedding", 5)
    assert (entry.action, entry.limited_by) == (None, "nothing to decide")
    assert entry.reason == "No action: the remedy ladder has no valid measurement."
    assert dropped_at(plant, 0) != {} and dropped_at(plant, 20) == {}
    assert plant.tick("ladder").action["rung"] == 5
    assert plant.tick("shedding").action is None and dropped_at(plant, 0) != {}


@pytest.mark.parametrize("state", ["starting", "running"])
def test_while_its_application_starts_or_has_just_started_the_ladder_stays_where_it_is(plant, state):
    plant.load(2.0)
    part = {"state": state, "since": 0.0, "grace_until": 4e9}
    plant.snapshot["parts"] = {"pipeline": part}
    for _ in range(4):
        entry = plant.tick("ladder")
        assert entry.action is None and entry.limited_by == "nothing to decide"
    del plant.snapshot["parts"]
    assert plant.tick("ladder").action["rung"] == 5


def two_queues(plant, cap="shed", **types):
    """A second, quiet queue of the application. types: of each queue, as its producer samples them."""
    plant.row["queues"] = ["telemetry", "orders"]
    plant.snapshot["queues"]["orders"] = {**plant.queue, "in_per_second": 1.0}
    samples = {queue: {"events": 10, "type": dict.fromkeys(names, 5)} for queue, names in types.items()}
    plant.snapshot["producers"]["pipeline-other"] = {"samples": samples}
    Loop.objects.filter(name="ladder/orders").update(parameters={"cap": cap, "backlog_bound_seconds": 1e4})


def test_shedding_drops_types_of_the_overloaded_queue_and_keeps_those_of_the_other(plant):
    two_queues(plant, telemetry=["cpu"], orders=["load"])
    plant.load(2.0)
    plant.snapshot["queues"]["orders"]["in_per_second"] = 0.0
    assert plant.tick("ladder").action["rung"] == 5
    Loop.objects.filter(name="ladder/orders").update(mode=Loop.Mode.ADVISE)
    plant.tick("ladder")
    entry = plant.tick("shedding")
    assert entry.observation["permitted"] and entry.observation["protected"] == {"load": True}
    assert set(plant.shed()["load-rises"]) == {"cpu"}


@pytest.mark.parametrize(
    ("cap", "types", "kept"),
    [
        ("shed", {"telemetry": ["cpu", "load"], "orders": ["load"]}, set()),  # the hot queue may lose its own
        ("shed", {}, set()),  # nothing is known
        ("throttle", {"telemetry": ["cpu", "load"], "orders": ["load"]}, {"load"}),
        ("throttle", {"telemetry": ["cpu"]}, {"cpu", "load", "load-rises"}),  # it loses nothing, whatever it has
    ],
)
def test_a_capped_queue_loses_no_events_while_another_queue_of_its_application_sheds(plant, cap, types, kept):
    two_queues(plant, cap, **types)
    document = {**plant.snapshot, "loops": {"ladder/orders": {"law": "ladder", "cap": cap}}}
    snapshot = snapshot_of(document)
    found = shedding.list_protected_types(snapshot.pipeline.applications["performance"], ["telemetry"], snapshot)
    assert set(found) == kept


def over_http(plant, per_second):
    """As many of the events come over HTTP."""
    plant.snapshot["producers"]["api"] = {"in_per_second": per_second, "queues": {"telemetry": per_second}}


def ladders_in(mode):
    Loop.objects.filter(law="ladder").update(mode=mode, parameters=dict(ladder.KIND.defaults.parameters))


@pytest.mark.parametrize("mode", [Loop.Mode.ADVISE, Loop.Mode.HOLD])
def test_a_ladder_begins_anew_after_it_did_not_act(plant, mode):
    ladders_in(Loop.Mode.AUTO)
    plant.load(2.0)
    assert [plant.tick("ladder").terms["rung"] for _ in range(3)] == [0, 0, 5]
    ladders_in(mode)
    plant.tick("ladder")
    ladders_in(Loop.Mode.AUTO)
    assert plant.tick("ladder").terms["rung"] == 0


@pytest.mark.parametrize("mode", [Loop.Mode.ADVISE, Loop.Mode.HOLD])
def test_while_nobody_is_asked_to_wait_what_comes_is_all_that_is_offered(plant, mode):
    ladders_in(mode)
    Loop.objects.filter(law="ladder").update(parameters={"unmet_decisions": 1})
    plant.load(2.0)
    over_http(plant, 60.0)
    entries = [plant.tick("ladder") for _ in range(4)]
    assert entries[0].terms["closed_share"] == pytest.approx(0.5, abs=0.1)
    assert [entry.observation["demand_per_second"] for entry in entries] == [60.0] * 4
    ladders_in(Loop.Mode.AUTO)
    assert plant.tick("ladder").observation["demand_per_second"] == 60.0


def test_who_publishes_over_http_is_asked_to_wait_for_the_share_that_is_too_much(control, plant):
    plant.snapshot["producers"]["api"] = {"in_per_second": 60.0, "queues": {"telemetry": 60.0}}
    plant.load(2.0)
    assert plant.tick("ladder").action["rung"] == 4
    left_ms = control.pttl(keys.THROTTLE.build("telemetry"))
    assert 2_000 < left_ms < 2_800  # half of 5 s
    assert (
        "The remedy ladder of telemetry has enabled throttling" in add_action_summary(snapshot_of(plant.snapshot)).doing
    )
    # Half of the time nothing is let in: what comes is half of what is offered.
    plant.load(1.0)
    plant.snapshot["producers"]["api"]["queues"]["telemetry"] = 30.0
    assert plant.tick("ladder").observation["demand_per_second"] == pytest.approx(60.0, rel=0.2)
    plant.load(0.2)
    for _ in range(3):
        plant.tick("ladder")
    assert not control.exists(keys.THROTTLE.build("telemetry"))


def test_throttling_goes_on_as_long_as_more_is_offered_than_can_be_handled_and_nothing_is_shed(plant):
    """60 events/s are offered over HTTP, half of which the operators manage; what comes follows at once."""
    ladders_in(Loop.Mode.AUTO)
    came, found = 60.0, []
    for _ in range(9):
        plant.load(came / 30.0)
        over_http(plant, came)
        found.append(plant.tick("ladder", 5))
        assert plant.tick("shedding", 0.5).action is None
        came = 60.0 * (1 - found[-1].terms.get("closed_share", 0.0))
    assert [entry.terms["rung"] for entry in found] == [0, 0, *[4] * 7]
    for entry in found[3:]:
        assert entry.observation["demand_per_second"] == pytest.approx(60.0, rel=0.01)
        assert entry.observation["capacity_per_second"] == pytest.approx(30.0, rel=0.05)
        assert entry.terms["closed_share"] == pytest.approx(0.5, abs=0.05)


def test_what_producers_hold_back_is_no_capacity_of_a_queue_of_jobs_that_keeps_up():
    loop = {"mode": "auto", "target": {"queue": "alert"}, "terms": {"rung": 4, "closed_share": 0.5}}
    row = {"kind": "jobs", "in_per_second": 30.0, "out_per_second": 30.0}
    seen = snapshot_of(
        {
            "at": 10.0,
            "queues": {"alert": row},
            "loops": {"ladder/alert": {**loop, "law": "ladder"}},
            "producers": {"api": {"queues": {"alert": 30.0}}},
            "totals": {"worker_slots": 2, "workers_busy": 2},
        }
    )
    observed = ladder.measure_target({"queue": "alert"}, seen, None, 10.0).observation
    assert (observed["demand_per_second"], observed["capacity_per_second"]) == (60.0, 30.0)


def dropped_at(plant, seconds_later):
    """What a dispatch would drop by then."""
    stored = Controls.read(plant.control.get(keys.PIPELINE_CONTROLS.build("performance")), Controls())
    return stored.freeze(plant.now.timestamp() + seconds_later).shed


def shedding_now(plant):
    plant.load(2.0)
    plant.tick("ladder")
    assert plant.tick("shedding").action["shed"]["load-rises"]


def test_a_table_that_could_not_be_put_in_force_is_tried_again(plant, monkeypatch):
    plant.load(2.0)
    plant.tick("ladder")
    with monkeypatch.context() as away:
        away.setattr(PublishedPlant, "steer_pipeline", lambda *_: 1 / 0)
        failed = plant.tick("shedding")
    failed.refresh_from_db()
    assert (failed.applied, failed.error) == (False, "ZeroDivisionError: division by zero")
    assert plant.shed() == {}
    assert plant.tick("shedding").applied and plant.shed() != {}


def test_batches_are_limited_by_the_rows_that_are_due_per_second_and_no_more_once_nothing_is_shed(plant, control):
    plant.row["combiner"]["rows_per_second"] = 30.0
    plant.row["batch_overhead_seconds"] = 0.5
    shedding_now(plant)
    controls = Controls.read(control.get(keys.PIPELINE_CONTROLS.build("performance")), Controls())
    assert controls.shed_reduced["load-rises"]["cpu"] > controls.shed["load-rises"]["cpu"] + 0.2
    dropped = [controls.limit_batch(controls.shed_rows * times).shed["load-rises"]["cpu"] for times in (1, 1.5, 2)]
    assert dropped == sorted(dropped) and dropped[0] < dropped[2]
    assert dropped[2] == pytest.approx(controls.shed_reduced["load-rises"]["cpu"], abs=1e-6)
    plant.load(0.5)
    for _ in range(5):
        plant.tick("ladder")
    plant.tick("shedding")
    controls = Controls.read(control.get(keys.PIPELINE_CONTROLS.build("performance")), Controls())
    assert controls.shed_rows is None and not controls.shed_reduced


def test_a_table_stands_as_long_as_its_loop_checks_and_lapses_where_nobody_does(plant):
    shedding_now(plant)
    for _ in range(3):
        assert plant.tick("shedding").action is None and dropped_at(plant, 0.1) != {}
    assert dropped_at(plant, 19) != {} and dropped_at(plant, 20) == {}


def test_a_loop_that_sees_nothing_valid_drops_its_table_after_its_bound_and_takes_it_up_again(plant):
    shedding_now(plant)
    plant.snapshot["pipeline"]["age_seconds"] = 30.0
    ticks = [(plant.tick("shedding", 6), dropped_at(plant, 0)) for _ in range(4)]
    assert [bool(table) for _, table in ticks] == [True, True, True, False]
    assert {entry.limited_by for entry, _ in ticks} == {"stale measurement"}
    plant.snapshot["pipeline"]["age_seconds"] = 0.5
    plant.tick("shedding")
    assert dropped_at(plant, 0) != {}


def test_how_much_batches_vary_is_taken_as_measured_and_leaves_less_of_the_budget(plant):
    plant.load(2.0)
    plant.tick("ladder")
    steady = plant.tick("shedding")
    assert steady.observation["service_cv2"] == plant.row["batch_overhead_cv2"] == 0.4
    plant.row |= {"batch_overhead_cv2": 9.0, "batch_overhead_seconds": 1.5}
    varying = plant.tick("shedding")
    assert varying.observation["service_cv2"] == 9.0
    plant.row["batch_overhead_cv2"] = None
    plant.load(2.2)  # rates that moved call for another table
    unknown = plant.tick("shedding")
    assert "service_cv2" not in unknown.observation
    assert varying.terms["hosts"]["budget"] < unknown.terms["hosts"]["budget"]


def test_what_is_offered_is_what_producers_put_in_not_what_an_overloaded_operator_counts(plant):
    plant.load(3.0)
    work = plant.offered()
    assert work.compute_rates("hosts") == pytest.approx({"cpu": 36.0, "load": 24.0})
    assert work.compute_arrivals()["sites"] == {}, "what another operator emits is no arrival"
    assert work.compute_utilization() == pytest.approx(3 * 0.9, rel=0.02)
    plant.row["patterns"]["load-rises"]["types"] = {"cpu": 6.0, "load": 8.0}
    plant.row["patterns"]["load-rises"]["shed_per_second"] = {"cpu": 6.0}
    shedding = plant.offered()
    assert shedding.compute_rates("hosts") == work.compute_rates("hosts"), "what is shed was offered too"


def test_what_a_match_takes_is_learnt_from_all_and_while_shed_from_the_control_keys():
    found = PatternYield("p", None)
    row = PatternStatus(types={"A": 100.0, "B": 20.0}, out_per_second=10.0, seconds=0.002)
    for _ in range(60):
        found.add(row, 10.0)
    assert found.takes(row.types) == pytest.approx({"A": 10.0, "B": 2.0}, rel=0.01)
    assert found.takes({"A": 50.0, "B": 70.0}) == pytest.approx({"A": 5.0, "B": 7.0}, rel=0.01)
    assert found.compute_correction("SEQ(A; B)") == pytest.approx(0.5)
    assert found.seconds == pytest.approx(0.002)
    assert found.compute_correction("SEQ(high; B)") == 1.0
    again = PatternYield("p", found.get_counters())
    spared = ControlKeys(types={"A": 2.0, "B": 0.4}, out_per_second=0.2)
    left = replace_fields(row, types={"A": 2.0, "B": 0.4}, seconds=0.02, shed_per_second={"A": 98.0})
    again.add(replace_fields(left, out_per_second=0.2, spared=spared), 10.0)
    assert again.seconds == pytest.approx(0.002, rel=0.05), "little is left, and says little"
    assert again.takes(row.types) == pytest.approx({"A": 10.0, "B": 2.0}, rel=0.02)


def test_when_nothing_comes_any_more_the_table_goes_though_nothing_is_measured(plant):
    plant.load(2.0)
    plant.tick("ladder")
    plant.tick("shedding")
    assert plant.shed()
    plant.load(0.0)
    for pattern in plant.row["patterns"].values():
        pattern |= {"types": {}, "seconds": None, "out_per_second": 0.0}
    assert plant.tick("shedding").action is not None
    assert plant.shed() == {}
    plant.queue["in_per_second"] = 60.0
    assert plant.tick("shedding").limited_by == "stale measurement", "what comes is not measured yet"


def test_a_queue_that_handles_nothing_is_throttled_without_a_break():
    values = catalog.read_parameters(ladder.LAW, {})
    state, closed, rungs = start_state(ladder.LAW, values), 0.0, []
    for _ in range(8):
        came = 100.0 * (1 - closed)
        row = {"kind": "jobs", "in_per_second": came, "out_per_second": 0.0, "wait_seconds": 60.0}
        loop = {"law": "ladder", "mode": "auto", "target": {"queue": "alert"}}
        loop["terms"] = {"rung": state["rung"], "closed_share": closed}
        document = {"at": 10.0, "queues": {"alert": row}, "loops": {"ladder/alert": loop}}
        document["producers"] = {"api": {"queues": {"alert": came}}}
        document["totals"] = {"worker_slots": 2, "workers_busy": 2}
        sensed = ladder.measure_target({"queue": "alert"}, snapshot_of(document), None, 10.0)
        state, decision = decide_next(ladder.LAW, values, state, sensed.observation)
        closed = (decision.action or {}).get("closed_share", 0.0)
        rungs.append(state["rung"])
    assert min(rungs) >= 4
