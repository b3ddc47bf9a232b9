"""Node agents as threads of the observer, for a plant on one machine.

`WEIR_OBSERVER_AGENTS` selects this mode, and `./run` sets it. On several hosts, an agent runs beside its node's server.
"""

import logging
import threading
from collections.abc import Collection

from common import environment as variables
from queues.nodes.agent import Agent, connect, run

OBSERVER = "observer"
logger = logging.getLogger("weir.agent")


def get_agent_process(node: str) -> str:
    """Return the name of the process that runs a node's agent."""
    return OBSERVER if variables.OBSERVER_AGENTS.is_on() else f"agent-{node}"


def list_node_processes(node: str) -> list[str]:
    """Return the processes that work only for a node: its server, and its agent if it is a separate process."""
    agent = get_agent_process(node)
    return [node] if agent == OBSERVER else [agent, node]


class AgentThreads:
    """The agents of several nodes, with one thread and one connection to the control server for each agent."""

    def __init__(self, nodes: Collection[str], control_url: str) -> None:
        self._stop = threading.Event()
        self._threads = {
            node: threading.Thread(
                target=self._run, args=(Agent(node, connect(control_url)),), name=f"agent-{node}", daemon=True
            )
            for node in nodes
        }

    def start(self) -> None:
        for thread in self._threads.values():
            thread.start()

    def close(self) -> None:
        """End the agents after their current beat."""
        self._stop.set()
        for thread in self._threads.values():
            thread.join()

    def detect_fault(self) -> str | None:
        """Return why this process must end, so that its supervisor restarts it; None if all agents run."""
        if self._stop.is_set():
            return None
        ended = [node for node, thread in self._threads.items() if not thread.is_alive()]
        return f"no longer runs the agent of {ended[0]}" if ended else None

    def _run(self, agent: Agent) -> None:
        try:
            run(agent, self._stop)
        except Exception:
            logger.exception("The agent of %s failed.", agent.name)
        finally:
            agent.close()
