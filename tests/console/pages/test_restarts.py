"""The page of a node, and that of a worker host, can restart the processes of the subject."""

import pytest

from console.connections import supervisor
from console.connections.supervisor import WORDS, ProcessRow
from console.models import AuditEntry
from queues.models import Node
from tests.console.page_form import fetch, source_of

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def node(db):
    Node.objects.create(name="n1", url="redis://n1")


@pytest.fixture
def supervised(monkeypatch):
    """A supervisor; returns the processes that were told to end."""
    names = ("agent-n1", "n1", "n1-b", "agent-n1-b", "n2", "worker-jobs")
    rows = [ProcessRow(name, "RUNNING", WORDS["RUNNING"], 7, 1.0, 0, None, "") for name in names]
    ended = []
    monkeypatch.setattr(supervisor, "is_there", lambda: True)
    monkeypatch.setattr(supervisor, "list_processes", lambda: rows)
    monkeypatch.setattr("os.kill", lambda pid, number: ended.append(number))
    return ended


def test_a_node_has_the_restarts_of_its_agent_and_server(administrator, browsers, stored_snapshot, supervised):
    restarts = administrator.get("/nodes/n1/").context["restarts"]
    assert [action.words for action in restarts.actions] == ["Restart agent-n1", "Restart n1"]
    server = restarts.actions[1]
    assert "The node keeps its events" in server.effect
    assert fetch(administrator, server.url, {**server.fields}).status_code == 422  # without a reason
    assert fetch(administrator, server.url, {**server.fields, "reason": "It hangs."}).status_code == 200
    assert len(supervised) == 1 and AuditEntry.objects.get(action="process.restart").target == "n1"
    text = " ".join(source_of(administrator.get("/nodes/n1/")).split())
    assert "<b>Restart of n1 requested</b> by administrator" in text and ">Restart n1</summary>" not in text
    assert "Restart n1" not in source_of(browsers["operator"].get("/nodes/n1/"))


def test_a_worker_host_has_the_restart_of_its_process(administrator, stored_snapshot, supervised):
    host = next(name for name, row in stored_snapshot["hosts"].items() if row["role"] == "jobs")
    assert ">Restart worker-jobs</summary>" in source_of(administrator.get(f"/workers/{host}/"))


def test_without_a_supervisor_nothing_is_offered(administrator, stored_snapshot):
    page = administrator.get("/nodes/n1/")
    assert page.status_code == 200 and 'id="restarts"' not in source_of(page)
