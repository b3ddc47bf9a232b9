"""Paths of archive extracts and uploaded traces in the data folder.

extracts/queue={queue}/{name}.{format}    created by the job `replay_extract`
traces/{user id}/{name}                   uploaded on the Lab page
"""

from collections.abc import Iterator
from pathlib import Path

EXTRACTS, TRACES = "extracts", "traces"
OF_QUEUE = "queue="


def extract_file(queue: str, name: str, format: str) -> str:
    """Return the path relative to the data folder, as for all names here."""
    return f"{EXTRACTS}/{OF_QUEUE}{queue}/{name}.{format}"


def upload_folder(user_id: int) -> str:
    return f"{TRACES}/{user_id}"


def iterate_extract_files(data: Path) -> Iterator[Path]:
    """Return every extract and uploaded trace, including those stored elsewhere by older versions."""
    for root in (TRACES, EXTRACTS):
        for pattern in ("[!.]*", "[!.]*/[!.]*"):
            paths = sorted((data / root).glob(pattern))
            yield from (path for path in paths if path.is_file() and not path.is_symlink())
