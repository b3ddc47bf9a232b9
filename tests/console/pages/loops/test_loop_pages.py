"""Pages of loops: their list, overrides that contradict each other, what they cost, and what if."""

import io
import json
from datetime import timedelta
from html import unescape

import orjson
import pytest
from django.core.management import call_command
from django.utils import timezone

from console.display import formats
from console.display.states import compute_loop_severity, compute_tick_lateness
from queues import keys
from queues.models import Queue
from tests.console.page_form import source_of
from tests.console.rows import held
from workers.documents.loops import LoopStatus
from workers.models import LedgerEntry, Loop, Setting
from workers.snapshot.control_record import control_record
from workers.steering import overrides

pytestmark = pytest.mark.django_db

AT = 1_800_000_000.0


@pytest.mark.parametrize(("age", "late"), [(1.0, 0.0), (5.0, 0.0), (20.0, 18.0)])
def test_a_tick_is_late_after_two_intervals_and_the_age_of_a_snapshot(age, late):
    assert compute_tick_lateness(LoopStatus(at=AT - age), 2.0, AT) == late


def test_what_never_ticked_or_is_not_known_is_not_called_late():
    assert [compute_tick_lateness(each, 2.0, AT) for each in (None, LoopStatus())] == [0.0, 0.0]


def test_harm_comes_before_lateness_before_no_effect_before_a_hold_before_an_override():
    rows = [
        compute_loop_severity(LoopStatus(verdict="harmful"), 0.0),
        compute_loop_severity(LoopStatus(verdict="effective"), 9.0),
        compute_loop_severity(LoopStatus(verdict="ineffective"), 0.0),
        compute_loop_severity(LoopStatus(mode="hold", verdict="no action"), 0.0),
        compute_loop_severity(LoopStatus(overrides=1), 0.0),
        compute_loop_severity(LoopStatus(verdict="effective"), 0.0),
        compute_loop_severity(LoopStatus(verdict="no action"), 0.0),
    ]
    assert rows == sorted(rows, reverse=True) and len(set(rows)) == len(rows)


@pytest.mark.parametrize(("loop", "page"), [("ladder/alert", "/queues/alert/"), ("worker_rate/alert/n1", "/workers/")])
def test_a_decision_on_another_page_says_when_it_was_taken_and_how_late_the_next_is(
    loop, page, browsers, stored_snapshot, control
):
    """While the control worker hung, the ladder said that demand is met, and a forecast that events wait."""
    Queue.objects.create(name="alert", kind="jobs")
    law, queue, *node = loop.split("/")
    target = {"queue": queue, **({"node": node[0]} if node else {})}
    at = timezone.now()
    row = Loop.objects.create(name=loop, law=law, target=target, decided_at=at)
    LedgerEntry.objects.create(loop=row, at=at, mode="auto", parameters={}, reason="No action: demand is met.")
    status = {"id": row.pk, "law": law, "target": target, "interval_seconds": 5.0, "reason": "No action"}
    stored_snapshot["loops"] = {loop: {**status, "at": stored_snapshot["at"] - 80.0}}
    control.set(keys.SNAPSHOT, orjson.dumps(stored_snapshot))
    text = browsers["viewer"].get(page).content.decode()
    tick = f'data-bind="loops.{loop}.at" data-format="tick" data-interval="5.0"'
    assert tick in text and "1 min late" in text


def rate_loop(queue, node, **values):
    target = {"queue": queue, "node": node}
    return Loop.objects.create(name=f"worker_rate/{queue}/{node}", law="worker_rate", target=target, **values)


def decided(loop, **values):
    common = {"at": timezone.now(), "mode": "auto", "parameters": {}, "reason": "it waits", "verdict": "effective"}
    return LedgerEntry.objects.create(loop=loop, **(common | {"action": {"start": 1}} | values))


def test_flat_the_page_lists_titles_with_their_targets(browsers, stored_snapshot):
    rate_loop("alert", "n1")
    rate_loop("alert", "n2")
    text = unescape(browsers["viewer"].get("/loops/?by=flat").content.decode())
    assert "Worker rate of alert on n1" in text and "Worker rate of alert on n2" in text


@pytest.fixture
def listed_loops(stored_snapshot):
    """Of two queues on two nodes each: slow acts without effect, alert is idle; one loop is held, one advises."""
    Queue.objects.create(name="slow", kind="jobs")
    slow = [rate_loop("slow", node) for node in ("n1", "n2")]
    for node in ("n1", "n2"):
        rate_loop("alert", node)
    for loop in slow * 3:
        decided(loop, verdict="ineffective", limited_by="slots")
    Loop.objects.create(name="rebalancing", law="rebalancing", mode="hold")
    advising = Loop.objects.create(
        name="concurrency/jobs@here", law="concurrency", mode="advise", target={"host": "jobs@here"}
    )
    decided(advising, mode="advise", action={"slots": 3}, verdict="no action")
    Loop.objects.create(name="node_scaling", law="node_scaling")


def test_by_law_a_queue_covers_its_nodes_and_held_and_idle_loops_are_lines(browsers, listed_loops):
    listed = browsers["operator"].get("/loops/").context["listed"]
    first = listed.groups[0]
    assert (first.title, first.count) == ("Worker rate", 4)
    [row], [idle] = first.rows, first.idle
    assert (row.title, row.parts, row.changes.count, row.state) == ("slow", "n1, n2", 6, "without effect")
    assert idle.title == "alert"
    assert [held.worst.law for held in listed.held] == ["rebalancing"]
    assert [row.worst.law for row in listed.idle] == ["node_scaling"]
    counts = {chip.state: chip.count for chip in listed.chips}
    assert counts == {"": 7, "without effect": 3, "acted": 0, "hold": 1, "idle": 3}


def test_by_queue_and_by_state_are_addresses(browsers, listed_loops):
    by_queue = browsers["operator"].get("/loops/?by=queue").context["listed"]
    assert {group.title for group in by_queue.groups} == {"slow", "Whole plant"}
    held = browsers["operator"].get("/loops/?show=hold").context["listed"]
    assert (held.groups, len(held.held), held.idle) == ([], 1, [])
    assert browsers["operator"].get("/loops/?by=nonsense&show=nonsense").context["by"] == "law"


def test_the_loops_of_a_row_are_held_together_from_the_row(browsers, listed_loops):
    row = browsers["operator"].get("/loops/").context["listed"].groups[0].rows[0]
    answer = browsers["operator"].post(row.hold.url, {**row.hold.fields, "minutes": "30", "reason": "noisy"})
    assert answer.status_code == 302
    modes = {loop.mode for loop in browsers["operator"].get("/loops/").context["listed"].held[1].loops}
    assert modes == {"hold"}
    assert browsers["viewer"].get("/loops/").context["listed"].groups[0].rows[0].hold is None


OWN = {"minimum_rate": 5.0}


@pytest.fixture
def contradicted(people):
    """A loop with a maximum that somebody has overridden, and an own minimum above it since."""
    target = {"queue": "alert", "node": "n1"}
    made = Loop.objects.create(name="worker_rate/alert/n1", law="worker_rate", target=target)
    for name, value in {"maximum_rate": 2, "guard.maximum": 3, "mode": "hold"}.items():
        held(people["operator"], name, value, minutes=480, loop=made)
    Loop.objects.filter(pk=made.pk).update(parameters=OWN)
    made.refresh_from_db()
    return made


def test_its_page_says_so_and_shows_what_the_loop_works_with(browsers, contradicted, stored_snapshot):
    answer = browsers["operator"].get(f"/loops/{contradicted.pk}/")
    page = " ".join(answer.content.decode().split())
    assert "Overrides of parameters and guard settings are ignored" in page and "minimum_rate" in page
    bench = answer.context["bench"]
    rows = {row.name: row for row in [*bench.main, *(row for topic in bench.topics for row in topic.rows)]}
    assert rows["maximum_rate"].effective != 2 and rows["maximum_rate"].override is None
    assert answer.context["loop"].mode == "hold", "the mode is no value of the law"


def test_the_api_says_why_and_gives_what_the_loop_works_with(browsers, contradicted, stored_snapshot):
    found = browsers["operator"].get(f"/api/v1/loops/{contradicted.pk}").json()
    assert "minimum_rate" in found["conflict"] and found["effective"]["maximum_rate"] != 2
    assert found["guard"]["maximum"] != 3 and len(found["overrides"]) == 3


def test_the_snapshot_shows_no_value_that_does_not_count(contradicted):
    entry = {"mode": "auto", "parameters": {"upper_limit": 700}, "reason": "a test"}
    LedgerEntry.objects.create(loop=contradicted, **entry)
    assert control_record(timezone.now()).loops[contradicted.name].overrides == 1


def test_they_count_again_once_the_one_that_contradicts_has_ended(browsers, contradicted, stored_snapshot):
    overrides.list_active(timezone.now()).filter(name="maximum_rate").update(ended_at=timezone.now())
    found = browsers["operator"].get(f"/api/v1/loops/{contradicted.pk}").json()
    assert found["conflict"] == "" and found["guard"]["maximum"] == 3


@pytest.fixture
def recorded_loop():
    made = Loop.objects.create(name="worker_rate/alert/n1", law="worker_rate", target={"queue": "alert", "node": "n1"})
    now = timezone.now()
    seen = {"queue_length": 0, "removed": 80, "started": 1, "waiting_to_run": 0, "running": 1}
    LedgerEntry.objects.bulk_create(
        LedgerEntry(
            loop=made,
            at=now - timedelta(seconds=200 - 2 * place),
            mode="hold" if 40 <= place < 60 else "auto",
            parameters={},
            observation=seen,
            reason="a test",
        )
        for place in range(100)
    )
    return made


def test_without_prices_it_says_so_and_shows_amounts(browsers, recorded_loop, stored_snapshot):
    page = source_of(browsers["viewer"].get(f"/costs/?loop={recorded_loop.pk}"))
    assert "no price set" in page and ">0.00<" not in page
    assert "The worker manager of the thesis, every 5 s" in page.replace("&#x27;", "'")
    assert "The loop was on hold for" in page


def test_with_prices_savings_and_the_hold_are_money(browsers, recorded_loop, secrets, stored_snapshot):
    for name, value in (("worker_hour", 10.0), ("delay_second", 0.5)):
        Setting.objects.create(name=f"price.{name}", value=value)
    page = source_of(browsers["viewer"].get(f"/costs/?loop={recorded_loop.pk}"))
    assert "The hold cost" in page
    headers = {"authorization": f"Bearer {secrets['viewer']}"}
    found = browsers["anonymous"].get(f"/api/v1/loops/{recorded_loop.pk}/costs", headers=headers).json()
    assert found["law"]["cost"] is not None and found["prices"]["node_hour"] is None
    assert [each["side"]["name"] for each in found["baselines"]] == ["thesis", "static"]
    plant = browsers["anonymous"].get("/api/v1/costs", headers=headers).json()
    assert plant["nodes_cost"] is None and plant["worker_hours"] is None


@pytest.mark.parametrize(
    ("amount", "money", "hours"),
    [
        (0.0, "0.00", "0"),
        (0.0005575, "0.000558", "0.000558"),
        (0.00000123, "0.000001", "0.000001"),
        (0.1 + 0.2 - 0.3, "0.00", "0"),
        (-0.0004, "-0.0004", "-0.0004"),
        (0.9999, "1.00", "1"),
        (12.345, "12.34", "12.3"),
        (1234.5, "1,234.50", "1,234"),
        (None, formats.UNKNOWN, formats.UNKNOWN),
    ],
)
def test_a_small_amount_keeps_its_digits_and_is_not_nothing(amount, money, hours):
    assert (formats.format_money(amount, 1.0), formats.format_hours(amount)) == (money, hours)


@pytest.mark.parametrize("hours", ["0", "3", "soon"])
def test_hours_that_can_not_be_are_refused_by_name(browsers, recorded_loop, hours, stored_snapshot):
    answer = browsers["viewer"].get(f"/costs/?hours={hours}")
    assert answer.status_code == 422 and "hours" in source_of(answer)


def test_where_prices_are_set_and_no_run_is_recorded_no_price_is_said_to_be_missing(
    browsers, recorded_loop, stored_snapshot
):
    for name, value in (("worker_hour", 10.0), ("delay_second", 0.5)):
        Setting.objects.create(name=f"price.{name}", value=value)
    for entry in recorded_loop.entries.all():
        entry.observation = {**entry.observation, "running": 0}
        entry.save()
    page = source_of(browsers["viewer"].get(f"/costs/?loop={recorded_loop.pk}"))
    said = " ".join(page.split())
    assert "The cost of the hold is unknown because worker run times are not recorded." in said


OBSERVED = {"removed": 0, "started": 0, "waiting_to_run": 0, "age_seconds": 0.2, "unfit": None}


@pytest.fixture
def busy_loop(people, stored_snapshot):
    """A loop that started 5 workers at each of its last ten ticks."""
    busy_loop = Loop.objects.create(
        name="worker_rate/alert/n1", law="worker_rate", target={"queue": "alert", "node": "n1"}
    )
    for number in range(10):
        busy_loop.entries.create(
            at=timezone.now() - timedelta(seconds=100 - 5 * number), mode="auto",
            parameters={"events_per_worker": 100, "guard": {}}, observation={**OBSERVED, "queue_length": 3_000},
            action={"start": 5}, reason="3,000 events wait.",
        )  # fmt: skip
    return busy_loop


def test_the_address_asks_and_the_page_answers(browsers, busy_loop):
    address = f"/loops/{busy_loop.pk}/what-if/?would-guard.maximum=2&would-upper_limit=1000&hours=1"
    page = browsers["viewer"].get(address)
    found = page.context["rerun"]
    assert page.context["changed"] == {"guard.maximum": 2}
    assert (len(found.steps), found.did.total, found.would.total <= 20) == (10, 50.0, True)
    assert "Open loop:" in page.content.decode() and "<path" in page.content.decode()
    row = next(row for row in page.context["rows"] if row.name == "guard.maximum")
    assert row.would == "2"


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("would-upper_limit=-1", "would-upper_limit"),
        ("would-upper_limit=5&hours=0", "hours"),
        ("would-upper_limit=5&hours=inf", "hours"),
        ("would-guard.direction=sideways", "would-guard.direction"),
    ],
)
def test_a_question_that_can_not_be_read_names_its_field_and_keeps_what_was_typed(query, field, browsers, busy_loop):
    page = browsers["viewer"].get(f"/loops/{busy_loop.pk}/what-if/?{query}")
    assert (list(page.context["errors"]), page.context["rerun"]) == ([field], None)
    typed = next(row for row in page.context["rows"] if f"would-{row.name}={row.would}" in query)
    assert str(typed.would) in page.content.decode()


def test_the_command_asks_the_same(busy_loop):
    output = io.StringIO()
    line = ["loops", str(busy_loop.pk), "what-if", "--set", "guard.maximum=2", "--set", "upper_limit=900"]
    call_command("weir", *line, stdout=output)
    answer = json.loads(output.getvalue())
    assert (answer["decisions"], answer["did"]["total"]) == (10, 50.0)
    assert answer["would"]["total"] <= 20 and "do not respond" in answer["open_loop"]


@pytest.mark.parametrize("text", ["upper_limit", "=5", "upper_limit=", "upper_limit=x", "speed=5"])
def test_a_bad_assignment_is_refused(text, browsers, busy_loop):
    answer = browsers["viewer"].get(f"/api/v1/loops/{busy_loop.pk}/what-if", {"set": text})
    assert answer.status_code == 422
