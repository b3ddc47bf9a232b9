"""The supervisor of ./run: processes, their uptime and logs, and restarts.

In Compose or on a cluster there is none: the console can't restart what it did not start.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xmlrpc.client import Fault, ServerProxy

import msgspec
from supervisor.xmlrpc import SupervisorTransport, UnixStreamHTTPConnection

from common import environment as variables
from common.errors import BadInput, WeirError
from common.stored_document import get_decoder
from console.connections.log_text import end_of, mask_secrets
from console.connections.processes import list_family, send_signal

RUNNING = ("RUNNING", "STARTING")
SUSPENDED = "SUSPENDED"  # our own: the supervisor knows no such state
WORDS = {
    "RUNNING": "running",
    "STARTING": "starting",
    "BACKOFF": "restarting",
    "STOPPING": "stopping",
    "EXITED": "ended",
    "FATAL": "failed to start",
    "STOPPED": "not started",
    "SUSPENDED": "suspended",
    "UNKNOWN": "unknown",
}
ANSWER_SECONDS = 5.0
LOG_BYTES = 32 * 1024
LOG_LINES = 100
MAX_TRIES, TRY_SECONDS = 50, 0.2
DRILL = "drill"  # runs only while a drill is due


class NoSupervisor(WeirError):  # noqa: N818
    """This console was not started by ./run, or its supervisor does not answer."""


class ProcessEnd(msgspec.Struct, frozen=True):
    """The restarts of a process, and its last end. at: Unix time."""

    restarts: int = 0
    ended_at: float | None = None
    how: str = ""


@dataclass(frozen=True)
class ProcessRow:
    """A process of the plant. since: its start (Unix time); None while it is not running."""

    name: str
    state: str
    word: str
    pid: int | None
    since: float | None
    restarts: int
    ended_at: float | None
    how_it_ended: str

    @property
    def is_well(self) -> bool:
        return self.state == "RUNNING"

    @property
    def is_suspended(self) -> bool:
        return self.state == SUSPENDED


def is_there() -> bool:
    """Return whether ./run has started this console."""
    return variables.SUPERVISOR.is_set()


def list_processes() -> list[ProcessRow]:
    """Return the processes, stopped ones first, then by name. Raises `NoSupervisor`."""
    ends = read_ends(Path(variables.DATA.get_text()))
    rows = [_build_process_row(info, ends.get(info["name"], ProcessEnd())) for info in _ask("getAllProcessInfo")]
    rows = [row for row in rows if row.name != DRILL or row.state != "EXITED"]  # its work is done
    return sorted(rows, key=lambda row: (row.is_well, row.name))


def _build_process_row(info: dict[str, Any], end: ProcessEnd) -> ProcessRow:
    runs = info["statename"] in RUNNING
    state = SUSPENDED if runs and is_suspended(info["pid"]) else info["statename"]
    return ProcessRow(
        name=info["name"],
        state=state,
        word=WORDS.get(state, "unknown"),
        pid=info["pid"] or None,
        since=float(info["start"]) if runs and info["start"] else None,
        restarts=end.restarts,
        ended_at=end.ended_at,
        how_it_ended=end.how,
    )


def is_suspended(pid: int) -> bool:
    """Return whether a process was suspended by a signal (SIGSTOP), which the supervisor reports as running.

    Returns False if the system does not report it.
    """
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    return False


def is_gone(pid: int) -> bool:
    """Return whether no process has this ID. Returns False if the system does not report it."""
    return Path("/proc/self").exists() and not Path(f"/proc/{pid}").exists()


def get_process(name: str) -> ProcessRow:
    """Return one process. Raises `BadInput` for an unknown name, `NoSupervisor`."""
    rows = list_processes()
    process_row = next((row for row in rows if row.name == name), None)
    if process_row is None:
        raise BadInput("process", (f"must be one of {', '.join(row.name for row in rows)}, not {name[:40]}."))
    return process_row


def log_lines(name: str) -> list[str]:
    """Return the last lines of a process's log, the oldest first, without secrets.

    They are read from the file: the supervisor answers in XML, which can't contain all that a program may write. Raises
    BadInput, NoSupervisor.
    """
    log = Path(variables.DATA.get_text()) / "logs" / f"{get_process(name).name}.log"
    with suppress(FileNotFoundError):  # it is just being rotated
        return mask_secrets(end_of(log, LOG_BYTES)).splitlines()[-LOG_LINES:]
    return []


def restart(name: str, at_once: bool) -> ProcessRow:
    """Restart a process, or start a stopped one; return its previous state.

    It finishes its work, unless it is to end `at_once`: then it is killed with its children. So is a suspended process,
    which no other signal ends.
    """
    process_row = get_process(name)
    if process_row.pid is None:
        start(process_row.name)
    else:
        with suppress(ProcessLookupError):  # it has just ended
            if at_once or process_row.is_suspended:
                os.killpg(process_row.pid, signal.SIGKILL)  # the supervisor gives each process its own group
            else:
                os.kill(process_row.pid, signal.SIGTERM)
    return process_row


def take_down(name: str) -> None:
    """Kill a process with its children (SIGKILL), and keep it down until `start`."""
    group = _find_group(name)
    for _ in range(MAX_TRIES):
        row = get_process(name)
        if row.state == "STOPPED":
            return
        send_signal(list_family(row.pid) if row.pid else [], signal.SIGKILL)
        with suppress(Fault):  # it is being restarted just now
            _ask("stopProcess", f"{group}:{name}", False)
        time.sleep(TRY_SECONDS)
    raise NoSupervisor(f"The supervisor keeps restarting {name}, so the process can't be kept down.")


def start(name: str) -> None:
    """Start a process that is down."""
    with suppress(Fault):  # it runs, or is being started
        _ask("startProcess", f"{_find_group(name)}:{name}", False)


def suspend(name: str) -> int | None:
    """Suspend a process with its children (SIGSTOP); return its process ID, None if it was not running."""
    pid = get_process(name).pid
    if pid:
        send_signal(list_family(pid), signal.SIGSTOP)
    return pid


def _find_group(name: str) -> str:
    """Return the group of a known process. Raises `BadInput` for an unknown name."""
    groups: dict[str, str] = {info["name"]: info["group"] for info in _ask("getAllProcessInfo")}
    if name not in groups:
        raise BadInput("process", f"must be one of {', '.join(groups)}, not {name[:40]}.")
    return groups[name]


def _ask(method: str, *arguments: object) -> Any:
    if not is_there():
        raise NoSupervisor("This console was not started by ./run.")
    try:
        with open_supervisor(variables.SUPERVISOR.get_text()) as supervisor:
            return getattr(supervisor, method)(*arguments)
    except OSError as error:
        raise NoSupervisor(f"The supervisor is not responding ({error}).") from error


class _Connection(UnixStreamHTTPConnection):  # type: ignore[misc]  # it has no types
    """A connection to a supervisor that may be frozen: each answer has ANSWER_SECONDS."""

    def connect(self) -> None:
        super().connect()
        self.sock.settimeout(ANSWER_SECONDS)


@contextmanager
def open_supervisor(socket: str) -> Iterator[Any]:
    """Return the supervisor that listens at this Unix socket. Its calls raise `OSError` and `xmlrpc.client.Fault`."""
    transport = SupervisorTransport(None, None, f"unix://{socket}")

    def create_connection() -> _Connection:
        made = _Connection("localhost")
        made.socketfile = socket
        return made

    transport._get_connection = create_connection
    with ServerProxy("http://127.0.0.1", transport=transport) as proxy:
        yield proxy.supervisor


def ends_file(data: Path) -> Path:
    """Return the file in which the launcher records how processes ended."""
    return data / "process-ends.json"


def read_ends(data: Path) -> dict[str, ProcessEnd]:
    """Return {process: how it ended}; empty if nothing was recorded."""
    try:
        ends: dict[str, ProcessEnd] = get_decoder(dict[str, ProcessEnd]).decode(ends_file(data).read_bytes())
        return ends
    except (OSError, msgspec.DecodeError):
        return {}
