"""Events of Celery become updates of the task history, without secrets."""

import pytest

from workers.plants.foreign.celery_app.task_updates import HistoryFeed, build_update
from workers.plants.foreign.redaction import HIDDEN, MASK

TOKEN = "sk4live9Zt7Qp2Lx8Rv5Mn3Kd6Hs1"


def event(kind, **fields):
    return {"type": kind, "uuid": "a-task", "hostname": "w1@shop", "timestamp": 5.0, **fields}


def test_an_event_is_read_with_all_its_fields():
    update = build_update(
        event(
            "task-received", name="shop.pay", args="(1,)", kwargs="{}", retries=2, eta=None, parent_id="p", root_id="r"
        ),
        7.0,
        queues={"w1@shop": ("pay",)},
    )
    assert (update.id, update.state, update.at, update.time, update.worker) == (
        "a-task",
        "received",
        7.0,
        5.0,
        "w1@shop",
    )
    assert (update.name, update.args, update.kwargs, update.are_exact) == ("shop.pay", "(1,)", "", True)
    assert (update.queue, update.retries, update.parent, update.root) == ("pay", 2, "p", "r")


def test_the_queue_is_what_the_producer_says_or_the_only_one_of_the_worker():
    sent = build_update(event("task-sent", hostname="gen1@web", queue="mail"), 7.0)
    assert (sent.queue, sent.worker) == ("mail", "")
    for queues, queue in (({"w1@shop": ("pay", "mail")}, ""), ({}, ""), ({"w1@shop": ("pay",)}, "pay")):
        assert build_update(event("task-started"), 7.0, queues=queues).queue == queue


@pytest.mark.parametrize(
    ("args", "kwargs", "are_exact"),
    [
        ("(1, 'a')", "{'b': 2}", True),
        ("()", "{}", True),
        ("('" + "a" * 1_019 + "',)", "{}", False),
        ("('abc...',)", "{}", False),
        ("(1,)", "{'password': 'x'}", False),
        (f"('{TOKEN}',)", "{}", False),
    ],
)
def test_arguments_that_were_shortened_or_redacted_are_not_exact(args, kwargs, are_exact):
    assert build_update(event("task-received", args=args, kwargs=kwargs), 7.0).are_exact == are_exact


def test_no_secret_is_in_an_update():
    texts = {
        "args": f"('{TOKEN}',)",
        "kwargs": "{'password': 'hunter2'}",
        "exception": "Error('password=hunter2')",
        "traceback": f"...\nraise Error(token='{TOKEN}')\n",
        "result": f"'{TOKEN}'",
    }
    update = build_update(event("task-failed", **texts), 7.0)
    kept = (update.args, update.kwargs, update.error, update.traceback, update.result)
    assert all(MASK in text for text in kept)
    assert not any(secret in text for text in kept for secret in (TOKEN, "hunter2"))


def test_hidden_arguments_and_results_are_only_their_length():
    update = build_update(event("task-received", args="(1,)", kwargs="{'a': 2}", result="'abc'"), 7.0, HIDDEN)
    assert (update.args, update.kwargs, update.result, update.are_exact) == ("12 characters", "", "5 characters", False)


def test_the_end_of_a_long_traceback_is_kept():
    lines = "".join(f'  File "/srv/a.py", line {number}, in f{number}\n' for number in range(1_000))
    assert "in f999\n" in build_update(event("task-failed", exception="E()", traceback=lines), 7.0).traceback


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"type": "task-received"},
        event("task-mine"),
        event("worker-heartbeat"),
        event("task-received", uuid=7),
        event("task-received", uuid="a" * 300),
        event(7),
    ],
)
def test_an_event_that_is_not_about_a_task_is_ignored(odd):
    assert build_update(odd, 7.0) is None


def test_odd_values_are_unknown():
    odd = {"name": 7, "args": 7, "kwargs": [], "timestamp": "x", "retries": -1, "runtime": "1", "exception": {}}
    update = build_update(event("task-failed", **odd), 7.0)
    assert (update.name, update.args, update.time, update.retries, update.run_seconds, update.error) == (
        "", "", None, None, None, "",
    )  # fmt: skip
    assert "\0" not in build_update(event("task-received", uuid="a\0b", args="('\0',)"), 7.0).id


class Heard:
    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        return lambda *given: self.calls.append((name, *given))


def test_heartbeats_show_that_events_of_a_worker_arrive():
    heard = Heard()
    feed = HistoryFeed(heard, clock=lambda: 7.0)
    feed.connect()
    for kind in ("worker-online", "worker-heartbeat", "worker-offline"):
        feed.receive(event(kind, freq=2.0))
    feed.receive(event("worker-heartbeat", timestamp=None))
    feed.touch()
    assert heard.calls == [
        ("connect", 7.0),
        ("hear_worker", "w1@shop", 7.0, 5.0, 6.0, True),
        ("hear_worker", "w1@shop", 7.0, 5.0, 6.0, False),
        ("forget_worker", "w1@shop"),
        ("touch", 7.0),
    ]
