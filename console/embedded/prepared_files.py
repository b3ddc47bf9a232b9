"""The migrated database and the static files of a new plant, kept for the next new data folder of this installation.

The migration of an empty database and the compression of the static files take 5 s of CPU time. The results depend
only on the installed code, so a copy in `.weir/prepared` saves this time. A folder's name is a digest of the code. The
folder contains no data of a plant: the database has only the rows of the migrations, and no secrets.
"""

import hashlib
import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from importlib.metadata import version
from pathlib import Path

from common.errors import BadInput
from common.files import create_private_folder, write_private
from console import release

FOLDER, DATABASE, STATIC = "prepared", "database.sqlite3", "static"
COLLECTED = "static-digest"  # in the data folder: the digest of the code whose static files it has
PACKAGES = ("django", "whitenoise", "brotli")  # their versions also determine the files


def compute_digest() -> str:
    """Return the digest of what determines the files: migrations, static files, and versions.

    The digest uses the path, size, and modification time of each file. Django must be set up.
    """
    versions = [sys.version, *map(_read_version, PACKAGES)]
    lines = [*versions, *sorted(_describe(path) for path in (*_iterate_migrations(), *_iterate_static_files()))]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:24]


def _read_version(package: str) -> str:
    return f"{package} {version(package)}"


def _describe(path: Path) -> str:
    status = path.stat()
    return f"{path} {status.st_size} {status.st_mtime_ns}"


def _iterate_migrations() -> Iterator[Path]:
    from django.apps import apps

    for application in apps.get_app_configs():
        yield from Path(application.path, "migrations").glob("*.py")


def _iterate_static_files() -> Iterator[Path]:
    from django.contrib.staticfiles.finders import get_finders

    for finder in get_finders():
        for path, storage in finder.list([]):
            yield Path(storage.path(path))


class PreparedFiles:
    """The kept files of the installed code. If the folder isn't writable, new plants only start later."""

    def __init__(self, digest: str) -> None:
        self._digest = digest
        self.folder = release.get_default_data_folder() / FOLDER / digest

    def copy_database(self, database: Path) -> None:
        """Copy the migrated database to a new plant. An existing database stays as it is."""
        if self._is_kept(DATABASE) and not database.exists():
            with suppress(OSError):  # another start has just deleted the folder
                _copy_file(self.folder / DATABASE, database)

    def keep_database(self, database: Path) -> None:
        """Keep a migrated database to which nothing else was written."""
        if not self._is_kept(DATABASE):
            self._keep(DATABASE, lambda copy: _copy_database(database, copy))

    def has_collected(self, data: Path) -> bool:
        """Return whether the data folder has the static files of the installed code."""
        with suppress(OSError):
            return (data / COLLECTED).read_text(encoding="utf-8") == self._digest and (data / STATIC).is_dir()
        return False

    def copy_static_files(self, static: Path) -> bool:
        """Copy the static files if they are kept; return whether all of them were copied.

        Files of other versions stay: pages in browsers may need them. After an incomplete copy, `collectstatic` can add
        the missing files, because each copied file is complete.
        """
        if not self._is_kept(STATIC):
            return False
        with suppress(OSError):  # another start deletes the folder, or the disk is full
            shutil.copytree(self.folder / STATIC, static, dirs_exist_ok=True, copy_function=_copy_file)
            return True
        return False

    def keep_static_files(self, data: Path, static: Path) -> None:
        """Keep static files, and record that the data folder has them."""
        if not self._is_kept(STATIC):
            self._keep(STATIC, lambda copy: shutil.copytree(static, copy))
        write_private(data / COLLECTED, self._digest)

    def _is_kept(self, name: str) -> bool:
        """Return whether the folder has a file or a folder with this name. Others' private folders have none."""
        try:
            return (self.folder / name).exists()
        except OSError:
            return False

    def _keep(self, name: str, write: Callable[[Path], object]) -> None:
        """Keep what `write` writes to a path, unless it fails or another start has just kept its own."""
        with suppress(OSError, BadInput, sqlite3.Error):
            part = self._create_part()
            try:
                write(part / name)
                (part / name).rename(self.folder / name)
            finally:
                shutil.rmtree(part, ignore_errors=True)

    def _create_part(self) -> Path:
        """Return a new folder for a copy, and delete the folders of other versions."""
        for folder in (self.folder.parent.parent, self.folder.parent, self.folder):
            create_private_folder(folder)
        for other in self.folder.parent.iterdir():
            if other != self.folder:
                shutil.rmtree(other, ignore_errors=True)
        return Path(tempfile.mkdtemp(dir=self.folder))


def _copy_database(database: Path, copy: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("VACUUM INTO ?", [str(copy)])


def _copy_file(source: str | Path, target: str | Path) -> None:
    """Copy a file under another name until it is complete. Leaves no incomplete file. Raises `OSError`."""
    part = Path(f"{target}.{os.getpid()}")
    try:
        shutil.copy2(source, part)
        part.rename(target)
    except OSError:
        part.unlink(missing_ok=True)
        raise
