"""What a request may set going: an experiment of some size, so many runs at once, so much work in an hour."""

from datetime import timedelta

import pytest
from django.utils import timezone

from common.errors import BadInput
from controllers.simulation.catalog import SCENARIOS
from workers.batch import runs, task_definitions
from workers.batch.job import JobContext
from workers.batch.jobs import experiment as job
from workers.lab.models import Experiment
from workers.models import Chunk, Run, Setting

pytestmark = pytest.mark.django_db
SMALL = {"scenario": "crash", "laws": ["thesis"]}


@pytest.fixture(autouse=True)
def plant(control, tmp_path, settings):
    settings.WEIR_DATA = tmp_path
    task_definitions.ensure_tasks()
    return JobContext(tmp_path, control, timezone.now())


def begin(browser, **fields):
    return browser.post("/api/v1/experiments", {**SMALL, **fields}, content_type="application/json")


@pytest.mark.parametrize(
    ("scenario", "sizes", "field"),
    [
        ("churn", {"nodes": 10_000, "containers": 100_000, "hours": 168}, "hours"),
        ("churn", {"containers": 100_000, "hours": 168}, "hours"),
        ("shedding", {"seconds": 86_400, "load_percent": 1_000}, "seconds"),
        ("elasticity", {"compression": 1, "interval_seconds": 5}, "compression"),
        ("concurrency-live", {"seconds": 86_400, "servers": 4}, "seconds"),
    ],
)
def test_an_experiment_that_is_too_large_is_refused_with_its_size_and_the_limit(scenario, sizes, field, browsers):
    answer = begin(browsers["operator"], scenario=scenario, laws=[], settings=sizes)
    assert (answer.status_code, list(answer.json()["errors"])) == (422, [field])
    (said,) = answer.json()["errors"][field]
    assert f"{sizes[field]:,} makes the experiment too large" in said
    assert "the limit is" in said and ("Reduce" in said or "raise" in said)
    assert not Experiment.objects.exists() and not Run.objects.exists()


def test_fewer_laws_cost_less(browsers):
    settings = {"seconds": 50_000, "servers": 4}
    assert begin(browsers["operator"], scenario="concurrency-live", laws=[], settings=settings).status_code == 422
    answer = begin(browsers["operator"], scenario="concurrency-live", laws=["tcc"], settings=settings)
    assert answer.status_code == 200


def test_every_scenario_as_it_is_shipped_is_small_enough():
    for scenario in SCENARIOS.values():
        job.check_cost(scenario, scenario.read_settings({}), len(scenario.laws))


def test_a_scenario_is_refused_where_its_largest_settings_are_too_large_or_is_small_with_them():
    for scenario in (each for each in SCENARIOS.values() if each.size is not None):
        largest = {name: _largest(scenario, name) for name in scenario.size.names}
        with pytest.raises(BadInput):
            job.check_cost(scenario, {**scenario.read_settings({}), **largest}, len(scenario.laws))


def _largest(scenario, name):
    """The end of a setting's range that makes more work."""
    declared = next(each for each in scenario.settings if each.name == name)
    return declared.minimum if name in ("compression", "interval_seconds") else declared.maximum


def test_a_person_has_so_many_runs_open_and_others_have_theirs(browsers, people, plant):
    Setting.objects.create(name="quota.open_runs", value=3)
    for _ in range(3):
        assert begin(browsers["operator"]).status_code == 200
    refused = begin(browsers["operator"])
    assert refused.status_code == 429 and int(refused["Retry-After"]) > 0
    (said,) = refused.json()["errors"]["run"]
    assert said.startswith("operator has 3 runs queued or running. The limit is 3 (quota.open_runs).")
    assert Experiment.objects.count() == Run.objects.count() == 3
    assert begin(browsers["administrator"]).status_code == 200
    assert runs.begin("retention", plant)  # the schedule's
    runs.cancel(Run.objects.filter(owner=people["operator"]).first(), timezone.now())
    assert begin(browsers["operator"]).status_code == 200


def test_a_page_says_so_beside_its_form(browsers):
    Setting.objects.create(name="quota.open_runs", value=1)
    posted = {"scenario": "crash", "law": ["thesis"], "seed": "1"}
    json = {"accept": "application/json"}
    assert browsers["operator"].post("/lab/begin", posted, headers=json).status_code == 200
    refused = browsers["operator"].post("/lab/begin", posted, headers=json)
    assert (refused.status_code, list(refused.json()["errors"])) == (429, ["run"])
    page = browsers["operator"].post("/lab/begin", posted)
    assert page.status_code in (200, 422, 429) and "The limit is 1" in page.content.decode()


def test_tasks_and_experiments_share_one_quota_and_a_resumed_run_counts(browsers, people, plant):
    Setting.objects.create(name="quota.open_runs", value=1)
    ended = runs.begin("ledger_folding", plant, owner=people["operator"])
    runs.end(ended, Run.State.FAILED, timezone.now())
    assert begin(browsers["operator"]).status_code == 200
    answer = browsers["operator"].post(
        "/api/v1/tasks/retention/run", {"reason": "a test"}, content_type="application/json"
    )
    assert answer.status_code == 429
    answer = browsers["operator"].post(
        f"/api/v1/runs/{ended.pk}/resume", {"reason": "a test"}, content_type="application/json"
    )
    assert answer.status_code == 429
    assert Run.objects.get(pk=ended.pk).state == Run.State.FAILED


def test_a_person_has_so_many_seconds_of_workers_an_hour(browsers, people, plant):
    Setting.objects.create(name="quota.batch_seconds", value=600)
    spent = runs.begin("ledger_folding", plant, owner=people["operator"])
    now = timezone.now()
    # Cancelled before it was done: what it took counts all the same.
    for number, seconds in enumerate((500.0, 150.0)):
        Chunk.objects.create(run=spent, identifier=f"c{number}", place=number + 10, beat_at=now, spent_seconds=seconds)
    runs.end(spent, Run.State.CANCELLED, now)
    refused = begin(browsers["operator"])
    assert refused.status_code == 429
    assert "has used 650 s of batch worker time in the last hour. The limit is 600 s" in str(refused.json())
    Chunk.objects.filter(run=spent).update(beat_at=now - timedelta(hours=1, seconds=1))
    assert begin(browsers["operator"]).status_code == 200
