"""What is measured of a job of Flink and a topology of Heron, and what is not taken for a measurement."""

import subprocess
from itertools import count

import httpx
import pytest

from queues.errors import BadInput
from tests.workers.plants.foreign_plants import FakeFlink, FakeHeron
from workers.plants.foreign.flink import FlinkPlant
from workers.plants.foreign.heron import HeronPlant, check_options
from workers.plants.foreign.line import PlantClient
from workers.plants.plant import PlantConfused, PlantSilent

OPTIONS = {"cluster": "devcluster", "role": "desk", "topology": "ExclamationTopology"}


@pytest.fixture
def flink():
    return FakeFlink(slots=2)


@pytest.fixture
def job(flink):
    """Looked at once in 2 s."""
    seconds = count(0, 2)
    line = PlantClient("flink", "http://flink", transport=flink.transport())
    return FlinkPlant(line, "hashes", lambda: 1_790_000_000.0, lambda: float(next(seconds)))


def test_a_job_of_flink_is_measured_from_look_to_look(flink, job):
    first = job.topology()
    assert first.paths == {"path1": ("Source: came[1]", "Calc[2]", "gone[3]: Writer")}
    assert first.operators["Calc[2]"].measure("executions") is None  # one look counts nothing
    job.topology()
    topology = job.topology()
    calc = topology.operators["Calc[2]"]
    assert topology.window_seconds == 4.0
    # Three vertices are asked a look, 100 records each time: 300 to each of two tasks in 2 s.
    assert (calc.measure("inputs"), calc.measure("outputs")) == (1_200.0, 600.0)
    assert calc.measure("utilisation") == 0.5
    assert calc.measure("service_seconds") == pytest.approx(0.5 * 4 / 600, rel=1e-5)
    assert topology.operators["Source: came[1]"].measure("outputs") == 300.0
    assert topology.operators["Source: came[1]"].kind == "source"
    assert (calc.minimum, calc.maximum) == (1, 2)  # as many as there are slots


def test_after_a_rescale_measuring_begins_anew(flink, job):
    job.topology(), job.topology()
    job.set_parallelism({"Calc[2]": 1})
    assert job.topology().operators["Calc[2]"].measure("executions") is None
    assert job.topology().operators["Calc[2]"].measure("executions") == 300.0


@pytest.mark.parametrize(
    ("wrong", "error", "said"),
    [
        (lambda flink: setattr(flink, "state", "RESTARTING"), PlantSilent, "the job is RESTARTING"),
        (lambda flink: setattr(flink, "state", "FINISHED"), PlantSilent, "0 jobs named hashes"),
        (
            lambda flink: setattr(flink, "error", httpx.Response(500, json={"errors": ["boom"]})),
            PlantConfused,
            "boom",
        ),
        (
            lambda flink: setattr(flink, "error", httpx.Response(200, json={"jobs": [{}]})),
            PlantConfused,
            "no job",
        ),
        (
            lambda flink: setattr(flink, "details", lambda: {"jid": "x", "state": "RUNNING"}),
            PlantConfused,
            "plan",
        ),
        (lambda flink: setattr(flink, "metrics", lambda _: [{"id": "0.x"}]), PlantConfused, "no metrics"),
    ],
)
def test_a_cluster_that_has_no_such_job_or_answers_wrongly_is_no_topology(flink, job, wrong, error, said):
    wrong(flink)
    with pytest.raises(error, match=said):
        job.topology()


def test_a_job_that_is_rescaled_while_it_is_looked_at_counts_for_nothing(flink, job):
    measured = flink.metrics

    def rescaled(wanted):
        flink.tasks["b" * 32], flink.started = 1, flink.started + 1
        return measured(wanted)

    flink.metrics = rescaled
    with pytest.raises(PlantSilent, match="rescaled during the observation"):
        job.topology()


def test_what_flink_refuses_is_said(flink, job):
    flink.rescale = lambda wanted: httpx.Response(400, json={"errors": ["the vertex is not known"]})
    with pytest.raises(PlantConfused, match="the vertex is not known"):
        job.set_parallelism({"Calc[2]": 1})


@pytest.fixture
def heron():
    return FakeHeron()


@pytest.fixture
def topology_of_heron(heron):
    line = PlantClient("heron", "http://tracker", transport=heron.transport())
    return HeronPlant(line, OPTIONS, heron.run, lambda: 1_790_000_000.0)


def test_a_topology_of_heron_is_measured_by_its_minutes(topology_of_heron):
    topology = topology_of_heron.topology()
    assert topology.paths == {"path1": ("word", "exclaim", "count")}
    word, exclaim = topology.operators["word"], topology.operators["exclaim"]
    assert (word.kind, word.acked, word.failed) == ("source", 1_800.0, 1_800.0)
    assert exclaim.measure("executions") == 1_800.0
    assert exclaim.measure("inputs") == 1_800.0  # what the spout emitted
    assert exclaim.measure("service_seconds") == pytest.approx(0.001)
    assert exclaim.by_task("executions_variance") == {"exclaim_1": 36.0, "exclaim_2": 36.0}
    assert topology.operators["count"].measure("outputs") is None  # it emits to no stream


def test_tasks_of_heron_are_set_by_its_command_line_and_only_when_they_are_others(heron, topology_of_heron):
    topology_of_heron.set_parallelism({"exclaim": 3, "count": 2})
    assert heron.updates == [
        ["update", "devcluster/desk/default", "ExclamationTopology", "--component-parallelism=exclaim:3"]
    ]


@pytest.mark.parametrize(
    ("run", "error", "said"),
    [
        (
            lambda _: subprocess.CompletedProcess([], 1, "", "trace\nTopology is not running"),
            PlantConfused,
            "not running",
        ),
        (FileNotFoundError("heron"), PlantConfused, "no program heron"),
        (subprocess.TimeoutExpired("heron", 120), PlantSilent, "took over 120 s"),
    ],
)
def test_an_update_that_fails_says_why(heron, run, error, said):
    def failing(arguments):
        if isinstance(run, Exception):
            raise run
        return run(arguments)

    line = PlantClient("heron", "http://tracker", transport=heron.transport())
    with pytest.raises(error, match=said):
        HeronPlant(line, OPTIONS, failing).set_parallelism({"exclaim": 3})


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (httpx.Response(200, json={"status": "failure", "message": "no such topology"}), "no such topology"),
        (
            httpx.Response(200, json={"status": "success", "result": {"logical_plan": {}}}),
            "no topology of Heron",
        ),
        (httpx.Response(200, json={"status": "success", "result": None}), "no topology of Heron"),
    ],
)
def test_a_tracker_that_answers_wrongly_is_no_topology(heron, topology_of_heron, answer, said):
    heron.error = answer
    with pytest.raises(PlantConfused, match=said):
        topology_of_heron.topology()


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"cluster": "a", "role": "b"}, "topology"),
        ({**OPTIONS, "topology": "--config-path=/tmp"}, "topology"),
        ({**OPTIONS, "role": "a/b"}, "role"),
    ],
)
def test_what_the_command_line_could_take_for_something_else_is_refused(options, field):
    check_options(OPTIONS)
    with pytest.raises(BadInput) as refused:
        check_options(options)
    assert refused.value.field == field


def test_a_flink_job_that_the_kubernetes_operator_scales_is_not_steered_as_well():
    far = FakeFlink()
    plant = FlinkPlant(PlantClient("flink", "http://flink", transport=far.transport()), "hashes")
    plant.set_parallelism({"Calc[2]": 3})
    far.config["job.autoscaler.enabled"] = "true"
    assert "autoscaler" in plant.topology().operators["Calc[2]"].fixed
    with pytest.raises(BadInput, match="autoscaler steers the job"):
        plant.set_parallelism({"Calc[2]": 4})
    assert far.puts == 1
    far.config["job.autoscaler.enabled"] = "false"
    assert plant.topology().operators["Calc[2]"].fixed is None
