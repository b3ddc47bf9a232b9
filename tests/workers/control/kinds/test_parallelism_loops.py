"""Loops of parallelism: what they are told of the pipeline and of what is foreseen; tasks have one owner."""

import pytest

from common.stored_document import replace_fields
from controllers import catalog
from controllers.framework.law import decide_next
from controllers.parallelism.measured_topology import Link, MeasuredOperator, MeasuredTopology
from tests.console.pipeline_sample import sample_application
from tests.workers.loops import PARALLELISM, ensured
from tests.workers.plants.test_topology import snapshot as plain
from workers.control.kinds import parallelism_forecast
from workers.control.kinds.registry import KINDS, find_display
from workers.control.parts.operators import collect_readings
from workers.models import Loop
from workers.pipeline.declaration.declared import Declarations, DeclarationText

NOW = 1_790_000_000.0
TARGET = {"application": "performance"}
HOSTS = {**TARGET, "operator": "hosts"}
LAWS = ("parallelism_queueing", "parallelism_forecast", "parallelism_joint")
SENSED = {law: KINDS[law].sensor for law in LAWS}
forecast, joint = SENSED["parallelism_forecast"], SENSED["parallelism_joint"]


def foreseen(means=(60.0, 90.0), deviations=(3.0, 4.0), refused=None):
    return {
        "at": NOW,
        "window_seconds": 60.0,
        "mean_per_second": list(means),
        "deviation_per_second": list(deviations),
        "days": 3.0,
        "trained_until": None,
        "refused": refused,
    }


def seen(forecasts=None, loops=None, **application):
    row = {**sample_application(), **application}
    pipeline = {"state": "running", "age_seconds": 0.5, "applications": {"performance": row}}
    return plain(
        pipeline=pipeline, loops=loops or {}, forecasts={"performance": foreseen()} if forecasts is None else forecasts
    )


def loop(law, mode, target=TARGET):
    return {"law": law, "mode": mode, "target": target}


def test_the_joint_law_is_given_the_forecast_as_many_times_as_its_operators_get_of_it():
    sensed = joint(TARGET, seen(), None, NOW)
    observed = catalog.read_observation(catalog.get_law("parallelism_joint"), sensed.observation)
    # 30 a second come to the queue, fewer to the first operator.
    share = observed["operators"]["performance/hosts"]["rate_per_second"] / 30.0
    assert 0 < share < 1 and observed["source_per_second"] == pytest.approx(30.0 * share)
    assert observed["forecast_per_second"] == pytest.approx([60 * share, 90 * share])
    assert observed["deviation_per_second"] == pytest.approx([3 * share, 4 * share])
    assert observed["paths"] == [["performance/hosts", "performance/sites"]]
    assert sensed.measured.invalid is None


def shop(kind):
    """A plant of others to which 20 a second come, in a snapshot that foresees three times as many."""
    work = {"inputs": 200.0, "executions": 200.0, "service_seconds": 0.04, "utilisation": 0.4}
    operators = {
        "in": MeasuredOperator("in", "source", 1, fixed="a source", tasks=({"outputs": 200.0},)),
        "work": MeasuredOperator("work", "operator", 1, 1, 8, tasks=(work,)),
    }
    topology = MeasuredTopology("shop", NOW, 10.0, operators, (Link("in", "work", 0.1),))
    row = {"kind": kind, "state": "seen", "age_seconds": 0.5, "tasks": 1, "in_per_second": 20.0}
    plants = {"shop": {**row, "topology": topology.to_document()}}
    return plain(plants=plants, forecasts={"plant:shop": foreseen(), "shop": foreseen((1.0, 1.0))})


def test_the_joint_law_is_given_the_forecast_of_a_plant_of_others_where_it_plans_so_far():
    for kind, means in (("flink", [60.0, 90.0]), ("celery", [])):
        sensed = joint({"plant": "shop"}, shop(kind), None, NOW)
        observed = catalog.read_observation(catalog.get_law("parallelism_joint"), sensed.observation)
        assert observed["source_per_second"] == 20.0 and sensed.measured.invalid is None
        assert list(observed["forecast_per_second"] or []) == pytest.approx(means), kind


def test_the_forecast_law_is_given_what_one_operator_would_miss_with_each_number_of_tasks():
    busy = seen({"performance": foreseen((6e5, 9e5), (1e3, 1e3))})
    sensed = forecast(HOSTS, busy, None, NOW)
    law = catalog.get_law("parallelism_forecast")
    parameters = catalog.read_parameters(law, {})
    observed = catalog.read_observation(law, sensed.observation)
    catalog.check_observation(law, parameters, observed)
    missed = observed["missed"]
    assert len(missed) == 2 and len(missed[0]) == 2 and observed["current"] == 2
    assert missed[1][0] > missed[0][0] > missed[0][1] > 0


def test_as_many_tasks_as_spark_has_cores_are_useful_whatever_this_process_has():
    document = seen({"performance": foreseen((6e5, 9e5), (1e3, 1e3))})
    for cores, most in ((None, 2), (6, 6), (500, 64)):
        document = replace_fields(document, pipeline=replace_fields(document.pipeline, cores=cores))
        for law in ("parallelism_joint", "parallelism_queueing"):
            rows = SENSED[law](TARGET, document, None, NOW).observation["operators"]
            assert {row["maximum"] for row in rows.values()} == {most}
        assert len(forecast(HOSTS, document, None, NOW).observation["missed"][0]) == most


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (
            seen({"performance": foreseen((60.0,), (30.0,))}),
            "too uncertain: its standard deviation is 50 % of its mean",
        ),
        (seen({"performance": foreseen() | {"mean_per_second": None, "refused": "the set is old"}}), "the set is old"),
        (seen({"other": foreseen()}), "no forecast yet"),
        (seen(operators={"sites": sample_application()["operators"]["sites"]}, edges=[]), "has no operator hosts"),
    ],
)
def test_a_forecast_that_is_a_guess_or_missing_and_an_operator_that_vanished_hold(document, why):
    measured = forecast(HOSTS, document, None, NOW).measured
    assert why in (measured.invalid or measured.idle)


def test_an_operator_that_was_not_measured_holds_every_law():
    operators = sample_application()["operators"]
    document = seen(operators={name: {**row, "work": []} for name, row in operators.items()})
    sensed = joint(TARGET, document, None, NOW)
    law = catalog.get_law("parallelism_joint")
    _, decision = decide_next(
        law, catalog.read_parameters(law, {}), {"operators": {}}, catalog.read_observation(law, sensed.observation)
    )
    assert decision.action is None and decision.limited_by == "unmeasured"
    assert "was not measured" in forecast(HOSTS, document, None, NOW).measured.idle


def test_applications_that_feed_each_other_in_a_circle_hold_every_law():
    document = seen(sinks={"outage": ["telemetry"]})
    for law in LAWS:
        target = HOSTS if law == "parallelism_forecast" else TARGET
        sensed = SENSED[law](target, document, None, NOW)
        assert "circle" in sensed.measured.invalid or "cycle" in sensed.measured.invalid


@pytest.mark.parametrize("mode", ["auto", "manual"])
def test_tasks_have_one_owner_and_the_others_say_who_it_is(mode):
    for place, law in enumerate(LAWS):
        name = f"{law}/performance"
        document = seen(loops={name: loop(law, mode), "parallelism_joint/performance": loop(LAWS[2], "auto")})
        for other, sensor in SENSED.items():
            target = HOSTS if other == "parallelism_forecast" else TARGET
            measured = sensor(target, document, None, NOW).measured
            steps_back = LAWS.index(other) > place
            said = measured.idle is not None and "already controls the tasks" in measured.idle
            assert said == steps_back, (law, other)
            assert measured.invalid is None  # or each loop that steps back is said to lack a measurement


def test_a_rescale_is_judged_by_the_capacity_that_is_measured_afterwards():
    operators, before = sample_application()["operators"], seen()
    twice = {name: {**row, "parallelism": 2 * row["parallelism"]} for name, row in operators.items()}
    after = seen(operators=twice)
    gained = (
        collect_readings(TARGET, after)["capacity_per_second"] / collect_readings(TARGET, before)["capacity_per_second"]
    )
    assert gained == pytest.approx(2.0)
    operator = parallelism_forecast.collect_readings(HOSTS, after)
    assert operator["tasks"] == 4
    assert parallelism_forecast.collect_readings({**TARGET, "operator": "gone"}, after) is None


@pytest.mark.django_db
def test_an_application_is_steered_by_the_joint_law_and_advised_by_the_others(control):
    Declarations(control).note_at_work(DeclarationText("performance", 1, "name: performance"))
    names = {each.name: each.mode for each in ensured(control, PARALLELISM, snapshot=seen())}
    assert names == {
        "parallelism_joint/performance": Loop.Mode.AUTO,
        "parallelism_queueing/performance": Loop.Mode.ADVISE,
        "parallelism_forecast/performance/hosts": Loop.Mode.ADVISE,
        "parallelism_forecast/performance/sites": Loop.Mode.ADVISE,
    }
    # Each takes what it was made with.
    for each in Loop.objects.filter(law__in=LAWS):
        law = catalog.get_law(each.law)
        catalog.read_parameters(law, each.parameters)
    # While the pipeline says nothing of its operators, their loops stay; a vanished operator's goes.
    assert len(ensured(control, PARALLELISM)) == 4
    hosts_only = seen(operators={"hosts": sample_application()["operators"]["hosts"]}, edges=[])
    assert len(ensured(control, PARALLELISM, snapshot=hosts_only)) == 3
    Declarations(control).forget("performance")
    assert ensured(control, PARALLELISM, snapshot=seen()) == []


@pytest.mark.parametrize(("tasks", "words"), [(1, "1 task"), (4, "4 tasks")])
def test_a_path_through_the_forecast_is_said_by_its_first_step(tasks, words):
    display = find_display("parallelism_forecast")
    action = {"tasks": tasks, "path": [tasks, 2, 2], "cost": 900.0}
    assert (display.brief(action), display.past(action)) == (words, f"set {words}")
