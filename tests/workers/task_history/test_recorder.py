"""Recording: changes become records, blocks, groups of failures, and gaps."""

import pytest

from tests.workers.task_history.samples import NOON, begin_recorder, make_life
from workers.task_history import search
from workers.task_history.blocks import seal_settled
from workers.task_history.models import RecentTask, TaskBlock
from workers.task_history.query import parse_query

pytestmark = pytest.mark.django_db


def record(count, at=NOON, **fields):
    recorder = begin_recorder()
    for number in range(count):
        for change in make_life(number, at + number / 100, **fields):
            recorder.hear(change)
    recorder.touch(at + count)
    recorder.flush()
    return recorder


def texts_of(query, now=NOON + 1_000, **fields):
    return [row.args for row in search.find(["shop"], parse_query(query, now, fields)).records]


def test_a_recorded_task_is_found_by_each_of_its_fields():
    record(20)
    for query in ("customer7", "customer7@example.com", "args", "name:shop.pay customer7", 'customer7 "tomer7@ex"'):
        assert texts_of(query) == ([] if query == "args" else ["(7,)"])
    assert texts_of("state:succeeded worker:w1@shop queue:pay (7,)") == ["(7,)"]


def test_a_sealed_task_is_found_like_a_recent_one():
    record(20)
    before = [texts_of(query) for query in ("customer7", "name:shop.*", "state:failed", '"mer1"')]
    assert seal_settled("shop", NOON + 2 * 86_400, partly=True) == 20
    assert (RecentTask.objects.count(), TaskBlock.objects.count()) == (0, 1)
    assert [texts_of(query) for query in ("customer7", "name:shop.*", "state:failed", '"mer1"')] == before
