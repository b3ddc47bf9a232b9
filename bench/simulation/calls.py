"""The calls of simulated processes, and the faults that wait for one of them.

A fault waits for a number of calls of a process, or for a moment: a call of some kind by any process. Most calls read
or repeat something; a promise is broken by what happens around the few that take a lease or write. Faults at moments
therefore find more than faults at random times. `MOMENTS` names calls, not defects.
"""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.simulation.scheduler import ProcessKilled, Scheduler, VirtualProcess
from queues import keys
from queues.lua.script import FOLDER, load_script

LOST_REQUEST, LOST_REPLY, CRASH_BEFORE, CRASH_AFTER, SLOW, FREEZE = (
    "lost request",
    "lost reply",
    "crash before the call",
    "crash after the call",
    "slow call",
    "freeze at a call",
)
CALL_FAULTS = (LOST_REQUEST, LOST_REPLY, CRASH_BEFORE, CRASH_AFTER, SLOW)
POST = b"POST"  # a message to the receiver of alerts
LEASES = keys.LEASE.build("")
# Commands at which faults wait, and how often each is chosen
COMMAND_MOMENTS: Mapping[str, float] = {
    "lease/acquire loop": 8,
    **dict.fromkeys((f"lease/acquire {name}" for name in ("plan", "recovery", "alerter", "retry")), 1),
    **dict.fromkeys((f"lease/acquire {name}" for name in ("courier", "observer", "settling")), 0.5),
    **dict.fromkeys((f"lease/{name}" for name in ("renew loop", "renew plan", "release loop", "release plan")), 0.5),
    **dict.fromkeys((f"segment/{name}" for name in ("depart", "receive", "confirm")), 1.5),
    **dict.fromkeys((f"segment/{name}" for name in ("stay", "acknowledge", "reclaim")), 0.5),
    **dict.fromkeys(("plant/move_messages", "LPUSH", "RPUSH", "SET", POST.decode()), 0.5),
}
# Statements at which faults wait, and how often each is chosen
STATEMENT_MOMENTS: Mapping[str, float] = {
    "COMMIT": 1,
    **dict.fromkeys(("UPDATE workers_loop", "INSERT workers_ledgerentry", "UPDATE workers_ledgerentry"), 0.5),
    **dict.fromkeys(("UPDATE workers_plan", "UPDATE workers_retryplan", "UPDATE queues_container"), 1),
    **dict.fromkeys(("INSERT workers_override", "UPDATE workers_override", "UPDATE queues_topologyrevision"), 0.5),
    **dict.fromkeys(("UPDATE workers_alertwatch", "INSERT workers_alert", "INSERT workers_message"), 0.5),
    **dict.fromkeys(("INSERT workers_delivery", "UPDATE workers_delivery"), 0.5),
}
_STATEMENT = re.compile(r'(INSERT|UPDATE|DELETE)(?: INTO| FROM)? "?(\w+)')


@dataclass
class CallFault:
    """A fault of one call. calls: how many calls come before that one."""

    kind: str
    seconds: float
    calls: int


class CallFaults:
    """The faults that wait for a call.

    by_process: process → the faults of its calls to servers, in their order. freezes: the same for its calls and
    statements. at_moments: moment → what waits for it. crash: ends a process.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.by_process: dict[str, list[CallFault]] = {}
        self.freezes: dict[str, list[CallFault]] = {}
        self.at_moments: dict[str, list[Callable[[str], CallFault | None]]] = {}
        self.crash: Callable[[VirtualProcess], None] = lambda process: None
        self._scheduler = scheduler

    def clear(self) -> None:
        for waiting in (self.by_process, self.freezes, self.at_moments):
            waiting.clear()

    def meet_command(self, words: Sequence[bytes], host: str) -> CallFault | None:
        """Return the fault of the present process's command to a host, if there is one."""
        self._freeze_if_due()
        process = self._get_process()
        return _take_due(self.by_process, process.name) or (
            self._meet(name_command(words), host) if self.at_moments else None
        )

    def meet_statement(self, sql: str, host: str) -> CallFault | None:
        """Return the fault of the present process's statement, if there is one."""
        self._freeze_if_due()
        return self._meet(name_statement(sql), host) if self.at_moments else None

    def crash_now(self) -> None:
        """Crash the process that runs now. Doesn't return."""
        process = self._get_process()
        self._scheduler.call_at(self._scheduler.now, lambda: self.crash(process))
        self._scheduler.pause(1e-9)
        raise ProcessKilled

    def _meet(self, moment: str, host: str) -> CallFault | None:
        waiting = self.at_moments.get(moment)
        if not waiting:
            return None
        fault = waiting.pop(0)(host)
        self._scheduler.note(f"fault at {moment}")
        if fault is not None and fault.kind == FREEZE:
            thread = self._scheduler.current
            assert thread is not None, "only simulated threads call"
            thread.memory[FREEZE] = fault
            return None
        return fault

    def _freeze_if_due(self) -> None:
        """Freeze the present process here, if a fault says so."""
        thread = self._scheduler.current
        assert thread is not None, "only simulated threads call"
        if not thread.process.is_alive:
            raise ProcessKilled
        fault = _take_due(self.freezes, thread.process.name)
        own: CallFault | None = thread.memory.get(FREEZE)
        if own is not None and own.calls > 0:
            own.calls -= 1
        elif own is not None:
            fault = thread.memory.pop(FREEZE)
        if fault is not None:
            thread.process.frozen_until = self._scheduler.now + fault.seconds
            self._scheduler.note(f"freezes until {thread.process.frozen_until - self._scheduler.starts_at:.3f}")

    def _get_process(self) -> VirtualProcess:
        process = self._scheduler.process
        assert process is not None, "only simulated processes call"
        return process


def name_command(words: Sequence[bytes]) -> str:
    """Return the name of a command: that of its script, with the kind of its lease."""
    name = words[0].upper()
    if name != b"EVAL":
        return name.decode()
    script = _name_scripts().get(words[1], "")
    if not script.startswith("lease/"):
        return script
    return f"{script} {words[3].decode().removeprefix(LEASES).partition(':')[0]}"


@functools.lru_cache(4_096)
def name_statement(sql: str) -> str:
    """Return the name of a statement that writes: what it does, and its table."""
    parts = _STATEMENT.match(sql)
    return sql if parts is None else f"{parts[1]} {parts[2]}"


@functools.cache
def _name_scripts() -> Mapping[bytes, str]:
    names = [str(path.relative_to(FOLDER).with_suffix("")) for path in sorted(FOLDER.rglob("*.lua"))]
    return {load_script(name).encode(): name for name in names}


def _take_due(waiting: dict[str, list[CallFault]], process: str) -> CallFault | None:
    faults = waiting.get(process)
    if not faults:
        return None
    if faults[0].calls > 0:
        faults[0].calls -= 1
        return None
    return faults.pop(0)
