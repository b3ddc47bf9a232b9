"""`./run`, and `weir run` of a wheel: prepares the data folder, starts the plant under a supervisor."""

import argparse
import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

import psutil
import redis

from common import environment as variables
from common.errors import BadInput
from common.files import keep_private, mend
from common.own_process import raise_open_file_limit
from common.parsing import MAX_SHOWN, parse_digits
from console import release
from console.embedded.leftovers import end_leftovers
from console.embedded.local import EmbeddedServers, check_whole
from console.embedded.preparation import Preparation
from console.embedded.processes import DRILL, SHOP, Process, list_plant_processes
from console.embedded.running import register
from console.embedded.supervision import Supervisor, end_with_the_parent
from queues.control.connection import connect
from queues.nodes.addresses import parse_nodes
from queues.nodes.file_sync import FileSync
from queues.nodes.server import free_port, prepare_server_process

LOOPBACK = "127.0.0.1"
# Listens on every address of the machine; it is no address itself.
WILDCARDS = {"0.0.0.0": LOOPBACK, "::": "::1"}
PROGRAM = "./run" if release.IS_CHECKOUT else "weir run"
NODES = ("n1", "n2", "n3")
LOCAL = "local"  # WEIR_NODE_REPLICAS: a second server for each node, on this machine
DEFAULT_PORT, MAX_PORT = 8000, 65_535
ARCHIVE_CLASSES_AFTER_SECONDS = 120.0
LOADING_SECONDS = 600.0  # time for a server to load its file: four of a gigabyte share a slow disk
# Also SIGINT: a shell that starts this in the background ignores it, and Python then keeps it so.
STOPPING = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True)
class PageAddress:
    """host: an address or a name of this machine, or a wildcard."""

    host: str
    port: int

    @property
    def probed(self) -> str:
        """Return the address by which this machine reaches the page."""
        return f"http://{_bracket_host(WILDCARDS.get(self.host, self.host))}:{self.port}"

    @property
    def announced(self) -> str:
        name = "localhost" if self.host == LOOPBACK else self.host
        name = socket.gethostname() if self.host in WILDCARDS else name
        return f"http://{_bracket_host(name)}:{self.port}/"

    def list_names(self) -> list[str]:
        """Return the permitted host names, beside those of the loopback address."""
        hosts = (
            [self.host] if self.host not in WILDCARDS else [socket.gethostname(), socket.getfqdn(), *_list_addresses()]
        )
        return list(dict.fromkeys(map(_bracket_host, hosts)))

    def is_free(self) -> bool:
        """Return whether the page can listen there: the address is this machine's, and the port is free."""
        try:
            ((family, kind, _, _, address), *_) = socket.getaddrinfo(
                self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            with socket.socket(family, kind) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
        except OSError:
            return False
        return True


def _list_addresses() -> Iterator[str]:
    for rows in psutil.net_if_addrs().values():
        for row in rows:
            # A link-local address includes the interface's name, which no browser sends.
            if row.family in (socket.AF_INET, socket.AF_INET6) and "%" not in row.address:
                yield row.address


def _bracket_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def say(text: str) -> None:
    """Print a line, ignoring errors.

    A full disk behind the output, or a closed terminal, must end neither the plant nor the thread that writes its
    servers' files to the disk.
    """
    with suppress(OSError):
        sys.stdout.write(f"{time.strftime('%H:%M:%S')}  {text}\n")
        sys.stdout.flush()


def parse_port_number(text: str) -> int:
    """Return a port number. The check for a free port would take a larger number for another port."""
    port = parse_digits(text)
    if port is None or port > MAX_PORT:
        raise argparse.ArgumentTypeError(f"must be 0 to {MAX_PORT}, not {text[:MAX_SHOWN]!r}")
    return port


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Start Weir on this machine. Press Ctrl-C to stop it.")
    parser.add_argument("--prepare", action="store_true", help="install and migrate only")
    parser.add_argument(
        "--port", type=parse_port_number, default=DEFAULT_PORT, help="the console's port (default 8000; 0: any)"
    )
    parser.add_argument("--data", type=Path, help=f"data folder (default: WEIR_DATA, else {release.get_data_folder()})")
    parser.add_argument(
        "--restore", type=Path, metavar="FILE", help=("restore a backup (manage.py backup) to a new data folder")
    )
    parser.add_argument(
        "--demo", action="store_true", help="also run a shop that exercises all loops (data folder: DEFAULT/demo)"
    )
    parser.add_argument("--host", default=LOOPBACK, help="address to listen on (default 127.0.0.1)")
    options = parser.parse_args(arguments)
    if options.data is None:
        is_own = options.demo and not variables.DATA.is_set()
        options.data = release.get_data_folder() / "demo" if is_own else release.get_data_folder()
    if options.prepare and options.restore:
        parser.error("--restore can't be combined with --prepare: it needs a running plant.")
    return options


def can_begin(data: Path, page: PageAddress) -> bool:
    """Return whether the page's address is free, once the processes of a killed launcher have ended."""
    if ended := end_leftovers(data):
        say(f"Stopped the remaining processes of an earlier {PROGRAM} run: {ended}.")
    return page.is_free()


def let_in(page: PageAddress) -> None:
    """Permit the announced address as a host name, unless WEIR_HOSTS is set."""
    if not variables.HOSTS.is_set() and not variables.PRODUCTION.is_on():
        words = dict.fromkeys([*variables.HOSTS.get_words(), *page.list_names()])
        variables.PROCESS[variables.HOSTS.name] = " ".join(words)


def lead_to(page: PageAddress) -> None:
    """Set the address for the observer's checks and for links in messages, unless the environment has it."""
    addresses = {variables.CONSOLE_URL: page.probed, variables.PUBLIC_URL: page.announced}
    for variable, address in addresses.items():
        if not variable.is_set():
            variables.PROCESS[variable.name] = address


def choose_ports(plant: EmbeddedServers, names: list[str]) -> None:
    """Choose ports, those of the last start if they are still free."""
    for name in names:
        if name not in plant.ports or not PageAddress(LOOPBACK, plant.ports[name]).is_free():
            plant.ports[name] = free_port()
    plant.keep()


def start_servers(plant: EmbeddedServers) -> list[Process]:
    """Start ./run's servers: control unless REDIS_URL names one, nodes unless WEIR_NODES does."""
    names = [] if variables.REDIS_URL.is_set() else ["control"]
    names += [] if variables.NODES.is_set() else NODES
    replicas = {name: f"{name}-replica" for name in NODES if name in names} if has_local_replicas() else {}
    names += replicas.values()
    choose_ports(plant, names)
    if "control" in names:
        variables.PROCESS[variables.REDIS_URL.name] = plant.build_url("control")
    if "n1" in names:
        variables.PROCESS[variables.NODES.name] = " ".join(f"{name}={plant.build_url(name)}" for name in NODES)
        addresses = " ".join(f"{name}={plant.build_url(replica)}" for name, replica in replicas.items())
        variables.PROCESS[variables.NODE_REPLICAS.name] = addresses
    peers = {**replicas, **{replica: name for name, replica in replicas.items()}}
    return [start_server(plant, name, peers.get(name)) for name in names]


def has_local_replicas() -> bool:
    """Return whether each node of this machine gets a second server, which copies it."""
    return variables.NODE_REPLICAS.get_text() == LOCAL


def start_server(plant: EmbeddedServers, name: str, peer: str | None = None) -> Process:
    peer_port = None if peer is None else plant.ports[peer]
    command = prepare_server_process(plant.data / "servers" / name, plant.ports[name], plant.password, peer_port)
    return Process(name, tuple(command), stop_seconds=8, first=True)


def restore_backup(backup: Path) -> bool:
    """Restore a backup; return whether it succeeded. Errors are on standard error.

    It runs in its own process, which starts with the signing key of the backup.
    """
    say(f"Restoring {backup}")
    command = [sys.executable, str(release.ROOT / "manage.py"), "restore", str(backup)]
    return subprocess.run(command, check=False).returncode == 0


def wait_for_servers(seconds: float = 30.0) -> None:
    """Return when the control server and all nodes answer.

    One that loads its file has longer: it answers that it is loading or, while it reads large blocks, not at all.
    """
    urls = [variables.REDIS_URL.get_text(), *parse_nodes(variables.NODES.get_text()).values()]
    deadline, loaded_by = (time.monotonic() + limit for limit in (seconds, LOADING_SECONDS))
    said = False
    for url in urls:
        while True:
            try:
                connect(url, socket_timeout=1.0).ping()
                break
            except redis.RedisError as error:
                loads = isinstance(error, redis.BusyLoadingError | redis.TimeoutError)
                if time.monotonic() > (loaded_by if loads else deadline):
                    raise SystemExit(f"A Redis server is not responding ({error}). See the logs folder.") from error
                if loads and not said:
                    say("A Redis server is loading its data or is not responding; waiting for it.")
                    said = True
                time.sleep(0.05)


def wait_for_page(page: PageAddress, seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    # Not through a proxy of the environment, which may have been set for the downloads of the first start.
    directly = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while time.monotonic() < deadline:
        try:
            with directly.open(f"{page.probed}/healthz", timeout=1):
                return True
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    return False


def _build_folder_error(data: Path, error: OSError) -> SystemExit:
    return SystemExit(f"--data: {data} is not a writable folder ({error.strerror}). Choose another folder.")


def take_lock(data: Path) -> IO[str]:
    """Lock the data folder for this launcher. A second launcher prints where the first one is, and exits with 0."""
    try:
        lock = (data / "lock").open("a+")
    except OSError as error:
        raise _build_folder_error(data, error) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        with lock:
            lock.seek(0)
            say(f"Weir is already running from {data}: {lock.read().strip() or 'it is starting'}")
        raise SystemExit(0) from None
    lock.truncate(0)  # the address of its last start is not that of this one
    return lock


def write_address(lock: IO[str], address: str) -> None:
    lock.seek(0)
    lock.truncate()
    lock.write(address)
    lock.flush()


def stop_on_signal(signum: int, frame: FrameType | None) -> None:
    """Stop on the first signal."""
    ignore_signals()
    raise KeyboardInterrupt


def ignore_signals() -> None:
    """Ignore further signals while the plant stops: they would interrupt it, and leave the plant running."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)


def set_environment(data: Path) -> None:
    variables.PROCESS[variables.DATA.name] = str(data)
    variables.PROCESS.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    variables.PROCESS.setdefault("PYTHONUNBUFFERED", "1")
    variables.PROCESS.setdefault(variables.OBSERVER_AGENTS.name, "1")  # all nodes are on this machine
    variables.PROCESS.setdefault(variables.CONTROL_BEAT.name, "1")  # and there is one control worker
    # By default, each thread of a process has its own arena, and most threads allocate little.
    variables.PROCESS.setdefault("MALLOC_ARENA_MAX", "2")
    # Arrow's own allocator keeps 60 MB once a process has written a file.
    variables.PROCESS.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")


def close_to_others(data: Path) -> None:
    """Restrict the data folder to this user, including files of an older version."""
    keep_private()
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = data.stat().st_uid
        if owner != os.getuid():
            raise SystemExit(
                f"{data} belongs to another user (uid {owner}), who could change it. Choose another folder with --data."
            )
        mended = mend(data)
    except BadInput as error:
        raise SystemExit(f"--data: {error.message}.") from None
    except OSError as error:
        raise _build_folder_error(data, error) from None
    if mended.changed:
        say(f"Access to {data} is now restricted to you. Files that other users could access: {mended.changed}.")
    if mended.foreign:
        say(f"Files in {data} that belong to other users and were not changed: {mended.foreign}.")


def archive_classes_later(data: Path) -> None:
    """Archive Spark's classes for quicker starts (`workers.pipeline.runtime.class_archive`).

    It runs once, at the lowest priority, and not during the start of a plant, which it would slow down.
    """

    def keep() -> None:
        log = data / "logs" / "class-archive.log"
        with log.open("wb") as out:  # Java lists each of a thousand classes that it cannot keep
            # Joined: the kernel ends the process with the thread that started it.
            subprocess.run(
                ["nice", "-n", "19", sys.executable, "-m", "workers.pipeline.runtime.class_archive"],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=release.ROOT,
                preexec_fn=end_with_the_parent,
                check=False,
            )

    later = threading.Timer(ARCHIVE_CLASSES_AFTER_SECONDS, keep)
    later.daemon = True
    later.start()


def stop(supervisor: Supervisor) -> None:
    ignore_signals()
    supervisor.stop()


def main(arguments: list[str]) -> int:
    options = parse_arguments(arguments)
    data = options.data.resolve()
    try:
        parse_nodes(variables.NODES.get_text())
        variables.PRODUCTION.is_on()
        variables.OBSERVER_AGENTS.is_on()
        variables.CONTROL_BEAT.is_on()
        replica_processes = variables.PIPELINE_REPLICA_PROCESSES.get_whole_number()
        check_whole(data)
        EmbeddedServers(data)
    except BadInput as error:  # before anything is started
        sys.stderr.write(f"{PROGRAM}: {error}\n")
        return 2
    set_environment(data)
    raise_open_file_limit()
    close_to_others(data)
    lock = take_lock(data)
    page = PageAddress(options.host, options.port or free_port())
    if not options.prepare and not can_begin(data, page):
        is_local = page.host == LOOPBACK
        where = "" if is_local else f", or {page.host} is not an address of this machine"
        options_named = "--port" if is_local else "--port or --host"
        say(f"Port {page.port} is used by another program{where}; change {options_named}.")
        return 1
    lead_to(page)
    let_in(page)
    for signum in STOPPING:
        signal.signal(signum, stop_on_signal)
    servers = [] if options.prepare else start_servers(EmbeddedServers(data))
    if options.prepare:
        with Preparation(seed=False) as preparation:
            preparation.wait_until_migrated()
        say(f"Prepared {data}; {PROGRAM} starts the plant.")
        return 0

    supervisor = Supervisor(data, release.ROOT)
    running = ExitStack()
    running.enter_context(register(data))
    try:
        nodes = parse_nodes(variables.NODES.get_text())
        slots = max(2, os.cpu_count() or 2)
        extra = [DRILL, SHOP] if options.demo else [DRILL]
        agents = [] if variables.OBSERVER_AGENTS.is_on() else [*nodes]
        has_beat = not variables.CONTROL_BEAT.is_on()
        plant = [*list_plant_processes(agents, slots, page.host, page.port, replica_processes, has_beat), *extra]
        supervisor.start(servers, plant)
        FileSync((data / "servers" / server.name for server in servers), say).begin()
        wait_for_servers()
        if options.restore and not restore_backup(options.restore):
            return 1
        supervisor.start_processes("pipeline")  # it needs no database, and takes longest to start
        with Preparation(seed=True) as preparation:
            preparation.wait_until_migrated()
            supervisor.start_processes("web")  # before the processes that work behind it: people wait for it
            password = preparation.read_password()
        supervisor.start_processes(*(process.name for process in plant if process.name not in ("pipeline", "web")))
        if not wait_for_page(page):
            say(f"The console is not responding yet; see {data}/logs/web.log")
        write_address(lock, page.announced)
        say(f"Weir is at {page.announced}")
        if password:
            say(f"First login: admin / {password}  (change it in Settings)")
        say(f"Data folder: {data}  (manage.py uses it while this plant runs)")
        say("Press Ctrl-C to stop.")
        archive_classes_later(data)
        for sentence in supervisor.iterate_process_events():
            say(sentence)
        say("The supervisor exited unexpectedly. Stopping its processes.")
        return 1  # systemd, with Restart=on-failure, then starts the launcher again
    except KeyboardInterrupt:
        say("Stopping…")
    finally:
        stop(supervisor)
        running.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
