"""A severity as one of the node state signs: square, triangle, ring."""

from collections.abc import Mapping

from queues.nodes.node_state import BUSY, IDLE, TOOBUSY

SEVERITY_STATES: Mapping[str, str] = {"critical": TOOBUSY, "warning": BUSY, "notice": IDLE}
