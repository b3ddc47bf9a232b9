"""Why no snapshot arrives: the web process says it, since the observer can't."""

import time

import pytest

from console.accounts.access import Actor
from console.connections import supervisor
from console.connections.supervisor import WORDS, ProcessRow
from console.pages.frame.outage import find_outage
from queues import keys
from tests.console.page_form import source_of
from tests.workers.alerts.checks import lost
from tests.workers.snapshots import snapshot_of

ADMINISTRATOR, OPERATOR = Actor("ada", "administrator"), Actor("ben", "operator")


@pytest.fixture
def states(monkeypatch):
    """The states of the processes that a supervisor reports."""
    states = {"observer": "SUSPENDED", "control": "SUSPENDED"}
    monkeypatch.setattr(supervisor, "is_there", lambda: True)
    monkeypatch.setattr(
        supervisor,
        "list_processes",
        lambda: [ProcessRow(name, state, WORDS[state], 7, 1.0, 0, None, "") for name, state in states.items()],
    )
    return states


def test_a_suspended_observer_is_named_and_restarted_by_those_who_may(states):
    old = snapshot_of({**lost(), "at": 1000.0})
    assert find_outage(old, True, ADMINISTRATOR, 1002.0) is None
    outage = find_outage(old, True, ADMINISTRATOR, 1034.0)
    assert (outage.process, outage.state, outage.since) == ("observer", "suspended", 1000.0)
    assert outage.restart.words == "Restart observer" and "kills" in outage.restart.effect
    assert find_outage(old, True, OPERATOR, 1034.0).restart is None
    states["observer"] = "RUNNING"
    assert find_outage(old, True, ADMINISTRATOR, 1034.0).state == "not responding"


def test_a_suspended_control_server_is_named_although_there_is_no_snapshot(states):
    outage = find_outage(None, False, ADMINISTRATOR, 1034.0)
    assert (outage.process, outage.state, outage.since) == ("control", "suspended", None)
    assert find_outage(None, True, ADMINISTRATOR, 1034.0) is None  # the plant is starting


def test_without_a_supervisor_nothing_is_claimed(db):
    assert find_outage(snapshot_of({**lost(), "at": 1000.0}), True, ADMINISTRATOR, 1034.0) is None


@pytest.mark.django_db
def test_each_page_says_it_with_the_restart(states, administrator, control, stored_snapshot):
    control.set(keys.SNAPSHOT, snapshot_of({**lost(), "at": time.time() - 34}).to_json())
    page = source_of(administrator.get("/queues/"))
    assert "The observer is suspended" in page and 'name="process" value="observer"' in page
    control.set(keys.SNAPSHOT, snapshot_of({**lost(), "at": time.time()}).to_json())
    assert "The observer is suspended" not in source_of(administrator.get("/queues/"))
