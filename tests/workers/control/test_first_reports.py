"""The first report: an hour after a loop at another's plant began to advise, from what its ledger has."""

from datetime import UTC, datetime, timedelta

import pytest

from console.display.plant_words import report_of
from workers.control.advice import write_due
from workers.models import FirstReport, LedgerEntry, Loop

pytestmark = pytest.mark.django_db
BEGAN = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)


@pytest.fixture
def loop():
    return Loop.objects.create(
        name="parallelism_joint/plant:shop",
        law="parallelism_joint",
        target={"plant": "shop"},
        mode="advise",
        interval_seconds=30.0,
        parameters={"pause_seconds": 20.0},
    )


def advised(loop, minutes, first=0.0, tasks=8, advice=4, backlog=0.0, **more):
    """Two ticks a minute: 2/s come, 1 s each."""
    row = {"tasks": tasks, "rate_per_second": 2.0, "service_seconds": 1.0, "variability": 1.0}
    observation = {"operators": {"work": {**row, "backlog_events": backlog}}, "unfit": None}
    LedgerEntry.objects.bulk_create(
        LedgerEntry(
            loop=loop,
            at=BEGAN + timedelta(minutes=first, seconds=30 * tick),
            mode="advise",
            parameters={},
            observation=observation,
            action={"tasks": {"work": advice}} if advice != tasks else None,
            reason="",
            **more,
        )
        for tick in range(int(minutes * 2))
    )


def test_an_hour_after_the_first_advice_it_is_there_and_says_what_would_have_been_saved(loop):
    advised(loop, 60)
    assert write_due(BEGAN + timedelta(minutes=59)) == []
    assert report_of(loop.pk) is None
    [report] = write_due(BEGAN + timedelta(minutes=60))
    assert (report.since, report.until) == (BEGAN, BEGAN + timedelta(hours=1))
    shown = report_of(loop.pk)
    assert shown.sentences == [
        "Worker-hours: 7.93 used, 3.97 with the advice: 3.97 less (50 %).",
        "Mean waiting time: 0.00 s measured, 0.11 s estimated with the advice: 0.11 s more.",
    ]
    assert shown.assumed[0] == "Actual figures are measured over 60 minutes."
    assert "tasks 1 time, each with a pause of 20 s that is not included" in shown.assumed[-1]
    assert write_due(BEGAN + timedelta(minutes=90)) == []


def test_a_plant_that_was_silent_is_reported_in_the_next_hour(loop):
    advised(loop, 5)
    [report] = write_due(BEGAN + timedelta(hours=1))
    assert report.figures is None
    [said] = report_of(loop.pk).sentences
    assert said.startswith("Less than 10 minutes of the hour was measured, so there are no figures.")
    advised(loop, 60, first=60)
    assert write_due(BEGAN + timedelta(minutes=119)) == []
    [report] = write_due(BEGAN + timedelta(hours=2))
    assert report.figures["task_hours"] == pytest.approx(7.93, abs=0.01)
    assert FirstReport.objects.count() == 1


def test_ticks_without_a_valid_measurement_and_what_a_person_let_it_do_count_for_nothing(loop):
    advised(loop, 30)
    LedgerEntry.objects.filter(at__lt=BEGAN + timedelta(minutes=10)).update(
        observation={"operators": {}, "unfit": "shop did not answer"}
    )
    LedgerEntry.objects.filter(at__gte=BEGAN + timedelta(minutes=25)).update(mode="auto")
    [report] = write_due(BEGAN + timedelta(hours=1))
    assert report.figures["measured_seconds"] == pytest.approx(15 * 60, abs=30)


@pytest.mark.parametrize(
    "fields",
    [
        {"target": {"application": "performance"}},
        {"mode": "auto"},
        {"target": {"plant": "shop", "retired_at": 5.0}},
        {"law": "worker_rate"},
    ],
)
def test_there_is_none_of_other_loops(loop, fields):
    Loop.objects.filter(pk=loop.pk).update(**fields)
    advised(loop, 60)
    assert write_due(BEGAN + timedelta(hours=1)) == []


def test_the_other_law_s_report_has_worker_hours_and_no_waiting(loop):
    Loop.objects.filter(pk=loop.pk).update(law="parallelism_queueing")
    advised(loop, 60)
    row = {"tasks": 8, "arrival_interval_seconds": 4.0, "service_seconds": 1.0}
    LedgerEntry.objects.update(observation={"operators": {"work": row}, "unfit": None})
    write_due(BEGAN + timedelta(hours=1))
    worker_hours, waiting = report_of(loop.pk).sentences
    assert worker_hours.endswith("3.97 less (50 %).") and waiting == "Waiting: not measured by this loop."
