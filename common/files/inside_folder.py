"""Keep a file whose name comes from outside inside its folder.

`folder / name` follows an absolute name, `..` and symbolic links to any place of the host. Names that come from
backups, uploads, declarations, task parameters, or the database go through this module instead.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path

from common.errors import Forbidden

MAX_PART_BYTES = 255
MAX_NAME_BYTES = 4_000
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# The errors, by system, of a folder or file at a path that must not be followed.
_NOT_PLAIN = {errno.ELOOP, errno.ENOTDIR, errno.EMLINK}


def split_relative_name(name: str, field: str) -> tuple[str, ...]:
    """Return the parts of a relative name.

    Raises `Forbidden` that names `field` for a name that could leave its folder on any system.
    """
    parts = tuple(name.split("/"))
    if (
        len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES
        or not name.isprintable()
        or "\\" in name
        or any(part in ("", ".", "..") for part in parts)
        or any(len(part.encode("utf-8", "surrogatepass")) > MAX_PART_BYTES for part in parts)
    ):
        raise Forbidden(
            field, f"must be a relative path inside the folder, such as archive/a.parquet, not {name[:80]!r}."
        )
    return parts


def resolve_inside_folder(folder: Path, name: str, field: str) -> Path:
    """Return `folder / name`.

    Raises `Forbidden` that names `field` if the path leaves the folder, also by a symbolic link inside it. The folder
    itself may be a link.
    """
    path = folder.joinpath(*split_relative_name(name, field))
    try:
        is_inside = path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # a loop of links
        is_inside = False
    if not is_inside:
        raise _build_link_error(name, field)
    return path


def write_inside(
    folder: Path,
    name: str,
    pieces: Iterable[bytes],
    field: str,
    *,
    replace: bool = False,
    changed_at: float | None = None,
) -> None:
    """Write a file below a folder, for its owner alone, without following links.

    Missing folders are created with mode 0700, and existing ones keep their mode. Raises `Forbidden` that names `field`
    if a link, a device or, without `replace`, any file is in the way; then nothing was written. Raises `OSError`.
    """
    *parents, last = split_relative_name(name, field)
    with ExitStack() as opened:
        place = _open(folder, None, opened)
        for part in parents:
            with suppress(FileExistsError):
                os.mkdir(part, 0o700, dir_fd=place)
            try:
                place = _open(part, place, opened)
            except OSError as error:
                if error.errno in _NOT_PLAIN:
                    raise _build_link_error(name, field) from None
                raise
        _check_free(last, place, name, field, replace)
        fresh = f".{secrets.token_hex(8)}.part" if replace else last
        try:
            descriptor = os.open(fresh, _NEW_FILE, 0o600, dir_fd=place)
        except FileExistsError:
            raise _is_taken(name, field) from None
        try:
            _fill(descriptor, pieces, changed_at)
            os.replace(fresh, last, src_dir_fd=place, dst_dir_fd=place)
        except BaseException:
            os.unlink(fresh, dir_fd=place)
            raise


def _fill(descriptor: int, pieces: Iterable[bytes], changed_at: float | None) -> None:
    with os.fdopen(descriptor, "wb") as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
        if changed_at is not None:
            os.utime(file.fileno(), (changed_at, changed_at))


def _open(folder: Path | str, place: int | None, opened: ExitStack) -> int:
    descriptor = os.open(folder, _FOLDER | (0 if place is None else os.O_NOFOLLOW), dir_fd=place)
    opened.callback(os.close, descriptor)
    return descriptor


def _check_free(last: str, place: int, name: str, field: str, replace: bool) -> None:
    try:
        mode = os.stat(last, dir_fd=place, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise _build_link_error(name, field)
    if not replace:
        raise _is_taken(name, field)


def _build_link_error(name: str, field: str) -> Forbidden:
    return Forbidden(
        field, f"the path {name[:80]!r} contains a link, a device, or another special file; remove it first."
    )


def _is_taken(name: str, field: str) -> Forbidden:
    return Forbidden(
        field,
        f"the file {name[:80]!r} already exists; names that differ only in case or accents may be the same "
        "file here. Use an empty folder on a file system that distinguishes them.",
    )
