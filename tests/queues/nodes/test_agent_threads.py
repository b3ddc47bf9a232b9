"""Agents as threads of the observer: they send heartbeats, and a failed one ends the process."""

import pytest

from common import environment as variables
from queues import keys
from queues.nodes import agent_threads
from queues.nodes.agent_threads import AgentThreads, get_agent_process, list_node_processes
from tests.waiting import until

URL = "redis://127.0.0.1:1/0"


@pytest.mark.parametrize(
    ("value", "process", "own"), [("0", "agent-n1", ["agent-n1", "n1"]), ("1", "observer", ["n1"])]
)
def test_the_process_of_an_agent_is_the_observer_only_where_it_runs_the_agents(value, process, own, monkeypatch):
    monkeypatch.setitem(variables.PROCESS, variables.OBSERVER_AGENTS.name, value)
    assert (get_agent_process("n1"), list_node_processes("n1")) == (process, own)


def test_an_observer_without_agents_has_no_fault():
    agents = AgentThreads([], URL)
    agents.start()
    assert agents.detect_fault() is None
    agents.close()


def test_each_agent_beats_until_it_is_closed(monkeypatch):
    beats = []
    monkeypatch.setattr(agent_threads.Agent, "beat", lambda agent: beats.append(agent.name))
    agents = AgentThreads(["n1", "n2"], URL)
    agents.start()
    until(lambda: {*beats} == {"n1", "n2"})
    assert agents.detect_fault() is None
    agents.close()
    assert agents.detect_fault() is None


def test_a_failed_agent_is_a_fault_of_the_process(monkeypatch):
    def fail(agent):
        if agent.name == "n2":
            raise MemoryError

    monkeypatch.setattr(agent_threads.Agent, "beat", fail)
    agents = AgentThreads(["n1", "n2"], URL)
    agents.start()
    assert until(agents.detect_fault) == "no longer runs the agent of n2"
    agents.close()


def test_heartbeats_of_all_agents_arrive(control_server, control, plant_topology):
    agents = AgentThreads([*plant_topology.nodes], control_server.url)
    agents.start()
    until(lambda: {name.decode() for name in control.hkeys(keys.HEARTBEATS)} == {*plant_topology.nodes})
    agents.close()
