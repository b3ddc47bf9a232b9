"""The running plants of this installation, so that manage.py finds the one that ./run has started with --data.

Each launcher keeps a file with its data folder in `.weir/running`, and locks it while it runs.
"""

import fcntl
import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from common import environment as variables
from common.errors import BadInput
from common.files import create_private_folder
from console import release


def _get_folder() -> Path:
    return release.get_default_data_folder() / "running"


@contextmanager
def register(data: Path) -> Iterator[None]:
    """List the plant of this data folder as running. A folder that can't be written only leaves it unlisted."""
    with ExitStack() as stack:
        with suppress(OSError, BadInput):
            folder = _get_folder()
            create_private_folder(folder.parent)
            create_private_folder(folder)
            _remove_old_entries(folder)
            name = hashlib.sha256(str(data).encode()).hexdigest()[:16]
            entry = stack.enter_context((folder / name).open("w", encoding="utf-8"))
            entry.write(str(data))
            entry.flush()
            fcntl.flock(entry, fcntl.LOCK_EX)
        yield


def _remove_old_entries(folder: Path) -> None:
    """Remove the entries of deleted data folders."""
    for entry in folder.iterdir():
        if not Path(entry.read_text(encoding="utf-8")).exists():
            entry.unlink(missing_ok=True)


def list_running_plants() -> list[Path]:
    """Return the data folders of all running plants of this installation."""
    entries = []
    with suppress(OSError):
        entries = sorted(_get_folder().iterdir())
    return sorted(Path(entry.read_text(encoding="utf-8")) for entry in entries if _is_locked(entry))


def _is_locked(path: Path) -> bool:
    try:
        with path.open(encoding="utf-8") as entry:
            fcntl.flock(entry, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def choose_plant() -> Path | None:
    """Set WEIR_DATA to the single running plant, unless the environment names a plant; return its data folder.

    Return None if the default plant is used. Raises `BadInput` that names the plants if several run.
    """
    if any(variable.is_set() for variable in (variables.DATA, variables.REDIS_URL, variables.DATABASE_URL)):
        return None
    plants = list_running_plants()
    if len(plants) > 1:
        names = ", ".join(map(str, plants))
        raise BadInput(
            variables.DATA.name,
            f"is not set, and {len(plants)} plants are running: {names}. Choose one: "
            f"{variables.DATA.name}={plants[0]} {release.COMMANDS} …",
        )
    if not plants or plants[0] == release.get_default_data_folder():
        return None
    variables.PROCESS[variables.DATA.name] = str(plants[0])
    return plants[0]


def describe_plant_choice() -> str:
    """Say which plant a command uses, and how to choose another one."""
    return (
        f"This command uses the plant in {release.get_data_folder()}. Start it with ./run, or set "
        f"{variables.DATA.name} to the data folder of another plant (./run prints it)."
    )
