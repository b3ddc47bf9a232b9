"""Libraries that break the host of a program: a read-only disk, and data that vanishes on its way."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.faults.preloaded import LINKS, READ_ONLY, Preloaded, encode_cut, write_number

READ_ONLY_DISK = """
import os, sys
from pathlib import Path
from bench.faults.preloaded import write_number
data = Path(sys.argv[1], "data")
opened = (data / "opened").open("w")
write_number(Path(sys.argv[1], "number"), 1)
def fails(act):
    try:
        act()
    except OSError as error:
        return error.strerror == "Read-only file system"
    return False
print(fails(lambda: os.write(opened.fileno(), b"x")), fails(lambda: (data / "new").write_text("x")),
      fails(lambda: (data / "opened").unlink()), fails(lambda: (data / "opened").rename(data / "new")),
      fails((data / "opened").read_text), fails(lambda: Path("/dev/null").write_text("x")))
"""
CUT_LINKS = """
import socket, sys
from pathlib import Path
from bench.faults.preloaded import encode_cut, write_number
way = {"to_port": sys.argv[2] == "to", "from_port": sys.argv[2] == "from"}
with socket.create_server(("127.0.0.1", 0)) as listener:
    port = listener.getsockname()[1]
    def connect():
        client = socket.create_connection(("127.0.0.1", port))
        return client, listener.accept()[0]
    def arrives(source, target):
        target.settimeout(0.05)
        try:
            source.sendall(b"x")
            return target.recv(1) == b"x"
        except OSError:
            return False
    client, server = connect()
    write_number(Path(sys.argv[1], "number"), encode_cut(port, **way))
    during = arrives(client, server), arrives(server, client)
    write_number(Path(sys.argv[1], "number"), 0)
    print(*during, arrives(client, server) and arrives(server, client), arrives(*connect()))
"""


def run(library: Preloaded, program: str, folder: Path, *arguments: str) -> list[str]:
    """Return the words that a program prints with the library."""
    built = library.build(folder)
    if built is None:
        pytest.skip("needs a C compiler")
    (folder / "data").mkdir()
    write_number(folder / "number", 0)
    environment = {**os.environ, "LD_PRELOAD": str(built), library.variable: str(folder / "number")}
    line = [sys.executable, "-c", program, str(folder), *arguments]
    return subprocess.run(line, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout.split()


def test_a_read_only_disk_refuses_what_writes_and_nothing_else(tmp_path: Path) -> None:
    assert run(READ_ONLY, READ_ONLY_DISK, tmp_path) == ["True"] * 4 + ["False"] * 2


@pytest.mark.parametrize(("way", "arrive"), [("to", ["False", "True"]), ("from", ["True", "False"])])
def test_data_vanishes_one_way_and_only_new_connections_work_afterwards(
    tmp_path: Path, way: str, arrive: list[str]
) -> None:
    assert run(LINKS, CUT_LINKS, tmp_path, way) == [*arrive, "False", "True"]


def test_a_cut_names_a_port_and_its_directions() -> None:
    assert encode_cut(6379, to_port=True, from_port=True) == 6379 + 65_536 + 131_072
