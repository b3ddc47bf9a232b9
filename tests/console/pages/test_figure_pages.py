"""Tables and figures of the papers on pages and over the API: run, kept, and compared with the paper."""

import json

import numpy as np
import pytest

from console.actions.lab.experiment_documents import format_experiment_command
from console.models import AuditEntry
from tests.console.page_form import fetch, refused
from workers.batch import task_definitions
from workers.batch.jobs import experiment as job
from workers.lab.models import Experiment, ExperimentResult
from workers.lab.series import write_series

pytestmark = pytest.mark.django_db
PAGE = "/lab/figures/xu-figure-6/"


@pytest.fixture(autouse=True)
def plant(control, tmp_path, settings):
    settings.WEIR_DATA = tmp_path
    task_definitions.ensure_tasks()


def begun(operator, page=PAGE, **fields):
    answer = fetch(operator, f"{page}run", {"seeds": "3", "seed": "2", **fields})
    assert answer.status_code == 200, answer.content
    return Experiment.objects.get(pk=answer.json()["experiment"])


def test_a_figure_is_run_as_an_experiment_with_a_chunk_for_each_law_and_case(operator):
    found = begun(operator, "/lab/figures/houtman-table-4-2/", seeds="1")
    assert (found.scenario, found.figure, found.seed, found.seeds) == ("manager", "houtman-table-4-2", 2, 1)
    assert found.runs["thesis@250"]["law"] == "thesis"
    assert found.runs["thesis@250"]["settings"]["upper_limit"] == 250
    assert found.settings["max_rate"] == 50
    assert [chunk.identifier for chunk in found.run.chunks.all()] == [f"law={name}" for name in found.runs]
    assert AuditEntry.objects.get(action="lab.run").after["figure"] == "houtman-table-4-2"
    assert format_experiment_command(found) == "manage.py lab figure houtman-table-4-2 --seeds 1 --seed 2"


def test_the_page_shows_the_values_of_the_paper_next_to_those_of_the_newest_run(operator, viewer):
    found = begun(operator)
    ExperimentResult.objects.create(
        experiment=found, law="i-p", metrics={"drops": 0.0, "rms": 2.0}, bands={"rms": [1.5, 2.5]}, seconds=1.0
    )
    page = viewer.get(PAGE)
    values = {(value.metric, value.run): value for value in page.context["figure"].values}
    assert values["drops", "i-p"].agrees is True and values["drops", "pi"].agrees is None
    assert values["rms", "i-p"].band == (1.5, 2.5)
    assert (page.context["figure"].agreeing, page.context["figure"].reported) == (1, 4)
    assert "1.5 to 2.5" in page.content.decode()
    (row,) = (row for row in viewer.get("/api/v1/lab/figures").json()["figures"] if row["name"] == "xu-figure-6")
    assert (row["experiment"]["id"], row["agreeing"], row["reported"]) == (found.pk, 1, 4)


def test_the_page_of_such_an_experiment_is_that_of_its_figure(operator):
    found = begun(operator)
    assert operator.get(f"/lab/{found.pk}/")["Location"] == f"{PAGE}?experiment={found.pk}"
    other = begun(operator)
    assert operator.get(PAGE).context["figure"].experiment.id == other.pk
    assert operator.get(PAGE, {"experiment": found.pk}).context["figure"].experiment.id == found.pk


def test_curves_have_the_mean_and_its_band(operator, tmp_path):
    found = begun(operator)
    path = tmp_path / f"experiments/{found.pk}/law=pi.npz"
    write_series(path, 2.0, {"free_mb": np.array([[2.0, 3.0], [1.0, 2.0], [3.0, 4.0]]), "other": np.ones(2)})
    ExperimentResult.objects.create(experiment=found, law="pi", metrics={}, seconds=1.0)
    curves = operator.get(f"/api/v1/experiments/{found.pk}/series").json()["laws"]["pi"]
    assert curves == {
        "free_mb": {"seconds": [0.0, 2.0], "values": [2.0, 3.0], "low": [1.0, 2.0], "high": [3.0, 4.0]},
        "other": {"seconds": [0.0, 2.0], "values": [1.0, 1.0], "low": [], "high": []},
    }


@pytest.mark.parametrize(
    ("fields", "field"),
    [({"seeds": "0"}, "seeds"), ({"seeds": "31"}, "seeds"), ({"seed": "-1"}, "seed"), ({"trace": "upload"}, "file")],
)
def test_a_run_that_cannot_be_is_refused_at_its_field(fields, field, operator):
    assert refused(fetch(operator, f"{PAGE}run", {"seeds": "3", "seed": "2", **fields})) == [field]
    assert not Experiment.objects.exists()


def test_more_seeds_than_the_lab_may_work_on_are_refused(operator, monkeypatch):
    monkeypatch.setattr(job, "MAX_EXPERIMENT_SECONDS", 30)
    assert fetch(operator, "/lab/figures/tang-figure-8/run", {"seeds": "1", "seed": "1"}).status_code == 200
    assert refused(fetch(operator, "/lab/figures/tang-figure-8/run", {"seeds": "9", "seed": "1"})) == ["seeds"]


def test_a_figure_that_does_not_exist_is_not_found(operator):
    assert operator.get("/lab/figures/nothing/").status_code == 404
    assert operator.get(PAGE, {"experiment": "7"}).status_code == 404


def test_the_api_starts_a_run_with_the_seeds_of_the_figure(operator):
    answer = operator.post("/api/v1/lab/figures/xu-figure-6/run", json.dumps({"seed": 4}), "application/json")
    assert answer.status_code == 200, answer.content
    assert (answer.json()["seeds"], answer.json()["seed"], answer.json()["figure"]) == (5, 4, "xu-figure-6")
