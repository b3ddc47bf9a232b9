"""What a second of the plant counts for an objective, and what is kept of each minute."""

from datetime import UTC, datetime
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import BadInput
from common.stored_document import replace_fields
from tests.workers.snapshots import snapshot_of
from workers.objectives.book import ObjectiveBook
from workers.objectives.definitions import MAX_OBJECTIVES, PlantFigures, define, document, measure, measure_of
from workers.objectives.models import Objective, ObjectiveMinute

NOW = datetime(2026, 1, 5, 3, 0, tzinfo=UTC)
START = NOW.timestamp()
LATENCY = {"kind": "queue", "subject": "alert", "condition": "wait_seconds <= 30", "target": 0.99}
LOST = {
    "kind": "application",
    "lost": "shed_per_second",
    "of": "offered_per_second",
    "target": 0.999,
    "pays_for": "shed",
}


def plant(at: float, wait_seconds: float | None = 1.0, **shed: float) -> Any:
    """A plant of two queues; shed: application → events/s of the 100 that it is offered, and its counter."""
    rows = {
        name: {
            "queues": ["alert"],
            "offered_per_second": 100.0,
            "shed_per_second": rate,
            "shed_events": round(rate * (at - START)),
        }
        for name, rate in shed.items()
    }
    return snapshot_of(
        {
            "at": at,
            "queues": {
                "alert": {"wait_seconds": wait_seconds, "in_per_second": 50.0},
                "orders": {"wait_seconds": 0.0, "in_per_second": 10.0},
            },
            "pipeline": {"state": "running", "applications": rows},
        }
    )


def watched(book: ObjectiveBook, seconds: int, begin: float = 0.0, **parts: Any) -> Any:
    """What the book says after so many snapshots a second apart."""
    said = {}
    for second in range(seconds):
        said = book.step(plant(START + begin + second, **parts))
        book.keep()
    return said


def kept() -> list[tuple[int, float, float]]:
    rows = ObjectiveMinute.objects.order_by("minute").values_list("minute", "bad", "total")
    return [(minute - int(START // 60), round(bad, 6), round(total, 6)) for minute, bad, total in rows]


@pytest.mark.django_db
def test_a_second_is_good_or_bad_and_each_minute_is_written_once_it_is_over():
    define("late", LATENCY, None, NOW)
    book = ObjectiveBook()
    watched(book, 60)
    assert kept() == []
    watched(book, 30, 60, wait_seconds=31.0)
    said = watched(book, 31, 90)["late"]
    assert kept() == [(0, 0.0, 60.0), (1, 30.0, 60.0)]
    assert (said.bad, said.total, said.unit) == (30.0, 121.0, "s")
    assert said.left == pytest.approx(0.01 * 121 - 30)


@pytest.mark.django_db
def test_a_clock_that_is_set_back_freezes_no_window():
    """Else what burns is added to minutes that no window looks at, for as long as it was set back."""
    define("late", LATENCY, None, NOW)
    book = ObjectiveBook()
    watched(book, 90)
    watched(book, 1, -7_200)
    said = watched(book, 600, -7_199, wait_seconds=31.0)["late"]
    assert said.bad == pytest.approx(600.0, abs=2.0) and said.running.minute == int((START - 6_600) // 60)


@pytest.mark.django_db
def test_what_a_killed_process_carried_over_is_counted_by_the_next():
    define("shed", LOST, None, NOW)
    first = ObjectiveBook()
    first.step(plant(START, app=0.0))
    burst = plant(START + 1, app=300.0)  # three seconds' worth, of which two are carried
    published = replace_fields(burst, objectives=first.step(burst))
    said = ObjectiveBook().step(plant(START + 2, app=300.0), published)["shed"]
    assert (said.bad, said.running.carried) == (200.0, 400.0)


@pytest.mark.django_db
def test_what_a_process_wrote_when_it_ended_or_another_revision_counted_is_not_counted_again():
    define("late", LATENCY, None, NOW)
    first = ObjectiveBook()
    said = watched(first, 90, wait_seconds=31.0)
    published = replace_fields(plant(START + 89, wait_seconds=31.0), objectives=said)
    first.close()
    said = ObjectiveBook().step(plant(START + 90), published)["late"]
    assert (said.bad, said.total) == (90.0, 91.0)
    ObjectiveMinute.objects.all().delete()
    Objective.objects.update(revision=7)
    said = ObjectiveBook().step(plant(START + 90), published)["late"]
    assert (said.bad, said.total) == (0.0, 1.0)


@pytest.mark.django_db
def test_a_process_that_follows_another_goes_on_from_what_it_wrote():
    define("late", LATENCY, None, NOW)
    first = ObjectiveBook()
    watched(first, 90, wait_seconds=31.0)
    first.close()
    second = ObjectiveBook()
    said = watched(second, 31, 90)["late"]
    assert (said.bad, said.total) == (90.0, 121.0)
    assert kept() == [(0, 60.0, 60.0), (1, 30.0, 60.0)]
    # Who rests knows that it has missed what another counted.
    first.reset_state()
    assert watched(first, 1, 121)["late"].total == 122.0 - 1.0


@pytest.mark.django_db
def test_what_is_unknown_and_when_nobody_measures_counts_neither_way():
    define("late", LATENCY, None, NOW)
    book = ObjectiveBook()
    watched(book, 10)
    watched(book, 10, 10, wait_seconds=None)
    said = book.step(plant(START + 500.0))["late"]
    assert (said.bad, said.total) == (0.0, 11.0)
    # A slow look counts for the time since the one before.
    assert book.step(plant(START + 502.5))["late"].total == 13.5
    # A clock that is set back counts nothing twice.
    assert book.step(plant(START + 501.0))["late"].total == 13.5


@pytest.mark.django_db
def test_shed_events_are_booked_on_the_objective_and_each_application_says_what_it_burnt():
    define("loss", LOST, None, NOW)
    book = ObjectiveBook()
    said = watched(book, 61, a=0.0, b=2.0)["loss"]
    assert (said.bad, said.total, said.unit) == (122.0, 61 * 200.0, "events")
    assert (said.bad_per_second, said.per_second) == (2.0, 200.0)
    assert ObjectiveMinute.objects.get().burnt == {"b": 120.0}


def shedding(at: float, shed_events: int, offered_per_second: float = 100.0) -> Any:
    """An application whose counter says so, whatever its rate of the last ten seconds says."""
    snapshot = plant(at, a=7.0)
    row = snapshot.pipeline.applications["a"]
    row = replace_fields(row, shed_events=shed_events, offered_per_second=offered_per_second)
    return replace_fields(snapshot, pipeline=replace_fields(snapshot.pipeline, applications={"a": row}))


@pytest.mark.django_db
def test_each_shed_event_is_booked_once_however_they_come():
    define("loss", LOST, None, NOW)
    book, before = ObjectiveBook(), shedding(START - 1, 1_000)
    # A batch of ten seconds at once, more than is offered in it; a pause; a batch while nobody counted.
    for second, shed_events in ((0, 1_000), (1, 1_350), (2, 1_350), (3, 1_351), (4, 1_351), (300, 1_400)):
        said = book.step(shedding(START + second, shed_events), before)["loss"]
    assert (said.bad, said.total) == (400.0, 600.0)
    # Another that takes over goes on from what was published; a counter that fell counts by its rate.
    other = ObjectiveBook()
    assert other.step(shedding(START + 301, 1_410), shedding(START + 300, 1_400))["loss"].bad == 10.0
    assert other.step(shedding(START + 302, 3))["loss"].bad == 17.0


@pytest.mark.django_db
@pytest.mark.parametrize("meanwhile", ["load", "a quiet second", "a restart", "another target"])
def test_what_was_shed_while_nobody_counted_is_booked_whatever_comes_next(meanwhile):
    define("loss", LOST, None, NOW)
    book = ObjectiveBook()
    for second in range(10):
        book.step(shedding(START + second, 0), shedding(START - 1, 0))
    book.step(shedding(START + 70, 3_000))  # all of it in a minute that nobody watched
    before = shedding(START + 70, 3_000)
    if meanwhile == "a quiet second":
        book.step(shedding(START + 70.5, 3_000, 0.0))
    elif meanwhile == "a restart":
        book.close()
        book = ObjectiveBook()
    elif meanwhile == "another target":
        define("loss", {"target": 0.9}, None, NOW)
    for second in range(60):
        said = book.step(shedding(START + 71 + second, 3_000), before)["loss"]
    assert said.bad == 3_000.0 and said.total == pytest.approx(7_100, abs=50)


@pytest.mark.django_db
def test_a_pipeline_that_does_not_report_has_no_figures_but_the_wait_of_what_it_reads():
    define("loss", LOST, None, NOW)
    late = {"kind": "application", "condition": "latency_p95_seconds <= 15", "target": 0.99}
    define("late", late, None, NOW)
    silent = plant(START, wait_seconds=20.0, a=1.0)
    silent = replace_fields(silent, pipeline=replace_fields(silent.pipeline, state="offline"))
    said = ObjectiveBook().step(silent)
    assert said["loss"].total == 0.0
    assert (said["late"].bad, said["late"].total) == (1.0, 1.0)


@pytest.mark.django_db
@pytest.mark.parametrize("about", [{"kind": "queue", "subject": "alert"}, {"kind": "plant"}])
def test_while_nothing_is_handled_the_latency_is_what_the_oldest_event_has_waited(about):
    define("late", {**about, "condition": "latency_p95_seconds <= 15", "target": 0.99}, None, NOW)
    said = []
    for wait_seconds in (0.0, 3.0, 16.0):
        said.append(ObjectiveBook().step(plant(START, wait_seconds))["late"])
    assert [(each.bad, each.total) for each in said] == [(0.0, 0.0), (0.0, 1.0), (1.0, 1.0)]


@pytest.mark.django_db
def test_what_is_counted_anew_forgets_and_what_is_promised_anew_does_not():
    define("late", LATENCY, None, NOW)
    book = ObjectiveBook()
    watched(book, 61)
    define("late", {"target": 0.9}, None, NOW)
    assert watched(book, 1, 61)["late"].total == 62.0
    define("late", {"condition": "wait_seconds <= 5"}, None, NOW)
    assert watched(book, 1, 62)["late"].total == 1.0
    assert kept() == []


@pytest.mark.django_db
def test_minutes_that_no_window_or_report_reaches_are_removed_and_objectives_that_are_gone_not_counted():
    row = define("late", {**LATENCY, "window_days": 3}, None, NOW)
    first = int(START // 60)
    for age in (0, 4_318, 4_319, 12_958, 12_959, 20_000):
        ObjectiveMinute.objects.create(objective=row, minute=first - 1 - age, bad=1.0, total=60.0)
    book = ObjectiveBook()
    assert watched(book, 1)["late"].bad == 2.0
    assert ObjectiveMinute.objects.count() == 4
    row.delete()
    assert watched(book, 61, 1) == {}


@pytest.mark.django_db
def test_an_objective_that_can_t_be_read_says_so_and_the_others_are_counted():
    define("late", LATENCY, None, NOW)
    Objective.objects.create(name="odd", condition="unheard_of <= 1", target=0.9)
    said = watched(ObjectiveBook(), 1)
    assert said["late"].total == 1.0
    assert "unheard_of" in (said["odd"].last_error or "")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({**LATENCY, "condition": ""}, "condition"),
        ({**LATENCY, "condition": "wait_seconds"}, "condition"),
        ({**LATENCY, "condition": "waits <= 3"}, "condition"),
        ({**LATENCY, "condition": "wait_seconds <= 'a'"}, "condition"),
        ({**LATENCY, "condition": "prev(wait_seconds) <= 3"}, "condition"),
        ({**LATENCY, "condition": "__import__('os')"}, "condition"),
        ({**LATENCY, "lost": "dead_per_second"}, "condition"),
        ({**LATENCY, "target": 1.0}, "target"),
        ({**LATENCY, "target": None}, "target"),
        ({**LATENCY, "window_days": 2.5}, "window_days"),
        ({**LATENCY, "kind": "node"}, "kind"),
        ({**LATENCY, "kind": "plant"}, "subject"),
        ({**LATENCY, "unknown": 1}, "unknown"),
        ({**LATENCY, "pays_for": "shed"}, "pays_for"),
        ({**LOST, "pays_for": "throttle"}, "pays_for"),
        ({**LOST, "of": ""}, "of"),
        ({**LOST, "of": "0", "pays_for": ""}, "of"),
        ({**LOST, "lost": "shed_per_second > 1"}, "lost"),
    ],
)
def test_a_bad_objective_is_refused_by_field_and_nothing_is_changed(fields, field):
    with pytest.raises(BadInput) as refused:
        define("x", fields, None, NOW)
    assert refused.value.field == field
    assert not Objective.objects.exists()


@pytest.mark.django_db
def test_who_changes_an_older_objective_is_refused_and_there_are_so_many_at_most():
    row = define("late", LATENCY, None, NOW)
    assert document(row)["revision"] == 1 and measure_of(row).unit == "s"
    define("late", {"target": 0.9}, None, NOW, revision=1)
    with pytest.raises(BadInput, match="outdated"):
        define("late", {"target": 0.8}, None, NOW, revision=1)
    Objective.objects.bulk_create(Objective(name=f"o{number}", target=0.9) for number in range(MAX_OBJECTIVES - 1))
    with pytest.raises(BadInput, match="the limit is"):
        define("more", LATENCY, None, NOW)


@given(st.one_of(st.none(), st.floats(0, 1e6)), st.one_of(st.none(), st.floats(0, 1e6)), st.floats(0, 1e6))
def test_a_condition_is_true_false_or_unknown_as_sql_has_it(wait, latency, bound):
    found = measure("queue", f"wait_seconds <= {bound} and latency_p95_seconds <= {bound}", "", "")
    parts = [None if each is None else each <= bound for each in (wait, latency)]
    expected = False if False in parts else None if None in parts else True
    rates = found.compute_rates([{"wait_seconds": wait, "latency_p95_seconds": latency}] * 2)
    assert rates == 2 * [None if expected is None else (0.0 if expected else 1.0, 1.0)]


# (expression, whether it is taken): what somebody might try to run, to exhaust, or to read.
ATTACKS = [
    ("(" * 13 + "wait_seconds" + ")" * 13 + " <= 3", False),
    ("(" * 100_000 + "wait_seconds <= 3" + ")" * 100_000, False),
    ("not " * 300 + "(wait_seconds <= 3)", False),
    ("wait_seconds <= " + "-" * 1_900 + "1", False),
    ("wait_seconds <= " + "+".join(["1"] * 900), False),
    ("wait_seconds <= 9 ** 9 ** 9", False),
    ("wait_seconds <= 1e400", False),
    ("wait_seconds <= " + "9" * 50, False),
    ("wait_seconds <= " + "*".join(["9999999999999999999"] * 19), True),
    ("wait_seconds / 0 <= 3", True),
    ("wait_seconds <= 3" + "\0", False),
    ("'a' * 99999999 == wait_seconds", False),
    ("wait_seconds.__class__ == 1", False),
    ("(lambda: 1)() > 0", False),
    ('f"{1}" == wait_seconds', False),
    ("../../etc/passwd == 1", False),
    ("queues.alert.wait_seconds <= 3", False),
    ("wait_seconds in (" + ",".join(["1"] * 900) + ")", True),
    ("'" * 1_999, False),
]


@pytest.mark.parametrize(("text", "is_taken"), ATTACKS, ids=[text[:24] for text, _ in ATTACKS])
def test_an_expression_is_never_code_and_takes_bounded_time(text, is_taken):
    began = process_time()
    if is_taken:
        found = measure("queue", text, "", "")
        for value in (None, 0.0, 1e308):
            found.compute_rates([dict.fromkeys(found.names, value)])
    else:
        with pytest.raises(BadInput) as refused:
            measure("queue", text, "", "")
        assert len(str(refused.value)) < 500
    assert process_time() - began < 5.0, "a bound far above what any takes"


def test_throttling_counts_where_the_ladder_acts_and_not_where_it_advises():
    def share(mode, level, closed, last_mode=None):
        loop = {"mode": mode, "terms": {"rung": level, "closed_share": closed}, "last_mode": last_mode}
        snapshot = snapshot_of({"queues": {"alert": {}}, "loops": {"ladder/alert": loop}})
        return PlantFigures(snapshot).compute_figures("queue", "alert")["alert"]["throttled_share"]

    assert share("auto", 4, 0.25) == 0.25
    assert share("auto", 3, 0.25) == 0.0
    assert share("advise", 4, 0.25) == 0.0
    assert share("manual", 4, None) == 1.0
    assert share("auto", 4, 0.25, last_mode="advise") == 0.0, "it acts from its next decision on"


@pytest.mark.django_db
def test_of_a_minute_that_was_written_in_part_the_rest_is_counted_when_its_process_was_killed():
    define("late", LATENCY, None, NOW)
    first = ObjectiveBook()
    watched(first, 20, wait_seconds=31.0)
    first.close()
    said = watched(ObjectiveBook(), 25, 20, wait_seconds=31.0)  # killed
    published = replace_fields(plant(START + 44, wait_seconds=31.0), objectives=said)
    third = ObjectiveBook()
    said = third.step(plant(START + 45, wait_seconds=31.0), published)["late"]
    assert (said.bad, said.total) == (46.0, 46.0)
    watched(third, 15, 46)
    assert kept() == [(0, 46.0, 60.0)]
