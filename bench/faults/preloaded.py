"""Libraries that are preloaded into the programs of a host (LD_PRELOAD), built where a C compiler is at hand.

Each emulates a fault of the host as its programs see it, by numbers in files that all of them share:

CLOCK: the time of day is off by so many seconds (WEIR_CLOCK_FILE). Monotonic clocks go on, as they do where a clock is
set. (libfaketime makes Python's `sleep` fail where monotonic clocks are left alone.)

SYNCED: how many bytes of each file were synced, for a simulated power loss (`bench.durability`). WEIR_SYNCED_FOLDER has
a number for each file, and real disks are left alone.

DISK: each write into a regular file takes so many milliseconds longer, and each fsync ten times as many
(WEIR_DISK_FILE): a disk that others keep busy. What is read, and what the kernel writes later, is as quick as ever.

LINKS: data to or from a port vanishes (WEIR_LINKS_FILE, see `encode_cut`).

READ_ONLY: the file system of the folder `data` beside WEIR_READ_ONLY_FILE accepts no writes, unless the number is 0.
"""

import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Preloaded:
    """A library by the name of its source, and the variable that says which file it reads."""

    name: str
    variable: str

    def build(self, folder: Path) -> Path | None:
        """The library, built there; None where no compiler is."""
        compiler, library = shutil.which("cc"), folder / f"{self.name}.so"
        if compiler is None:
            return None
        source = Path(__file__).with_name(f"{self.name}.c")
        building = [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(source), "-ldl"]
        return library if subprocess.run(building, capture_output=True).returncode == 0 else None


CLOCK = Preloaded("stepped_clock", "WEIR_CLOCK_FILE")
DISK = Preloaded("slow_disk", "WEIR_DISK_FILE")
LINKS = Preloaded("cut_links", "WEIR_LINKS_FILE")
READ_ONLY = Preloaded("read_only_disk", "WEIR_READ_ONLY_FILE")
SYNCED = Preloaded("synced_bytes", "WEIR_SYNCED_FOLDER")


def encode_cut(port: int, *, to_port: bool, from_port: bool) -> int:
    """Return the number of LINKS for data that is lost on its way to a port, or from it."""
    return port + 65_536 * to_port + 131_072 * from_port


def write_number(path: Path, number: int) -> None:
    """Every process that reads the file follows at once: they share its page."""
    with path.open("r+b" if path.exists() else "wb") as file:
        file.write(struct.pack("=q", number))
