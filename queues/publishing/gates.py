"""Which nodes a publisher may use: a gate closes when a node fails; a probe opens it, with back-off."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

FIRST_SECONDS = 0.5
MAX_SECONDS = 5.0


@dataclass
class Gate:
    """Closed until a probe succeeds; `probe_at` says when the next one is due, `seconds` the back-off."""

    is_closed: bool
    probe_at: float
    seconds: float


class Gates:
    """One gate per node.

    After a failure the first probe is due in 0.5 s, and the next after twice the time, up to 5 s.

    A probe that succeeds opens the gate, but only a stored flush resets the back-off: a full node answers every probe
    and rejects every flush.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._gates: dict[str, Gate] = {}
        self._lock = threading.Lock()

    def is_open(self, node: str) -> bool:
        """Return True if the node may be used."""
        gate = self._gates.get(node)
        return gate is None or not gate.is_closed

    def take_probe(self, node: str) -> bool:
        """Return True for one caller when a probe of a closed gate is due.

        This caller probes and reports the outcome.
        """
        if node not in self._gates:
            return False
        with self._lock:
            gate = self._gates.get(node)
            if gate is None or not gate.is_closed or self._monotonic() < gate.probe_at:
                return False
            self._back_off(gate)
            return True

    def record_failure(self, node: str) -> None:
        """Close the gate. Flushes that fail while it is closed already count as one failure."""
        with self._lock:
            gate = self._gates.setdefault(node, Gate(False, 0.0, 0.0))
            if not gate.is_closed:
                gate.is_closed = True
                self._back_off(gate)

    def record_probe_success(self, node: str) -> None:
        """Open the gate after a successful probe, and keep the back-off until something is stored."""
        with self._lock:
            if node in self._gates:
                self._gates[node].is_closed = False

    def record_success(self, node: str) -> None:
        """Record that a flush was stored: the node is healthy."""
        if node in self._gates:
            with self._lock:
                self._gates.pop(node, None)

    def _back_off(self, gate: Gate) -> None:
        gate.seconds = min(2 * gate.seconds, MAX_SECONDS) if gate.seconds else FIRST_SECONDS
        gate.probe_at = self._monotonic() + gate.seconds
