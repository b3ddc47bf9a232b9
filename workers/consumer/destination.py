"""The destination of a queue's handler, and the limits on calls to it while it fails.

The law (`controllers.retries.circuit`) decides. Its state is one key per destination on the control server, which all
workers share: each change is computed from the state as read, and written only if nobody has changed it since. A person
can hold the circuit of a queue open (no calls) or closed (all first attempts). The retry budget applies in any case.

While the destination is healthy, a worker reads the state before each claim, and reports its calls once, at its end.
If the control server does not respond, workers make all calls, as without this limit.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

import redis

from common.stored_document import BadDocument, decode_document, encode_document
from controllers.retries import circuit
from controllers.retries.circuit import Admission, DestinationCalls, DestinationState
from queues import circuit_hold, keys
from queues.control.replies import expect_bytes
from queues.lua.script import load_script
from queues.topology import QueueSpec

EXPIRES_SECONDS = 3600.0  # after the last call
MAX_CONFLICTS = 8  # other workers that change the state between a read and a write
MAX_NAME = 120
WITHOUT_DESTINATION = frozenset({"emulate", "noop"})  # they call nothing

Answer = TypeVar("Answer")


def get_destination_name(handler: str, options: Mapping[str, Any]) -> str:
    """Return what a handler calls: its option `destination`, a server, a file, or a function; "" if it calls nothing.

    Queues whose handlers have the same destination share its limits.
    """
    if named := options.get("destination"):
        return str(named)[:MAX_NAME]
    if handler in WITHOUT_DESTINATION:
        return ""
    if handler in ("webhook", "sql") and "url" in options:
        return _get_server(str(options["url"]))[:MAX_NAME] or handler
    if handler == "sql":
        name = options.get("url_environment")
        return f"database in {name}"[:MAX_NAME] if name else "handled.sqlite3"
    return {"parquet": "archive"}.get(handler, handler)[:MAX_NAME]


def _get_server(url: str) -> str:
    """Return the host and port of an address, without the user and the password; the name of a file."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return parts.netloc.rpartition("@")[2] or parts.path.rpartition("/")[2]


class DestinationLimit(Protocol):
    """The limits on one worker's calls to its destination."""

    def admit(self) -> Admission:
        """Return whether the worker may claim blocks now: any number, a single one as a probe, or none."""

    def take_retry(self) -> bool:
        """Return whether the worker may retry one block now."""

    def take_retries(self, wanted: int) -> int:
        """Return how many tasks or dead letters a retry plan may send now."""

    def explain_wait(self) -> str:
        """Return why a retry plan may send nothing more now, as a sentence."""

    def record(self, calls: DestinationCalls) -> None:
        """Record completed calls."""

    @property
    def is_open(self) -> bool:
        """Return whether the circuit was open at the last read or report."""

    def close(self) -> None:
        """Report what was recorded and is not reported yet."""


class NoLimit:
    """The limit of a handler without a destination: none."""

    is_open = False

    def admit(self) -> Admission:
        return "all"

    def take_retry(self) -> bool:
        return True

    def take_retries(self, wanted: int) -> int:
        return wanted

    def explain_wait(self) -> str:
        return ""

    def record(self, calls: DestinationCalls) -> None:
        pass

    def close(self) -> None:
        pass


class SharedLimit:
    """The limit that all workers of a destination share. queue: whose circuit a person can hold; "" for none."""

    def __init__(
        self, control: redis.Redis, queue: str, destination: str, clock: Callable[[], float] = time.time
    ) -> None:
        self._control, self._clock, self._destination = control, clock, destination
        self._key = keys.DESTINATION.build(destination)
        self._hold_key = keys.CIRCUIT_HOLD.build(queue) if queue else None
        self._state, self._unreported = DestinationState(), DestinationCalls()
        self._hold: str | None = None
        self._is_silent = False  # the control server did not respond to a plan

    @property
    def is_open(self) -> bool:
        return self._hold == circuit_hold.OPEN or (
            self._hold != circuit_hold.CLOSED and self._state.circuit == circuit.OPEN
        )

    def admit(self) -> Admission:
        """Return whether the worker may claim blocks now: any number, a single one as a probe, or none."""
        try:
            self._read()
            if self._hold is not None:
                return "none" if self._hold == circuit_hold.OPEN else "all"
            if self._state.circuit == circuit.CLOSED:
                return "all"
            answer = self._change(circuit.admit)
        except redis.RedisError:
            return "all"
        return answer or "none"

    def take_retry(self) -> bool:
        """Return whether the worker may retry one block now. A hold of the circuit does not change the budget."""
        if self._state.circuit == circuit.CLOSED:
            return True
        try:
            return bool(self._change(lambda state, now: circuit.take_retries(state, 1, now)))
        except redis.RedisError:
            return True

    def take_retries(self, wanted: int) -> int:
        """Return how many tasks or dead letters a retry plan may send now.

        Without the control server it may send none: unlike an event, a plan can wait.
        """
        try:
            self._read()
            self._is_silent = False
            if self._hold == circuit_hold.OPEN:
                return 0
            if self._state.circuit == circuit.CLOSED:
                return wanted
            take = circuit.take_retries if self._hold == circuit_hold.CLOSED else circuit.take_plan_retries
            return self._change(lambda state, now: take(state, wanted, now)) or 0
        except redis.RedisError:
            self._is_silent = True
            return 0

    def explain_wait(self) -> str:
        """Return why a retry plan may send nothing more now, as a sentence."""
        if self._is_silent:
            return "Waiting: the control server does not respond."
        if self._hold == circuit_hold.OPEN:
            return f"Waiting: the circuit of {self._destination} is held open."
        if self.is_open:
            error = f" Last failure: {self._state.error}" if self._state.error else ""
            return f"Waiting: the circuit of {self._destination} is open.{error}"
        return f"Waiting: the retry budget of {self._destination} is used up."

    def record(self, calls: DestinationCalls) -> None:
        """Record completed calls. They are reported at once while the destination is not healthy, else at the end."""
        before = self._unreported
        self._unreported = DestinationCalls(
            before.firsts + calls.firsts,
            before.successes + calls.successes,
            before.failures + calls.failures,
            calls.error or before.error,
        )
        if self._unreported.failures or self._state.circuit != circuit.CLOSED:
            self.close()

    def close(self) -> None:
        """Report what was recorded and is not reported yet. A report that fails is repeated with the next one."""
        calls = self._unreported
        if not calls.successes and not calls.failures:
            return
        with suppress(redis.RedisError):
            if self._change(lambda state, now: (circuit.record(state, calls, now), True)):
                self._unreported = DestinationCalls()

    def _read(self) -> None:
        names = [self._key] if self._hold_key is None else [self._key, self._hold_key]
        stored, *held = expect_bytes(self._control).mget(names)
        self._state, self._hold = read_state(stored), circuit_hold.read(held[0]) if held else None

    def _change(self, decide: Callable[[DestinationState, float], tuple[DestinationState, Answer]]) -> Answer | None:
        """Change the shared state by a step of the law; return its answer, or None after too many conflicts."""
        client, script = expect_bytes(self._control), load_script("control/replace_value")
        for _ in range(MAX_CONFLICTS):
            stored = client.get(self._key)
            state, answer = decide(read_state(stored), self._clock())
            lifetime_ms = round(1000 * EXPIRES_SECONDS)
            if self._control.eval(script, 1, self._key, stored or b"", encode_document(state), lifetime_ms):
                self._state = state
                return answer
        return None


def build_limit(control: redis.Redis, spec: QueueSpec, clock: Callable[[], float]) -> DestinationLimit:
    """Return the limit on the calls of a queue's workers."""
    name = get_destination_name(spec.handler, spec.handler_options)
    return SharedLimit(control, spec.name, name, clock) if name else NoLimit()


def read_state(stored: bytes | None) -> DestinationState:
    """Return the stored state; that of a healthy destination if there is none, or another version wrote it."""
    if stored is not None:
        with suppress(BadDocument):
            return decode_document(DestinationState, stored, "destination")
    return DestinationState()


def load_states(control: redis.Redis, destinations: Iterable[str]) -> dict[str, DestinationState]:
    """Return the states of the destinations that were called recently. Raises `redis.RedisError`."""
    names = sorted(set(destinations))
    if not names:
        return {}
    stored = expect_bytes(control).mget([keys.DESTINATION.build(name) for name in names])
    return {name: read_state(text) for name, text in zip(names, stored, strict=True) if text is not None}
