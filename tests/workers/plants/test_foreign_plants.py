"""Measures of a Flink job, and what is not accepted as a measurement."""

from itertools import count

import httpx
import pytest

from common.errors import BadInput, WeirError
from tests.workers.plants.foreign_plants import FakeFlink, client_of
from workers.plants.foreign.flink.flink_plant import FlinkPlant
from workers.plants.foreign.remote import RemotePlant
from workers.plants.plant import InvalidPlantResponse, PlantUnavailable


@pytest.fixture
def flink():
    return FakeFlink(slots=2)


@pytest.fixture
def job(flink):
    """Return the topology, observed once in 2 s."""
    seconds = count(0, 2)
    client = client_of("flink", "http://flink", flink.transport())
    return FlinkPlant(client, "hashes", lambda: 1_790_000_000.0, lambda: float(next(seconds)))


def test_a_job_of_flink_is_measured_from_observation_to_observation(flink, job):
    first = job.get_topology()
    assert first.paths == {"path1": ("Source: came[1]", "Calc[2]", "gone[3]: Writer")}
    assert first.operators["Calc[2]"].measure("executions") is None  # one observation counts nothing
    job.get_topology()
    topology = job.get_topology()
    calc = topology.operators["Calc[2]"]
    assert topology.window_seconds == 4.0
    # An observation reads three vertices, 100 records each: 300 to each of two tasks in 2 s.
    assert (calc.measure("inputs"), calc.measure("outputs")) == (1_200.0, 600.0)
    assert calc.measure("utilisation") == 0.5
    assert calc.measure("service_seconds") == pytest.approx(0.5 * 4 / 600, rel=1e-5)
    assert topology.operators["Source: came[1]"].measure("outputs") == 300.0
    assert topology.operators["Source: came[1]"].kind == "source"
    assert (calc.minimum, calc.maximum) == (1, 2)  # as many as there are slots


def test_after_a_rescale_measuring_begins_anew(flink, job):
    job.get_topology(), job.get_topology()
    job.set_parallelism({"Calc[2]": 1})
    assert job.get_topology().operators["Calc[2]"].measure("executions") is None
    assert job.get_topology().operators["Calc[2]"].measure("executions") == 300.0


def measured(topology, name="Calc[2]"):
    found = topology.operators[name]
    rate = found.measure("inputs")
    return None if rate is None else (rate / topology.window_seconds, found.measure("utilisation"))


def test_metrics_of_flink_that_come_late_make_no_load_that_is_lower_than_it_is(flink, job):
    """After a rescale there are none at first; if that counted as no arrivals, a loop would end tasks."""
    answers = flink.metrics
    flink.metrics = lambda wanted: []
    for _ in range(6):
        assert measured(job.get_topology()) is None
    flink.metrics = answers
    job.get_topology(), job.get_topology()
    assert measured(job.get_topology()) == (pytest.approx(300.0), 0.5)


@pytest.mark.parametrize("per_second", [100, 0])
def test_a_cluster_that_fetches_metrics_each_10_s_is_measured_as_if_it_did_at_each_observation(flink, job, per_second):
    """This is Flink's default: between two fetches it repeats its answer."""
    looks = count()

    def fetched(wanted):
        records = next(looks) // 3 // 5 * 10 * per_second  # three vertices per observation, a fetch every fifth
        values = {"numRecordsIn": records, "numRecordsOut": records, "busyTimeMsPerSecond": 5.0 * per_second}
        return [{"id": each, "value": str(values[each.partition(".")[2]])} for each in wanted.split(",")]

    flink.metrics = fetched
    found = [measured(job.get_topology()) for _ in range(60)]
    known = {each for each in found if each is not None}
    assert known == {(2 * per_second, per_second / 200)}
    assert None not in found[12:]


def test_a_job_that_is_submitted_anew_owes_nothing_that_was_ordered_of_the_one_before(flink, job):
    """A new version of a job is one: otherwise the loop would hold until a person releases it."""
    topology, begun = job.get_topology(), job.get_details().lives
    assert begun == dict.fromkeys(topology.operators, 1_790_000_000.0 - 600)
    flink.started, flink.age_seconds = flink.started + 5_000, 605.0  # restarted by its cluster
    job.get_topology()
    assert job.get_details().lives == begun
    flink.job, flink.age_seconds = "1" * 32, 3.0
    job.get_topology()
    assert set(job.get_details().lives.values()) == {1_790_000_000.0 - 3}


@pytest.mark.parametrize("tasks", [10**9, -1])
def test_a_job_of_flink_with_tasks_that_would_fill_the_memory_is_no_job(flink, job, tasks):
    flink.tasks["b" * 32] = tasks
    for ask in (job.get_topology, lambda: job.set_parallelism({"Calc[2]": 2})):
        with pytest.raises(InvalidPlantResponse, match="invalid Flink job"):
            ask()


@pytest.mark.parametrize("wrong", [None, [], "no", 5])
def test_what_else_a_cluster_answers_wrongly_is_said_and_no_fault_of_ours(flink, job, wrong):
    answers = flink.transport().handler

    def answer(request):
        is_wrong = request.url.path in ("/overview", f"/jobs/{flink.job}/resource-requirements")
        return httpx.Response(200, json=wrong) if is_wrong else answers(request)

    confused = FlinkPlant(client_of("flink", "http://flink", httpx.MockTransport(answer)))
    for ask in (confused.get_topology, lambda: confused.set_parallelism({"Calc[2]": 2})):
        with pytest.raises(InvalidPlantResponse, match="that is not from Flink"):
            ask()


@pytest.mark.parametrize(
    ("status", "document"),
    [
        (409, {"holder": "x" * 10**6, "until": 5.0}),
        (422, {"errors": {"y" * 10**6: ["z" * 10**6]}}),
        (503, {"errors": {"": ["z" * 10**6]}}),
    ],
)
def test_what_another_weir_says_without_end_fits_into_a_ledger_entry(status, document):
    answer = httpx.MockTransport(lambda _: httpx.Response(status, json=document))
    plant = RemotePlant(client_of("east", "http://east", answer))
    with pytest.raises(WeirError) as refused:
        plant.set_parallelism({"parse": 2})
    assert len(str(refused.value)) < 3_000


def flink_of(flink):
    return FlinkPlant(client_of("flink", "http://flink", flink.transport()), "hashes")


def test_the_lower_bound_that_somebody_gave_stays():
    flink = FakeFlink()
    flink.least = 2
    job = flink_of(flink)
    assert job.get_topology().operators["Calc[2]"].minimum == 2
    with pytest.raises(BadInput, match="Calc"):
        job.set_parallelism({"Calc[2]": 1})
    job.set_parallelism({"Calc[2]": 3})
    assert flink.wanted["b" * 32]["parallelism"] == {"lowerBound": 2, "upperBound": 3}


@pytest.mark.parametrize(
    ("name", "wrong", "error", "said"),
    [
        ("state", "RESTARTING", PlantUnavailable, "the job is RESTARTING"),
        ("state", "FINISHED", PlantUnavailable, "0 running jobs named hashes"),
        ("error", httpx.Response(500, json={"errors": ["boom"]}), InvalidPlantResponse, "boom"),
        ("error", httpx.Response(200, json={"jobs": [{}]}), InvalidPlantResponse, "invalid Flink job"),
        ("details", lambda: {"jid": "x", "state": "RUNNING"}, InvalidPlantResponse, "plan"),
        ("metrics", lambda _: [{"id": "0.x"}], InvalidPlantResponse, "invalid Flink metrics"),
    ],
)
def test_a_cluster_that_has_no_such_job_or_answers_wrongly_is_no_topology(flink, job, name, wrong, error, said):
    setattr(flink, name, wrong)
    with pytest.raises(error, match=said):
        job.get_topology()


SAID = {
    f"vertices/{'b' * 32}/backpressure": {
        "status": "ok",
        "backpressureLevel": "high",
        "subtasks": [
            {"subtask": 0, "ratio": 0.9, "busyRatio": 0.1, "idleRatio": 0.0},
            {"subtask": 1, "ratio": 0.5, "busyRatio": 0.4, "idleRatio": 0.1},
        ],
    },
    "rescales/history": [
        {"startTimestampInMillis": 1_790_000_005_000},
        {
            "startTimestampInMillis": 1_790_000_000_000,
            "endTimestampInMillis": 1_790_000_002_400,
            "terminalState": "COMPLETED",
            "triggerCause": "UPDATE_REQUIREMENT",
            "terminatedReason": "SUCCEEDED",
        },
    ],
    "checkpoints": {
        "counts": {"restored": 1, "total": 9, "in_progress": 0, "completed": 8, "failed": 1},
        "history": [
            {
                "id": 9,
                "status": "FAILED",
                "checkpoint_type": "CHECKPOINT",
                "trigger_timestamp": 1_790_000_000_000,
                "end_to_end_duration": 1_500,
                "state_size": 2**20,
                "checkpointed_size": 0,
                "failure_message": "expired",
            }
        ],
    },
    "exceptions": {
        "exceptionHistory": {
            "entries": [
                {
                    "exceptionName": "java.io.IOException",
                    "stacktrace": "java.io.IOException: no route, password=pa55word\n\tat x",
                    "timestamp": 1_790_000_000_000,
                    "taskName": "Calc[2] (1/2)",
                }
            ],
            "truncated": False,
        }
    },
}
TIME = "2026-09-21 14:13:20"


def test_what_flink_says_of_a_job_besides_its_measures_is_on_its_page(flink, job):
    assert job.list_sections() == ()
    job.get_topology()
    pressure, rescales, checkpoints, exceptions = job.list_sections()
    assert [row[1] for row in pressure.rows] == ["not measured yet"] * 3
    assert "rescale-history.size" in rescales.empty and not rescales.rows
    flink.said = SAID
    pressure, rescales, checkpoints, exceptions = job.list_sections()
    assert pressure.rows[1] == ["Calc[2]", "high", 90.0, 70.0, 25.0, 5.0]
    assert rescales.rows == [
        ["2026-09-21 14:13:25", "", "in progress", None, ""],
        [TIME, "update requirement", "completed", 2.4, "succeeded"],
    ]
    assert checkpoints.about == "8 completed, 1 failed, 0 in progress"
    assert checkpoints.rows == [["9", "failed", "checkpoint", TIME, 1.5, 1.0, 0.0, "expired"]]
    [row] = exceptions.rows
    assert row[:3] == [TIME, "IOException", "Calc[2] (1/2)"]
    assert "no route" in row[3] and "pa55word" not in row[3]


@pytest.mark.parametrize("wrong", [5, "x", None, [5], {"history": 5}, {"vertices": []}])
@pytest.mark.parametrize("path", sorted(SAID))
def test_what_is_not_flink_s_is_said_and_harms_nothing(flink, job, path, wrong):
    job.get_topology()
    flink.said = {**SAID, path: wrong}
    sections = job.list_sections()
    assert len(sections) == 4
    assert sum("returned a response that is not from Flink" in each.about for each in sections) <= 1


def test_a_flink_job_that_the_kubernetes_operator_scales_is_not_steered_as_well():
    far = FakeFlink()
    plant = flink_of(far)
    plant.set_parallelism({"Calc[2]": 3})
    far.config["job.autoscaler.enabled"] = "true"
    assert "autoscaler" in plant.get_topology().operators["Calc[2]"].fixed
    with pytest.raises(BadInput, match="controls the job"):
        plant.set_parallelism({"Calc[2]": 4})
    assert far.puts == 1
    far.config["job.autoscaler.enabled"] = "false"
    assert plant.get_topology().operators["Calc[2]"].fixed is None
