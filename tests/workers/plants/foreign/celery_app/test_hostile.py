"""What an app, its workers, and senders of events to its broker could do to Weir."""

from hypothesis import given
from hypothesis import strategies as st

from common.stored_document import encode_document
from tests.workers.plants.foreign.celery_app.far import FakeCelery
from workers.plants.foreign.celery_app import events as celery_events
from workers.plants.foreign.celery_app.events import MAX_WORKERS, TaskEvents
from workers.plants.foreign.celery_app.remote_control import build_pool
from workers.plants.foreign.watch import PlantObserver
from workers.plants.models import RegisteredPlant

ONE = "celery@one"
ODD = ["<script>alert(1)</script>", "../../x", "half \ud800", "x" * 300, "", 7, None, True, [], {"a": 1}]
JUNK = st.recursive(
    st.sampled_from(ODD) | st.floats() | st.integers() | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)
FIELDS = ("hostname", "uuid", "name", "args", "kwargs", "timestamp", "runtime", "retries", "exception", "pid")


def event(number, kind="task-failed", **more):
    return {"type": kind, "hostname": ONE, "uuid": str(number), "timestamp": 5.0, "name": "shop.work", **more}


def observed(far):
    lookout = PlantObserver(RegisteredPlant(name="shop", kind="celery"), lambda _: far.plant(), lambda: far.now)
    lookout.observe()
    status = lookout.build_status()
    return status, encode_document(status)


@given(st.dictionaries(st.sampled_from(FIELDS), JUNK), st.sampled_from(["received", "started", "failed"]))
def test_whatever_an_event_holds_it_is_passed_over_or_can_be_published(fields, kind):
    far = FakeCelery({ONE: 2})
    far.listener.events.apply(event(1, f"task-{kind}") | fields, far.now)
    assert observed(far)[0].error is None


@given(st.dictionaries(st.sampled_from(("pid", "pool", "total", "uptime", "prefetch_count")), JUNK), JUNK)
def test_whatever_a_worker_says_of_itself_is_a_pool(stats, queues):
    pool = build_pool(ONE, stats, queues)
    assert 0 <= pool.processes <= 10_000
    assert pool.begun >= 0
    encode_document({"names": [*pool.queues, *pool.total, pool.implementation]})


def test_a_pool_of_a_billion_processes_and_names_without_end_make_no_large_document():
    far = FakeCelery({ONE: 2})
    total = {f"task-{number}": 1 for number in range(100_000)}
    far.stats = {"pool": {"implementation": "prefork", "max-concurrency": 10**9}, "total": total}
    far.plant().get_topology()
    status, text = observed(far)
    assert status.error is None and len(text) < 500_000


def test_tracebacks_are_kept_of_the_last_errors_alone_and_these_stay_shown_however_many_succeed():
    events = TaskEvents()
    for number in range(200):
        events.apply(event(number, exception="KeyError", traceback="a line"), 1.0)
    for number in range(200, 1_000):
        events.apply(event(number, "task-succeeded"), 1.0)
    assert not any(each.traceback for each in events.get_latest(10_000))
    errors = events.list_errors()
    assert errors[0].id == "199" and all(each.traceback for each in errors)
    assert len(events._errors) == celery_events.MAX_ERRORS


def test_of_workers_without_end_those_that_were_silent_longest_are_forgotten():
    events = TaskEvents()
    for number in range(2 * MAX_WORKERS):
        worker = f"celery@{number}"
        events.apply({"type": "worker-heartbeat", "hostname": worker, "pid": 1}, float(number))
    assert len(events.pools) == MAX_WORKERS
    assert f"celery@{2 * MAX_WORKERS - 1}" in events.pools and "celery@0" not in events.pools


def test_tasks_whose_end_nobody_says_do_not_wait_and_run_for_ever(monkeypatch):
    monkeypatch.setattr(celery_events, "MAX_TASKS", 100)
    events = TaskEvents()
    for number in range(1_000):
        events.apply(event(number, "task-received"), 1.0)
        events.apply(event(f"r{number}", "task-started"), 1.0)
    assert len(events.pools[ONE].waiting) <= 100 and len(events.pools[ONE].running) <= 100
