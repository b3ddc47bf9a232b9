"""The true cause of a seeded bad stretch is among the first three of what is different in it."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from common.errors import BadInput
from console.incidents import differences
from console.models import AuditEntry
from tests.workers.history.test_stretches import START, STRETCH, keep, plant
from tests.workers.snapshots import snapshot_of
from workers.batch.files import show, write_table
from workers.batch.task_definitions import ensure_tasks
from workers.history import stretches
from workers.history.stretches import build_counts_table, count_archived, get_counts_path
from workers.models import Run

pytestmark = pytest.mark.django_db

FIRST, MIN_SHARE, SEEDS = 3, 0.9, range(30)
SINCE = datetime.fromtimestamp(START, UTC)
UNTIL = SINCE + timedelta(seconds=120)
# What went wrong in a scenario, by the dimension and the value in which it is to be found.
CAUSES = {
    "a hot key": ("key", "k7"),
    "a new type": ("type", "refund"),
    "a source gone wild": ("source", "s3"),
    "a slow handler": ("handler", "sql of alert"),
    "a producer gone wild": ("producer", "shop"),
    "events that all go to one node": ("node", "n1"),
}


def compared(seed, cause, data, monkeypatch):
    """The bad stretch and the one before it: some 4,000 archived events in bursts, and snapshots."""
    random = np.random.default_rng(seed)
    rows = []
    keys = random.dirichlet(np.full(40, 3.0))
    sources = random.dirichlet(np.full(8, 3.0))
    for place in range(-12, 12):
        bad = place >= 0
        hot, wild = (bad and cause == "a hot key"), (bad and cause == "a source gone wild")
        of_keys = keys * random.gamma(10, 0.1, 40) * np.where(np.arange(40) == 7, 6 if hot else 1, 1)
        of_sources = sources * random.gamma(10, 0.1, 8) * np.where(np.arange(8) == 3, 4 if wild else 1, 1)
        count = random.poisson(160)
        at = START + 10 * place + 10 * random.random(count)
        kinds = random.choice(["order", "visit", "refund"], count, p=[0.7, 0.3, 0.0])
        if bad and cause == "a new type":
            kinds = np.where(random.random(count) < 0.08, "refund", kinds)
        key = random.choice(40, count, p=of_keys / of_keys.sum())
        source = random.choice(8, count, p=of_sources / of_sources.sum())
        rows += [(float(a), str(kind), f"k{k}", f"s{s}") for a, kind, k, s in zip(at, kinds, key, source, strict=True)]
    keep(data, rows)

    def read(_, at):
        document, bad = plant(at), at > START
        noise = random.gamma(100, 0.01)
        queue = document["queues"]["alert"]
        queue["service_seconds"] = (0.3 if bad and cause == "a slow handler" else 0.1) * noise
        shop = 4.0 if bad and cause == "a producer gone wild" else 1.0
        document["producers"] = {
            name: {"queues": {"alert": 20 * random.gamma(20, 0.05) * (shop if name == "shop" else 1.0)}}
            for name in ("shop", "web", "batch", "desk")
        }
        step = (at - START) / STRETCH.slice_seconds + 12
        one = bad and cause == "events that all go to one node"
        shares = {"n1": 0.9, "n2": 0.1} if one else {"n1": 0.5, "n2": 0.5}
        past = {"n1": 600.0, "n2": 600.0}
        for node, row in queue["containers"].items():
            row["inserted_events"] = round(past[node] + 100 * (step - 12) * shares[node] + random.normal(0, 2))
        return snapshot_of(document)

    monkeypatch.setattr(stretches, "snapshot_at", read)
    return differences.compare(SINCE, UNTIL, "before", "", data).rows


def is_found(rows, cause):
    return CAUSES[cause] in [(row.dimension, row.value) for row in rows[:FIRST]]


@pytest.mark.slow
def test_in_nine_of_ten_stretches_it_is(tmp_path, monkeypatch, record_property):
    found = []
    for seed in SEEDS:
        cause = list(CAUSES)[seed % len(CAUSES)]
        data = tmp_path / str(seed)
        found.append(is_found(compared(1_000 + seed, cause, data, monkeypatch), cause))
    record_property("found", sum(found))
    assert sum(found) >= MIN_SHARE * len(SEEDS)


def test_where_nothing_went_wrong_nothing_is_different(tmp_path, monkeypatch):
    assert compared(5, "nothing", tmp_path, monkeypatch) == []


def test_keys_that_are_all_rare_differ_in_nothing(tmp_path):
    """300 keys drawn alike: of each stretch other ones are the most frequent, by chance."""
    random = np.random.default_rng(3)
    times = START - 120 + 240 * random.random(40_000)
    keys = random.integers(0, 300, 40_000)
    keep(tmp_path, [(float(at), "t", f"k{key}", None) for at, key in zip(times, keys, strict=True)])
    assert differences.compare(SINCE, UNTIL, "before", "", tmp_path).rows == []


def test_one_comparison_runs_at_a_time(browsers, stored_snapshot, settings, tmp_path):
    settings.WEIR_DATA = tmp_path
    asked = {"from": SINCE.isoformat(), "to": UNTIL.isoformat()}
    with differences._ONE_AT_A_TIME:
        answer = browsers["viewer"].get("/api/v1/differences", asked)
        page = browsers["viewer"].get("/differences/", asked)
    assert (answer.status_code, page.status_code) == (503, 503) and answer["Retry-After"]
    assert "another comparison" in page.content.decode()
    assert browsers["viewer"].get("/api/v1/differences", asked).status_code == 200


@pytest.mark.parametrize(
    ("since", "until", "against", "field"),
    [
        (SINCE, SINCE + timedelta(seconds=5), "before", "to"),
        (SINCE, SINCE + timedelta(days=1), "before", "to"),
        (SINCE, UNTIL, "never", "against"),
    ],
)
def test_a_stretch_that_can_not_be_compared_is_refused_by_name(since, until, against, field, tmp_path):
    with pytest.raises(BadInput) as refused:
        differences.compare(since, until, against, "", tmp_path)
    assert refused.value.field == field


@pytest.fixture
def long_comparison(settings, tmp_path):
    """An archive, and what is asked of it: more hours than a page reads."""
    settings.WEIR_DATA = tmp_path
    keep(tmp_path, [(START + at * 60, "order", f"k{at % 4}", "s") for at in range(600)])
    ensure_tasks()
    return {"from": SINCE.isoformat(), "to": (SINCE + timedelta(hours=9)).isoformat(), "against": "before"}


def test_what_is_too_much_for_a_page_spark_counts_and_the_page_shows(
    browsers, stored_snapshot, long_comparison, tmp_path
):
    offered = browsers["operator"].get("/differences/", long_comparison)
    assert offered.status_code == 200 and "Count in Spark" in offered.content.decode()
    seen = browsers["viewer"].get("/differences/", long_comparison).content.decode()
    assert "Count in Spark</button>" not in seen and "An operator can count the events in Spark" in seen
    begun = browsers["operator"].post("/differences/count", long_comparison, follow=True)
    page = begun.content.decode()
    run = Run.objects.get(task__job=differences.JOB)
    assert "Counting archived events in Spark" in page and f"run {run.pk}" in page
    browsers["operator"].post("/differences/count", long_comparison)
    assert Run.objects.count() == 1  # it goes on: nothing is counted twice
    assert AuditEntry.objects.filter(action="task.run").count() == 1

    here, there = differences.build_compared_ranges(SINCE, SINCE + timedelta(hours=9), "before")
    ours, theirs = (count_archived(each, tmp_path) for each in (here, there))
    table = build_counts_table(ours, theirs)
    written = write_table(tmp_path, get_counts_path("", here, there), "1-1-1", table)
    show(tmp_path, written)
    Run.objects.update(state=Run.State.DONE)
    page = browsers["viewer"].get("/differences/", long_comparison).content.decode()
    assert "Spark counted the archived events" in page and "values compared" in page
    answer = browsers["viewer"].get("/api/v1/differences", long_comparison)
    assert answer.status_code == 200 and answer.json()["compared"] > 0


@pytest.mark.parametrize(
    ("change", "field"), [({"to": "soon"}, "to"), ({"against": "never"}, "against"), ({"queue": "empty"}, "queue")]
)
def test_a_count_that_can_not_be_is_refused_by_name(browsers, stored_snapshot, long_comparison, change, field):
    asked = {**long_comparison, **change}
    refused = browsers["operator"].post("/differences/count", asked, headers={"accept": "application/json"})
    assert refused.status_code == 422 and list(refused.json()["errors"]) == [field]
    assert not Run.objects.exists()


def test_the_page_and_the_api_show_the_same(browsers, stored_snapshot, settings, tmp_path):
    settings.WEIR_DATA = tmp_path
    rows = [(START + at / 20, "order", f"k{at % 4}", "s") for at in range(2_400)]
    rows += [(START - 120 + at / 20, "order", f"k{at % 8}", "s") for at in range(2_400)]
    keep(tmp_path, rows)
    asked = {"from": SINCE.isoformat(), "to": UNTIL.isoformat()}
    answer = browsers["viewer"].get("/api/v1/differences", asked).json()
    assert {row["value"] for row in answer["differences"]} == {f"k{at}" for at in range(8)}
    page = browsers["viewer"].get("/differences/", asked).content.decode()
    assert "k7" in page and "medium" in page
    refused = browsers["viewer"].get("/differences/", {**asked, "to": "soon"})
    assert "must be a time such as" in refused.content.decode()


def test_an_archive_that_one_of_both_stretches_has_is_not_compared_with_samples_of_the_other(tmp_path, monkeypatch):
    """Since a queue is archived all of its keys are counted; of the week before, the eight most frequent."""
    keep(tmp_path, [(START + at / 10, "order", f"k{at % 20}", "shop") for at in range(1_200)])
    sample = {"events": 20, "type": {"order": 20}, "key": {f"k{at}": 1 for at in range(8)}, "source": {"shop": 20}}
    shop = {"queues": {"alert": 10.0}, "samples": {"alert": sample}}
    monkeypatch.setattr(stretches, "snapshot_at", lambda _, at: snapshot_of({"at": at, "producers": {"shop": shop}}))
    assert differences.compare(SINCE, UNTIL, "week", "", tmp_path).rows == []
