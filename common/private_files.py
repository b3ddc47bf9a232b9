"""Files of a plant are private to their owner: the umask of its processes, secrets, and existing files."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from common.errors import BadInput

UMASK = 0o077
OTHERS = 0o077  # the bits that group and others must not have
MAX_ENTRIES = 1_000_000
# By path, chmod would follow a link that replaced an entry; Linux can open the entry itself.
_OPENED = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK) | os.O_NOFOLLOW


@dataclass(frozen=True)
class RepairResult:
    """The result of `mend`.

    `foreign`: entries of other users, which are left as they are; `unseen`: whether a limit ended the walk
    (the unseen entries are still in a folder that no other user can enter).
    """

    changed: int = 0
    foreign: int = 0
    unseen: bool = False


def keep_private() -> None:
    """Keep files that this process and its children create private from group and others."""
    os.umask(UMASK)


def create_private_folder(path: Path) -> None:
    """Create a folder and its parents for its owner alone, or restrict an existing one.

    Raises `BadInput` for a folder that all users of the machine share (/tmp): restricting it would lock them out.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = path.stat().st_mode
    if mode & stat.S_ISVTX:
        raise BadInput("folder", f"{path} is shared by all users of this machine; use a folder of your own")
    if mode & OTHERS:
        path.chmod(0o700)


def write_private(path: Path, text: str) -> None:
    """Replace a file atomically. It has mode 0600 before its first byte, whatever was there before."""
    fresh = _write_temporary_file(path, text)
    fresh.replace(path)


def load_or_create_secret(path: Path, fresh: str) -> str:
    """Return the secret in a file, or store `fresh` if there is none. The first process's secret is kept."""
    if not path.exists():
        create_private_folder(path.parent)
        made = _write_temporary_file(path, fresh)
        try:
            path.hardlink_to(made)
        except FileExistsError:
            pass
        finally:
            made.unlink()
    return path.read_text()


def _write_temporary_file(path: Path, text: str) -> Path:
    """Write a new file next to `path`, synced to the disk: a named file must not be empty after a power loss.

    O_EXCL: no other user can have placed it, or a link, for us to write into.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return fresh


def mend(folder: Path, most_entries: int = MAX_ENTRIES) -> RepairResult:
    """Remove the rights of group and others from a folder and everything below it.

    It follows no links, and changes only what belongs to this user. The folder itself comes first: from then on no
    other user can enter it.
    """
    me = os.getuid()
    create_private_folder(folder)
    seen = changed = foreign = 0
    for _, folders, files, descriptor in os.fwalk(folder, follow_symlinks=False):
        for name in (*folders, *files):
            seen += 1
            if seen > most_entries:
                return RepairResult(changed, foreign, unseen=True)
            owner, mended = _mend_entry(name, descriptor, me)
            changed += mended
            foreign += owner != me
    return RepairResult(changed, foreign)


def _mend_entry(name: str, folder: int, me: int) -> tuple[int, bool]:
    """Return the entry's owner, and whether its mode changed. Entries that have vanished are ignored."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if status.st_uid != me or stat.S_ISLNK(status.st_mode) or not status.st_mode & OTHERS:
            return status.st_uid, False
        entry = os.open(name, _OPENED, dir_fd=folder)
    except FileNotFoundError:
        return me, False
    try:
        now = os.fstat(entry)
        if stat.S_ISLNK(now.st_mode) or now.st_uid != me:
            return now.st_uid, False
        _set_mode(entry, stat.S_IMODE(now.st_mode) & ~OTHERS)
    finally:
        os.close(entry)
    return me, True


def _set_mode(entry: int, mode: int) -> None:
    if hasattr(os, "O_PATH"):  # such a descriptor takes no fchmod
        Path(f"/proc/self/fd/{entry}").chmod(mode)
    else:
        os.fchmod(entry, mode)
