"""Search: pages, selections, families, and what is wrong with a query."""

from random import Random

import pytest

from common.errors import BadInput
from tests.workers.task_history.samples import NOON, begin_recorder, make_life
from workers.task_history import search
from workers.task_history.blocks import seal_settled
from workers.task_history.query import TaskQuery, parse_query
from workers.task_history.record import RECEIVED, TaskUpdate

pytestmark = pytest.mark.django_db
LATER = NOON + 2 * 86_400


@pytest.fixture
def stored():
    """Tasks of two plants in several overlapping blocks, and some recent ones."""
    random, recorders = Random(1), {plant: begin_recorder(plant) for plant in ("shop", "mill")}
    for part in range(6):
        for plant, made in recorders.items():
            for number in range(part * 100, part * 100 + 20):
                at = NOON + random.random() * 100 + 1_000 * (part // 2) + part
                for update in make_life(number, at, worker=f"w{number % 3}@{plant}"):
                    made.hear(update)
            made.flush()
            if part < 4:
                seal_settled(plant, LATER, partly=True)


def read_pages(query, limit, budget_seconds=10.0, plants=("shop", "mill"), monotonic=lambda: 0.0):
    pages, cursor = [], None
    while True:
        page = search.find(
            plants, query, before=cursor, limit=limit, budget_seconds=budget_seconds, monotonic=monotonic
        )
        pages.append(page)
        if page.next is None:
            return pages
        cursor = page.next


def list_all(query, plants=("shop", "mill")):
    return [(task.at, task.plant, task.id) for task in search.iterate(plants, query)]


@pytest.mark.parametrize("limit", [1, 7, 50, 1_000])
@pytest.mark.parametrize("text", ["", "worker:w1@shop", '"customer1"'])
def test_pages_together_have_each_task_once_newest_first(stored, limit, text):
    query = parse_query(text, LATER)
    pages = read_pages(query, limit)
    found = [(task.at, task.plant, task.id) for page in pages for task in page.records]
    assert found == list_all(query)
    assert found == sorted(found, key=lambda key: (-key[0], key[1], key[2]))
    assert len(set(found)) == len(found)
    assert all(len(page.records) <= limit for page in pages)
    assert text or len(found) == 240


def test_a_search_that_is_cut_short_says_how_far_back_it_searched_and_continues(stored):
    ticks = iter(range(10**9))
    query = parse_query('"customer1"', LATER)
    pages = read_pages(query, 50, budget_seconds=0.5, monotonic=lambda: float(next(ticks)))
    assert len(pages) > 2
    found = [(task.at, task.plant, task.id) for page in pages for task in page.records]
    assert found == list_all(query)
    assert pages[-1].searched_back_to is None
    reached = [page.searched_back_to for page in pages[:-1]]
    assert reached == sorted(reached, reverse=True)
    assert all(task.at >= page.searched_back_to for page in pages[:-1] for task in page.records)


def test_a_selection_is_limited_and_counted(stored):
    assert len(list(search.iterate(["shop"], TaskQuery(), most=7))) == 7
    assert search.count(["shop"], TaskQuery(), budget_seconds=60) == search.TaskCount(120, True)
    assert search.count(["shop"], TaskQuery(), most=7, budget_seconds=60) == search.TaskCount(7, False)


def test_a_time_range_limits_a_search(stored):
    query = TaskQuery(since=NOON + 1_000, until=NOON + 1_100)
    times = [task.at for task in search.iterate(["shop"], query)]
    assert 0 < len(times) < 120
    assert all(query.since <= at <= query.until for at in times)
    assert times == [task.at for task in search.iterate(["shop"], TaskQuery()) if query.since <= task.at <= query.until]


def test_a_task_is_returned_by_its_id_or_the_beginning_of_it(stored):
    for task in search.iterate(["shop"], TaskQuery(), most=1_000):
        assert search.get("shop", task.id) == task
    assert [found.id for found in search.find(["shop"], parse_query(f"id:{task.id[:9]}", LATER)).records] == [task.id]
    assert search.get("shop", "unknown") is None
    assert search.get("mill", task.id) != task or task.plant == "mill"


def test_a_task_has_a_family():
    made = begin_recorder()
    for task_id, parent in (
        ("root-id", ""),
        ("first-child", "root-id"),
        ("second-child", "root-id"),
        ("grandchild", "first-child"),
    ):
        made.hear(TaskUpdate(id=task_id, state=RECEIVED, at=NOON, time=NOON, parent=parent, root="root-id"))
    made.flush()
    seal_settled("shop", LATER, partly=True)
    family = search.list_family(search.get("shop", "first-child"))
    assert (family.root.id, family.parent.id) == ("root-id", "root-id")
    assert [task.id for task in family.siblings] == ["second-child"]
    assert [task.id for task in family.children] == ["grandchild"]
    assert search.list_family(search.get("shop", "root-id")).root is None


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("state:done", "state"),
        ("id:abc", "id"),
        ("since:yesterday", "since"),
        ("since:1h until:2h", "until"),
        ('"', "query"),
        ('""', "query"),
        ("---", "query"),
        ("a" * 1_001, "query"),
        ("a " * 21, "query"),
    ],
)
def test_bad_input_names_its_field(text, field):
    with pytest.raises(BadInput) as raised:
        parse_query(text, LATER)
    assert raised.value.field == field


def test_a_query_is_read_from_a_text_and_from_fields():
    query = parse_query('state:failed name:shop.* "out of" 4711 since:2h url:x', LATER, {"queue": "pay", "until": ""})
    assert query == TaskQuery(
        state="failed", name="shop.*", texts=("out of",), words=("4711", "url:x"), since=LATER - 7_200, queue="pay"
    )
    assert parse_query("since:2026-11-20T08:14:00Z", LATER).since == 1_795_162_440.0
    with pytest.raises(BadInput, match="unknown"):
        parse_query("", LATER, {"colour": "red"})


@pytest.mark.parametrize("cursor", ["x", "", "W10=", "é"])
def test_a_bad_cursor_is_bad_input(cursor):
    with pytest.raises(BadInput, match="before"):
        search.find(["shop"], TaskQuery(), before=cursor)
