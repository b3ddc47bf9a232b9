"""Ticks of many loops in several processes, because Python code uses one core per process.

Other processes tick only loops of separable kinds (`LoopKind.separable`): the loops that start workers at one
container. All other loops tick first, in this process, in the order of their names, because a ladder's level affects
the decisions of other loops, and loops of one operator yield to each other. Each loop keeps its own lease, number, and
entry, whichever process ticks it.

Loops whose workers compete for the same hosts tick in the same process, because a tick counts the workers that it sends
to a host (`workers.pool.selection`):

- If a host is near several nodes, the loops of these nodes tick in the same process.
- If a queue requires capabilities, its loops tick in this process, and so do the loops of nodes that have a near host.
"""

import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from multiprocessing.connection import Connection
from pathlib import Path
from socket import socketpair
from typing import NamedTuple

from common import environment as variables
from workers.control.kinds.registry import KINDS
from workers.control.tick import DueLoop
from workers.documents.snapshot import Snapshot
from workers.host.environment import build_python_path
from workers.models import LedgerEntry

logger = logging.getLogger(__name__)
MODULE = "workers.control.tick_process"
MIN_LOOPS = 250  # for each process; sending fewer loops takes longer than ticking them
ANSWER_SECONDS = 60.0  # longer than the database's limits; a process that takes longer is stopped
ROOT = Path(__file__).resolve().parents[2]

TickHere = Callable[[Sequence[DueLoop]], list[LedgerEntry]]
JudgePart = Callable[[int, int], object]  # part, parts


class Share(NamedTuple):
    """Loops that another process ticks with this snapshot. The tick began at `now`, `elapsed_seconds` ago.

    part, parts: the part of the earlier actions whose effects the process judges first.
    """

    due: list[DueLoop]
    snapshot: bytes
    now: datetime
    elapsed_seconds: float
    part: int
    parts: int


def divide(due: Sequence[DueLoop], snapshot: Snapshot, processes: int) -> tuple[list[DueLoop], list[list[DueLoop]]]:
    """Return the loops that tick first, in this process, and at most one share of the other loops per process."""
    groups = _group_separable(due, snapshot)
    processes = min(processes, sum(map(len, groups)) // MIN_LOOPS)
    if processes < 2:
        return list(due), []
    shares: list[list[DueLoop]] = [[] for _ in range(processes)]
    for group in sorted(groups, key=len, reverse=True):
        min(shares, key=len).extend(group)
    shared = {loop.pk for share in shares for loop in share}
    return [loop for loop in due if loop.pk not in shared], shares


def _group_separable(due: Sequence[DueLoop], snapshot: Snapshot) -> list[list[DueLoop]]:
    """Return the loops that may tick in different processes, in groups. Loops that share hosts are in one group."""
    competing = {name for name, queue in snapshot.queues.items() if queue.requirements}
    hosts_of_nodes = _group_nodes(snapshot)
    alone: list[list[DueLoop]] = []
    groups: dict[str, list[DueLoop]] = {}
    for loop in due:
        kind = KINDS.get(loop.law)
        if kind is None or not kind.separable or not (loop.queue and loop.node) or loop.queue in competing:
            continue
        group = hosts_of_nodes.get(loop.node)
        if group is None:
            alone.append([loop])
        elif not competing:
            groups.setdefault(group, []).append(loop)
    return [*groups.values(), *alone]


def _group_nodes(snapshot: Snapshot) -> dict[str, str]:
    """Return each node with a near host, and the name of the group of nodes that share the host."""
    group_of: dict[str, str] = {}
    for host in snapshot.hosts.values():
        near = [name for name in host.capabilities if name in snapshot.nodes]
        joined = {group_of.get(node, node) for node in near}
        for node in {*near, *(node for node, group in group_of.items() if group in joined)}:
            group_of[node] = min(joined)
    return group_of


class TickProcesses:
    """The processes that tick the shares of one control worker. A process starts when it is needed for the first time.

    count: number of processes that tick at the same time, including this one. arguments: arguments of
    `workers.control.tick_process`, which define how it opens the plant.
    """

    def __init__(self, count: int, arguments: Sequence[str] = ()) -> None:
        self._count, self._arguments = count, tuple(arguments)
        self._helpers: dict[int, TickProcess] = {}
        self._lock = threading.Lock()

    def tick(
        self,
        due: Sequence[DueLoop],
        snapshot: Snapshot,
        now: datetime,
        elapsed: Callable[[], float],
        judge: JudgePart,
        here: TickHere,
    ) -> list[LedgerEntry]:
        """Judge earlier actions, tick the loops, and return the entries that this process wrote.

        elapsed: returns the seconds since the tick began. judge: judges a part of the earlier actions in this process.
        here: ticks loops in this process. If a process fails, the loops of its share stay due for the next tick. While
        another thread uses the processes, this process ticks all loops.
        """
        if not self._lock.acquire(blocking=False):
            judge(0, 1)
            return here(due)
        try:
            first, shares = divide(due, snapshot, self._count)
            if not shares:
                judge(0, 1)
                return here(first)
            entries = here(first)
            own, *others = shares
            document, parts = snapshot.to_json(), len(shares)
            asked = [
                self._ask(part, Share(share, document, now, elapsed(), part, parts))
                for part, share in enumerate(others, 1)
            ]
            judge(0, parts)
            entries += here(own)
            for part, (share, is_asked) in enumerate(zip(others, asked, strict=True), 1):
                if not is_asked:
                    judge(part, parts)
                    entries += here(share)
                elif not self._helpers[part].wait():
                    self._helpers.pop(part).end()
            return entries
        finally:
            self._lock.release()

    def _ask(self, number: int, share: Share) -> bool:
        """Give a share to a process, and return whether it took the share."""
        for _ in range(2):  # a process that was idle for a long time has ended
            try:
                helper = self._helpers.get(number) or TickProcess(self._arguments)
                self._helpers[number] = helper
                helper.send(share)
                return True
            except OSError as error:
                if ended := self._helpers.pop(number, None):
                    ended.end()
                reason = error
        logger.warning("No tick process is available (%s). The control worker ticks these loops itself.", reason)
        return False

    def end(self) -> None:
        """End the processes."""
        for helper in self._helpers.values():
            helper.end()
        self._helpers.clear()


class TickProcess:
    """A process that ticks loops, and the connection to it. The process ends when this side closes the connection."""

    def __init__(self, arguments: Sequence[str]) -> None:
        mine, its = socketpair()
        with its:
            self._process = subprocess.Popen(
                [sys.executable, "-m", MODULE, str(its.fileno()), *arguments],
                pass_fds=(its.fileno(),),
                stdin=subprocess.DEVNULL,
                env=_select_environment(variables.PROCESS),
            )
        self._connection: Connection = Connection(mine.detach())

    def send(self, share: Share) -> None:
        """Send a share. Raises `OSError` if the process has ended."""
        self._connection.send(share)

    def wait(self) -> bool:
        """Return whether the process has ticked its share. The process logs its own errors."""
        try:
            if self._connection.poll(ANSWER_SECONDS):
                return bool(self._connection.recv())
            why = f"did not answer within {ANSWER_SECONDS:.0f} s"
        except (EOFError, OSError):
            why = "ended"
        logger.error("A tick process %s. Its loops are retried in the next second.", why)
        return False

    def end(self) -> None:
        self._connection.close()
        self._process.kill()
        self._process.wait()


def _select_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the process needs, without user-defined secrets, since it calls no other plant."""
    needed = {name: value for name, value in environment.items() if not variables.SECRET_NAME.match(name)}
    return {**needed, variables.PYTHONPATH: build_python_path(str(ROOT))}
