"""A running plant and the other users of its machine: what they can read, and which ports listen to them.

The attacks, as they once succeeded: 300 files of a plant (database, append-only files, logs) were readable by
everybody; any user could take away Spark's callbacks, or make its Python daemons fork without end.
"""

import os
import shutil
import socket
import stat
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import redis

from bench.plant.running_plant import RunningPlant
from console.embedded.local import EmbeddedServers
from tests.waiting import MAX_SECONDS
from workers.pipeline.runtime.worker_start import SOCKETS

OTHERS = 0o077
STRANGER = "nobody"

# A whole plant on a busy machine takes its time.
pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(600)]


class OpenPlant(RunningPlant):
    """A plant whose data folder lies where others can get to, and was open to them before it started."""

    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp(prefix="weir-open-"))
        self.place.chmod(0o755)
        (self.place / "data").mkdir()
        (self.place / "data" / "archive").mkdir(mode=0o755)
        left = self.place / "data" / "archive" / "left.parquet"
        left.write_text("by an older version")
        left.chmod(0o644)

    def environment_of_run(self) -> dict[str, str]:
        return {**super().environment_of_run(), "WEIR_SPARK": "always"}

    def folder_of_data(self) -> Path:
        return self.place / "data"

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        shutil.rmtree(self.place, ignore_errors=True)


@pytest.fixture(scope="module")
def plant():
    with OpenPlant() as running:
        # A first micro-batch: Spark's workers, its callbacks and its checkpoint are there.
        running.wait_until(lambda snapshot: (snapshot["pipeline"] or {}).get("batch"), 400, "a first batch")
        yield running


def everything(plant: OpenPlant) -> list[Path]:
    """Every entry of the data folder, and what the plant's processes keep among temporary files."""
    temporary = Path(tempfile.gettempdir())
    elsewhere = [*temporary.glob("hsperfdata_*/*"), *temporary.glob("weir-*/*"), *temporary.glob("spark-*")]
    mine = {str(process.pid) for process in plant.processes()}
    counters = [path for path in elsewhere if path.parent.name.startswith("hsperfdata") and path.name in mine]
    rest = [path for path in elsewhere if not path.parent.name.startswith("hsperfdata")]
    since = psutil.Process(plant.process.pid).create_time()
    new = [path for path in rest if path.lstat().st_ctime >= since and plant.place not in path.parents]
    return [plant.data, *plant.data.rglob("*"), *counters, *new]


def readable_by_others(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return False
    return not stat.S_ISLNK(mode) and bool(mode & OTHERS)


def test_no_file_of_a_plant_is_readable_by_group_or_others(plant):
    found = everything(plant)
    assert len(found) > 300
    assert [str(path) for path in found if readable_by_others(path)] == []


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("runuser"), reason="only root can become another user")
def test_another_user_is_refused_the_folder_and_every_file_in_it(plant):
    tried = ["weir.sqlite3", "secret-key", "first-login", "local.json", "logs/web.log", "archive/left.parquet"]
    for name in ("", *tried):
        reading = ["cat", str(plant.data / name)] if name else ["ls", str(plant.data)]
        answer = subprocess.run(["runuser", "-u", STRANGER, "--", *reading], capture_output=True, text=True)
        assert answer.returncode != 0 and "Permission denied" in answer.stderr, name


def test_every_process_of_a_plant_makes_files_for_its_owner_alone(plant):
    masks = {}
    for process in plant.processes():
        status = Path(f"/proc/{process.pid}/status")
        if status.exists() and "Umask:" in (text := status.read_text()):
            masks[f"{process.pid} {process.name()}"] = text.split("Umask:")[1].split()[0]
    assert len(masks) > 15
    assert {name: mask for name, mask in masks.items() if mask != "0077"} == {}


def test_no_secret_stands_on_a_command_line(plant):
    local = EmbeddedServers(plant.data)
    key = (plant.data / "secret-key").read_text()
    for process in plant.processes():
        with suppress(psutil.NoSuchProcess):  # one that has ended has no command line
            line = " ".join(process.cmdline())
            assert not any(secret in line for secret in (local.password, key, plant.password)), line.split()[0]


def listening(plant: OpenPlant) -> dict[int, psutil.Process]:
    """Each TCP port that a process of the plant listens on; UDP there is none."""
    ports = {}
    for process in plant.processes():
        try:
            for connection in process.net_connections("inet"):
                assert connection.type == socket.SOCK_STREAM, connection
                if connection.status == psutil.CONN_LISTEN:
                    assert connection.laddr.ip in ("127.0.0.1", "::1", "::ffff:127.0.0.1"), connection
                    ports[connection.laddr.port] = process
        except psutil.NoSuchProcess:
            continue
    return ports


def kind_of(process: psutil.Process) -> str:
    line = " ".join(process.cmdline())
    words = {"valkey-server": "server", "redis-server": "server", "uvicorn": "web", "java": "java"}
    words |= {"workers.pipeline.runtime.application": "driver", ".daemon": "daemon", "worker_daemon": "daemon"}
    return next((kind for word, kind in words.items() if word in line.replace("=java", "")), line)


def test_these_ports_are_all_that_a_plant_listens_on_and_only_on_loopback(plant):
    kinds = [kind_of(process) for process in listening(plant).values()]
    # The driver's two: Spark's callbacks and the accumulators. Python workers have Unix sockets.
    assert set(kinds) == {"server", "web", "driver", "java"}
    assert (kinds.count("server"), kinds.count("web")) == (4, 1)


def test_a_server_asks_everybody_for_its_password(plant):
    for name in ("control", "n1", "n2", "n3"):
        port = EmbeddedServers(plant.data).ports[name]
        for attempt in ({}, {"password": "guess"}, {"username": "default", "password": ""}):
            with redis.Redis(port=port, **attempt) as stranger, pytest.raises(redis.AuthenticationError):
                stranger.get("weir:topology")


SPOKEN = """
import socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5)
connection.settimeout(5)
connection.sendall(bytes.fromhex(sys.argv[2]))
answer = b""
try:
    while part := connection.recv(200):
        answer += part
except TimeoutError:
    answer = answer or None
except OSError:
    pass
sys.stdout.write("silence" if answer is None else answer.hex())
"""


def spoken(port: int, said: bytes, stranger: str | None = None) -> bytes | str:
    """What a port answers: bytes (none: it hung up), or "silence"."""
    become = ["runuser", "-u", stranger, "--"] if stranger else []
    command = [*become, "/usr/bin/python3", "-c", SPOKEN, str(port), said.hex()]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=MAX_SECONDS).stdout
    return answer if answer == "silence" else bytes.fromhex(answer)


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("runuser"), reason="only root can become another user")
def test_spark_calls_back_its_own_user_only(plant):
    """The command takes a callback's object away; Py4J answers it with "!y..." to whoever may speak."""
    harmless = b"c\np9999\ncall\ne\n"
    ports = [port for port, process in listening(plant).items() if kind_of(process) == "driver"]
    heard = [port for port in ports if str(spoken(port, harmless)).startswith("b'!")]
    assert len(heard) == 1, "this user itself is heard: the question is a real one"
    for port in ports:
        assert spoken(port, harmless, stranger=STRANGER) in (b"", "silence")


def test_sparks_java_obeys_nobody_without_its_secret(plant):
    """Py4J's gateway, asked to end Java; the RPC and block ports hang up or keep silent."""
    ports = [port for port, process in listening(plant).items() if kind_of(process) == "java"]
    ended = b"c\nz:java.lang.System\nexit\ni0\ne\n"
    for port in ports:
        answer = spoken(port, ended)
        assert answer in (b"", "silence") or b"Auth" in bytes(answer), (port, answer)
    assert all(process.is_running() for process in listening(plant).values())
    assert set(ports) <= set(listening(plant))


def test_python_workers_listen_only_in_a_private_folder(plant):
    (sockets,) = plant.data.rglob(SOCKETS)
    assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
