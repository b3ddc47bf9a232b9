"""What people stop for a time: in force where it is followed, as long as its override is."""

from datetime import UTC, datetime, timedelta

import pytest

from common.errors import BadInput
from common.stored_document import convert_to_plain
from queues import keys, pausing
from queues.models import Queue
from tests.workers.snapshots import snapshot_of
from workers.models import Override
from workers.snapshot.compose import add_stops
from workers.steering import enforcing, overrides, scope
from workers.steering.scope import format_time

pytestmark = pytest.mark.django_db
START = datetime.now(UTC).replace(microsecond=0)
HOST = "jobs@here"


@pytest.fixture
def owner(django_user_model):
    return django_user_model.objects.create(username="ada")


@pytest.fixture
def queue():
    return Queue.objects.create(name="alert", kind="jobs")


@pytest.fixture
def stop(owner, queue, control):
    """Stop a part of the queue, or a host."""

    def stop(name="consumption", minutes=10, now=START, **given):
        on = {"host": HOST, "value": "draining"} if name == "work" else {"queue": "alert", "value": "paused"}
        more = {"minutes": minutes, "reason": "a disk is changed", "control": control, **on, **given}
        return overrides.set_override(name=name, owner=owner, now=now, **more)

    return stop


def is_paused(control, part="consumption"):
    return bool(pausing.load_pauses(control, ["alert"], part))


def seen(**parts):
    """A snapshot with the overrides in force now."""
    rows = [convert_to_plain(overrides.build_status(row)) for row in overrides.list_active(START)]
    return add_stops(
        snapshot_of(
            {
                "at": START.timestamp(),
                "queues": {"alert": {"kind": "jobs"}, "orders": {"kind": "pipeline"}},
                "hosts": {HOST: {"role": "jobs"}},
                "overrides": rows,
                **parts,
            }
        )
    )


def test_a_pause_is_followed_until_its_end_and_an_early_end_is_too(stop, owner, control):
    made = stop()
    assert is_paused(control) and not is_paused(control, "intake")
    assert 599_000 < control.pttl(keys.PAUSE.build("alert", "consumption")) <= 600_000
    overrides.end(made, by=owner, now=START + timedelta(minutes=1), control=control)
    assert not is_paused(control)


def test_a_pause_and_its_end_hold_though_somebody_reconciles_before_their_commit(
    stop, owner, control, django_capture_on_commit_callbacks
):
    """It reads what the database said before, and made a pause begin, or end, up to 5 s late."""
    key = keys.PAUSE.build("alert", "consumption")
    with django_capture_on_commit_callbacks(execute=True):
        made = stop()
        control.delete(key)
    assert is_paused(control)
    before = control.dump(key)
    with django_capture_on_commit_callbacks(execute=True):
        overrides.end(made, by=owner, now=START + timedelta(minutes=1), control=control)
        control.restore(key, 60_000, before)
    assert not is_paused(control)


def test_a_second_pause_of_the_same_part_takes_the_place_of_the_first(stop, control):
    first, second = stop(), stop(minutes=20)
    first.refresh_from_db()
    assert first.ended_at == START and second.replaces[0]["id"] == first.pk
    assert control.pttl(keys.PAUSE.build("alert", "consumption")) > 1_100_000


def test_nothing_is_stopped_for_ever_or_by_another_word(stop):
    with pytest.raises(BadInput) as refused:
        stop(minutes=None, endless=True)
    assert refused.value.field == "expires_at"
    with pytest.raises(BadInput) as refused:
        stop(value="off")
    assert refused.value.field == "value" and not Override.objects.exists()


def test_a_control_server_that_lost_its_keys_gets_them_again_and_keeps_no_others(stop, control):
    stop()
    control.hset(keys.HOSTS, HOST, "{}")
    stop("work")
    assert enforcing.reconcile(control, START) == 0
    control.delete(keys.PAUSE.build("alert", "consumption"), keys.DRAIN.build(HOST))
    pausing.pause(control, "alert", "intake", pausing.Pause(START.timestamp() + 60, "", "?"), START.timestamp())
    assert enforcing.reconcile(control, START) == 3
    assert is_paused(control) and control.exists(keys.DRAIN.build(HOST)) and not is_paused(control, "intake")
    assert enforcing.reconcile(control, START + timedelta(minutes=11)) == 2
    assert not is_paused(control), "what has ended is not written again"


def test_the_snapshot_shows_what_is_stopped_and_its_loops_on_hold(stop):
    stop("intake")
    stop("work")
    loops = {
        "ladder/alert": {"law": "ladder", "target": {"queue": "alert"}, "mode": "auto"},
        "worker_rate/alert/n1": {"law": "worker_rate", "target": {"queue": "alert", "node": "n1"}, "mode": "auto"},
        f"concurrency/{HOST}": {"law": "concurrency", "target": {"host": HOST}, "mode": "advise"},
    }
    found = seen(loops=loops)
    assert [pause.part for pause in found.queues["alert"].pauses] == ["intake"]
    assert found.queues["orders"].pauses == []
    assert found.hosts[HOST].draining.by == "ada"
    assert {name: loop.mode for name, loop in found.loops.items()} == {
        "ladder/alert": "hold",
        "worker_rate/alert/n1": "auto",  # what waits is still to be handled
        f"concurrency/{HOST}": "hold",
    }


def test_a_loop_says_what_it_waits_for(stop):
    stop()
    found, end = seen(), format_time(START + timedelta(minutes=10), START)
    why = scope.explain_hold({"queue": "alert", "node": "n1"}, found)
    assert why == f"consumption of alert is paused until {end}"
    assert scope.explain_hold({"queue": "orders", "node": "n1"}, found) == ""
    assert scope.explain_hold({}, found) == ""


@pytest.mark.parametrize("queues, held", [(["alert"], True), (["alert", "orders"], False), ([], False)])
def test_an_applications_loops_hold_when_nothing_of_what_it_reads_may_be_read(stop, queues, held):
    stop()
    found = seen(pipeline={"applications": {"app": {"queues": queues}}})
    assert bool(scope.explain_hold({"application": "app"}, found)) == held


def test_an_applications_loops_hold_while_what_it_found_has_no_room():
    full = {"queues": ["orders"], "outbox": {"alert": 200_000}, "outbox_full": True}
    why = scope.explain_hold({"application": "app"}, seen(pipeline={"applications": {"app": full}}))
    assert why == "its complex events wait for alert"


@pytest.mark.parametrize(
    ("hosts", "words"),
    [
        ({}, "no worker host of role jobs is reporting"),
        ({"spark@a": {"role": "spark"}}, "no worker host of role jobs is reporting"),
        ({HOST: {"role": "jobs", "slots": 0}}, "no worker host of role jobs has a slot"),
        ({HOST: {"role": "jobs", "drained": True}}, f"host {HOST} is drained"),
    ],
)
def test_why_nobody_works_is_said_as_it_is(hosts, words):
    assert scope.explain_no_slots(snapshot_of({"hosts": hosts})) == words
