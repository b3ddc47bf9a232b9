"""The lab on pages and over the API: made up, run, kept, compared, applied; what can't be is refused."""

import gzip
import io
import json
import re
from datetime import UTC, datetime

import numpy as np
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import call_command
from django.test import Client

from console.actions.lab.experiment_documents import build_results_table, format_experiment_command
from console.models import AuditEntry
from controllers.simulation import scenario as metrics
from controllers.simulation.catalog import SCENARIOS
from queues.models import Container, Node, Queue
from tests.console.page_form import fetch, form_of, refused
from workers.batch import task_definitions
from workers.lab.models import Experiment, ExperimentResult
from workers.lab.series import read_trace, write_series
from workers.models import Loop, Override, Run

pytestmark = pytest.mark.django_db
MANAGER = {"scenario": "manager", "law": ["worker_rate", "thesis"], "seed": "3", "set-upper_limit": "250"}
WHY = {"reason": "the experiment says so", "minutes": "30"}


@pytest.fixture(autouse=True)
def plant(control, tmp_path, settings):
    settings.WEIR_DATA = tmp_path
    task_definitions.ensure_tasks()


@pytest.fixture
def loops():
    """The loops of alert's workers on two nodes."""
    queue = Queue.objects.create(name="alert", kind="jobs")
    made = []
    for name in ("n1", "n2"):
        node = Node.objects.create(name=name, url="redis://127.0.0.1:1/0")
        Container.objects.create(queue=queue, node=node, points=500)
        target = {"queue": "alert", "node": name}
        made.append(Loop.objects.create(name=f"worker_rate/alert/{name}", law="worker_rate", target=target))
    return made


def begun(operator, **fields):
    answer = fetch(operator, "/lab/begin", {**MANAGER, **fields})
    assert answer.status_code == 200, answer.content
    return Experiment.objects.get(pk=answer.json()["experiment"])


def ended(operator, values, **fields):
    """An experiment with results, as its run would have left them."""
    found = begun(operator, law=list(values), **fields)
    for law, each in values.items():
        ExperimentResult.objects.create(experiment=found, law=law, metrics=each, seconds=1.0)
    Run.objects.filter(pk=found.run_id).update(state="done", ended_at=datetime.now(UTC))
    return Experiment.objects.get(pk=found.pk)


def test_every_promised_metric_says_which_value_is_better():
    out = json.loads(_printed("lab", "list", "--json"))
    promised = {name for scenario in out["scenarios"].values() for name in scenario["metrics"]}
    assert promised <= set(metrics.METRICS)


def _printed(*arguments):
    out = io.StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


def test_an_experiment_is_kept_with_its_run_and_a_chunk_a_law(operator, people):
    found = begun(operator, title="a small limit")
    assert (found.scenario, found.laws, found.seed) == ("manager", ["worker_rate", "thesis"], 3)
    assert found.settings["upper_limit"] == 250 and found.settings["max_rate"] == 1_000
    assert (found.owner, found.title) == (people["operator"], "a small limit")
    assert [chunk.identifier for chunk in found.run.chunks.all()] == ["law=worker_rate", "law=thesis"]
    entry = AuditEntry.objects.get(action="lab.run")
    assert (entry.target, entry.after["seed"]) == (f"experiment {found.pk}", 3)
    assert operator.get(f"/lab/{found.pk}/").context["is_open"]


def test_the_shipped_loops_are_a_choice_beside_the_laws(operator):
    choices = operator.get("/lab/?scenario=manager").context["laws"]
    assert [law.name for law in choices if not law.chosen] == ["shipped"]
    assert begun(operator, law=["worker_rate", "shipped"]).laws == ["worker_rate", "shipped"]


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"scenario": "weather"}, "scenario"),
        ({"law": ["luck"]}, "law"),
        ({"law": []}, "law"),
        ({"seed": "-1"}, "seed"),
        ({"set-upper_limit": "0"}, "set-upper_limit"),
        ({"set-cycles": "1.5"}, "set-cycles"),
        ({"set-colour": "red"}, "set-colour"),
        ({"title": "x" * 121}, "title"),
        ({"trace": "../../etc/passwd", "column": "v"}, "trace"),
        ({"trace": "upload", "column": "v"}, "file"),
    ],
)
def test_an_experiment_that_cannot_be_is_refused_at_its_field(fields, field, operator):
    assert refused(fetch(operator, "/lab/begin", {**MANAGER, **fields})) == [field]
    assert not Experiment.objects.exists() and not Run.objects.exists()


def test_a_refused_form_keeps_what_was_typed(operator):
    page = operator.post("/lab/begin", {**MANAGER, "title": "kept", "set-upper_limit": "much"})
    assert page.status_code == 422
    text = page.content.decode()
    assert 'value="kept"' in text and 'value="much"' in text
    assert [law.name for law in page.context["laws"] if law.chosen] == ["worker_rate", "thesis"]


@pytest.mark.parametrize("name", ["day.csv", "day.csv.gz"])
def test_a_trace_is_uploaded_once_and_may_be_chosen_again(name, operator, people, tmp_path):
    kept = f"traces/{people['operator'].pk}/{name}"
    text = "time,rate\n" + "".join(f"{row},{row % 7}\n" for row in range(70))
    body = gzip.compress(text.encode()) if name.endswith(".gz") else text.encode()
    found = begun(operator, trace="upload", column="rate", file=SimpleUploadedFile(name, body))
    assert found.trace == {"name": name, "column": "rate", "rows": 70, "path": kept}
    np.testing.assert_array_equal(read_trace(tmp_path, found.pk), np.arange(70) % 7)
    again = begun(operator, trace=kept, column="rate")
    (tmp_path / kept).unlink()  # the experiment has its own copy
    assert read_trace(tmp_path, again.pk).size == 70


@pytest.mark.parametrize(
    ("name", "body", "column", "field"),
    [
        ("day.csv", b"time,rate\n1,2\n", "speed", "column"),
        ("day.csv", b"time,rate\n1,fast\n", "rate", "trace"),
        ("day.csv", b"", "rate", "column"),
        ("day.csv.gz", b"\x1f\x8bnot to its end", "rate", "trace"),
        ("day.csv.gz", gzip.compress(b"a,b\n" + b"0" * 65 * 2**20), "rate", "trace"),
        ("day.exe", b"time,rate\n1,2\n", "rate", "trace"),
    ],
)
def test_a_file_that_is_no_trace_is_refused_and_not_kept(name, body, column, field, operator, tmp_path):
    posted = {**MANAGER, "trace": "upload", "column": column, "file": SimpleUploadedFile(name, body)}
    assert refused(fetch(operator, "/lab/begin", posted)) == [field]
    assert not list((tmp_path / "traces").rglob("*.csv*")) and not Experiment.objects.exists()


def test_the_best_of_each_metric_is_marked_and_what_says_nothing_is_not(operator):
    found = ended(
        operator,
        {
            "worker_rate": {"worker_runs": 10, "waiting_1s_post": 5.0, "minimum_runs": 9},
            "thesis": {"worker_runs": 12, "waiting_1s_post": None, "minimum_runs": 9.5},
        },
    )
    table = build_results_table([found])
    best = {
        (row.law, metric.name)
        for row in table.rows
        for metric, cell in zip(table.metrics, row.cells, strict=True)
        if cell.best
    }
    assert best == {("worker_rate", "worker_runs")}  # one known waiting isn't the best of anything
    assert re.search(r"<b>10</b>", operator.get(f"/lab/{found.pk}/").content.decode())


def test_an_experiment_is_run_again_on_the_same_arrivals_though_their_file_has_gone(operator, people, tmp_path):
    text = "time,rate\n" + "".join(f"{row},{row % 7}\n" for row in range(70))
    file = SimpleUploadedFile("shop.csv", text.encode())
    found = begun(operator, trace="upload", column="rate", file=file)
    path = tmp_path / "traces" / str(people["operator"].pk) / "shop.csv"
    assert f"--trace {path} --column rate" in format_experiment_command(found)
    path.unlink()
    page = operator.get(f"/lab/{found.pk}/")
    form = form_of(page, "/lab/begin")
    assert form["trace"] == f"experiment-{found.pk}" and "shop.csv, rate" in page.content.decode()
    again = begun(operator, trace=form["trace"], column=form["column"])
    np.testing.assert_array_equal(read_trace(tmp_path, again.pk), read_trace(tmp_path, found.pk))
    assert again.trace == found.trace
    (tmp_path / "experiments" / str(found.pk) / "trace.npy").unlink()
    assert refused(fetch(operator, "/lab/begin", {**MANAGER, "trace": form["trace"]})) == ["trace"]
    plain = operator.post("/lab/begin", {**MANAGER, "trace": form["trace"], "seed": "no"})
    assert form_of(plain, "/lab/begin")["trace"] == form["trace"], "a form that is refused keeps the choice"


def test_experiments_are_compared_side_by_side_with_what_differs(operator):
    one = ended(operator, {"worker_rate": {"worker_runs": 10}, "thesis": {"worker_runs": 12}})
    other = ended(operator, {"worker_rate": {"worker_runs": 8}}, **{"set-upper_limit": "500", "seed": "4"})
    page = operator.get(f"/lab/compare?id={other.pk}&id={one.pk}")
    assert [each.id for each in page.context["compared"]] == [other.pk, one.pk]
    assert {row.name: row.values for row in page.context["differing"]} == {
        "upper_limit": [500.0, 250.0],
        "seed": [4, 3],
    }
    (winner,) = [row for row in page.context["table"].rows if row.cells[0].best]
    assert (winner.experiment, winner.law) == (other, "worker_rate")
    assert "Select at least two experiments" in operator.get(f"/lab/compare?id={one.pk}").content.decode()


def test_parameters_are_applied_as_overrides_where_they_differ_from_those_in_force(operator, loops):
    found = ended(operator, {"worker_rate": {"worker_runs": 10}})
    posted = {"law": "worker_rate", "name": ["upper_limit", "method"], "loop": "all", **WHY}
    answer = fetch(operator, f"/lab/{found.pk}/apply", posted).json()
    (made,) = Override.objects.filter(pk__in=answer["overrides"])  # method is forecast already
    assert (made.loop, made.law, made.name, made.value) == (None, "worker_rate", "upper_limit", 250.0)
    assert made.reason == WHY["reason"] and made.expires_at > datetime.now(UTC)
    assert "Upper limit of worker rate, all loops is 250" in answer["message"]
    noted = AuditEntry.objects.get(action="lab.apply")
    assert noted.after["loops"] == [each.name for each in loops]
    assert noted.target == f"experiment {found.pk}" and noted.after["upper_limit"] == 250
    assert refused(fetch(operator, f"/lab/{found.pk}/apply", posted)) == ["name"]  # all in force now


def test_a_rival_is_applied_as_the_method_it_stands_for(operator, loops):
    found = ended(operator, {"thesis": {"worker_runs": 12}})
    posted = {"law": "thesis", "name": ["method"], "loop": str(loops[1].pk), **WHY}
    fetch(operator, f"/lab/{found.pk}/apply", posted)
    (made,) = Override.objects.all()
    assert (made.loop, made.name, made.value) == (loops[1], "method", "thesis")


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"law": "static"}, "law"),
        ({"name": ["cycles"]}, "name"),
        ({"name": ["interval_seconds"]}, "name"),  # a loop's cadence is its own
        ({"loop": "9999"}, "loop"),
        ({"reason": ""}, "reason"),
    ],
)
def test_what_cannot_be_applied_is_refused_and_nothing_is_overridden(changed, field, operator, loops):
    found = ended(operator, {"worker_rate": {"worker_runs": 10}})
    posted = {"law": "worker_rate", "name": ["upper_limit"], "loop": "all", **WHY, **changed}
    assert refused(fetch(operator, f"/lab/{found.pk}/apply", posted))[0].startswith(field)
    assert not Override.objects.exists()


def test_a_law_that_moves_points_becomes_a_plan_or_says_why_not(operator, stored_snapshot):
    fields = {"scenario": "queues", "set-upper_limit": ""}
    found = ended(operator, {"greedy-band": {"moves": 3}, "random-40": {"moves": 9}}, **fields)
    applied = operator.get(f"/lab/{found.pk}/").context["applied"]
    assert [(each.law, each.of.values) for each in applied] == [("greedy-band", {"goal": "band"})]
    answer = fetch(operator, f"/lab/{found.pk}/plan", {"law": "greedy-band"})
    assert answer.status_code == 422  # the sample's one node has nobody to give points to
    assert refused(fetch(operator, f"/lab/{found.pk}/plan", {"law": "random-40"})) == ["law"]


def test_series_are_drawn_in_few_points_with_every_peak(operator, tmp_path, secrets):
    found = ended(operator, {"worker_rate": {"worker_runs": 10}})
    values = np.zeros(12_000)
    values[7_777] = 5.0
    values[5] = np.nan
    write_series(tmp_path / f"experiments/{found.pk}/law=worker_rate.npz", 1.0, {"waiting_events": values})
    headers = {"HTTP_AUTHORIZATION": f"Bearer {secrets['viewer']}"}
    drawn = Client().get(f"/api/v1/experiments/{found.pk}/series", **headers).json()["laws"]
    column = drawn["worker_rate"]["waiting_events"]
    assert len(column["values"]) == len(column["seconds"]) <= 600
    assert max(value for value in column["values"] if value is not None) == 5.0
    assert operator.get(f"/lab/{found.pk}/").context["series"] == ["waiting_events"]


def test_the_api_begins_reads_lists_and_cancels(secrets):
    headers = {"HTTP_AUTHORIZATION": f"Bearer {secrets['operator']}"}

    def post(address, body):
        kind = "application/json"
        return Client().post(f"/api/v1/{address}", json.dumps(body), content_type=kind, **headers)

    scenarios = Client().get("/api/v1/lab", **headers).json()["scenarios"]
    assert [each["name"] for each in scenarios] == list(SCENARIOS)
    made = post("experiments", {"scenario": "manager", "settings": {"poisson": True}, "seed": 7}).json()
    assert (made["laws"], made["parameters"]["poisson"]) == (["worker_rate", "thesis", "static"], 1)
    assert (made["state"], made["results"]) == ("queued", {})
    assert list(post("experiments", {"scenario": "manager", "laws": ["luck"]}).json()["errors"]) == ["law"]
    bad = {"scenario": "manager", "settings": {"upper_limit": "much"}}
    assert list(post("experiments", bad).json()["errors"]) == ["upper_limit"]
    listed = Client().get("/api/v1/experiments?scenario=manager", **headers).json()["experiments"]
    assert [each["id"] for each in listed] == [made["id"]]
    assert post(f"experiments/{made['id']}/cancel", {}).json()["state"] == "cancelled"
    applied = {"law": "luck", "names": ["x"], "reason": "a test", "minutes": 1}
    assert list(post(f"experiments/{made['id']}/apply", applied).json()["errors"]) == ["law"]
    assert Client().get("/api/v1/experiments/999", **headers).status_code == 404
