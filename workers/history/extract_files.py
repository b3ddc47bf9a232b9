"""Where extracts of the archive and uploaded traces lie in the data folder, by whose values they have.

extracts/queue={queue}/{name}.{format}    made by the job `replay_extract`
traces/{user id}/{name}                   uploaded on the Lab page
"""

from collections.abc import Iterator
from pathlib import Path

EXTRACTS, TRACES = "extracts", "traces"
OF_QUEUE = "queue="


def extract_file(queue: str, name: str, format: str) -> str:
    """Relative to the data folder, like all names here."""
    return f"{EXTRACTS}/{OF_QUEUE}{queue}/{name}.{format}"


def upload_folder(user_id: int) -> str:
    return f"{TRACES}/{user_id}"


def kept_files(data: Path) -> Iterator[Path]:
    """Every extract and every uploaded trace, also those that an earlier version kept beside the folders."""
    for root in (TRACES, EXTRACTS):
        for pattern in ("[!.]*", "[!.]*/[!.]*"):
            found = sorted((data / root).glob(pattern))
            yield from (path for path in found if path.is_file() and not path.is_symlink())
