"""The supervisor under `./run`: its configuration, its control socket, and its log in words."""

import ctypes
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from xmlrpc.client import Error, Fault

import msgspec

from common import environment as variables
from common.files import create_private_folder, write_private
from console.connections.supervisor import ProcessEnd, ends_file, open_supervisor
from console.embedded.forked_programs import build_parent_environment, can_fork, find_program
from console.embedded.leftovers import STOP_SECONDS, end_leftovers
from console.embedded.processes import Process

HEAD = """[supervisord]
nodaemon=true
logfile={data}/logs/supervisor.log
logfile_maxbytes=1MB
logfile_backups=1
pidfile={data}/supervisor.pid
childlogdir={data}/logs
{user}
minfds=1024
umask=077

[unix_http_server]
file={socket}
chmod=0700

[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
"""

# A process that dies is restarted at once; one that can't start backs off, a second more each time. One that runs once
# is restarted only after an error.
PROGRAM = """
[program:{name}]
command={command}
directory={directory}
autostart={autostart}
autorestart={restart}
startsecs={start_seconds}
startretries=1000
stopwaitsecs={stop_seconds}
killasgroup=true
umask=077
redirect_stderr=true
stdout_logfile={logs}/{name}.log
stdout_logfile_maxbytes=5MB
stdout_logfile_backups=1
"""

# The supervisor stops a group at once, and one group after another, the highest number first.
GROUP = """
[group:{name}]
programs={programs}
priority={priority}
"""
# Processes that people and loops wait for have priority: some three times the share of a contended core.
FIRST_NICE = -5
FIRST = ("nice", "-n", str(FIRST_NICE))
# glibc keeps free memory separately for each thread: an observer grew twice as much in its first minutes, and
# took 10 MB more.
FEW_ARENAS = {"MALLOC_ARENA_MAX": "2"}
SERVERS, PLANT = "servers", "plant"
PRIORITIES = {SERVERS: 1, PLANT: 2}

EXITED = re.compile(r"(?:WARN|INFO) exited: (\S+) \((.*?); (not )?expected\)")
SPAWNED = re.compile(r"INFO spawned: '(\S+)' with pid")
START_SECONDS = 30.0  # time until the supervisor accepts commands
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
COMMENT = re.compile(r"\s[;#]")
GAVE_UP = re.compile(r"INFO gave up: (\S+) ")


class Supervisor:
    """A running supervisord and the processes it supervises."""

    def __init__(self, data: Path, directory: Path) -> None:
        self.data, self.directory = data, directory
        # The path of a Unix socket is short (108 bytes), and a data folder's may not be.
        self.socket = Path(tempfile.mkdtemp(prefix="weir-")) / "supervisor.sock"
        variables.PROCESS[variables.SUPERVISOR.name] = str(self.socket)  # the console asks it, too
        self.ends: dict[str, ProcessEnd] = {}
        self.child: subprocess.Popen[bytes] | None = None
        self._imported: int | None = None  # a pipe that the supervisor closes when it can fork programs

    def start(self, servers: Iterable[Process], plant: Iterable[Process]) -> None:
        """Start the supervisor and the servers; other processes are started later.

        Raises `SystemExit` if the supervisor does not start.
        """
        create_private_folder(self.data / "logs")
        end_leftovers(self.data)
        own, self.plant = list(servers), list(plant)
        # Root must be explicit, and nobody else could change users. The environment's name is not used, since `su`
        # keeps it: root's supervisor would become that user.
        user = "user=0" if os.getuid() == 0 else ""
        parts = [HEAD.format(data=_escape_folder(self.data), user=user, socket=self.socket)]
        parts += [self._format_program(process, autostart=True) for process in own]
        parts += [self._format_program(process, autostart=False) for process in self.plant]
        parts += [_group(SERVERS, own), _group(PLANT, self.plant)]
        self._note()  # recorded exits belong to an earlier run
        path = self.data / "supervisor.conf"
        write_private(path, "".join(parts))
        self.child = self._start_supervisor(["-n", "-c", str(path)], [*own, *self.plant])
        self._wait_until_it_answers(self.child)

    def _start_supervisor(self, arguments: list[str], processes: list[Process]) -> subprocess.Popen[bytes]:
        """Start the supervisor that forks programs if it can fork one of them, and otherwise supervisord."""
        # Its log names no zone; `console.timeline.restarts` reads it as UTC.
        environment = {**FEW_ARENAS, **variables.PROCESS, "TZ": "UTC"}
        commands = [build_command(process) for process in processes]
        reading, writing = os.pipe()
        passed = [reading]  # if this process is killed the supervisor would die when it logs that it stops
        if can_fork() and any(map(find_program, commands)):
            source = write_environment(environment)
            self._imported, imported = os.pipe()
            passed += [source, imported]
            room = " " * max(len(shlex.join(command)) for command in commands)
            module = "console.embedded.forking_supervisor"
            arguments = ["-m", module, str(source), str(imported), *arguments, room]
            environment = build_parent_environment(environment)
        else:
            arguments = ["-m", "supervisor.supervisord", *arguments]
        child = subprocess.Popen(
            [sys.executable, *arguments],
            stdout=writing,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches this process alone, which then stops the rest in order
            env=environment,
            preexec_fn=end_with_the_parent,
            pass_fds=passed,
        )
        for descriptor in (writing, *passed[1:]):
            os.close(descriptor)
        self.said = os.fdopen(reading)
        return child

    def _wait_until_it_answers(self, child: subprocess.Popen[bytes]) -> None:
        """Wait until it answers: with external servers, the first command comes right after its start.

        Raises `SystemExit`.
        """
        deadline = time.monotonic() + START_SECONDS
        while True:
            with suppress(OSError, HTTPException), open_supervisor(str(self.socket)) as supervisor:
                supervisor.getState()
                return
            if child.poll() is not None:
                raise SystemExit(f"The supervisor failed to start:\n{self.said.read()}")
            if time.monotonic() > deadline:
                raise SystemExit(f"The supervisor is not responding. See {self.data}/logs/supervisor.log.")
            time.sleep(0.05)

    def _format_program(self, process: Process, *, autostart: bool) -> str:
        return PROGRAM.format(
            name=process.name,
            command=shlex.join(build_command(process)).replace("%", "%%"),  # the supervisor interprets %
            directory=_escape_folder(self.directory),
            autostart=str(autostart).lower(),
            restart="unexpected" if process.once else "true",
            start_seconds=0 if process.once else 2,
            stop_seconds=process.stop_seconds,
            logs=_escape_folder(_escape_folder(self.data / "logs")),  # it is parsed twice
        )

    def start_processes(self, *names: str) -> None:
        if self._imported is not None and any(self._is_forked(name) for name in names):
            os.read(self._imported, 1)  # until the supervisor has imported the programs, or has ended
            os.close(self._imported)
            self._imported = None
        with open_supervisor(str(self.socket)) as supervisor:
            for name in names:
                supervisor.startProcess(f"{PLANT}:{name}", False)

    def _is_forked(self, name: str) -> bool:
        return any(process.name == name and find_program(build_command(process)) for process in self.plant)

    def iterate_process_events(self) -> Iterator[str]:
        """Yield sentences about what dies and what restarts, until the supervisor ends."""
        down: set[str] = set()
        once = {process.name for process in self.plant if process.once}
        for line in self.said:
            match = EXITED.search(line)
            if match and match[1] in once and match[3] is None:
                continue  # it has done its work
            if match:
                down.add(match[1])
                self.record_exit(match[1], match[2])
                yield f"{match[1]} exited ({match[2]}); restarting it"
            elif (match := SPAWNED.search(line)) and match[1] in down:
                self.back(match[1])
                down.discard(match[1])
                yield f"{match[1]} is running again"
            elif match := GAVE_UP.search(line):
                yield f"{match[1]} failed to start; see {self.data}/logs/{match[1]}.log"

    def record_exit(self, name: str, how: str) -> None:
        """Record how a process ended, for the page of processes."""
        self.ends[name] = msgspec.structs.replace(self._end(name), ended_at=time.time(), how=how)
        self._note_again()

    def back(self, name: str) -> None:
        """Record that it was restarted."""
        self.ends[name] = msgspec.structs.replace(self._end(name), restarts=self._end(name).restarts + 1)
        self._note_again()

    def _end(self, name: str) -> ProcessEnd:
        return self.ends.get(name, ProcessEnd())

    def _note_again(self) -> None:
        """Write the records; a full disk must not end the plant, and the next write has all of them."""
        with suppress(OSError):
            self._note()

    def _note(self) -> None:
        write_private(ends_file(self.data), msgspec.json.encode(self.ends).decode())

    def stop(self) -> None:
        """Stop the plant, then the servers it writes to.

        Processes that have not ended in their time are killed, so that it takes at most 20 s. If the supervisor was
        killed or is frozen it takes half a minute.
        """
        if self.child and self.child.poll() is None:
            self._stop_plant()
            self.child.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.child.wait(timeout=STOP_SECONDS)
        if self.child:
            end_leftovers(self.data)
            self.child.wait()
            self.said.close()
        if self._imported is not None:
            os.close(self._imported)
            self._imported = None
        shutil.rmtree(self.socket.parent, ignore_errors=True)

    def _stop_plant(self) -> None:
        """Stop the plant's processes at once, with a short timeout for a supervisor that is frozen."""
        names = {process.name for process in self.plant}
        deadline = time.monotonic() + max((process.stop_seconds for process in self.plant), default=0)
        with suppress(OSError, HTTPException, Error), open_supervisor(str(self.socket)) as supervisor:
            for name in names:
                with suppress(Fault):  # it is not running
                    supervisor.stopProcess(f"{PLANT}:{name}", False)
            while time.monotonic() < deadline:
                running = {
                    process_info["name"] for process_info in supervisor.getAllProcessInfo() if process_info["pid"]
                }
                if not running & names:
                    return
                time.sleep(0.1)


def may_go_first() -> bool:
    """Return whether this user may raise the priority of processes: root, or by its limit."""
    return os.geteuid() == 0 or resource.getrlimit(resource.RLIMIT_NICE)[0] >= 20 - FIRST_NICE


def end_with_the_parent() -> None:
    """Ask the kernel to end this process with its parent (Linux), since a killed launcher stops nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM)


def _escape_folder(folder: Path | str) -> str:
    """Return a folder for supervisor's file, with % escaped. Raises `SystemExit` if a character can't be escaped."""
    if COMMENT.search(str(folder)):
        raise SystemExit(
            f"{folder} has a space before . Or #, which starts a comment for the supervisor. Choose another folder."
        )
    return str(folder).replace("%", "%%")


def _group(name: str, processes: list[Process]) -> str:
    if not processes:
        return ""  # no own servers are needed if external ones are named
    programs = ",".join(process.name for process in processes)
    return GROUP.format(name=name, programs=programs, priority=PRIORITIES[name])


def build_command(process: Process) -> list[str]:
    """Return the command with the path of its program, and with its priority."""
    program, *rest = process.command
    beside = Path(sys.executable).parent / program
    priority = FIRST if process.first and may_go_first() else ()
    return [*priority, str(beside if beside.exists() else program), *rest]


def write_environment(environment: Mapping[str, str]) -> int:
    """Return an open file with an environment as JSON. It has no name, because an environment contains secrets."""
    file = os.memfd_create("environment")
    os.write(file, json.dumps(environment).encode())
    os.lseek(file, 0, os.SEEK_SET)
    return file
