"""Holds of the circuit breaker of a queue's destination by a person.

A hold is a key on the control server (`weir:circuit-hold:{queue}`) that expires automatically, even if no process is
left to end it. *Open*: workers of the queue make no calls. *Closed*: they make all first attempts, even if most fail;
retries still wait for the retry budget. Workers check for it here; people see it as its override (`workers.steering`).
"""

from contextlib import suppress
from typing import Literal

import redis

from common.stored_document import BadDocument, StoredDocument, decode_document, encode_document
from queues import keys

OPEN, CLOSED = "open", "closed"
HOLDS = (OPEN, CLOSED)


class CircuitHold(StoredDocument, frozen=True):
    """A hold of a queue's circuit."""

    circuit: Literal["open", "closed"]
    reason: str
    by: str


def hold(control: redis.Redis, queue: str, held: CircuitHold, seconds: float) -> None:
    """Hold the circuit of a queue for this time, in place of any earlier hold; none if the time is over."""
    if seconds > 0:
        control.set(keys.CIRCUIT_HOLD.build(queue), encode_document(held), px=max(1, round(1000 * seconds)))
    else:
        control.delete(keys.CIRCUIT_HOLD.build(queue))


def read(stored: bytes | None) -> str | None:
    """Return how a person holds the circuit: open, closed, or None. A value of another version holds nothing."""
    if stored is None:
        return None
    with suppress(BadDocument):
        return decode_document(CircuitHold, stored, "circuit hold").circuit
    return None
